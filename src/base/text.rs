//! Text for people: rows in columns, and durations that need not be exact.

use std::time::Duration;

/// Formats rows under a head. Columns are as wide as they need to be, and the last one is not padded.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut lines: Vec<Vec<&str>> = vec![head.to_vec()];
    lines.extend(
        rows.iter()
            .map(|row| row.iter().map(String::as_str).collect()),
    );
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let lines = lines.iter().map(|line| {
        let cells = line
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:width$}"));
        cells
            .collect::<Vec<String>>()
            .join("  ")
            .trim_end()
            .to_owned()
    });
    lines.collect::<Vec<String>>().join("\n")
}

/// A duration as people read it: `250 ms`, `3.2 s`, `10 min`, `1 h 30 min`, `2 days 3 h`.
pub fn seconds(d: Duration) -> String {
    let (minutes, hours, days) = (d.as_secs() / 60, d.as_secs() / 3_600, d.as_secs() / 86_400);
    match d.as_secs() {
        0 => format!("{} ms", d.as_millis()),
        1..600 => format!("{}.{} s", d.as_secs(), d.subsec_millis() / 100),
        600..3_600 => format!("{minutes} min"),
        3_600..86_400 => format!("{hours} h{}", rest(minutes % 60, "min")),
        _ => format!("{}{}", counted(days, "day"), rest(hours % 24, "h")),
    }
}

fn rest(n: u64, unit: &str) -> String {
    match n {
        0 => String::new(),
        n => format!(" {n} {unit}"),
    }
}

/// `1 master`, `3 masters`.
pub fn counted(n: u64, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

/// `1 is needed`, `3 are needed`.
pub fn are_needed(n: usize) -> String {
    match n {
        1 => "1 is needed".to_owned(),
        n => format!("{n} are needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let rows = [
            vec!["a".into(), "long one".into(), "x".into()],
            vec!["über".into(), "b".into(), String::new()],
        ];
        assert_eq!(
            table(&["N", "STATE", ""], &rows),
            "N     STATE\na     long one  x\nüber  b"
        );
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(seconds(Duration::from_millis(250)), "250 ms");
        assert_eq!(seconds(Duration::from_millis(3_250)), "3.2 s");
        for (minutes, text) in [
            (10, "10 min"),
            (59, "59 min"),
            (60, "1 h"),
            (61, "1 h 1 min"),
            (1_213, "20 h 13 min"),
            (24 * 60, "1 day"),
            (51 * 60 + 59, "2 days 3 h"),
        ] {
            assert_eq!(seconds(Duration::from_secs(minutes * 60)), text);
        }
    }

    #[test]
    fn singular_and_plural_are_chosen_by_the_count() {
        assert_eq!(
            [counted(1, "master"), counted(3, "master")],
            ["1 master", "3 masters"]
        );
        assert_eq!(
            [are_needed(1), are_needed(2)],
            ["1 is needed", "2 are needed"]
        );
    }
}
