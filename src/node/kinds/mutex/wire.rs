//! The commands about a lock as a server reads them, and its replies. Each is a script.

use std::{iter, sync::Arc, time::Duration};

use redis_protocol::resp3::types::OwnedFrame;

use super::{
    Command,
    batch::{self, BATCH},
};
use crate::{
    base::{owner::is_entry, printable::printable},
    node::{
        answer::{Ahead, Answer, MutexInspection},
        wire::{
            Arg::{Number, Text},
            Keys, Script, Writer,
            keys::counter,
            ms,
            read::{Hide, bytes, count, integer, items, text, ttl, yes},
        },
    },
};

static REPAIR: Script = Script::new(include_str!("repair.lua"));
static INSPECT: Script = Script::new(include_str!("inspect.lua"));
static EVICT: Script = Script::new(include_str!("evict.lua"));

/// All of this kind.
pub(crate) static SCRIPTS: &[&Script] = &[&BATCH, &REPAIR, &INSPECT, &EVICT];

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "ACQUIRE",
            Self::Raise { .. } => "RAISE",
            Self::Extend { .. } => "EXTEND",
            Self::Repair { .. } => "REPAIR",
            Self::Release { .. } => "RELEASE",
            Self::Join { .. } => "JOIN",
            Self::Yield { .. } => "YIELD",
            Self::Inspect { .. } => "INSPECT",
            Self::Evict { .. } => "EVICT",
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer, keys: &Keys) {
        let (open, current, previous) = (keys.open(), keys.current(), keys.previous());
        match self {
            Self::Acquire { .. }
            | Self::Raise { .. }
            | Self::Extend { .. }
            | Self::Release { .. }
            | Self::Join { .. }
            | Self::Yield { .. } => {
                batch::encode(iter::once(self).filter_map(Self::rider), writer, keys);
            }
            Self::Repair {
                name,
                entry,
                ttl,
                token,
            } => writer.call_guarded(
                &REPAIR,
                &[
                    keys.lock(name),
                    open,
                    keys.evicted(name),
                    current,
                    previous,
                    keys.line(name),
                    keys.waiters(name),
                    keys.waiting(),
                ],
                &[
                    counter(name),
                    Text(entry.as_str()),
                    Number(ms(*ttl)),
                    Number(*token),
                ],
            ),
            Self::Inspect { name } => writer.call_guarded(
                &INSPECT,
                &[keys.lock(name), open, keys.line(name), current, previous],
                &[counter(name)],
            ),
            Self::Evict { name } => {
                writer.call_guarded(&EVICT, &[keys.lock(name), open, keys.evicted(name)], &[])
            }
        }
    }

    /// The answer in the reply of its script, or in its place of a batch's.
    pub(crate) fn decode(&self, replies: &[OwnedFrame], hide: Hide<'_>) -> Option<Answer> {
        let [frame] = replies else { return None };
        Some(match self {
            Self::Acquire { .. } => match items(frame) {
                None => Answer::Granted(count(frame)?),
                Some([left, counter, holder, last @ ..]) => {
                    let (holder, ticket) = our_holder(holder);
                    let last = match last {
                        [] => 0,
                        [last] => count(last)?,
                        _ => return None,
                    };
                    Answer::Held {
                        which: None,
                        remaining: ttl(left)?,
                        counter: count(counter)?,
                        holder,
                        ticket: ticket.max(last),
                    }
                }
                Some(_) => return None,
            },
            Self::Raise { .. } => match integer(frame)? {
                -1 => Answer::Lost,
                _ => Answer::Raised(count(frame)?),
            },
            Self::Extend { .. } => match yes(frame)? {
                true => Answer::Extended,
                false => Answer::Lost,
            },
            Self::Repair { .. } => Answer::Repaired(yes(frame)?),
            Self::Join { .. } => joined(frame)?,
            Self::Yield { .. } => yes(frame)?.then_some(Answer::Yielded)?,
            Self::Release { .. } => match integer(frame)? {
                -1 => Answer::ReleasedUnadmitted,
                _ => Answer::Released(yes(frame)?),
            },
            Self::Inspect { .. } => inspected(frame, hide)?,
            Self::Evict { .. } => {
                let held = bytes(frame).is_some();
                if !held && integer(frame)? != 0 {
                    return None;
                }
                let (holder, _) = our_holder(frame);
                let holders = holder.into_iter().collect();
                Answer::Evicted { held, holders }
            }
        })
    }
}

fn joined(frame: &OwnedFrame) -> Option<Answer> {
    Some(match items(frame)? {
        [counter, seq] => Answer::Taken {
            counter: count(counter)?,
            seq: count(seq)?,
        },
        [left, counter, holder, last, _] => {
            let (holder, ticket) = our_holder(holder);
            Answer::Held {
                which: None,
                remaining: ttl(left)?,
                counter: count(counter)?,
                holder,
                ticket: ticket.max(count(last)?),
            }
        }
        [rank, left, holder, reserved] => {
            let (holder, ticket) = our_holder(holder);
            Answer::InLine {
                rank: count(rank)?,
                ahead: Ahead {
                    remaining: ttl(left)?,
                    ticket,
                    holder,
                    is_reserved: yes(reserved)?,
                },
            }
        }
        _ => return None,
    })
}

fn inspected(frame: &OwnedFrame, hide: Hide<'_>) -> Option<Answer> {
    let [holder, left, counter, time, waiting, line @ ..] = items(frame)? else {
        return None;
    };
    let holder = match holder {
        OwnedFrame::Null => None,
        entry => Some((shown(entry, hide)?, ttl(left)?)),
    };
    let time = count(time)?;
    let mut waiters = Vec::with_capacity(line.len() / 2);
    for waiter in line.chunks(2) {
        let [entry, ticket] = waiter else { return None };
        let waited = time.saturating_sub(count(ticket)?);
        waiters.push((shown(entry, hide)?, Duration::from_micros(waited)));
    }
    Some(Answer::InspectedMutex(Box::new(MutexInspection {
        holder,
        counter: count(counter)?,
        line: waiters,
        waiting: count(waiting)?,
    })))
}

/// The entry of a text that stands on a node, for people. Ours stays as it is: the nodes' answers are compared. It
/// is short and plain, and came from a client that knows no node's password. All else is only to be shown.
fn shown(frame: &OwnedFrame, hide: Hide<'_>) -> Option<String> {
    let text = text(frame)?;
    Some(match holder(&text) {
        Some((entry, _)) => entry.to_owned(),
        None => printable(hide(&text)),
    })
}

/// Entry and ticket of what stands in a lock. Anything but what clients and the line write there names nobody.
pub(in crate::node::kinds) fn our_holder(frame: &OwnedFrame) -> (Option<Arc<str>>, u64) {
    let text = bytes(frame).and_then(|bytes| str::from_utf8(bytes).ok());
    match text.and_then(holder) {
        Some((entry, ticket)) => (Some(entry.into()), ticket),
        None => (None, 0),
    }
}

/// Entry and ticket of "entry", whose ticket is 0, or of "entry seq ticket".
fn holder(text: &str) -> Option<(&str, u64)> {
    let mut words = text.split(' ');
    let entry = words.next().filter(|entry| is_entry(entry))?;
    match (words.next(), words.next(), words.next()) {
        (None, ..) => Some((entry, 0)),
        (Some(seq), Some(ticket), None) => {
            seq.parse::<u64>().ok()?;
            Some((entry, ticket.parse().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
