//! `quorate evict NAME --slot N`: frees slots of a semaphore.

use std::time::Duration;

use quorate::{Inspection, Quorum, Slot, cli::counted};
use serde_json::{Value, json};
use tokio::time;

use crate::{
    args::{self, Args},
    failure::{Failure, UNAVAILABLE},
    output,
};

/// The number of attempts to free a slot. Its holder puts the slot back if it renews at that very moment.
const TRIES: u32 = 3;
/// A renewal that was under way is over after this time.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) async fn run(
    args: &Args,
    evict: &args::Evict,
    quorum: &Quorum,
    seen: &Inspection,
) -> Result<u8, Failure> {
    let name = &*evict.name;
    if !evict.yes {
        if !args.json {
            output::say(&seen.to_string());
        }
        let slots: Vec<String> = evict.slots.iter().map(|slot| whose(seen, *slot)).collect();
        return Err(Failure::usage(format!(
            "nothing was done. With --yes these slots of {name:?} would be freed on all nodes and go to the first \
             waiters: {}. A holder learns of it at its next renewal; until then two may believe that they hold a \
             slot",
            slots.join(", ")
        )));
    }
    let mut told: Vec<Value> = Vec::new();
    let mut evicted = false;
    for slot in &evict.slots {
        let freed = free(name, *slot, quorum, seen).await?;
        evicted |= freed;
        let holder = holder(seen, *slot);
        told.push(json!({
            "slot": slot,
            "evicted": freed,
            "holder": output::holder_json(holder.as_ref().map(|slot| &slot.holder)),
        }));
        if !args.json {
            output::say(&match freed {
                true => format!(
                    "{} of {name:?} is free for the next waiter; its holder learns of it at its next renewal and may go on until then",
                    whose(seen, *slot)
                ),
                false => format!("slot {slot} of {name:?} was free already"),
            });
        }
    }
    if args.json {
        let object = json!({"name": name, "evicted": evicted, "slots": told});
        output::say(&object.to_string());
    }
    Ok(0)
}

/// Frees a slot until its holder is gone from a majority. Returns true if anybody had it.
async fn free(name: &str, slot: u32, quorum: &Quorum, seen: &Inspection) -> Result<bool, Failure> {
    // The limit does not matter for an eviction.
    let semaphore = quorum.semaphore(name, seen.limit().unwrap_or(1));
    let freed = semaphore.evict(slot).await?;
    let Some(before) = holder(seen, slot) else {
        return Ok(freed);
    };
    for _ in 0..TRIES {
        time::sleep(PAUSE).await;
        let now = quorum.inspect(name).await?;
        let still = holder(&now, slot).is_some_and(|slot| slot.holder.entry == before.holder.entry);
        if !still {
            return Ok(freed);
        }
        semaphore.evict(slot).await?;
    }
    Err(Failure::new(
        UNAVAILABLE,
        "not_evicted",
        format!(
            "{} of {name:?} could not be freed: its holder reaches a server that this command does not reach. Check \
             `quorate nodes`, and run this again",
            whose(seen, slot)
        ),
    ))
}

/// The slot's holder, according to a majority of the nodes.
fn holder(seen: &Inspection, number: u32) -> Option<Slot> {
    let mut slots = seen.slots().into_iter();
    slots.find(|slot| slot.number == number && slot.is_held)
}

/// For example `slot 3 (held by web-3:77)`.
fn whose(seen: &Inspection, slot: u32) -> String {
    match holder(seen, slot) {
        Some(held) => format!("slot {slot} (held by {})", held.holder.label),
        None => format!("slot {slot} (held by nobody)"),
    }
}

/// The usage error if no lock of this name is held but slots of its semaphore are: it lists these slots.
pub(super) fn say_which(seen: &Inspection) -> String {
    let (name, taken) = (&seen.name, seen.taken_slots());
    let slots: Vec<String> = seen
        .slots()
        .into_iter()
        .filter(|slot| slot.is_held)
        .map(|slot| format!("slot {} by {}", slot.number, slot.holder.label))
        .collect();
    let are = if taken == 1 { "is" } else { "are" };
    let taken = counted(taken.into(), "slot");
    format!(
        "nothing was done. {name:?} is a semaphore, and {taken} {are} taken: {}. Name the slots to free, as in \
         `quorate evict NAME --slot 0 --yes`",
        slots.join(", ")
    )
}

/// Says that the slots of a semaphore of the same name stay taken, because only locks are freed.
pub(super) fn stay(seen: &Inspection) -> &'static str {
    match seen.taken_slots() {
        0 => "",
        _ => "; the slots of the semaphore of that name stay taken (--slot N frees one)",
    }
}
