//! The commands about a read-write lock as a server reads them, and its replies. Each is a script.

use std::{sync::Arc, time::Duration};

use redis_protocol::resp3::types::OwnedFrame;

use super::{Command, Side, Wait};
use crate::{
    base::{owner::is_entry, printable::printable},
    node::{
        answer::{Answer, RwlockInspection},
        wire::{
            Arg::{self, Number, Text},
            Keys, Script, Writer,
            keys::rwlock_counter,
            ms,
            read::{Hide, bytes, count, integer, items, text, ttl, yes},
        },
    },
};

static READ: Script = Script::new(include_str!("read.lua"));
static WRITE: Script = Script::new(include_str!("write.lua"));
static RAISE: Script = Script::new(include_str!("raise.lua"));
static EXTEND: Script = Script::new(include_str!("extend.lua"));
static REPAIR: Script = Script::new(include_str!("repair.lua"));
static RELEASE: Script = Script::new(include_str!("release.lua"));
static INSPECT: Script = Script::new(include_str!("inspect.lua"));
static EVICT: Script = Script::new(include_str!("evict.lua"));

/// All of this kind.
pub(crate) static SCRIPTS: &[&Script] = &[
    &READ, &WRITE, &RAISE, &EXTEND, &REPAIR, &RELEASE, &INSPECT, &EVICT,
];

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Read { .. } => "READ",
            Self::Write { .. } => "WRITE",
            Self::Raise { .. } => "RAISE",
            Self::Extend { .. } => "EXTEND",
            Self::Repair { .. } => "REPAIR",
            Self::Release { .. } => "RELEASE",
            Self::Inspect { .. } => "INSPECT",
            Self::Evict { .. } => "EVICT",
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer, keys: &Keys) {
        let open = keys.open();
        let (current, previous) = (keys.current(), keys.previous());
        match self {
            Self::Read {
                name,
                entry,
                ttl,
                floor,
                wait,
            } => {
                let of = keys.rwlock(name);
                let [who, life, channel] = words(wait.as_ref());
                writer.call_guarded(
                    &READ,
                    &[
                        of.lock, open, of.window, of.readers, of.writers, of.refused, of.wakes,
                        current, previous,
                    ],
                    &[
                        rwlock_counter(name),
                        Text(entry.as_str()),
                        Number(ms(*ttl)),
                        Number(*floor),
                        who,
                        life,
                        channel,
                    ],
                );
            }
            Self::Write {
                name,
                entry,
                ttl,
                floor,
                wait,
            } => {
                let of = keys.rwlock(name);
                let [who, life, channel] = words(wait.as_ref());
                writer.call_guarded(
                    &WRITE,
                    &[
                        of.lock, open, of.window, of.readers, of.writers, of.wakes, current,
                        previous,
                    ],
                    &[
                        rwlock_counter(name),
                        Text(entry.as_str()),
                        Number(ms(*ttl)),
                        Number(*floor),
                        who,
                        life,
                        channel,
                    ],
                );
            }
            Self::Raise { name, entry, token } => {
                let of = keys.rwlock(name);
                writer.call_guarded(
                    &RAISE,
                    &[of.lock, open, of.readers, current, previous],
                    &[rwlock_counter(name), Text(entry.as_str()), Number(*token)],
                );
            }
            Self::Extend {
                name,
                entry,
                side,
                ttl,
                window,
            } => {
                let of = keys.rwlock(name);
                writer.call_guarded(
                    &EXTEND,
                    &[of.lock, open, of.readers, of.refused, of.window, of.wakes],
                    &[
                        Text(entry.as_str()),
                        Number(ms(*ttl)),
                        Number(ms(*window)),
                        side.word(),
                    ],
                );
            }
            Self::Repair {
                name,
                entry,
                side,
                ttl,
                token,
            } => {
                let of = keys.rwlock(name);
                writer.call_guarded(
                    &REPAIR,
                    &[
                        of.lock, open, of.evicted, of.readers, of.wakes, current, previous,
                    ],
                    &[
                        rwlock_counter(name),
                        Text(entry.as_str()),
                        Number(ms(*ttl)),
                        Number(*token),
                        side.word(),
                    ],
                );
            }
            Self::Release {
                name,
                entry,
                wait,
                window,
            } => {
                let of = keys.rwlock(name);
                writer.call_guarded(
                    &RELEASE,
                    &[
                        of.lock, open, of.readers, of.writers, of.refused, of.window, of.wakes,
                    ],
                    &[
                        Text(entry.as_str()),
                        Text(wait.as_ref().map_or("", |wait| wait.as_str())),
                        Number(ms(*window)),
                    ],
                );
            }
            Self::Inspect { name } => {
                let of = keys.rwlock(name);
                writer.call_guarded(
                    &INSPECT,
                    &[of.lock, open, of.readers, of.writers, current, previous],
                    &[rwlock_counter(name)],
                );
            }
            Self::Evict { name } => {
                let of = keys.rwlock(name);
                writer.call_guarded(
                    &EVICT,
                    &[
                        of.lock, open, of.evicted, of.readers, of.writers, of.refused, of.window,
                        of.wakes,
                    ],
                    &[],
                );
            }
        }
    }

    pub(crate) fn decode(&self, replies: &[OwnedFrame], hide: Hide<'_>) -> Option<Answer> {
        let [frame] = replies else { return None };
        Some(match self {
            Self::Read { .. } | Self::Write { .. } => match items(frame) {
                None => Answer::Granted(count(frame)?),
                Some(words) => {
                    // A nil at the end of a table is not sent.
                    let (left, counter, holder) = match words {
                        [left, counter] => (left, counter, None),
                        [left, counter, holder] => (left, counter, entry(holder)),
                        _ => return None,
                    };
                    Answer::Held {
                        which: None,
                        ticket: 0,
                        remaining: ttl(left)?,
                        counter: count(counter)?,
                        holder,
                    }
                }
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
            Self::Release { .. } => match integer(frame)? {
                -1 => Answer::ReleasedUnadmitted,
                _ => Answer::Released(yes(frame)?),
            },
            Self::Inspect { .. } => Answer::InspectedRwlock(Box::new(inspected(frame, hide)?)),
            Self::Evict { .. } => {
                let [held, holders @ ..] = items(frame)? else {
                    return None;
                };
                Answer::Evicted {
                    held: count(held)? > 0,
                    holders: holders.iter().filter_map(entry).collect(),
                }
            }
        })
    }
}

impl Side {
    fn word(self) -> Arg<'static> {
        match self {
            Self::Reader => Text("r"),
            Self::Writer => Text("w"),
        }
    }
}

/// Who waits, for how long, and where it hears.
fn words(wait: Option<&Wait>) -> [Arg<'_>; 3] {
    match wait {
        None => [Text(""), Number(0), Text("")],
        Some(wait) => [
            Text(wait.entry.as_str()),
            Number(ms(wait.life)),
            Text(&wait.channel),
        ],
    }
}

fn inspected(frame: &OwnedFrame, hide: Hide<'_>) -> Option<RwlockInspection> {
    let [writer, left, counter, readers, waiters] = items(frame)? else {
        return None;
    };
    let writer = match writer {
        OwnedFrame::Null => None,
        writer => Some((shown(writer, hide)?, ttl(left)?)),
    };
    let (reading, readers) = some(readers, hide)?;
    let (waiting, waiters) = some(waiters, hide)?;
    Some(RwlockInspection {
        writer,
        readers,
        reading,
        waiters,
        waiting,
        counter: count(counter)?,
    })
}

/// How many there are, and those that are told of, each with its time.
fn some(frame: &OwnedFrame, hide: Hide<'_>) -> Option<(u64, Vec<(String, Duration)>)> {
    let [all, them @ ..] = items(frame)? else {
        return None;
    };
    let mut told = Vec::with_capacity(them.len() / 2);
    for one in them.chunks(2) {
        let [entry, left] = one else { return None };
        told.push((shown(entry, hide)?, Duration::from_millis(count(left)?)));
    }
    Some((count(all)?, told))
}

/// The entry of a text that stands on a node, for people: as `wire.rs` of the mutex has it.
fn shown(frame: &OwnedFrame, hide: Hide<'_>) -> Option<String> {
    let text = text(frame)?;
    Some(match is_entry(&text) {
        true => text,
        false => printable(hide(&text)),
    })
}

/// What stands there, where it is an entry. Anything else names nobody.
fn entry(frame: &OwnedFrame) -> Option<Arc<str>> {
    let text = bytes(frame).and_then(|bytes| str::from_utf8(bytes).ok())?;
    is_entry(text).then(|| text.into())
}
