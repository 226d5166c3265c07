//! The state that `nodes()`, `health()` and `node_changes()` read without asking the engine.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    task::{Context, Poll},
    time::Duration,
};

use futures::{
    Stream, StreamExt as _,
    stream::{self, BoxStream},
};
use tokio::sync::watch;

use crate::{
    base::{
        clock::{Clock, Tick},
        ending::Ending,
        majority::majority,
        quota,
    },
    node::status::{Health, NodeState, NodeStatus},
};

/// The last published states of the nodes.
pub(crate) struct Status {
    clock: Arc<dyn Clock>,
    published: watch::Sender<Published>,
    /// Nothing new may begin: `shutdown` was called, or the engine has ended.
    is_closing: AtomicBool,
    closing: watch::Sender<()>,
    ending: Arc<Ending>,
}

struct Published {
    at: Tick,
    nodes: Vec<NodeStatus>,
    /// The engine has ended.
    closed: bool,
}

impl Published {
    /// The state of every node at this moment.
    fn now(&self, clock: &dyn Clock) -> Vec<NodeStatus> {
        let age = clock.now().since(self.at);
        let mut nodes = self.nodes.clone();
        for node in &mut nodes {
            if node.state == NodeState::Voting {
                node.limits_up_to = quota::longest(quota::history(node.limits_up_to) + age);
            }
            match &mut node.state {
                NodeState::Quarantined(left) => *left = left.saturating_sub(age),
                NodeState::Stalled(since) | NodeState::Unreachable(since, _) => *since += age,
                NodeState::Connecting
                | NodeState::Voting
                | NodeState::Refused(_)
                | NodeState::RefusesWrites(_) => {}
            }
        }
        nodes
    }
}

impl Status {
    pub(crate) fn new(clock: Arc<dyn Clock>, nodes: &[Arc<str>]) -> Self {
        let connecting = |node: &Arc<str>| NodeStatus {
            node: Arc::clone(node),
            state: NodeState::Connecting,
            note: None,
            used: false,
            limits_up_to: Duration::ZERO,
            round_trip: None,
        };
        let published = Published {
            at: clock.now(),
            nodes: nodes.iter().map(connecting).collect(),
            closed: false,
        };
        Self {
            published: watch::Sender::new(published),
            is_closing: AtomicBool::new(false),
            closing: watch::Sender::new(()),
            ending: Arc::default(),
            clock,
        }
    }

    pub(crate) fn publish(&self, at: Tick, nodes: Vec<NodeStatus>) {
        self.replace(at, nodes, false);
    }

    /// Publishes the last states. Nothing is published after them.
    pub(crate) fn close(&self, at: Tick, nodes: Vec<NodeStatus>) {
        self.replace(at, nodes, true);
        self.begin_to_close();
    }

    /// The program ends the engine itself.
    pub(crate) fn shut_down(&self) {
        self.ending.shut_down();
        self.begin_to_close();
    }

    pub(crate) fn ending(&self) -> &Arc<Ending> {
        &self.ending
    }

    /// Lets everybody know that nothing new may begin.
    pub(crate) fn begin_to_close(&self) {
        self.is_closing.store(true, Release);
        self.closing.send_replace(());
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Acquire)
    }

    /// Ready when nothing new may begin. It does not keep the engine alive.
    pub(crate) fn closing(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        // Subscribed before the look, so that it misses nothing in between.
        let mut closing = self.closing.subscribe();
        let is_closing = self.is_closing();
        async move {
            if !is_closing {
                // If the sender is gone, everything that it could end is gone too.
                let _ = closing.changed().await;
            }
        }
    }

    fn replace(&self, at: Tick, nodes: Vec<NodeStatus>, closed: bool) {
        let published = Published { at, nodes, closed };
        self.published.send_replace(published);
    }

    /// The state of every node at this moment.
    pub(crate) fn nodes(&self) -> Vec<NodeStatus> {
        self.published.borrow().now(&*self.clock)
    }

    pub(crate) fn health(&self) -> Health {
        health(self.nodes().iter().map(|node| &node.state))
    }

    pub(crate) fn changes(&self) -> NodeChanges {
        let reader = Reader {
            clock: Arc::clone(&self.clock),
            published: self.published.subscribe(),
            told: Vec::new(),
            turn: 0,
        };
        let changes = stream::unfold(reader, |mut reader| async move {
            let next = reader.next().await?;
            Some((next, reader))
        });
        NodeChanges(changes.fuse().boxed())
    }
}

/// A stream of the changes of the nodes' states: see [`Quorum::node_changes`](crate::Quorum::node_changes).
///
/// The stream does not keep the quorum open, and never delays it. It keeps only the last state of every node, so a slow
/// reader misses the states in between.
#[must_use = "a stream does nothing until it is polled"]
pub struct NodeChanges(BoxStream<'static, NodeStatus>);

impl Stream for NodeChanges {
    type Item = NodeStatus;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<NodeStatus>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for NodeChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeChanges").finish_non_exhaustive()
    }
}

struct Reader {
    clock: Arc<dyn Clock>,
    published: watch::Receiver<Published>,
    /// By node: the status that the stream returned last.
    told: Vec<Option<NodeStatus>>,
    /// The node that is looked at first.
    turn: usize,
}

impl Reader {
    /// Returns `None` when the quorum is closed.
    async fn next(&mut self) -> Option<NodeStatus> {
        loop {
            let nodes = {
                let published = self.published.borrow_and_update();
                if published.closed {
                    return None;
                }
                published.now(&*self.clock)
            };
            if let Some(status) = self.news(nodes) {
                return Some(status);
            }
            self.published.changed().await.ok()?;
        }
    }

    /// The next status to return, if there is one. The nodes take turns, so that a node which changes all the time does
    /// not hide the others.
    fn news(&mut self, nodes: Vec<NodeStatus>) -> Option<NodeStatus> {
        self.told.resize(nodes.len(), None);
        let (before, after) = (0..self.turn, self.turn..nodes.len());
        let node = after.chain(before).find(|node| {
            let pair = nodes.get(*node).zip(self.told.get(*node));
            pair.is_some_and(|(new, told)| told.as_ref().is_none_or(|told| new.is_news(told)))
        })?;
        self.turn = node + 1;
        let status = nodes.into_iter().nth(node)?;
        *self.told.get_mut(node)? = Some(status.clone());
        Some(status)
    }
}

/// The health of nodes in these states: says if locks can be taken.
pub(super) fn health<'a>(states: impl IntoIterator<Item = &'a NodeState>) -> Health {
    let (mut total, mut voting, mut left) = (0, 0, Vec::new());
    for state in states {
        total += 1;
        match state {
            NodeState::Voting => voting += 1,
            NodeState::Quarantined(for_so_long) => left.push(*for_so_long),
            _ => {}
        }
    }
    let needed = majority(total);
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
    fn votes_in_is_when_enough_nodes_will_vote() {
        let young = |s| NodeState::Quarantined(Duration::from_secs(s));
        let nodes = [
            NodeState::Voting,
            young(9),
            young(5),
            young(7),
            NodeState::Connecting,
        ];
        assert!(!health(&nodes).is_ready());
        let Health {
            voting,
            needed,
            spare,
            votes_in,
        } = health(&nodes);
        assert_eq!((voting, needed, spare), (1, 3, 0));
        assert_eq!(votes_in, Some(Duration::from_secs(7)));
        let well = health(&[NodeState::Voting, NodeState::Voting, young(1)]);
        assert_eq!((well.spare, well.votes_in), (0, None));
        assert!(well.is_ready(), "as many as are needed");
    }
}
