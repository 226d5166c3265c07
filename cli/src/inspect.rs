//! `quorate inspect`: shows, for every node, who holds a lock, who reads or writes under it, who has the slots of a
//! semaphore, and who waits. It also shows how much is left of a rate limit.

use std::sync::Arc;

use quorate::{
    Inspection, NodeInspection, NodeRwlock, NodeSlots, Quorum, Quota, Reader, Slot, Waiter,
    WaitingWriter,
};
use serde_json::{Value, json};

use crate::{
    args::{self, Args, Rate},
    failure::{Failure, UNAVAILABLE},
    output, survey,
};

pub(crate) async fn run(
    args: &Args,
    inspect: &args::Inspect,
    quorum: &Quorum,
) -> Result<u8, Failure> {
    quorum.mutex(&*inspect.name).validate()?;
    if let Some(quota) = quota(&inspect.rates) {
        return show_limit(args, &inspect.name, quota, quorum).await;
    }
    survey::reach(args, quorum).await;
    let seen = quorum.inspect(&*inspect.name).await?;
    match args.json {
        true => output::say(&as_json(&seen, quorum.health().needed).to_string()),
        false if tells_nothing(&seen) => output::say(&format!("{seen}\n\n{ELSE}")),
        false => output::say(&seen.to_string()),
    }
    Ok(if answered(&seen) >= quorum.health().needed {
        0
    } else {
        UNAVAILABLE
    })
}

/// A hint where no lock has this name. The servers count a rate limit under its intervals and its name together, so
/// the name alone does not find it.
const ELSE: &str = "No lock of this name is held, and no semaphore is in use. To see what is left of a rate limit, \
    add its --rate.";

fn tells_nothing(seen: &Inspection) -> bool {
    let nobody = |node: &NodeInspection| {
        let knows = node.semaphore.is_some() || node.rwlock.is_some();
        node.silence.is_none() && node.holder.is_none() && node.waiting == 0 && !knows
    };
    seen.nodes.iter().all(nobody)
}

/// The rate limit that --rate describes, if it is given.
fn quota(rates: &[Rate]) -> Option<Quota> {
    let quotas = rates.iter();
    let quotas = quotas.map(|Rate { limit, period }| Quota::new(*limit, *period));
    quotas.reduce(Quota::and)
}

/// Prints how much is left of a rate limit.
async fn show_limit(args: &Args, name: &str, quota: Quota, quorum: &Quorum) -> Result<u8, Failure> {
    let limiter = quorum.rate_limiter(name, quota.clone());
    limiter.validate()?;
    survey::reach(args, quorum).await;
    let seen = limiter.check_n(0).await?;
    if args.json {
        let object = json!({
            "name": name,
            "remaining": seen.remaining(),
            "limit": seen.limit(),
            "wait_ms": output::wait_ms(seen.wait()),
        });
        output::say(&object.to_string());
        return Ok(0);
    }
    output::say(&match (seen.remaining(), seen.wait()) {
        (0, wait) => format!(
            "{name:?}: nothing is left of the limit of {quota}; there is room for one in {}",
            output::seconds(wait)
        ),
        (left, _) => format!("{name:?}: {left} are left of the limit of {quota}"),
    });
    Ok(0)
}

fn answered(seen: &Inspection) -> usize {
    seen.nodes
        .iter()
        .filter(|node| node.silence.is_none())
        .count()
}

fn as_json(seen: &Inspection, needed: usize) -> Value {
    let answered = answered(seen);
    let held = match seen.holder() {
        Some(_) => Some(true),
        None if answered < needed => None,
        None => Some(false),
    };
    let nodes = seen.nodes.iter().map(|node| {
        json!({
            "node": &*node.node,
            "state": if node.silence.is_some() { "silent" } else { "voting" },
            "reason": node.silence.as_ref().map(ToString::to_string),
            "holder": output::holder_json(node.holder.as_ref()),
            "token": node.token.map(|token| token.as_u64()),
            "waiting": node.silence.is_none().then_some(node.waiting),
            "semaphore": node.semaphore.as_ref().map(node_slots_json),
            "rwlock": node.rwlock.as_ref().map(node_rwlock_json),
        })
    });
    let nodes: Vec<Value> = nodes.collect();
    let line: Vec<Value> = seen.line().iter().map(waiter_json).collect();
    json!({
        "name": seen.name,
        "held": held,
        "holder": output::holder_json(seen.holder()),
        "newest_token": seen.newest_token().map(|token| token.as_u64()),
        "waiting": seen.waiting(),
        "line": line,
        "needed": needed,
        "answered": answered,
        "nodes": nodes,
        "semaphore": semaphore_json(seen),
        "rwlock": rwlock_json(seen),
    })
}

/// Null if no node knows a semaphore of this name.
fn semaphore_json(seen: &Inspection) -> Value {
    if seen.nodes.iter().all(|node| node.semaphore.is_none()) {
        return Value::Null;
    }
    let slots: Vec<Value> = seen.slots().iter().map(slot_json).collect();
    let line: Vec<Value> = seen.line_for_slots().iter().map(waiter_json).collect();
    json!({
        "limit": seen.limit(),
        "taken": seen.taken_slots(),
        "slots": slots,
        "waiting": seen.waiting_for_slots(),
        "line": line,
    })
}

/// Null if no node knows a read-write lock of this name.
fn rwlock_json(seen: &Inspection) -> Value {
    if seen.nodes.iter().all(|node| node.rwlock.is_none()) {
        return Value::Null;
    }
    let readers: Vec<Value> = seen.readers().iter().map(reader_json).collect();
    let writers = seen.waiting_writers();
    let writers: Vec<Value> = writers.iter().map(waiting_writer_json).collect();
    json!({
        "writer": output::holder_json(seen.writer()),
        "reading": seen.reading(),
        "readers": readers,
        "waiting": seen.waiting_to_write(),
        "waiting_writers": writers,
        "newest_token": seen.newest_rwlock_token().map(|token| token.as_u64()),
    })
}

fn reader_json(reader: &Reader) -> Value {
    json!({
        "held": reader.is_held,
        "holder": output::holder_json(Some(&reader.holder)),
        "nodes": names(&reader.nodes),
    })
}

fn waiting_writer_json(writer: &WaitingWriter) -> Value {
    json!({
        "label": writer.label,
        "owner": writer.owner(),
        "entry": writer.entry,
        "remaining_ms": output::milliseconds(writer.remaining),
        "nodes": names(&writer.nodes),
    })
}

fn node_rwlock_json(known: &NodeRwlock) -> Value {
    json!({
        "writer": output::holder_json(known.writer.as_ref()),
        "reading": known.reading,
        "waiting": known.waiting,
        "token": known.token.map(|token| token.as_u64()),
    })
}

fn names(nodes: &[Arc<str>]) -> Vec<&str> {
    nodes.iter().map(|node| &**node).collect()
}

fn slot_json(slot: &Slot) -> Value {
    json!({
        "slot": slot.number,
        "held": slot.is_held,
        "holder": output::holder_json(Some(&slot.holder)),
        "token": slot.token.map(|token| token.as_u64()),
        "nodes": names(&slot.nodes),
    })
}

fn node_slots_json(known: &NodeSlots) -> Value {
    json!({"limit": known.limit, "taken": known.taken, "waiting": known.waiting})
}

fn waiter_json(waiter: &Waiter) -> Value {
    json!({
        "label": waiter.label,
        "owner": waiter.owner(),
        "entry": waiter.entry,
        "waited_ms": output::milliseconds(waiter.waited),
        "nodes": names(&waiter.nodes),
    })
}
