//! Encodes requests for a read-write lock for a server, and decodes its answers. Each verb is a script.

use std::{sync::Arc, time::Duration};

use redis_protocol::resp3::types::OwnedFrame;

use crate::{
    base::{
        name::Name,
        owner::{Entry, is_entry},
        printable::printable,
    },
    node::{
        answer::{Answer, RwlockInspection},
        request::{Request, Side, Verb, Waiter},
        wire::{
            Arg::{self, Number, Text},
            Keys, Script, Writer,
            keys::rwlock_counter,
            ms,
            read::{Hide, bytes, count, items, text, ttl},
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

pub(crate) static SCRIPTS: &[&Script] = &[
    &READ, &WRITE, &RAISE, &EXTEND, &REPAIR, &RELEASE, &INSPECT, &EVICT,
];

/// Writes a request for one side of a read-write lock.
pub(crate) fn encode(name: &Name, side: Side, request: &Request, writer: &mut Writer, keys: &Keys) {
    let (of, open) = (keys.rwlock(name), keys.open());
    let (current, previous) = (keys.current(), keys.previous());
    let (counter, entry) = (rwlock_counter(name), Text(request.entry.as_str()));
    let release = |writer: &mut Writer, waited: Option<&Entry>, window| {
        writer.call_guarded(
            &RELEASE,
            &[
                of.lock, open, of.readers, of.writers, of.refused, of.window, of.wakes,
            ],
            &[
                entry,
                Text(waited.map_or("", |waited| waited.as_str())),
                Number(ms(window)),
            ],
        );
    };
    match &request.verb {
        Verb::Acquire { ttl, floor, wait } => {
            let [who, life, channel] = words(wait.waiter());
            let (ttl, floor) = (Number(ms(*ttl)), Number(*floor));
            let args = [counter, entry, ttl, floor, who, life, channel];
            match side {
                Side::Reader => writer.call_guarded(
                    &READ,
                    &[
                        of.lock, open, of.window, of.readers, of.writers, of.refused, of.wakes,
                        current, previous,
                    ],
                    &args,
                ),
                Side::Writer => writer.call_guarded(
                    &WRITE,
                    &[
                        of.lock, open, of.window, of.readers, of.writers, of.wakes, current,
                        previous,
                    ],
                    &args,
                ),
            }
        }
        Verb::Raise { token, .. } => writer.call_guarded(
            &RAISE,
            &[of.lock, open, of.readers, current, previous],
            &[counter, entry, Number(*token)],
        ),
        Verb::Extend { ttl, window } => writer.call_guarded(
            &EXTEND,
            &[of.lock, open, of.readers, of.refused, of.window, of.wakes],
            &[entry, Number(ms(*ttl)), Number(ms(*window)), side.word()],
        ),
        Verb::Repair { ttl, token } => writer.call_guarded(
            &REPAIR,
            &[
                of.lock, open, of.evicted, of.readers, of.wakes, current, previous,
            ],
            &[
                counter,
                entry,
                Number(ms(*ttl)),
                Number(*token),
                side.word(),
            ],
        ),
        Verb::Yield { .. } => release(writer, None, Duration::ZERO),
        Verb::Release(its) => release(writer, its.waited.as_ref(), its.window),
    }
}

pub(crate) fn encode_inspect(name: &Name, writer: &mut Writer, keys: &Keys) {
    let of = keys.rwlock(name);
    let (current, previous) = (keys.current(), keys.previous());
    writer.call_guarded(
        &INSPECT,
        &[
            of.lock,
            keys.open(),
            of.readers,
            of.writers,
            current,
            previous,
        ],
        &[rwlock_counter(name)],
    );
}

pub(crate) fn encode_evict(name: &Name, writer: &mut Writer, keys: &Keys) {
    let of = keys.rwlock(name);
    writer.call_guarded(
        &EVICT,
        &[
            of.lock,
            keys.open(),
            of.evicted,
            of.readers,
            of.writers,
            of.refused,
            of.window,
            of.wakes,
        ],
        &[],
    );
}

/// The answer to a READ or a WRITE.
pub(crate) fn acquired(frame: &OwnedFrame) -> Option<Answer> {
    let Some(words) = items(frame) else {
        return Some(Answer::Granted(count(frame)?));
    };
    // Lua does not send a nil at the end of a table.
    let (left, counter, holder) = match words {
        [left, counter] => (left, counter, None),
        [left, counter, holder] => (left, counter, entry(holder)),
        _ => return None,
    };
    Some(Answer::Held {
        which: None,
        ticket: 0,
        remaining: ttl(left)?,
        counter: count(counter)?,
        holder,
    })
}

pub(crate) fn evicted(frame: &OwnedFrame) -> Option<Answer> {
    let [held, holders @ ..] = items(frame)? else {
        return None;
    };
    Some(Answer::Evicted {
        held: count(held)? > 0,
        holders: holders.iter().filter_map(entry).collect(),
    })
}

impl Side {
    fn word(self) -> Arg<'static> {
        match self {
            Self::Reader => Text("r"),
            Self::Writer => Text("w"),
        }
    }
}

/// The waiter's entry, its life, and its channel, as the scripts read them.
fn words(waiter: Option<&Waiter>) -> [Arg<'_>; 3] {
    match waiter {
        None => [Text(""), Number(0), Text("")],
        Some(waiter) => [
            Text(waiter.entry.as_str()),
            Number(ms(waiter.life)),
            Text(&waiter.channel),
        ],
    }
}

pub(crate) fn inspected(frame: &OwnedFrame, hide: Hide<'_>) -> Option<Answer> {
    let [writer, left, counter, readers, waiters] = items(frame)? else {
        return None;
    };
    let writer = match writer {
        OwnedFrame::Null => None,
        writer => Some((shown(writer, hide)?, ttl(left)?)),
    };
    let (reading, readers) = some(readers, hide)?;
    let (waiting, waiters) = some(waiters, hide)?;
    Some(Answer::InspectedRwlock(Box::new(RwlockInspection {
        writer,
        readers,
        reading,
        waiters,
        waiting,
        counter: count(counter)?,
    })))
}

/// The number of entries, and those that the reply names, each with its time.
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

/// The entry in a text from a node, for people, as in `wire.rs` of the mutex.
fn shown(frame: &OwnedFrame, hide: Hide<'_>) -> Option<String> {
    let text = text(frame)?;
    Some(match is_entry(&text) {
        true => text,
        false => printable(hide(&text)),
    })
}

/// The text, if it is an entry. Any other text names nobody.
fn entry(frame: &OwnedFrame) -> Option<Arc<str>> {
    let text = bytes(frame).and_then(|bytes| str::from_utf8(bytes).ok())?;
    is_entry(text).then(|| text.into())
}
