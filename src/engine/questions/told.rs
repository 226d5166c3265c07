//! What one node has told of a name, as operators read it.

use std::{sync::Arc, time::Duration};

use crate::{
    FencingToken, Holder, NodeInspection, NodeSlots, Silence, Slot, Waiter,
    ballot::answers::Heard,
    claim::{Inspected, Seen},
    owner::label_of,
};

/// Of the mutex and of the semaphore of one name.
pub(super) fn inspection(
    node: &Arc<str>,
    mutex: &Heard<Seen>,
    semaphore: &Heard<Inspected>,
) -> NodeInspection {
    let mut told = NodeInspection {
        node: Arc::clone(node),
        holder: None,
        token: None,
        line: Vec::new(),
        waiting: 0,
        semaphore: None,
        silence: silence(mutex, semaphore),
    };
    if let Heard::Said(seen) = mutex {
        told.holder = seen
            .holder
            .as_ref()
            .map(|(entry, remaining)| holder(entry, *remaining));
        told.token = (seen.counter > 0).then(|| FencingToken::from_counter(seen.counter));
        told.line = line(node, &seen.line);
        told.waiting = seen.waiting;
    }
    if let Heard::Said(inspected) = semaphore {
        told.semaphore = slots(node, inspected);
    }
    told
}

/// None if it knows nothing of a semaphore.
fn slots(node: &Arc<str>, inspected: &Inspected) -> Option<NodeSlots> {
    if is_nothing(inspected) {
        return None;
    }
    let slots = inspected.holders.iter().map(|held| Slot {
        number: held.slot,
        holder: holder(&held.holder, Some(held.remaining)),
        token: (held.counter > 0).then(|| FencingToken::from_counter(held.counter)),
        nodes: vec![Arc::clone(node)],
        is_held: false,
    });
    Some(NodeSlots {
        limit: inspected.limit.map(|limit| limit.slots),
        version: inspected.limit.map_or(0, |limit| limit.version),
        taken: inspected.taken.count(),
        bits: inspected.taken.clone(),
        slots: slots.collect(),
        line: line(node, &inspected.line),
        waiting: inspected.waiting,
    })
}

fn holder(entry: &str, remaining: Option<Duration>) -> Holder {
    Holder {
        entry: entry.to_owned(),
        label: label_of(entry).to_owned(),
        remaining,
    }
}

fn line(node: &Arc<str>, line: &[(String, Duration)]) -> Vec<Waiter> {
    let waiters = line.iter().map(|(entry, waited)| Waiter {
        entry: entry.clone(),
        label: label_of(entry).to_owned(),
        waited: *waited,
        nodes: vec![Arc::clone(node)],
    });
    waiters.collect()
}

/// Why it has not told all.
fn silence(mutex: &Heard<Seen>, semaphore: &Heard<Inspected>) -> Option<Silence> {
    match (mutex, semaphore) {
        (Heard::Said(_), Heard::Said(_)) => None,
        // A user may be kept to the keys of some locks, or of some semaphores.
        (Heard::Said(_), Heard::Silent(why)) if is_withheld(why) => None,
        (Heard::Silent(why), Heard::Said(seen)) if is_withheld(why) && !is_nothing(seen) => None,
        (Heard::Silent(why), _) | (_, Heard::Silent(why)) => Some(why.clone()),
        (Heard::Waiting, _) | (_, Heard::Waiting) => Some(Silence::TimedOut),
    }
}

fn is_withheld(why: &Silence) -> bool {
    matches!(why, Silence::Failed(why) if why.starts_with("NOPERM"))
}

fn is_nothing(inspected: &Inspected) -> bool {
    *inspected == Inspected::default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;

    #[test]
    fn a_node_is_silent_unless_it_told_all_that_it_may() {
        let lock = || Heard::Said(Seen::default());
        let nothing = || Heard::Said(Inspected::default());
        let slots = || {
            let limit = Some(Limit {
                version: 1,
                slots: 3,
            });
            Heard::Said(Inspected {
                limit,
                ..Inspected::default()
            })
        };
        let withheld = || Silence::Failed("NOPERM no key for you".into());
        let broken = || Silence::Failed("ERR broken".into());
        for (mutex, semaphore, why) in [
            (lock(), nothing(), None),
            (lock(), Heard::Silent(withheld()), None),
            (Heard::Silent(withheld()), slots(), None),
            (Heard::Silent(withheld()), nothing(), Some(withheld())),
            (lock(), Heard::Silent(broken()), Some(broken())),
            (Heard::Silent(broken()), slots(), Some(broken())),
            (lock(), Heard::Waiting, Some(Silence::TimedOut)),
            (Heard::Silent(withheld()), Heard::Waiting, Some(withheld())),
        ] {
            let told = inspection(&"h:1".into(), &mutex, &semaphore);
            assert_eq!(told.silence, why, "{mutex:?} {semaphore:?}");
        }
    }
}
