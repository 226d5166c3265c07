//! What is printed: results on stdout, everything else on stderr, each line of that begun with
//! `quorate: `. A reader that went away (`| head`) is no reason to panic, so nothing here uses
//! `println!`.

use std::{
    fmt,
    io::{IsTerminal, Write},
    time::Duration,
};

use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::args::{Args, Command};

/// A line on stdout.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A line on stderr, as it is.
pub(crate) fn to_stderr(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What went wrong, for people.
pub(crate) fn complain(text: &str) {
    to_stderr(&format!("quorate: {text}"));
}

/// Rows under a head, as wide as they need to be; the last column is not padded.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
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

/// A duration as people read it: `250 ms`, `3.2 s`, `4 min`.
pub(crate) fn seconds(d: Duration) -> String {
    match d.as_secs() {
        0 => format!("{} ms", d.as_millis()),
        1..600 => format!("{}.{} s", d.as_secs(), d.subsec_millis() / 100),
        s => format!("{} min", s / 60),
    }
}

/// Whole milliseconds, for JSON.
pub(crate) fn milliseconds(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// Whether stdout may be coloured: a terminal, and nobody minds (no-color.org).
pub(crate) fn colours() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

/// The library's own log on stderr. What the other commands than `lock` would be warned about is
/// what they print.
pub(crate) fn start_log(args: &Args) {
    use tracing::level_filters::LevelFilter;
    let level = match (args.verbose, &args.command) {
        (0, Command::Lock(_)) if !args.json => LevelFilter::WARN,
        (0, _) => LevelFilter::OFF,
        (1, _) => LevelFilter::INFO,
        (2, _) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr);
    let _ = log.with_ansi(false).event_format(Line).try_init();
}

/// `quorate: a node is quarantined node=..`
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> fmt::Result {
        line.write_str("quorate: ")?;
        match *event.metadata().level() {
            tracing::Level::ERROR | tracing::Level::WARN => {}
            level => write!(line, "{} ", level.as_str().to_lowercase())?,
        }
        context.format_fields(line.by_ref(), event)?;
        writeln!(line)
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
