//! For commands that only ask: waits for the nodes, and describes them.

use std::time::Duration;

use futures::StreamExt as _;
use quorate::{NodeState, NodeStatus, Quorum};
use tokio::{select, time};

use crate::{args::Args, failure::Failure, output, signals::Signals};

/// Lets a command ask the nodes, and shuts down in order. So even a short time for which it witnessed a quarantine
/// counts.
pub(crate) async fn ask<T>(
    args: &Args,
    command: impl AsyncFnOnce(&Quorum) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let quorum = args.fleet.builder()?.connect_lazy()?;
    let result = command(&quorum).await;
    // A second signal ends that at once.
    let mut signals = Signals::new()?;
    select! {
        biased;
        _ = signals.end() => {}
        _ = quorum.shutdown() => {}
    }
    result
}

/// Runs `command` until a signal asks this process to end. Otherwise the signal would end it at once, and leave a
/// password command behind that hangs.
pub(crate) async fn until_ended<T>(
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut signals = Signals::new()?;
    select! {
        biased;
        // A command that listens for signals itself says more.
        done = command => done,
        signal = signals.end() => Err(Failure::interrupted(
            signal as i32,
            "ended before the servers had answered",
        )),
    }
}

/// Waits until it is known of each node whether it can be reached. Once a majority is reached, it does not wait long
/// for the others. Fewer than a majority is not a failure here, because an operator asks when something is wrong.
pub(crate) async fn reach(args: &Args, quorum: &Quorum) {
    let mut changes = quorum.node_changes();
    let enough = time::sleep(args.fleet.node_timeout().saturating_mul(2));
    let longest = time::sleep(args.fleet.connect_timeout());
    tokio::pin!(enough, longest);
    let connecting = |node: &&NodeStatus| node.state == NodeState::Connecting;
    loop {
        let nodes = quorum.nodes();
        let left = nodes.iter().filter(connecting).count();
        let majority = left * 2 < nodes.len();
        if left == 0 || majority && enough.is_elapsed() {
            return;
        }
        select! {
            _ = changes.next() => {}
            () = &mut enough, if !enough.is_elapsed() => {}
            () = &mut longest => return,
        }
    }
}

/// Waits until it is known that too few nodes for a majority can be used now.
pub(crate) async fn no_majority(quorum: &Quorum) {
    let mut changes = quorum.node_changes();
    let is_away = |node: &&NodeStatus| {
        matches!(
            node.state,
            NodeState::Unreachable(..) | NodeState::Refused(_) | NodeState::RefusesWrites(_)
        )
    };
    loop {
        let nodes = quorum.nodes();
        let away = nodes.iter().filter(is_away).count();
        if (nodes.len() - away) * 2 <= nodes.len() || changes.next().await.is_none() {
            return;
        }
    }
}

/// The state as one word for programs, and the reason if there is one.
pub(crate) fn state(node: &NodeStatus) -> (&'static str, Option<String>) {
    let why = match &node.state {
        NodeState::Refused(why)
        | NodeState::RefusesWrites(why)
        | NodeState::Unreachable(_, why) => Some(why.clone()),
        _ => None,
    };
    let word = match &node.state {
        NodeState::Connecting => "connecting",
        NodeState::Voting => "voting",
        NodeState::Quarantined(_) => "quarantined",
        NodeState::Stalled(_) => "stalled",
        NodeState::Refused(_) => "refused",
        NodeState::RefusesWrites(_) => "refuses_writes",
        NodeState::Unreachable(..) => "unreachable",
        _ => "unknown",
    };
    (word, why)
}

/// Returns true if all servers may be new. If one of them votes, it has held locks, so the others have restarted. A
/// record may also say that the fleet was used.
pub(crate) fn may_be_new(nodes: &[NodeStatus]) -> bool {
    let votes =
        |state: &NodeState| matches!(state, NodeState::Voting | NodeState::RefusesWrites(_));
    let known = |node: &NodeStatus| node.used || votes(&node.state);
    !nodes.iter().any(known)
}

/// The servers that vote but do not yet give units of an interval of this length.
pub(crate) fn young(nodes: &[NodeStatus], interval: Duration) -> impl Iterator<Item = String> + '_ {
    let votes = |node: &&NodeStatus| node.state == NodeState::Voting;
    let young = nodes.iter().filter(votes);
    let young = young.filter(move |node| node.limits_up_to < interval);
    young.map(|node| {
        format!(
            "rate limits: {} restarted, or is new; it gives units for intervals of up to {} now, and for longer ones later",
            node.node,
            output::seconds(node.limits_up_to)
        )
    })
}

/// How much longer the node is in quarantine, if it is.
pub(crate) fn quarantine(node: &NodeStatus) -> Option<Duration> {
    match node.state {
        NodeState::Quarantined(left) => Some(left),
        _ => None,
    }
}
