//! Output: results on stdout, everything else on stderr, where each line begins with `quorate: `. The reader of a pipe
//! may go away (`| head`). That must not panic, so nothing here uses `println!`.

use std::{
    fmt,
    future::pending,
    io::{self, IsTerminal, Write},
    os::fd::AsFd,
    sync::{
        OnceLock,
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    time::{Duration, Instant},
};

use quorate::Holder;
pub(crate) use quorate::cli::{seconds, table};
use serde_json::{Value, json};
use tokio::{io::Interest, net::unix::pipe};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use crate::terminal::from_behind;

/// A wait that is longer than this is worth a line on a terminal.
pub(crate) const WORTH_A_LINE: Duration = Duration::from_millis(500);
/// At most this many lines wait for stderr; more are dropped.
const WAITING: usize = 256;

/// The channel to the thread that writes to stderr, once there is one.
static ASIDE: OnceLock<SyncSender<Aside>> = OnceLock::new();
/// Set if a line could not be written to stdout.
static UNSAID: OnceLock<String> = OnceLock::new();

enum Aside {
    Text(Vec<u8>),
    /// Answered when everything before it has been written.
    Flush(SyncSender<()>),
}

/// Makes a thread of its own write to stderr. A terminal that is held (Ctrl-S), or a pipe that nobody reads, must not
/// keep a lock from being renewed or its command from being ended.
pub(crate) fn write_aside() {
    ASIDE.get_or_init(|| {
        let (sender, lines) = sync_channel(WAITING);
        std::thread::spawn(move || {
            for line in lines {
                match line {
                    Aside::Text(bytes) => drop(Unstopped(io::stderr()).write_all(&bytes)),
                    Aside::Flush(done) => drop(done.try_send(())),
                }
            }
        });
        sender
    });
}

/// Waits until the lines that the thread got have reached stderr, for `within` at most.
pub(crate) fn flush(within: Duration) {
    let Some(aside) = ASIDE.get() else {
        return;
    };
    let (done, written) = sync_channel(1);
    let deadline = Instant::now() + within;
    let mut flush = Aside::Flush(done);
    while let Err(TrySendError::Full(again)) = aside.try_send(flush) {
        if Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
        flush = again;
    }
    let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

/// Prints a line to stdout.
pub(crate) fn say(line: &str) {
    if let Err(error) = try_say(line)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = UNSAID.set(format!("cannot write to stdout: {error}"));
    }
}

/// Why a result could not be written, if it could not. A reader that went away is not an error, because it has read
/// enough.
pub(crate) fn unsaid() -> Option<&'static str> {
    UNSAID.get().map(String::as_str)
}

fn try_say(line: &str) -> io::Result<()> {
    let mut stdout = Unstopped(io::stdout().lock());
    stdout.write_all(format!("{line}\n").as_bytes())?;
    stdout.flush()
}

/// Prints lines to stdout, for a command that lives as long as somebody reads them. A slow reader does not block
/// anything else.
pub(crate) async fn deliver(lines: String) -> io::Result<()> {
    tokio::task::spawn_blocking(move || try_say(&lines)).await?
}

/// Waits until nobody can read stdout any more, without writing to it. Waits for ever if that cannot be seen (a file).
pub(crate) async fn reader_gone() {
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    if let Ok(stdout) = stdout.and_then(pipe::Sender::from_owned_fd_unchecked)
        && stdout.ready(Interest::ERROR).await.is_ok()
    {
        return;
    }
    pending().await
}

/// Prints a line to stderr as it is.
pub(crate) fn to_stderr(line: &str) {
    let _ = Stderr.write_all(format!("{line}\n").as_bytes());
}

/// A writer that takes whole lines.
struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match ASIDE.get() {
            Some(aside) => drop(aside.try_send(Aside::Text(bytes.to_vec()))),
            None => Unstopped(io::stderr()).write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writing through this does not stop the process, even if it is a background job under `stty tostop`. If it were
/// stopped, the command would run on and nobody would renew its lock.
struct Unstopped<W>(W);

impl<W: Write> Write for Unstopped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        from_behind(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        from_behind(|| self.0.flush())
    }
}

/// Prints an error for people.
pub(crate) fn complain(text: &str) {
    to_stderr(&format!("quorate: {text}"));
}

/// Returns true if a person watches who wants to know what is waited for. Cron would mail it instead.
pub(crate) fn is_watched(json: bool, verbose: u8) -> bool {
    !json && (verbose > 0 || io::stderr().is_terminal())
}

/// Whole milliseconds of a wait, for JSON. They are rounded up, because a script that sleeps for them asks again.
pub(crate) fn wait_ms(d: Duration) -> u64 {
    u64::try_from(d.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Whole milliseconds, for JSON.
pub(crate) fn milliseconds(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// Returns true if stdout may be coloured: it is a terminal, and NO_COLOR is not set (no-color.org).
pub(crate) fn colours() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}

/// Writes the library's log to stderr, only with -v. Cron mails every line, and each command says itself how it ended.
pub(crate) fn start_log(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::OFF,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(|| Stderr);
    let _ = log.with_ansi(false).event_format(Line).try_init();
}

/// The format of a log line: `quorate: a node does not vote node=10.0.0.1:6379 state=stalled ..`
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
        // Events of the connections to Consul are printed with -vvv only.
        let is_ours = event.metadata().target().starts_with("quorate");
        if !is_ours && LevelFilter::current() < LevelFilter::TRACE {
            return Ok(());
        }
        line.write_str("quorate: ")?;
        match *event.metadata().level() {
            tracing::Level::ERROR | tracing::Level::WARN => {}
            level => write!(line, "{} ", level.as_str().to_lowercase())?,
        }
        context.format_fields(line.by_ref(), event)?;
        writeln!(line)
    }
}

pub(crate) fn holder_json(holder: Option<&Holder>) -> Value {
    holder.map_or(Value::Null, |holder| {
        json!({
            "label": holder.label,
            "owner": holder.owner(),
            "entry": holder.entry,
            "remaining_ms": holder.remaining.map(milliseconds),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_rounded_up_to_milliseconds() {
        let us = Duration::from_micros;
        let waits = [0, 1, 1_000, 1_001].map(us).map(wait_ms);
        assert_eq!(waits, [0, 1, 1, 2]);
    }
}
