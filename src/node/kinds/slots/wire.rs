//! Encodes requests for a slot for a server, and decodes its answers. Each verb is a script.

use std::time::Duration;

use redis_protocol::resp3::types::OwnedFrame;

use crate::{
    base::{limit::Limit, owner::is_entry, printable::printable, taken::Taken},
    node::{
        answer::{Answer, PoolInspection, Slots, TakenSlot},
        request::{Mode, Pool, Request, Verb},
        wire::{
            Arg::{self, Bytes, Number, Text},
            Keys, Script, Writer,
            keys::slot_counter,
            ms,
            read::{Hide, bytes, count, integer, items, text, yes},
        },
    },
};

static TAKE: Script = Script::new(include_str!("take.lua"));
static RAISE: Script = Script::new(include_str!("raise.lua"));
static EXTEND: Script = Script::new(include_str!("extend.lua"));
static REPAIR: Script = Script::new(include_str!("repair.lua"));
static RELEASE: Script = Script::new(include_str!("release.lua"));
static YIELD: Script = Script::new(include_str!("yield.lua"));
static RESIZE: Script = Script::new(include_str!("resize.lua"));
static INSPECT: Script = Script::new(include_str!("inspect.lua"));

pub(crate) static SCRIPTS: &[&Script] = &[
    &TAKE, &RAISE, &EXTEND, &REPAIR, &RELEASE, &YIELD, &RESIZE, &INSPECT,
];

/// Writes a request for a slot.
pub(crate) fn encode(
    pool: &Pool,
    slot: Option<u32>,
    request: &Request,
    writer: &mut Writer,
    keys: &Keys,
) {
    let (kept, entry) = (kept(pool), Text(request.entry.as_str()));
    let [current, previous] = keys.slot_counters(pool);
    let [slots, ends, line] = keys.semaphore(pool);
    let four = [slots, keys.open(), ends, line];
    let six = [slots, keys.open(), ends, line, current, previous];
    let release = |writer: &mut Writer, keep| {
        writer.call_guarded(&RELEASE, &four, &[kept, entry, slot_or_none(keep)]);
    };
    match (&request.verb, slot) {
        (Verb::Acquire { ttl, floor, wait }, _) => match wait.seat() {
            Some(seat) => writer.call_guarded(
                &TAKE,
                &six,
                &[
                    kept,
                    entry,
                    Number(seat.limit.version),
                    Number(seat.limit.slots.into()),
                    Text(match seat.mode {
                        Mode::Pick => "P",
                        Mode::Move => "M",
                    }),
                    slot_or_none(slot),
                    Number(ms(*ttl)),
                    Number(*floor),
                    Number(seat.ticket),
                    Number(ms(seat.term)),
                    Number(ms(seat.life)),
                    Text(&seat.channel),
                ],
            ),
            None => release(writer, None),
        },
        (Verb::Yield { wait, .. }, _) => match wait.seat() {
            Some(seat) => writer.call_guarded(
                &YIELD,
                &four,
                &[
                    kept,
                    entry,
                    Number(seat.ticket),
                    Number(ms(seat.term)),
                    Number(ms(seat.life)),
                    Text(&seat.channel),
                ],
            ),
            None => release(writer, None),
        },
        (Verb::Raise { token, .. }, _) => {
            let counter = slot.map(|slot| slot_counter(pool, slot));
            writer.call_guarded(
                &RAISE,
                &[slots, keys.open(), current, previous],
                &[
                    kept,
                    entry,
                    slot_or_none(slot),
                    Bytes(counter.as_deref().unwrap_or_default()),
                    Number(*token),
                ],
            );
        }
        // REPAIR of a slot without a number goes as EXTEND, which answers that the slot is lost, and writes nothing.
        (Verb::Extend { ttl, .. }, _) | (Verb::Repair { ttl, .. }, None) => writer.call_guarded(
            &EXTEND,
            &four,
            &[kept, entry, slot_or_none(slot), Number(ms(*ttl))],
        ),
        (Verb::Repair { ttl, token }, Some(_)) => writer.call_guarded(
            &REPAIR,
            &six,
            &[
                kept,
                entry,
                slot_or_none(slot),
                Number(ms(*ttl)),
                Number(*token),
            ],
        ),
        (Verb::Release(its), _) => release(writer, its.keep),
    }
}

pub(crate) fn encode_resize(pool: &Pool, limit: Limit, writer: &mut Writer, keys: &Keys) {
    let [slots, ends, line] = keys.semaphore(pool);
    writer.call_guarded(
        &RESIZE,
        &[slots, keys.open(), ends, line],
        &[
            kept(pool),
            Number(limit.version),
            Number(limit.slots.into()),
        ],
    );
}

pub(crate) fn encode_inspect(pool: &Pool, writer: &mut Writer, keys: &Keys) {
    let [current, previous] = keys.slot_counters(pool);
    let [slots, ends, line] = keys.semaphore(pool);
    writer.call_guarded(
        &INSPECT,
        &[slots, keys.open(), ends, line, current, previous],
        &[],
    );
}

/// How long the keys live without use. The units of a rate limit may be taken for longer than the fleet's longest ttl.
fn kept(pool: &Pool) -> Arg<'static> {
    Number(ms(pool.family.kept()))
}

pub(crate) fn resized(frame: &OwnedFrame) -> Option<Answer> {
    match items(frame)? {
        [version, slots] => Some(Answer::Limit(limit(version, slots)?)),
        _ => None,
    }
}

fn slot_or_none(slot: Option<u32>) -> Arg<'static> {
    slot.map_or(Text(""), |slot| Number(slot.into()))
}

/// The answer to a TAKE.
pub(crate) fn taken(frame: &OwnedFrame) -> Option<Answer> {
    Some(match items(frame)? {
        [version, slots] => Answer::Conflict(limit(version, slots)?),
        [slot, counter, bits, version, may_take, ticket, next_free] => Answer::Slots(Slots {
            mine: match integer(slot)? {
                -1 => None,
                _ => Some((number(slot)?, count(counter)?)),
            },
            taken: Taken::from_bytes(bytes(bits)?),
            version: count(version)?,
            may_take: yes(may_take)?,
            ticket: count(ticket)?,
            next_free: match integer(next_free)? {
                -1 => None,
                _ => Some(Duration::from_millis(count(next_free)?)),
            },
        }),
        _ => return None,
    })
}

pub(crate) fn inspected(frame: &OwnedFrame, hide: Hide<'_>) -> Option<Answer> {
    let [version, slots, bits, time, waiting, holders, line] = items(frame)? else {
        return None;
    };
    let time = count(time)?;
    let holders = items(holders)?.chunks(4).map(|held| {
        let [slot, entry, left, counter] = held else {
            return None;
        };
        Some(TakenSlot {
            slot: number(slot)?,
            holder: shown(entry, hide)?,
            remaining: Duration::from_millis(count(left)?),
            counter: count(counter)?,
        })
    });
    let line = items(line)?.chunks(2).map(|waiter| {
        let [entry, ticket] = waiter else { return None };
        let waited = time.saturating_sub(count(ticket)?);
        Some((shown(entry, hide)?, Duration::from_micros(waited)))
    });
    Some(Answer::InspectedPool(Box::new(PoolInspection {
        limit: match integer(version)? {
            -1 => None,
            _ => Some(limit(version, slots)?),
        },
        taken: Taken::from_bytes(bytes(bits)?),
        holders: holders.collect::<Option<_>>()?,
        line: line.collect::<Option<_>>()?,
        waiting: count(waiting)?,
    })))
}

fn limit(version: &OwnedFrame, slots: &OwnedFrame) -> Option<Limit> {
    let (version, slots) = (count(version)?, number(slots)?);
    (1..=Limit::MOST)
        .contains(&slots)
        .then_some(Limit { version, slots })
}

fn number(frame: &OwnedFrame) -> Option<u32> {
    count(frame)?.try_into().ok()
}

/// The entry in a text from a node, for people. An entry of this library stays as it is, because the answers of the
/// nodes are compared. Any other text is only shown to people.
fn shown(frame: &OwnedFrame, hide: Hide<'_>) -> Option<String> {
    let text = text(frame)?;
    Some(match is_entry(&text) {
        true => text,
        false => printable(hide(&text)),
    })
}
