//! Figures with their targets.

/// `shown`, and whether `figure` is at most its target.
pub fn within(shown: &str, figure: f64, target: f64) -> String {
    verdict(shown, "≤", target, figure <= target)
}

/// `shown`, and whether `figure` is at least its target.
pub fn reaches(shown: &str, figure: f64, target: f64) -> String {
    verdict(shown, "≥", target, figure >= target)
}

fn verdict(shown: &str, sign: &str, target: f64, is_met: bool) -> String {
    let missed = if is_met { "" } else { ", missed" };
    format!("{shown} ({sign} {target}{missed})")
}
