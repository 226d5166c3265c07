//! Reaching the nodes for the commands that only ask, and what is said of a node.

use std::time::{Duration, Instant};

use quorate::{Holder, NodeState, NodeStatus, Quorum};
use serde_json::{Value, json};
use tokio::time;

use crate::{args::Args, failure::Failure, output};

const LOOK: Duration = Duration::from_millis(5);
/// A little more than a dial may take.
const LONGEST: Duration = Duration::from_secs(4);

/// Dials all nodes, and waits until each was reached or not; with a majority not for long. Fewer
/// than a majority is no failure here: an operator asks because something is wrong.
pub(crate) async fn reach(args: &Args) -> Result<Quorum, Failure> {
    let quorum = args.fleet.builder()?.connect_lazy()?;
    let started = Instant::now();
    let enough = args.fleet.node_timeout().saturating_mul(2);
    loop {
        let nodes = quorum.nodes();
        let connecting = nodes
            .iter()
            .filter(|node| node.state == NodeState::Connecting)
            .count();
        let waited = started.elapsed();
        let majority = connecting * 2 < nodes.len() && waited > enough;
        if connecting == 0 || majority || waited > LONGEST {
            return Ok(quorum);
        }
        time::sleep(LOOK).await;
    }
}

/// One word for programs, and the reason where there is one.
pub(crate) fn state(node: &NodeStatus) -> (&'static str, Option<String>) {
    let why = match &node.state {
        NodeState::Refused(why) | NodeState::Unreachable(_, why) => Some(why.clone()),
        _ => None,
    };
    let word = match &node.state {
        NodeState::Connecting => "connecting",
        NodeState::Voting => "voting",
        NodeState::Quarantined(_) => "quarantined",
        NodeState::Stalled(_) => "stalled",
        NodeState::Refused(_) => "refused",
        NodeState::Unreachable(..) => "unreachable",
        _ => "unknown",
    };
    (word, why)
}

pub(crate) fn holder_json(holder: Option<&Holder>) -> Value {
    holder.map_or(Value::Null, |holder| {
        json!({
            "label": holder.label,
            "entry": holder.entry,
            "remaining_ms": holder.remaining.map(output::milliseconds),
        })
    })
}

/// `web-3:77, for 8.2 s more unless it is renewed`
pub(crate) fn holder_text(holder: &Holder) -> String {
    match holder.remaining {
        Some(left) => format!(
            "{}, for {} more unless it is renewed",
            holder.label,
            output::seconds(left)
        ),
        None => format!("{}, without an end", holder.label),
    }
}
