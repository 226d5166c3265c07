//! Logs changes of nodes, failing renewals, and acquisitions that wait for a quarantine. Each change is logged once,
//! and never in a flood: what would be too much at INFO and WARN goes to DEBUG.

use std::{collections::BTreeSet, mem, time::Duration};

use super::status::health;
use crate::{
    Error, Report,
    base::{
        clock::Tick,
        logs::{
            self,
            budget::{Budget, MINUTE},
        },
        name::Name,
    },
    lease::failing::FailingRenewals,
    node::status::{NodeState, NodeStatus},
};

/// The number of changes of one node within a minute that are logged. A node with more of them flaps. A restart is four
/// changes.
const CHANGES: usize = 6;
/// The most names that are logged because this quorum waits for them and holds them.
const OWN: usize = 1_000;
/// The number of acquisitions within a minute that are logged as waiting for a quarantine, or for this quorum.
const WAITS: usize = 10;

/// A record of what was logged.
pub(super) struct Journal {
    nodes: Vec<Told>,
    /// Renewals that fail.
    pub(super) renewals: FailingRenewals,
    waits: Budget,
    own_waits: Budget,
    /// Names that were logged because this quorum waits for them and holds them.
    own: BTreeSet<Name>,
    /// Nodes that were logged as too far away for a rate limit.
    far: BTreeSet<usize>,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            renewals: FailingRenewals::default(),
            waits: Budget::new(WAITS),
            own_waits: Budget::new(WAITS),
            own: BTreeSet::new(),
            far: BTreeSet::new(),
        }
    }
}

impl Journal {
    /// Logs what has changed. It is called although nothing has changed too, which ends the minutes of a node that
    /// flaps. Every node is met or dialled again within seconds, so a call always comes.
    pub(super) fn nodes(&mut self, now: Tick, nodes: &[NodeStatus]) {
        if self.nodes.is_empty() {
            self.nodes = nodes.iter().map(Told::new).collect();
        }
        let health = health(nodes.iter().map(|node| &node.state));
        for (status, told) in nodes.iter().zip(&mut self.nodes) {
            if let Some(line) = told.look(now, status) {
                write(status, &line, health.voting, health.needed);
            }
        }
    }

    /// An acquisition waits because too few nodes vote yet.
    pub(super) fn waits_out_a_quarantine(&mut self, now: Tick, name: &Name, error: &Error) {
        if self.waits.pass(now) {
            logs::warn!(
                name = name.as_str(),
                votes_in_ms = error.retry_after().map(logs::ms),
                reason = error.to_string(),
                nodes = error.report().map(Report::to_string),
                "waiting for a quarantine to end"
            );
        } else {
            logs::debug!(
                name = name.as_str(),
                votes_in_ms = error.retry_after().map(logs::ms),
                "one more waits for a quarantine to end"
            );
        }
    }

    /// A call has waited for long for a name that this quorum has held since before. This is logged once for each name.
    pub(super) fn waits_for_itself(
        &mut self,
        now: Tick,
        name: &Name,
        holder: &str,
        waiter: &str,
        held_for: Duration,
    ) {
        if self.own.len() < OWN && !self.own.contains(name) && self.own_waits.pass(now) {
            self.own.insert(name.clone());
            logs::warn!(
                name = name.as_str(),
                holder,
                waiter,
                held_for_ms = logs::ms(held_for),
                "a call waits for a lock that this process itself holds"
            );
        }
    }

    /// The units of a rate limit on this node cannot be used, because its answers take longer than the grace. This is
    /// logged once for each node.
    pub(super) fn out_of_reach(
        &mut self,
        index: usize,
        node: &str,
        name: &Name,
        round_trip: Duration,
        grace: Duration,
    ) {
        if self.far.insert(index) {
            logs::warn!(
                name = name.as_str(),
                node,
                round_trip_ms = logs::ms(round_trip),
                grace_ms = logs::ms(grace),
                "a node is too far away for a rate limit"
            );
        }
    }
}

/// A record of what was logged about one node.
struct Told {
    status: NodeStatus,
    budget: Budget,
    flaps: Option<Flaps>,
}

/// State of a node that flaps. The number of its changes is logged once a minute, until a minute without a change has
/// passed.
struct Flaps {
    until: Tick,
    changes: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Change,
    /// A change that is logged at DEBUG, because there were too many.
    Minor,
    /// How many changes there were within the last minute.
    Flaps(usize),
}

impl Told {
    /// Every node begins in the state of one that is being met.
    fn new(status: &NodeStatus) -> Self {
        let status = NodeStatus {
            state: NodeState::Connecting,
            note: None,
            ..status.clone()
        };
        Self {
            status,
            budget: Budget::new(CHANGES),
            flaps: None,
        }
    }

    fn look(&mut self, now: Tick, status: &NodeStatus) -> Option<Line> {
        let news = status.is_news(&self.status);
        if news {
            self.status = status.clone();
        }
        let Some(flaps) = &mut self.flaps else {
            return news.then(|| self.change(now));
        };
        flaps.changes += usize::from(news);
        if now < flaps.until {
            return news.then_some(Line::Minor);
        }
        match mem::take(&mut flaps.changes) {
            0 => {
                self.flaps = None;
                Some(self.change(now))
            }
            changes => {
                flaps.until = now.plus(MINUTE);
                Some(Line::Flaps(changes))
            }
        }
    }

    fn change(&mut self, now: Tick) -> Line {
        if self.budget.pass(now) {
            return Line::Change;
        }
        self.flaps = Some(Flaps {
            until: now.plus(MINUTE),
            changes: 0,
        });
        Line::Flaps(CHANGES + 1)
    }
}

fn write(status: &NodeStatus, line: &Line, voting: usize, needed: usize) {
    let node = &*status.node;
    let note = status.note.as_deref();
    let votes_in_ms = match &status.state {
        NodeState::Quarantined(left) => Some(logs::ms(*left)),
        _ => None,
    };
    let (state, reason) = words(&status.state);
    match (line, &status.state) {
        (Line::Change, NodeState::Voting) => {
            logs::info!(%node, %state, note, voting, needed, "a node votes");
        }
        (Line::Change, NodeState::Connecting) => {
            logs::info!(%node, %state, note, voting, needed, "a node is being met");
        }
        (Line::Change, NodeState::RefusesWrites(_)) => {
            logs::warn!(%node, %state, reason, votes_in_ms, note, voting, needed, "a node refuses writes");
        }
        (Line::Change, _) => {
            logs::warn!(%node, %state, reason, votes_in_ms, note, voting, needed, "a node does not vote");
        }
        (Line::Flaps(changes), _) => {
            logs::warn!(%node, %state, reason, votes_in_ms, note, changes, voting, needed, "a node flaps");
        }
        (Line::Minor, _) => {
            logs::debug!(%node, %state, reason, votes_in_ms, note, voting, needed, "a node that flaps changed");
        }
    }
}

/// The state as one word for programs, and the reason why the node does not vote.
fn words(state: &NodeState) -> (&'static str, Option<&str>) {
    match state {
        NodeState::Connecting => ("connecting", None),
        NodeState::Voting => ("voting", None),
        NodeState::Quarantined(_) => (
            "quarantined",
            Some("it is new, or it restarted, was flushed or was a replica"),
        ),
        NodeState::Stalled(_) => (
            "stalled",
            Some("a request has been unanswered for longer than the node timeout"),
        ),
        NodeState::Refused(why) => ("refused", Some(why)),
        NodeState::RefusesWrites(why) => ("refuses_writes", Some(why)),
        NodeState::Unreachable(_, why) => ("unreachable", Some(why)),
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    fn at(s: u64) -> Tick {
        Tick::from_nanos(s * 1_000_000_000)
    }

    fn node(state: NodeState) -> NodeStatus {
        NodeStatus {
            node: Arc::from("10.0.0.1:6379"),
            state,
            note: None,
            used: false,
            round_trip: None,
            limits_up_to: Duration::ZERO,
        }
    }

    fn down() -> NodeStatus {
        node(NodeState::Unreachable(Duration::ZERO, "refused".into()))
    }

    fn up() -> NodeStatus {
        node(NodeState::Voting)
    }

    #[test]
    fn a_state_change_is_logged_once_and_so_is_a_new_refusal_text() {
        let refused = |why: &str| node(NodeState::Refused(why.into()));
        let mut told = Told::new(&up());
        assert_eq!(told.look(at(0), &node(NodeState::Connecting)), None);
        assert_eq!(told.look(at(0), &refused("a")), Some(Line::Change));
        assert_eq!(told.look(at(1), &refused("a")), None);
        assert_eq!(told.look(at(1), &refused("b")), Some(Line::Change));
        assert_eq!(told.look(at(2), &down()), Some(Line::Change));
        let longer = node(NodeState::Unreachable(MINUTE, "another reason".into()));
        assert_eq!(told.look(at(3), &longer), None);
        let noted = NodeStatus {
            note: Some("it does not permit CLIENT KILL".into()),
            ..longer
        };
        assert_eq!(told.look(at(3), &noted), Some(Line::Change));
    }

    #[test]
    fn a_flapping_node_logs_one_line_a_minute_until_a_steady_minute() {
        let mut told = Told::new(&up());
        let turn = |told: &mut Told, s: u64| {
            let status = if s.is_multiple_of(2) { down() } else { up() };
            told.look(at(s), &status)
        };
        for s in 0..6 {
            assert_eq!(turn(&mut told, s), Some(Line::Change));
        }
        assert_eq!(turn(&mut told, 6), Some(Line::Flaps(7)));
        for s in 7..66 {
            assert_eq!(turn(&mut told, s), Some(Line::Minor));
        }
        assert_eq!(turn(&mut told, 66), Some(Line::Flaps(60)));
        assert_eq!(turn(&mut told, 67), Some(Line::Minor), "the last");
        assert_eq!(told.look(at(125), &up()), None);
        assert_eq!(told.look(at(126), &up()), Some(Line::Flaps(1)));
        assert_eq!(told.look(at(185), &up()), None);
        assert_eq!(told.look(at(186), &up()), Some(Line::Change), "at the end");
        assert_eq!(told.look(at(187), &down()), Some(Line::Change));
    }

    #[test]
    fn a_node_that_fails_now_and_then_does_not_flap() {
        let mut told = Told::new(&up());
        for s in (10..6000).step_by(20) {
            assert_eq!(told.look(at(s), &down()), Some(Line::Change));
            assert_eq!(told.look(at(s + 1), &up()), Some(Line::Change));
        }
    }

    #[test]
    fn the_budget_holds_in_any_minute() {
        let mut budget = Budget::new(2);
        assert!(budget.pass(at(0)) && budget.pass(at(59)) && !budget.pass(at(59)));
        assert!(budget.pass(at(60)), "the first is a minute old");
        assert!(!budget.pass(at(118)) && budget.pass(at(119)));
    }
}
