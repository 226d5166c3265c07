//! Encodes the commands about a mutex for a server, and decodes its replies. Each is a script. All except REPAIR,
//! INSPECT and EVICT are operations of BATCH, even if they travel alone.

use std::{iter, sync::Arc, time::Duration};

use redis_protocol::resp3::types::OwnedFrame;

use super::{
    batch::{self, BATCH, Rider},
    several,
};
use crate::{
    base::{
        name::{Name, Names},
        owner::is_entry,
        printable::printable,
    },
    node::{
        answer::{Ahead, Answer, MutexInspection},
        request::{Place, Request, Verb},
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

pub(crate) static SCRIPTS: &[&Script] = &[&BATCH, &REPAIR, &INSPECT, &EVICT];

/// Writes a request for the mutexes of these names.
pub(crate) fn encode(names: &Names, request: &Request, writer: &mut Writer, keys: &Keys) {
    match (names.one(), &request.verb) {
        (None, _) => several::encode(names.all(), request, writer, keys),
        (Some(name), Verb::Repair { ttl, token }) => writer.call_guarded(
            &REPAIR,
            &[
                keys.lock(name),
                keys.open(),
                keys.evicted(name),
                keys.current(),
                keys.previous(),
                keys.line(name),
                keys.waiters(name),
                keys.waiting(),
            ],
            &[
                counter(name),
                Text(request.entry.as_str()),
                Number(ms(*ttl)),
                Number(*token),
            ],
        ),
        (Some(_), _) => batch::encode(iter::once(request).filter_map(Rider::of), writer, keys),
    }
}

pub(crate) fn encode_inspect(name: &Name, writer: &mut Writer, keys: &Keys) {
    let (current, previous) = (keys.current(), keys.previous());
    writer.call_guarded(
        &INSPECT,
        &[
            keys.lock(name),
            keys.open(),
            keys.line(name),
            current,
            previous,
        ],
        &[counter(name)],
    );
}

pub(crate) fn encode_evict(name: &Name, writer: &mut Writer, keys: &Keys) {
    let keys = [keys.lock(name), keys.open(), keys.evicted(name)];
    writer.call_guarded(&EVICT, &keys, &[]);
}

/// The answer to an ACQUIRE of these names, or to a JOIN.
pub(crate) fn acquired(names: &Names, place: Option<&Place>, frame: &OwnedFrame) -> Option<Answer> {
    match (names.one(), place) {
        (Some(_), Some(_)) => joined(frame),
        (Some(_), None) => granted(frame),
        (None, _) => several::acquired(names.all(), frame),
    }
}

fn granted(frame: &OwnedFrame) -> Option<Answer> {
    Some(match items(frame) {
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
    })
}

pub(crate) fn evicted(frame: &OwnedFrame) -> Option<Answer> {
    let held = bytes(frame).is_some();
    if !held && integer(frame)? != 0 {
        return None;
    }
    let (holder, _) = our_holder(frame);
    let holders = holder.into_iter().collect();
    Some(Answer::Evicted { held, holders })
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

pub(crate) fn inspected(frame: &OwnedFrame, hide: Hide<'_>) -> Option<Answer> {
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

/// The entry in a text from a node, for people. An entry of this library stays as it is, because the answers of the
/// nodes are compared. It is short and plain, and comes from a client that does not know the password of any node. Any
/// other text is only shown to people.
fn shown(frame: &OwnedFrame, hide: Hide<'_>) -> Option<String> {
    let text = text(frame)?;
    Some(match holder(&text) {
        Some((entry, _)) => entry.to_owned(),
        None => printable(hide(&text)),
    })
}

/// The entry and the ticket in the text of a lock. A text that is neither from a client nor from the queue names
/// nobody.
pub(crate) fn our_holder(frame: &OwnedFrame) -> (Option<Arc<str>>, u64) {
    let text = bytes(frame).and_then(|bytes| str::from_utf8(bytes).ok());
    match text.and_then(holder) {
        Some((entry, ticket)) => (Some(entry.into()), ticket),
        None => (None, 0),
    }
}

/// Parses "entry", whose ticket is 0, or "entry seq ticket".
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
