//! The look at the end of a run: what is left on the nodes, and what the store holds.

use std::{io, path::Path, time::Duration};

use quorate::{FencingToken, Holder, NodeInspection, Quorum};
use tokio::time::{self, Instant};

use super::{
    history::{Event, Locks, Recorder, Side, clock, record_of},
    store::Store,
};
use crate::{
    args::{Args, Names},
    failure::{Failure, UNAVAILABLE},
    survey,
};

/// The rest before it is asked again.
const REST: Duration = Duration::from_millis(100);

/// Adds a file to the history.
pub(super) async fn run(args: &Args, names: &Names, history: &Path) -> Result<(), Failure> {
    let failed = |error| super::cannot_record(history, &error);
    let recorder = Recorder::create(history, "look").map_err(&failed)?;
    let process = Event::Process {
        label: "look".into(),
        clock: clock(),
        ttl_ms: 0,
        locks: Locks::default(),
    };
    recorder.write(process).map_err(&failed)?;
    let silent = survey::ask(args, async |quorum| {
        survey::reach(args, quorum).await;
        // A node that stands still for a moment is asked again, while what was left on it has not expired.
        let end = Instant::now() + args.fleet.max_ttl() / 2;
        left(quorum, names, end, &recorder, &failed).await
    })
    .await?;
    for (node, silent) in silent {
        recorder
            .write(Event::Looked { node, silent })
            .map_err(&failed)?;
    }
    let Some(url) = &names.store else {
        return Ok(());
    };
    let mut store = Store::new(url, args.fleet.prefix()).map_err(Failure::usage)?;
    for name in records(names) {
        let (fenced, plain) = store.look(&name).await.map_err(|error| {
            Failure::new(
                UNAVAILABLE,
                "store",
                format!("the store cannot be read: {error}"),
            )
        })?;
        recorder
            .write(Event::Stored {
                name,
                fenced,
                plain,
            })
            .map_err(&failed)?;
    }
    Ok(())
}

/// Records what locks, slots, shares and places are left. Records every node too, with the reason if it did not answer.
async fn left(
    quorum: &Quorum,
    names: &Names,
    end: Instant,
    recorder: &Recorder,
    failed: &impl Fn(io::Error) -> Failure,
) -> Result<Vec<(String, Option<String>)>, Failure> {
    let nodes = quorum.nodes();
    let mut silent: Vec<(String, Option<String>)> = nodes
        .iter()
        .map(|node| (node.node.to_string(), None))
        .collect();
    for index in 0..u64::from(names.count) {
        let mut answered = vec![false; nodes.len()];
        loop {
            let seen = quorum.inspect(super::name(index)).await?;
            for (node, answered) in seen.nodes.iter().zip(&mut answered) {
                if *answered || node.silence.is_some() {
                    continue;
                }
                *answered = true;
                for left in left_there(&seen.name, node) {
                    recorder.write(left).map_err(failed)?;
                }
            }
            if answered.iter().all(|answered| *answered) {
                break;
            }
            if Instant::now() >= end {
                for ((node, answered), (_, silent)) in
                    seen.nodes.iter().zip(answered).zip(&mut silent)
                {
                    let why = node.silence.as_ref().filter(|_| !answered);
                    if let Some(why) = why {
                        silent.get_or_insert_with(|| why.to_string());
                    }
                }
                break;
            }
            time::sleep(REST).await;
        }
    }
    Ok(silent)
}

fn left_there(name: &str, node: &NodeInspection) -> Vec<Event> {
    let left = |holder: &Holder, token: Option<FencingToken>| Found {
        label: holder.label.clone(),
        remaining: holder.remaining,
        token,
        ..Found::default()
    };
    let lock = node.holder.iter();
    let lock = lock.map(|holder| left(holder, node.token));
    let slots = node.semaphore.iter().flat_map(|known| &known.slots);
    let slots = slots.map(|slot| Found {
        slot: Some(slot.number),
        ..left(&slot.holder, slot.token)
    });
    let rwlock = || node.rwlock.iter();
    let on = |side, found| Found {
        side: Some(side),
        ..found
    };
    let writer = rwlock().flat_map(|known| Some((known.writer.as_ref()?, known.token)));
    let writer = writer.map(|(holder, token)| on(Side::Writer, left(holder, token)));
    // The token that a node knows is not that of these readers.
    let readers = rwlock().flat_map(|known| &known.readers);
    let readers = readers.map(|reader| on(Side::Reader, left(&reader.holder, None)));
    let waiting = rwlock().flat_map(|known| &known.writers).map(|waits| {
        let found = Found {
            label: waits.label.clone(),
            remaining: Some(waits.remaining),
            waits: true,
            ..Found::default()
        };
        on(Side::Writer, found)
    });
    let all = lock.chain(slots).chain(writer).chain(readers);
    all.chain(waiting)
        .map(|found| found.event(name, node))
        .collect()
}

/// Something that is left on a node.
#[derive(Default)]
struct Found {
    slot: Option<u32>,
    side: Option<Side>,
    waits: bool,
    label: String,
    remaining: Option<Duration>,
    token: Option<FencingToken>,
}

impl Found {
    fn event(self, name: &str, node: &NodeInspection) -> Event {
        Event::Left {
            node: node.node.to_string(),
            name: name.to_owned(),
            slot: self.slot,
            side: self.side,
            waits: self.waits,
            label: self.label,
            remaining_ms: self.remaining.map(crate::output::milliseconds),
            token: self.token.map(|token| token.as_u64()),
        }
    }
}

/// The records that have counters in the store.
fn records(names: &Names) -> Vec<String> {
    let all = (0..u64::from(names.count)).map(super::name);
    match names.semaphore {
        None => all.collect(),
        Some(limit) => all
            .flat_map(|name| (0..limit).map(move |slot| record_of(&name, Some(slot))))
            .collect(),
    }
}
