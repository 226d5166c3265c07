//! The commands about slots as a server reads them, and its replies. Each is a script.

use std::time::Duration;

use redis_protocol::resp3::types::OwnedFrame;

use super::{Command, Mode};
use crate::{
    base::{limit::Limit, owner::is_entry, printable::printable, taken::Taken},
    node::{
        answer::{Answer, PoolInspection, TakenSlot},
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

/// All of this kind.
pub(crate) static SCRIPTS: &[&Script] = &[
    &TAKE, &RAISE, &EXTEND, &REPAIR, &RELEASE, &YIELD, &RESIZE, &INSPECT,
];

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Take { .. } => "TAKE",
            Self::Raise { .. } => "RAISE",
            Self::Extend { .. } => "EXTEND",
            Self::Repair { .. } => "REPAIR",
            Self::Release { .. } => "RELEASE",
            Self::Yield { .. } => "YIELD",
            Self::Resize { .. } => "RESIZE",
            Self::Inspect { .. } => "INSPECT",
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer, keys: &Keys) {
        // The units of a rate limit may be taken for longer than the fleet's longest ttl.
        let (open, kept) = (keys.open(), Number(ms(self.pool().family.kept())));
        let [current, previous] = keys.slot_counters(self.pool());
        let [slots, ends, line] = keys.semaphore(self.pool());
        let (four, six) = (
            [slots, open, ends, line],
            [slots, open, ends, line, current, previous],
        );
        match self {
            Self::Take {
                place,
                limit,
                mode,
                want,
                ttl,
                floor,
                ..
            } => {
                let mode = match mode {
                    Mode::Pick => "P",
                    Mode::Move => "M",
                };
                writer.call_guarded(
                    &TAKE,
                    &six,
                    &[
                        kept,
                        Text(place.entry.as_str()),
                        Number(limit.version),
                        Number(limit.slots.into()),
                        Text(mode),
                        slot_or_none(*want),
                        Number(ms(*ttl)),
                        Number(*floor),
                        Number(place.ticket),
                        Number(ms(place.term)),
                        Number(ms(place.life)),
                        Text(&place.channel),
                    ],
                );
            }
            Self::Raise {
                pool,
                entry,
                slot,
                token,
                ..
            } => writer.call_guarded(
                &RAISE,
                &[slots, open, current, previous],
                &[
                    kept,
                    Text(entry.as_str()),
                    Number((*slot).into()),
                    Bytes(&slot_counter(pool, *slot)),
                    Number(*token),
                ],
            ),
            Self::Extend {
                entry, slot, ttl, ..
            } => writer.call_guarded(
                &EXTEND,
                &four,
                &[
                    kept,
                    Text(entry.as_str()),
                    Number((*slot).into()),
                    Number(ms(*ttl)),
                ],
            ),
            Self::Repair {
                entry,
                slot,
                ttl,
                token,
                ..
            } => writer.call_guarded(
                &REPAIR,
                &six,
                &[
                    kept,
                    Text(entry.as_str()),
                    Number((*slot).into()),
                    Number(ms(*ttl)),
                    Number(*token),
                ],
            ),
            Self::Release { entry, keep, .. } => writer.call_guarded(
                &RELEASE,
                &four,
                &[kept, Text(entry.as_str()), slot_or_none(*keep)],
            ),
            Self::Yield { place, .. } => writer.call_guarded(
                &YIELD,
                &four,
                &[
                    kept,
                    Text(place.entry.as_str()),
                    Number(place.ticket),
                    Number(ms(place.term)),
                    Number(ms(place.life)),
                    Text(&place.channel),
                ],
            ),
            Self::Resize { limit, .. } => writer.call_guarded(
                &RESIZE,
                &four,
                &[kept, Number(limit.version), Number(limit.slots.into())],
            ),
            Self::Inspect { .. } => writer.call_guarded(&INSPECT, &six, &[]),
        }
    }

    pub(crate) fn decode(&self, replies: &[OwnedFrame], hide: Hide<'_>) -> Option<Answer> {
        let [frame] = replies else { return None };
        Some(match self {
            Self::Take { .. } => taken(frame)?,
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
            Self::Yield { .. } => yes(frame)?.then_some(Answer::Yielded)?,
            Self::Resize { .. } => match items(frame)? {
                [version, slots] => Answer::Limit(limit(version, slots)?),
                _ => return None,
            },
            Self::Inspect { .. } => Answer::InspectedPool(Box::new(inspected(frame, hide)?)),
        })
    }
}

fn slot_or_none(slot: Option<u32>) -> Arg<'static> {
    slot.map_or(Text(""), |slot| Number(slot.into()))
}

fn taken(frame: &OwnedFrame) -> Option<Answer> {
    Some(match items(frame)? {
        [version, slots] => Answer::Conflict(limit(version, slots)?),
        [slot, counter, bits, version, may_take, ticket, next_free] => Answer::Slots {
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
        },
        _ => return None,
    })
}

fn inspected(frame: &OwnedFrame, hide: Hide<'_>) -> Option<PoolInspection> {
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
    Some(PoolInspection {
        limit: match integer(version)? {
            -1 => None,
            _ => Some(limit(version, slots)?),
        },
        taken: Taken::from_bytes(bytes(bits)?),
        holders: holders.collect::<Option<_>>()?,
        line: line.collect::<Option<_>>()?,
        waiting: count(waiting)?,
    })
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

/// The entry of a text that stands on a node, for people. Ours stays as it is: the nodes' answers are compared. All else is
/// only to be shown.
fn shown(frame: &OwnedFrame, hide: Hide<'_>) -> Option<String> {
    let text = text(frame)?;
    Some(match is_entry(&text) {
        true => text,
        false => printable(hide(&text)),
    })
}
