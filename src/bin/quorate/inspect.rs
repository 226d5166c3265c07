//! `quorate inspect`: who holds a lock, on every node.

use quorate::{Inspection, NodeInspection, Quorum};
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
        false => output::say(&as_text(&seen, quorum.health().needed)),
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

/// Who holds the name, what each node says.
pub(crate) fn as_text(seen: &Inspection, needed: usize) -> String {
    let rows: Vec<Vec<String>> = seen.nodes.iter().map(row).collect();
    let table = output::table(&["NODE", "HOLDER", "REMAINING", "TOKEN", "STATE"], &rows);
    format!("{}\n\n{table}", verdict(seen, needed))
}

fn row(node: &NodeInspection) -> Vec<String> {
    let holder = node.holder.as_ref();
    let none = || "-".to_owned();
    let remaining = holder.map(|holder| {
        holder
            .remaining
            .map_or_else(|| "no end".to_owned(), output::seconds)
    });
    vec![
        node.node.to_string(),
        holder.map_or_else(none, |holder| holder.label.clone()),
        remaining.unwrap_or_else(none),
        node.token.map_or_else(none, |token| token.to_string()),
        node.silence
            .as_ref()
            .map_or_else(|| "voting".to_owned(), ToString::to_string),
    ]
}

fn verdict(seen: &Inspection, needed: usize) -> String {
    let name = &seen.name;
    let total = seen.nodes.len();
    if let Some(holder) = seen.holder() {
        let on = seen
            .nodes
            .iter()
            .filter(|node| {
                node.holder
                    .as_ref()
                    .is_some_and(|h| h.entry == holder.entry)
            })
            .count();
        return format!(
            "{name:?} is held on {on} of {total} nodes by {}",
            survey::holder_text(holder)
        );
    }
    let answered = answered(seen);
    if answered < needed {
        return format!(
            "{name:?}: cannot be told, {answered} of {total} nodes answered and {needed} are needed"
        );
    }
    match seen
        .nodes
        .iter()
        .filter(|node| node.holder.is_some())
        .count()
    {
        0 if answered == total => format!("{name:?} is free"),
        0 => format!("{name:?} is free on the {answered} of {total} nodes that answered"),
        some => format!(
            "{name:?} is held by nobody: on {some} of {total} nodes there is an entry, {needed} are needed"
        ),
    }
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
        })
    });
    let nodes: Vec<Value> = nodes.collect();
    json!({
        "name": seen.name,
        "held": held,
        "holder": survey::holder_json(seen.holder()),
        "newest_token": seen.newest_token().map(|token| token.as_u64()),
        "needed": needed,
        "answered": answered,
        "nodes": nodes,
    })
}
