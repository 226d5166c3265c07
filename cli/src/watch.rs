//! `quorate watch`: prints every change of the servers' states, for ever. While it runs it witnesses their quarantines.

use std::{
    io::ErrorKind,
    time::{SystemTime, UNIX_EPOCH},
};

use futures::StreamExt as _;
use quorate::{Health, NodeState, NodeStatus, Quorum};
use serde_json::json;
use tokio::select;

use crate::{
    args::Args,
    failure::{Failure, SOFTWARE},
    nodes, output,
    signals::Signals,
    survey,
};

/// Runs until it is told to end, or until nobody reads what it prints.
pub(crate) async fn run(args: &Args, quorum: &Quorum) -> Result<u8, Failure> {
    let mut signals = Signals::new()?;
    select! {
        biased;
        _ = signals.end() => Ok(0),
        () = output::reader_gone() => Ok(0),
        ended = follow(args, quorum) => ended,
    }
}

async fn follow(args: &Args, quorum: &Quorum) -> Result<u8, Failure> {
    survey::reach(args, quorum).await;
    let total = quorum.nodes().len();
    let mut changes = quorum.node_changes().ready_chunks(total);
    let mut was_able = None;
    while let Some(changed) = changes.next().await {
        let health = quorum.health();
        let mut lines: Vec<String> = match args.json {
            true => changed.iter().map(|node| as_json(node, health)).collect(),
            false => changed.iter().map(as_text).collect(),
        };
        let able = health.is_ready();
        if was_able.replace(able) != Some(able) && !args.json {
            lines.push(nodes::verdict(health, &quorum.nodes()));
        }
        match output::deliver(lines.join("\n")).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            Err(error) => {
                let text = format!("cannot write to stdout: {error}");
                return Err(Failure::new(SOFTWARE, "internal", text));
            }
        }
    }
    Ok(0)
}

/// The state without its duration, which follows from the time of the line.
fn as_text(node: &NodeStatus) -> String {
    let state = match &node.state {
        NodeState::Unreachable(_, why) => format!("unreachable: {why}"),
        NodeState::Stalled(_) => "stalled".to_owned(),
        state => state.to_string(),
    };
    let note = node.note.as_ref().map(|note| format!(" ({note})"));
    format!("{}: {state}{}", node.node, note.unwrap_or_default())
}

fn as_json(node: &NodeStatus, health: Health) -> String {
    let (state, reason) = survey::state(node);
    let at = SystemTime::now().duration_since(UNIX_EPOCH);
    let remaining = survey::quarantine(node).map(output::milliseconds);
    json!({
        "at_ms": at.map(output::milliseconds).unwrap_or(0),
        "node": &*node.node, "state": state, "reason": reason, "note": node.note,
        "remaining_ms": remaining, "voting": health.voting, "needed": health.needed,
    })
    .to_string()
}
