//! `quorate inspect`: who holds a lock or the slots of a semaphore and who waits for it, on every node.

use quorate::{Inspection, NodeSlots, Quorum, Slot, Waiter};
use serde_json::{Value, json};

use crate::{
    args::{self, Args},
    failure::{Failure, UNAVAILABLE},
    output, survey,
};

pub(crate) async fn run(
    args: &Args,
    inspect: &args::Inspect,
    quorum: &Quorum,
) -> Result<u8, Failure> {
    quorum.mutex(&inspect.name).validate()?;
    survey::reach(args, quorum).await;
    let seen = quorum.inspect(&inspect.name).await?;
    match args.json {
        true => output::say(&as_json(&seen, quorum.health().needed).to_string()),
        false => output::say(&seen.to_string()),
    }
    Ok(if answered(&seen) >= quorum.health().needed {
        0
    } else {
        UNAVAILABLE
    })
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
            "holder": survey::holder_json(node.holder.as_ref()),
            "token": node.token.map(|token| token.as_u64()),
            "waiting": node.silence.is_none().then_some(node.waiting),
            "semaphore": node.semaphore.as_ref().map(node_slots_json),
        })
    });
    let nodes: Vec<Value> = nodes.collect();
    let line: Vec<Value> = seen.line().iter().map(waiter_json).collect();
    json!({
        "name": seen.name,
        "held": held,
        "holder": survey::holder_json(seen.holder()),
        "newest_token": seen.newest_token().map(|token| token.as_u64()),
        "waiting": seen.waiting(),
        "line": line,
        "needed": needed,
        "answered": answered,
        "nodes": nodes,
        "semaphore": semaphore_json(seen),
    })
}

/// Null if no node knows anything of one.
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

fn slot_json(slot: &Slot) -> Value {
    let nodes: Vec<&str> = slot.nodes.iter().map(|node| &**node).collect();
    json!({
        "slot": slot.number,
        "held": slot.is_held,
        "holder": survey::holder_json(Some(&slot.holder)),
        "token": slot.token.map(|token| token.as_u64()),
        "nodes": nodes,
    })
}

fn node_slots_json(known: &NodeSlots) -> Value {
    json!({"limit": known.limit, "taken": known.taken, "waiting": known.waiting})
}

fn waiter_json(waiter: &Waiter) -> Value {
    let nodes: Vec<&str> = waiter.nodes.iter().map(|node| &**node).collect();
    json!({
        "label": waiter.label,
        "owner": waiter.owner(),
        "entry": waiter.entry,
        "waited_ms": output::milliseconds(waiter.waited),
        "nodes": nodes,
    })
}
