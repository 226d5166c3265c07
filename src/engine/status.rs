//! What `nodes()` and `health()` read without asking the engine.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use crate::{
    ballot::majority::majority,
    clock::{Clock, Tick},
    node::status::{Health, NodeState, NodeStatus},
};

/// The nodes' states as last published, and when.
pub(crate) struct Status {
    clock: Arc<dyn Clock>,
    nodes: RwLock<(Tick, Vec<NodeStatus>)>,
}

impl Status {
    pub(crate) fn new(clock: Arc<dyn Clock>, nodes: &[Arc<str>]) -> Self {
        let connecting = |node: &Arc<str>| NodeStatus {
            node: Arc::clone(node),
            state: NodeState::Connecting,
            note: None,
        };
        let nodes = nodes.iter().map(connecting).collect();
        Self {
            nodes: RwLock::new((clock.now(), nodes)),
            clock,
        }
    }

    pub(crate) fn publish(&self, now: Tick, nodes: Vec<NodeStatus>) {
        *self.nodes.write().unwrap_or_else(PoisonError::into_inner) = (now, nodes);
    }

    /// Every node's state now.
    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        let (at, mut nodes) = self
            .nodes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let age = self.clock.now().since(at);
        for node in &mut nodes {
            match &mut node.state {
                NodeState::Quarantined(left) => *left = left.saturating_sub(age),
                NodeState::Stalled(since) | NodeState::Unreachable(since, _) => *since += age,
                NodeState::Connecting | NodeState::Voting | NodeState::Refused(_) => {}
            }
        }
        nodes
    }

    pub(crate) fn health(&self) -> Health {
        health(&self.nodes())
    }
}

fn health(nodes: &[NodeStatus]) -> Health {
    let needed = majority(nodes.len());
    let voting = nodes
        .iter()
        .filter(|n| n.state == NodeState::Voting)
        .count();
    let mut left: Vec<Duration> = nodes
        .iter()
        .filter_map(|node| match node.state {
            NodeState::Quarantined(left) => Some(left),
            _ => None,
        })
        .collect();
    left.sort();
    let missing = needed.saturating_sub(voting);
    let votes_in = missing
        .checked_sub(1)
        .and_then(|last| left.get(last).copied());
    Health {
        voting,
        needed,
        spare: voting.saturating_sub(needed),
        votes_in,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_in_is_when_the_missing_ones_are_there() {
        let node = |state| NodeStatus {
            node: "a".into(),
            state,
            note: None,
        };
        let young = |s| node(NodeState::Quarantined(Duration::from_secs(s)));
        let nodes = [
            node(NodeState::Voting),
            young(9),
            young(5),
            young(7),
            node(NodeState::Connecting),
        ];
        let Health {
            voting,
            needed,
            spare,
            votes_in,
        } = health(&nodes);
        assert_eq!((voting, needed, spare), (1, 3, 0));
        assert_eq!(votes_in, Some(Duration::from_secs(7)));
        let well = health(&[node(NodeState::Voting), node(NodeState::Voting), young(1)]);
        assert_eq!((well.spare, well.votes_in), (0, None));
    }
}
