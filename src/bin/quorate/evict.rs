//! `quorate evict`: frees a lock everywhere, even if it is held. Who is first in line gets it.

use quorate::{Inspection, Quorum};
use serde_json::json;

use crate::{
    args::{self, Args},
    failure::Failure,
    output, survey,
};

pub(crate) async fn run(args: &Args, evict: &args::Evict, quorum: &Quorum) -> Result<u8, Failure> {
    quorum.mutex(&evict.name).validate()?;
    survey::reach(args, quorum).await;
    let seen = quorum.inspect(&evict.name).await?;
    let holder = seen.holder();
    if !evict.yes {
        if !args.json {
            output::say(&seen.to_string());
        }
        return Err(Failure::usage(refusal(&seen)));
    }
    let evicted = quorum.evict(&evict.name).await?;
    if args.json {
        let object = json!({
            "name": evict.name,
            "evicted": evicted,
            "holder": survey::holder_json(holder),
            "waiting": seen.waiting(),
        });
        output::say(&object.to_string());
    } else {
        output::say(&told(evicted, &seen));
    }
    Ok(0)
}

fn refusal(seen: &Inspection) -> String {
    let whose = seen.holder().map_or_else(
        || "nobody's by majority".to_owned(),
        |holder| format!("held by {}", holder.label),
    );
    let goes_to = match seen.waiting() {
        0 => "",
        _ => " and go to the first in line",
    };
    format!(
        "nothing was done. {:?} is {whose}; with --yes it would be freed on all nodes{goes_to}, its \
         holder would learn of it when it next renews, and until then two may believe that they hold it{}",
        seen.name,
        slots_stay(seen)
    )
}

fn told(evicted: bool, seen: &Inspection) -> String {
    let name = &seen.name;
    let free = match seen.waiting() {
        0 => "is free now",
        _ => "goes to the first in line now",
    };
    let text = match (evicted, seen.holder()) {
        (false, _) => format!("{name:?} was free already"),
        (true, None) => {
            format!("{name:?} {free}; what was left on some nodes made no majority")
        }
        (true, Some(holder)) => format!(
            "{name:?} {free}; it was held by {}, who learns of it when it next renews and may write until then",
            holder.label
        ),
    };
    text + slots_stay(seen)
}

/// Only locks are freed, and a semaphore may have the name too.
fn slots_stay(seen: &Inspection) -> &'static str {
    match seen.nodes.iter().any(|node| node.semaphore.is_some()) {
        true => "; the slots of the semaphore of that name are left to their ttl",
        false => "",
    }
}
