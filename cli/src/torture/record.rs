//! A run of the load: its processes, and a bar while they work.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    sync::mpsc,
    time,
};

use crate::{
    args::{Args, Load},
    failure::{Failure, SOFTWARE},
    job::ourselves,
    signals::Signals,
    torture::WORKER,
};

const LOOK: Duration = Duration::from_millis(50);
/// Added to the time that a section and its lease may take.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// The counts that one process reported last: sections, refused, failed.
type Counts = [u64; 3];

/// Runs the load until its time is over, its stop file exists, a signal asks for the end, or one of its processes has
/// ended by itself.
pub(super) async fn run(args: &Args, load: &Load, history: &Path) -> Result<(), Failure> {
    let broken = |error| {
        Failure::new(
            SOFTWARE,
            "internal",
            format!("cannot start the load: {error}"),
        )
    };
    let mut signals = Signals::new()?;
    let (tell, mut news) = mpsc::channel(64);
    let mut children = Vec::new();
    for index in 0..load.processes {
        let mut child = start(args, index, load, history).map_err(broken)?;
        if let Some(out) = child.stdout.take() {
            tokio::spawn(listen(index, BufReader::new(out).lines(), tell.clone()));
        }
        children.push(child);
    }
    drop(tell);

    let bar = bar(load.duration);
    let started = Instant::now();
    let mut counts = vec![Counts::default(); children.len()];
    let mut interrupted = false;
    let mut looks = time::interval(LOOK);
    loop {
        tokio::select! {
            biased;
            _ = signals.end() => interrupted = true,
            said = news.recv() => match said {
                Some((index, said)) => if let Some(counts) = counts.get_mut(index as usize) {
                    *counts = said;
                },
                None => break,
            },
            _ = looks.tick() => {}
        }
        show(&bar, &counts, started.elapsed());
        let early = children
            .iter_mut()
            .any(|child| !matches!(child.try_wait(), Ok(None)));
        let over = load.duration.is_some_and(|d| started.elapsed() >= d);
        let file = load.stop_file.as_ref().is_some_and(|file| file.exists());
        if interrupted || over || file || early {
            break;
        }
    }
    bar.set_message("ending");
    // A process of the load ends when its standard input ends.
    for child in &mut children {
        drop(child.stdin.take());
    }
    let patience = super::ttl(args, load) * 2 + load.section * 2 + LAST_WORDS;
    let mut outcome = Ok(());
    for child in &mut children {
        let ended = time::timeout(patience, child.wait()).await;
        match ended {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => outcome = Err(early(&format!("ended with {status}"))),
            Ok(Err(error)) => outcome = Err(early(&error.to_string())),
            Err(_) => outcome = Err(early(&format!("did not end within {patience:?}"))),
        }
    }
    bar.finish_and_clear();
    outcome
}

fn early(what: &str) -> Failure {
    Failure::new(
        SOFTWARE,
        "internal",
        format!("a process of the load {what}: its history is incomplete"),
    )
}

/// Starts this program again with the number of the process and the same arguments. The settings are in its environment,
/// because a pipe can be read only once.
fn start(args: &Args, index: u32, load: &Load, history: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(ourselves());
    args.fleet.set_environment(command.as_std_mut());
    args.fleet.set_label(command.as_std_mut());
    command.arg(WORKER).arg(index.to_string());
    command.args(std::env::args_os().skip(1));
    if load.history.is_none() {
        command.arg("--history").arg(history);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

async fn listen(
    index: u32,
    mut lines: Lines<BufReader<ChildStdout>>,
    tell: mpsc::Sender<(u32, Counts)>,
) {
    while let Ok(Some(line)) = lines.next_line().await {
        let mut numbers = line.split(' ').map(|number| number.parse().unwrap_or(0));
        let counts = std::array::from_fn(|_| numbers.next().unwrap_or(0));
        if tell.send((index, counts)).await.is_err() {
            return;
        }
    }
}

/// The progress bar is drawn on a terminal only.
fn bar(duration: Option<Duration>) -> ProgressBar {
    let style = |template| {
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
    };
    match duration {
        Some(d) => ProgressBar::new(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
            .with_style(style("{elapsed_precise} {wide_bar} {msg}")),
        None => ProgressBar::new_spinner().with_style(style("{elapsed_precise} {spinner} {msg}")),
    }
}

fn show(bar: &ProgressBar, counts: &[Counts], elapsed: Duration) {
    let [sections, refused, failed] = std::array::from_fn(|i| {
        counts
            .iter()
            .filter_map(|counts| counts.get(i))
            .sum::<u64>()
    });
    bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
    bar.set_message(format!(
        "{sections} sections, {refused} stale writes refused, {failed} waits ran out"
    ));
}
