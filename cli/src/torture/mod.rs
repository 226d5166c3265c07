//! `quorate torture`: load on real servers, the history of it, and the judgement of that history.
//!
//! | file | what it is |
//! | --- | --- |
//! | `record` | a run: its processes, and the progress bar |
//! | `worker` | one process: careless sections under locks |
//! | `locks` | what a section takes |
//! | `store` | what the sections write to, with a check of tokens and without |
//! | `look` | at the end: what is left on the nodes, what the store holds |
//! | `history` | the format of the history, writing and reading |
//! | `judge/` | which promises held; pure |
//! | `table` | the table that is printed |

mod history;
mod judge;
mod locks;
mod look;
mod record;
mod store;
mod table;
mod worker;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use quorate::Builder;
use tokio::time::{self, Instant};

use self::{
    judge::{Summary, judge},
    locks::{Wishes, name},
};
use crate::{
    args::{Args, Judge, Load, Look, Torture, TortureStep},
    failure::{Failure, SOFTWARE, UNAVAILABLE},
    output, survey,
};

/// The first argument of a process of the load.
pub(crate) const WORKER: &str = "__worker";
const DURATION: Duration = Duration::from_secs(30);
/// The exit status when a promise did not hold.
const DID_NOT_HOLD: u8 = 1;

pub(crate) async fn run(args: &Args, torture: &Torture) -> Result<u8, Failure> {
    match &torture.step {
        None => all(args, &torture.load).await,
        Some(TortureStep::Run(load)) => {
            let Some(history) = &load.history else {
                return Err(Failure::usage(
                    "`torture run` needs --history DIR, the folder for the history",
                ));
            };
            record(args, load, history).await.map(|_| 0)
        }
        Some(TortureStep::Look(Look { history, names })) => {
            look::run(args, names, history).await.map(|()| 0)
        }
        Some(TortureStep::Judge(Judge { histories })) => {
            let mut summaries = Vec::new();
            for history in histories {
                summaries.push(read_and_judge(&name_of(history), history)?);
            }
            Ok(tell(args, &summaries))
        }
    }
}

/// Records, looks and judges. An interrupted run is judged too.
async fn all(args: &Args, load: &Load) -> Result<u8, Failure> {
    let kept = load.history.clone();
    let history = kept.clone().unwrap_or_else(temporary);
    let load = &Load {
        duration: load
            .duration
            .or(load.stop_file.is_none().then_some(DURATION)),
        ..load.clone()
    };
    if load.worker.is_none() && history::is_there(&history) {
        return Err(Failure::usage(format!(
            "{} holds a history already: give another folder",
            history.display()
        )));
    }
    let recorded = async {
        let code = record(args, load, &history).await?;
        if code.is_none() {
            look::run(args, &load.names, &history).await?;
        }
        Ok(code)
    };
    match recorded.await {
        Ok(None) => {}
        Ok(Some(code)) => return Ok(code),
        Err(failure) => {
            if load.worker.is_none() && history::is_there(&history) {
                output::complain(&format!("the recorded history is in {}", history.display()));
            }
            return Err(failure);
        }
    }
    let name = kept.as_deref().map_or_else(|| "torture".into(), name_of);
    let summary = read_and_judge(&name, &history)?;
    let held = summary.held();
    let code = tell(args, &[summary]);
    match (kept, held) {
        (None, true) => drop(fs::remove_dir_all(&history)),
        (None, false) => output::complain(&format!("the history is in {}", history.display())),
        (Some(_), _) => {}
    }
    Ok(code)
}

/// Records a run. Returns an exit status if this process is one of the load's own.
async fn record(args: &Args, load: &Load, history: &Path) -> Result<Option<u8>, Failure> {
    if let Some(index) = load.worker {
        return worker::run(args, load, index, history).await.map(Some);
    }
    check(args, load).await?;
    fs::create_dir_all(history).map_err(|error| cannot_record(history, &error))?;
    record::run(args, load, history).await?;
    Ok(None)
}

/// Checks for mistakes that would spoil the run, and reports them before it begins.
async fn check(args: &Args, load: &Load) -> Result<(), Failure> {
    if load.processes.saturating_mul(load.tasks) < load.names.count {
        return Err(Failure::usage(format!(
            "{} processes with {} tasks are too few for {} names: each task takes one name",
            load.processes, load.tasks, load.names.count
        )));
    }
    if load.names.several && load.names.count < 2 {
        return Err(Failure::usage(
            "--several needs --names of at least 2, because a section takes several names at once",
        ));
    }
    survey::ask(args, async |quorum| {
        survey::reach(args, quorum).await;
        let ttl = ttl(args, load);
        let wishes = Wishes::new(quorum, load, 0, ttl, ttl);
        // This finds bad settings, and a fleet without a majority. It waits for a majority that stands still for a
        // moment.
        let end = Instant::now() + args.fleet.connect_timeout();
        let lease = loop {
            match wishes.next().try_take().await {
                Err(quorate::Error::NoQuorum(_)) if Instant::now() < end => {
                    time::sleep(Duration::from_millis(100)).await;
                }
                taken => break taken?,
            }
        };
        if let Some(lease) = lease {
            lease.release().await?;
        }
        Ok(())
    })
    .await?;
    let Some(url) = &load.names.store else {
        return Ok(());
    };
    let mut store = store::Store::new(url, args.fleet.prefix()).map_err(Failure::usage)?;
    let looked = store.look(&name(0)).await;
    looked.map(drop).map_err(|error| {
        let text = format!("the store {} does not answer: {error}", store.address());
        Failure::new(UNAVAILABLE, "store", text)
    })
}

/// The name of a history that does not name itself.
fn name_of(history: &Path) -> String {
    let name = history.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn read_and_judge(name: &str, history: &Path) -> Result<Summary, Failure> {
    history::read(history)
        .and_then(|parts| judge(name, &parts))
        .map_err(Failure::usage)
}

fn tell(args: &Args, summaries: &[Summary]) -> u8 {
    match args.json {
        true => summaries
            .iter()
            .for_each(|summary| output::say(&table::as_json(summary).to_string())),
        false => output::say(&table::as_text(summaries)),
    }
    match summaries.iter().all(Summary::held) {
        true => 0,
        false => DID_NOT_HOLD,
    }
}

fn temporary() -> PathBuf {
    std::env::temp_dir().join(format!(
        "quorate-torture-{}-{}",
        std::process::id(),
        history::now()
    ))
}

fn cannot_record(history: &Path, error: &io::Error) -> Failure {
    Failure::new(
        SOFTWARE,
        "internal",
        format!("cannot write to {}: {error}", history.display()),
    )
}

fn ttl(args: &Args, load: &Load) -> Duration {
    load.ttl
        .unwrap_or_else(|| Duration::from_secs(2).min(args.fleet.max_ttl()))
}

#[cfg(feature = "test-util")]
fn without_rule(builder: Builder, load: &Load) -> Builder {
    use quorate::testing::simulation::{Rule, Rules};
    let rule = match load.without_rule.as_deref() {
        Some("quarantine") => Rule::Quarantine,
        Some("release-everywhere") => Rule::ReleaseEverywhere,
        _ => return builder,
    };
    builder.rules(Rules::without(rule))
}

#[cfg(not(feature = "test-util"))]
fn without_rule(builder: Builder, _: &Load) -> Builder {
    builder
}
