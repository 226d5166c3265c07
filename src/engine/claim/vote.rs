//! What the nodes say to what was asked for a claim.

use crate::{
    node::{Reply, mutex, rwlock, several, slots},
    protocol::ballot::answers::Said,
};

/// A node's answer to an operation of a claim.
pub(crate) fn vote_of(reply: Reply) -> Said {
    match reply {
        Reply::Mutex(reply) => vote_on_a_mutex(reply),
        Reply::Several(reply) => vote_on_several(reply),
        Reply::Rwlock(reply) => vote_on_an_rwlock(reply),
        Reply::Slots(reply) => vote_on_slots(reply),
        Reply::Admission(_) | Reply::Server(_) | Reply::Rate(_) => Said::Else,
    }
}

fn vote_on_slots(reply: slots::Reply) -> Said {
    match reply {
        slots::Reply::Slots {
            mine,
            taken,
            version,
            may_take,
            ticket,
            next_free,
        } => Said::Slots {
            mine,
            taken,
            version,
            may_take,
            ticket,
            next_free,
        },
        slots::Reply::Conflict(limit) => Said::Conflict(limit),
        slots::Reply::Limit(limit) => Said::Limit(limit),
        slots::Reply::Yielded => Said::Yielded,
        slots::Reply::Raised(counter) => Said::Raised(counter),
        slots::Reply::Extended => Said::Extended,
        slots::Reply::Lost => Said::Lost,
        slots::Reply::Repaired(stands) => Said::Repaired(stands),
        slots::Reply::Released(freed) => Said::Released(freed),
        slots::Reply::ReleasedUnadmitted | slots::Reply::Inspected(_) => Said::Else,
    }
}

fn vote_on_a_mutex(reply: mutex::Reply) -> Said {
    match reply {
        mutex::Reply::Granted(counter) => Said::Granted(counter),
        mutex::Reply::Held {
            remaining,
            counter,
            holder,
            ticket,
        } => Said::Held {
            which: None,
            remaining,
            counter,
            holder,
            ticket,
        },
        mutex::Reply::Taken { counter, seq } => Said::Taken { counter, seq },
        mutex::Reply::InLine { rank, ahead } => Said::InLine {
            rank,
            remaining: ahead.remaining,
            holder: ahead.holder,
            ticket: ahead.ticket,
            is_reserved: ahead.is_reserved,
        },
        mutex::Reply::Yielded => Said::Yielded,
        mutex::Reply::Raised(counter) => Said::Raised(counter),
        mutex::Reply::Extended => Said::Extended,
        mutex::Reply::Lost => Said::Lost,
        mutex::Reply::Repaired(stands) => Said::Repaired(stands),
        mutex::Reply::Released(freed) => Said::Released(freed),
        mutex::Reply::ReleasedUnadmitted
        | mutex::Reply::Inspected { .. }
        | mutex::Reply::Evicted { .. } => Said::Else,
    }
}

fn vote_on_several(reply: several::Reply) -> Said {
    match reply {
        several::Reply::Granted(counter) => Said::Granted(counter),
        several::Reply::Held {
            which,
            remaining,
            counter,
            holder,
        } => Said::Held {
            which: Some(which),
            remaining,
            counter,
            holder,
            ticket: 0,
        },
        several::Reply::Raised(counter) => Said::Raised(counter),
        several::Reply::Extended => Said::Extended,
        several::Reply::Lost => Said::Lost,
        several::Reply::Repaired(stands) => Said::Repaired(stands),
        several::Reply::Released(freed) => Said::Released(freed),
        several::Reply::ReleasedUnadmitted => Said::Else,
    }
}

fn vote_on_an_rwlock(reply: rwlock::Reply) -> Said {
    match reply {
        rwlock::Reply::Granted(counter) => Said::Granted(counter),
        rwlock::Reply::Held {
            remaining,
            counter,
            holder,
        } => Said::Held {
            which: None,
            remaining,
            counter,
            holder,
            ticket: 0,
        },
        rwlock::Reply::Raised(counter) => Said::Raised(counter),
        rwlock::Reply::Extended => Said::Extended,
        rwlock::Reply::Lost => Said::Lost,
        rwlock::Reply::Repaired(stands) => Said::Repaired(stands),
        rwlock::Reply::Released(freed) => Said::Released(freed),
        rwlock::Reply::ReleasedUnadmitted
        | rwlock::Reply::Inspected(_)
        | rwlock::Reply::Evicted { .. } => Said::Else,
    }
}
