//! Encodes SPEND, REFUND and LOOK for a server, and decodes its replies.

use std::time::Duration;

use redis_protocol::resp3::types::OwnedFrame;

use super::Stamp;
use crate::node::{
    answer::{Answer, TakenUnits},
    request::{Meter, Units},
    wire::{
        Arg::{Bytes, Number},
        Keys, Script, Writer, ms,
        read::{count, integer, items},
    },
};

static SPEND: Script = Script::new(include_str!("spend.lua"));
static REFUND: Script = Script::new(include_str!("refund.lua"));
static LOOK: Script = Script::new(include_str!("look.lua"));

pub(crate) static SCRIPTS: &[&Script] = &[&SPEND, &REFUND, &LOOK];

impl Units {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Spend { .. } => "SPEND",
            Self::Refund { .. } => "REFUND",
            Self::Look { .. } => "LOOK",
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer, keys: &Keys) {
        let meter = self.meter();
        let own = meter.windows.iter();
        let own = own.map(|(window, _)| keys.rate(&meter.name, meter.masters, *window));
        let own: Vec<Vec<u8>> = own.collect();
        let mut words: Vec<_> = own.iter().map(|key| Bytes(key)).collect();
        words.insert(words.len().min(1), keys.open());
        let mut args = Vec::with_capacity(2 + 4 * meter.windows.len());
        match self {
            Self::Spend { units, age, .. } => {
                args.extend([Number((*units).into()), Number(ms(*age))]);
                for (window, share) in meter.windows.iter() {
                    args.push(Number((*share).into()));
                    args.extend([window.kept(), window.ahead(), window.bucket()].map(Number));
                }
                writer.call_guarded(&SPEND, &words, &args);
            }
            Self::Refund { units, stamps, .. } => {
                args.push(Number((*units).into()));
                args.extend(stamps.iter().flat_map(|s| [s.bucket, s.era].map(Number)));
                writer.call_guarded(&REFUND, &words, &args);
            }
            Self::Look { .. } => {
                for (window, _) in meter.windows.iter() {
                    args.extend([window.kept(), window.ahead(), window.bucket()].map(Number));
                }
                writer.call_guarded(&LOOK, &words, &args);
            }
        }
    }

    pub(crate) fn decode(&self, frame: &OwnedFrame) -> Option<Answer> {
        Some(match self {
            Self::Spend { meter, .. } => spent(meter, items(frame)?)?,
            Self::Refund { .. } => Answer::Refunded(number(frame)?),
            Self::Look { meter } => {
                let seen = items(frame)?;
                let all: Option<Box<[_]>> = seen.iter().map(taken).collect();
                Answer::Metered(all.filter(|all| all.len() == meter.windows.len())?)
            }
        })
    }
}

fn spent(meter: &Meter, items: &[OwnedFrame]) -> Option<Answer> {
    let (is_spent, rest) = items.split_first()?;
    Some(match (integer(is_spent)?, rest) {
        (1, all) if all.len() == 3 * meter.windows.len() => {
            let rooms = all.iter().step_by(3).map(number).collect::<Option<_>>()?;
            let stamps = all.chunks(3).map(|interval| match interval {
                [_, bucket, era] => Some(Stamp {
                    bucket: count(bucket)?,
                    era: count(era)?,
                }),
                _ => None,
            });
            let stamps = stamps.collect::<Option<_>>()?;
            Answer::Spent { rooms, stamps }
        }
        (0, [wait, rooms @ ..]) if rooms.len() == meter.windows.len() => Answer::Full {
            rooms: rooms.iter().map(number).collect::<Option<_>>()?,
            wait: match integer(wait)? {
                -1 => None,
                _ => Some(Duration::from_millis(count(wait)?)),
            },
        },
        _ => return None,
    })
}

fn taken(frame: &OwnedFrame) -> Option<Box<[TakenUnits]>> {
    let taken = items(frame)?.chunks(2).map(|one| match one {
        [left, units] => Some(TakenUnits {
            left: Duration::from_millis(count(left)?),
            units: number(units)?,
        }),
        _ => None,
    });
    taken.collect()
}

fn number(frame: &OwnedFrame) -> Option<u32> {
    count(frame)?.try_into().ok()
}
