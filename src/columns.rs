//! Text for people: rows in columns, and durations that need not be exact.

// Public only for the command.
#![cfg_attr(not(feature = "cli"), allow(unreachable_pub))]

use std::time::Duration;

/// Rows under a head, with columns as wide as they need to be; the last one is not padded.
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

/// A duration as people read it: `250 ms`, `3.2 s`, `10 min`.
pub fn seconds(d: Duration) -> String {
    match d.as_secs() {
        0 => format!("{} ms", d.as_millis()),
        1..600 => format!("{}.{} s", d.as_secs(), d.subsec_millis() / 100),
        s => format!("{} min", s / 60),
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
        assert_eq!(seconds(Duration::from_secs(600)), "10 min");
    }
}
