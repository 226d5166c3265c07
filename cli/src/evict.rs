//! `quorate evict`: frees the mutex and the read-write lock of a name on all voting nodes, even if they are held. With
//! `--slot` it frees slots of a semaphore instead. A freed mutex or slot goes to the first waiter in the queue.

mod slots;

use quorate::{Holder, Inspection, Quorum};
use serde_json::{Value, json};

use crate::{
    args::{self, Args},
    failure::Failure,
    output, survey,
};

/// The text for people names at most this many readers.
const NAMED: usize = 3;

pub(crate) async fn run(args: &Args, evict: &args::Evict, quorum: &Quorum) -> Result<u8, Failure> {
    quorum.mutex(&*evict.name).validate()?;
    survey::reach(args, quorum).await;
    let seen = quorum.inspect(&*evict.name).await?;
    if !evict.slots.is_empty() {
        return slots::run(args, evict, quorum, &seen).await;
    }
    let holder = seen.holder();
    if holders(&seen) == 0 && seen.taken_slots() > 0 {
        // Nobody asks to free a lock that is free, so the semaphore is meant.
        return Err(Failure::usage(slots::say_which(&seen)));
    }
    if !evict.yes {
        if !args.json {
            output::say(&seen.to_string());
        }
        return Err(Failure::usage(refusal(&seen)));
    }
    let evicted = quorum.evict(&*evict.name).await?;
    if args.json {
        let readers = readers(&seen).map(|reader| output::holder_json(Some(&reader)));
        let readers: Vec<Value> = readers.collect();
        let object = json!({
            "name": &*evict.name,
            "evicted": evicted,
            "holder": output::holder_json(holder),
            "waiting": seen.waiting(),
            "writer": output::holder_json(seen.writer()),
            "reading": seen.reading(),
            "readers": readers,
        });
        output::say(&object.to_string());
    } else {
        output::say(&told(evicted, &seen));
    }
    Ok(0)
}

fn refusal(seen: &Inspection) -> String {
    let whose = match whose(seen) {
        whose if whose.is_empty() => "held by nobody on a majority of nodes".to_owned(),
        whose => whose.join(" and "),
    };
    let goes_to = match seen.waiting() {
        0 => "",
        _ => " and go to the first waiter",
    };
    let learn = match holders(seen) {
        0 | 1 => {
            "Its holder would learn of it at its next renewal; until then two may believe that they hold it"
        }
        _ => {
            "Its holders would learn of it at their next renewal; until then others may believe too that they hold it"
        }
    };
    format!(
        "nothing was done. {:?} is {whose}; with --yes it would be freed on all nodes{goes_to}. {learn}{}",
        seen.name,
        slots::stay(seen)
    )
}

fn told(evicted: bool, seen: &Inspection) -> String {
    let name = &seen.name;
    let free = match seen.waiting() {
        0 => "is free now",
        _ => "goes to the first waiter now",
    };
    let whose = whose(seen).join(" and ");
    let text = match (evicted, holders(seen)) {
        (false, _) => format!("{name:?} was free already"),
        (true, 0) => {
            format!("{name:?} {free}; no majority of nodes named a holder")
        }
        (true, 1) => {
            let does = if seen.reading() == 0 { "write" } else { "read" };
            format!(
                "{name:?} {free}; it was {whose}. The holder learns of it at its next renewal and may {does} until then"
            )
        }
        (true, _) => format!(
            "{name:?} {free}; it was {whose}. The holders learn of it at their next renewals and may go on until then"
        ),
    };
    text + slots::stay(seen)
}

/// Counts the holders of what would be freed.
fn holders(seen: &Inspection) -> u64 {
    let alone = [seen.holder(), seen.writer()].into_iter().flatten();
    seen.reading().saturating_add(alone.map(|_| 1).sum())
}

/// Names the holders of what would be freed: `held by web-3:77`, `held for reading by ann, bob, eve and 2 more`.
fn whose(seen: &Inspection) -> Vec<String> {
    let mut whose = Vec::new();
    if let Some(holder) = seen.holder() {
        whose.push(format!("held by {}", holder.label));
    }
    if let Some(writer) = seen.writer() {
        whose.push(format!("held for writing by {}", writer.label));
    }
    let readers: Vec<String> = readers(seen).take(NAMED).map(|it| it.label).collect();
    if !readers.is_empty() {
        let named = u64::try_from(readers.len()).unwrap_or(u64::MAX);
        let more = match seen.reading().saturating_sub(named) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        whose.push(format!("held for reading by {}{more}", readers.join(", ")));
    }
    whose
}

fn readers(seen: &Inspection) -> impl Iterator<Item = Holder> {
    let readers = seen.readers().into_iter();
    let held = readers.filter(|reader| reader.is_held);
    held.map(|reader| reader.holder)
}
