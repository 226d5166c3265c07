//! Executes the commands about the units of a limit on an in-process node: the executable meaning of the Lua in this
//! folder.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Stamp,
    ledger::{Ledger, Scale},
};
use crate::{
    base::{name::Name, quota::Window, rules::Rule},
    node::{
        answer::Answer,
        fault::Fault,
        kinds::moment::Moment,
        request::{Meter, Units},
        wire::ms,
    },
};

/// All limits of a node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(BTreeMap<Key, Ledger>);

/// The name, the number of masters and the interval. A different number or interval is another limit. With
/// [`Rule::SharedLedger`] off, so is a different number of units.
type Key = (Name, u32, Duration, Option<u32>);

impl Memory {
    /// Executes one command.
    pub(crate) fn apply(&mut self, command: &Units, at: Moment) -> Result<Answer, Fault> {
        self.0.retain(|_, ledger| at.ms() <= ledger.until);
        match command {
            Units::Spend { meter, units, age } => self.spend(meter, *units, ms(*age), at),
            Units::Refund {
                meter,
                units,
                stamps,
            } => self.refund(meter, *units, stamps, at),
            Units::Look { meter } => {
                let taken = meter.windows.iter().map(|(window, _)| {
                    let scale = Scale::new(*window, at.ms(), at.rules);
                    Ledger::at(self.0.get(&key(meter, *window, at)), scale)
                        .0
                        .taken(scale)
                });
                Ok(Answer::Metered(taken.collect()))
            }
        }
    }

    fn spend(&mut self, meter: &Meter, units: u32, age: u64, at: Moment) -> Result<Answer, Fault> {
        let (mut wait, mut is_full) = (Some(Default::default()), false);
        let mut ledgers = Vec::with_capacity(meter.windows.len());
        for (window, share) in meter.windows.iter() {
            let scale = Scale::new(*window, at.ms(), at.rules);
            let known = self.0.get(&key(meter, *window, at));
            let (ledger, moved) = Ledger::at(known, scale);
            let left = ledger.room(*share, scale);
            if units > left {
                is_full = true;
                let longer = ledger.wait(units, *share, scale);
                wait = wait.and_then(|wait| longer.map(|longer| longer.max(wait)));
            }
            ledgers.push((*window, scale, ledger, moved, left));
        }
        if is_full {
            let rooms = ledgers.iter().map(|(.., left)| *left).collect();
            for (window, scale, mut ledger, moved, _) in ledgers {
                if moved {
                    at.may_write()?;
                    ledger.written(scale);
                    self.0.insert(key(meter, window, at), ledger);
                }
            }
            return Ok(Answer::Full { rooms, wait });
        }
        let rooms = ledgers.iter().map(|(.., left)| left - units).collect();
        let mut stamps = Vec::with_capacity(ledgers.len());
        for (window, scale, mut ledger, ..) in ledgers {
            at.may_write()?;
            stamps.push(ledger.spend(units, age, scale));
            ledger.written(scale);
            self.0.insert(key(meter, window, at), ledger);
        }
        Ok(Answer::Spent {
            rooms,
            stamps: stamps.into(),
        })
    }

    fn refund(
        &mut self,
        meter: &Meter,
        units: u32,
        stamps: &[Stamp],
        at: Moment,
    ) -> Result<Answer, Fault> {
        let mut back = 0;
        for ((window, _), stamp) in meter.windows.iter().zip(stamps) {
            let Some(ledger) = self.0.get_mut(&key(meter, *window, at)) else {
                continue;
            };
            let stamp = match at.rules.hold(Rule::EraOfUnits) {
                true => *stamp,
                false => Stamp {
                    era: ledger.era,
                    ..*stamp
                },
            };
            let mut less = ledger.clone();
            if less.refund(units, stamp) {
                at.may_write()?;
                *ledger = less;
                back += 1;
            }
        }
        Ok(Answer::Refunded(back))
    }
}

fn key(meter: &Meter, window: Window, at: Moment) -> Key {
    let limit = (!at.rules.hold(Rule::SharedLedger)).then_some(window.limit);
    (meter.name.clone(), meter.masters, window.period, limit)
}
