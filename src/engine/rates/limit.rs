//! One rate limit: what is known of its units, and the callers that wait for some.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::search::Search;
use crate::{
    Error, Silence, Vote,
    base::{
        clock::Tick,
        quota::{Window, remembered},
    },
    engine::{
        cluster::{Cluster, SHORTEST_PAUSE},
        event::Spending,
    },
    node::{request::Meter, session::RoundId, status::NodeState},
    protocol::rates::{
        plan::{self, Plan, Seen},
        view::View,
        words::{Amount, Grace, Limited, Room},
    },
};

/// Maximum number of LOOKs of one search. After them it decides by what it knows.
const MOST_LOOKS: u32 = 3;

/// The longest time for which the result of a LOOK is trusted.
const TRUST: Duration = Duration::from_secs(1);

/// The part that limits with the same intervals share.
pub(super) struct Shape {
    pub(super) windows: Arc<[Window]>,
    /// N.
    masters: u32,
    /// A view of each node of which nothing is known.
    nodes: Vec<View>,
    /// For how long a node's memory must have been watched.
    history: Duration,
    /// A limit that was not used for this long is forgotten. Its next use asks the nodes again.
    pub(super) idle: Duration,
}

/// A process may have a million of them, one for each key, so what is rarely needed is in a box.
pub(super) struct Limit {
    pub(super) limited: Arc<Limited>,
    shape: Arc<Shape>,
    /// The nodes of which something is known.
    known: Vec<View>,
    /// Made when a caller waits.
    queue: Option<Box<Queue>>,
    pub(super) used_at: Tick,
}

/// The callers that wait for units of a limit, and what is done for them.
#[derive(Default)]
pub(super) struct Queue {
    /// The callers that wait, in order.
    pub(super) line: VecDeque<Spending>,
    /// The number of these callers that are gone. They are removed in groups, because thousands may give up at once.
    gone: usize,
    /// A search for the callers at the front is under way.
    pub(super) is_served: bool,
    /// How often in a row the queue's searches collided with others that want many units.
    pub(super) collisions: u32,
    /// The time at which there may be units for the first caller.
    pub(super) due: Option<Tick>,
    /// The round of the LOOK that is under way.
    pub(super) looking: Option<RoundId>,
}

impl Shape {
    pub(super) fn new(cluster: &Cluster, windows: Arc<[Window]>) -> Self {
        let total = cluster.total();
        let node = |node: usize| {
            let rank = cluster.settings.rank(node);
            let shares = windows.iter();
            let shares = shares.map(|window| (*window, window.share(total, rank)));
            View::new(node, shares.collect())
        };
        let history = windows.iter().map(|window| window.history());
        Self {
            masters: u32::try_from(total).unwrap_or(u32::MAX),
            nodes: (0..total).map(node).collect(),
            history: history.max().unwrap_or_default(),
            idle: remembered(&windows),
            windows,
        }
    }
}

impl Limit {
    pub(super) fn new(limited: Arc<Limited>, shape: Arc<Shape>, now: Tick) -> Self {
        Self {
            limited,
            shape,
            known: Vec::new(),
            queue: None,
            used_at: now,
        }
    }

    pub(super) fn meter(&self, node: usize) -> Option<Meter> {
        let view = self.shape.nodes.get(node)?;
        Some(Meter {
            name: self.limited.name.clone(),
            masters: self.shape.masters,
            windows: Arc::clone(view.windows()),
        })
    }

    pub(super) fn view_mut(&mut self, node: usize) -> Option<&mut View> {
        let is_of = |view: &View| view.node as usize == node;
        let at = self.known.iter().position(is_of);
        let at = match at {
            Some(at) => at,
            None => {
                let unknown = self.shape.nodes.get(node)?.clone();
                // Most keys of a crowd are used once, on one node.
                self.known.reserve_exact(1);
                self.known.push(unknown);
                self.known.len() - 1
            }
        };
        self.known.get_mut(at)
    }

    /// The callers that wait. It is made if nobody has waited yet.
    pub(super) fn queue(&mut self) -> &mut Queue {
        self.queue.get_or_insert_default()
    }

    /// Returns true if callers wait.
    pub(super) fn is_waited_for(&self) -> bool {
        let queue = self.queue.as_ref();
        queue.is_some_and(|queue| !queue.line.is_empty())
    }

    /// The round of the LOOK that is under way.
    pub(super) fn looking(&self) -> Option<RoundId> {
        self.queue.as_ref()?.looking
    }

    /// Forgets the queue if nobody waits and nothing is under way.
    pub(super) fn drop_idle_queue(&mut self) {
        if self.is_idle() {
            self.queue = None;
        }
    }

    /// For each node the reason why it cannot be asked now: it does not vote, it may have forgotten units that count,
    /// or it is so far away that its units would come too late. If all nodes are too far away, all are asked, because
    /// one of them may have become faster.
    pub(super) fn silences(&self, cluster: &Cluster, grace: Grace) -> Vec<Option<Silence>> {
        let silence = |(node, state): (usize, NodeState)| {
            cluster.silence_with_history(node, &state, self.shape.history)
        };
        let mut silences: Vec<_> = cluster.states().enumerate().map(silence).collect();
        let is_far = |node| cluster.mean_round_trip(node) >= grace.most;
        let asked = |(node, silence): (usize, &Option<Silence>)| silence.is_none() && !is_far(node);
        if silences.iter().enumerate().any(asked) {
            for (node, silence) in silences.iter_mut().enumerate() {
                if silence.is_none() && is_far(node) {
                    *silence = Some(Silence::OutOfReach(cluster.mean_round_trip(node)));
                }
            }
        }
        silences
    }

    /// The time until the first node that votes but is too young may be asked. No event announces that moment.
    pub(super) fn opens_in(&self, cluster: &Cluster) -> Option<Duration> {
        let states = cluster.states().enumerate();
        let voting = states.filter(|(_, state)| *state == NodeState::Voting);
        voting
            .filter_map(|(node, _)| cluster.too_young(node, self.shape.history))
            .min()
    }

    /// The next step of a search.
    pub(super) fn plan(&self, cluster: &mut Cluster, search: &Search) -> Plan {
        let nodes = self.views(&search.silent);
        let trusted = cluster.now.minus(self.trust());
        let fresh = search.looked_at.map_or(trusted, |at| at.min(trusted));
        // Others take units all the time, so what is known is never exact for long.
        let fresh = (search.looks < MOST_LOOKS).then_some(fresh);
        let round_trips: Vec<Duration> = (0..cluster.total())
            .map(|node| cluster.mean_round_trip(node))
            .collect();
        let seen = Seen {
            nodes: &nodes,
            now: cluster.now,
            fresh,
        };
        let chance = &mut cluster.chance;
        plan::plan(seen, search.amount, &round_trips, |most| {
            chance.up_to(most.saturating_sub(1))
        })
    }

    /// Returns true if every node that may be asked has said which units are taken.
    pub(super) fn is_known(&self, cluster: &Cluster, search: &Search) -> bool {
        if search.looks >= MOST_LOOKS {
            return true;
        }
        let since = search.looked_at.unwrap_or(cluster.now);
        let views = self.views(&search.silent);
        let mut views = views.iter();
        views.all(|(_, view)| view.looked_at.is_some_and(|at| at >= since))
    }

    /// The units that are left, by the knowledge of this client. Nodes that are being met are counted too. The interval
    /// that binds is the one that has `wanted` units the latest; if all have them now, the one with the fewest.
    /// `age` is that of units that were taken just now.
    pub(super) fn room(
        &self,
        cluster: &Cluster,
        grace: Grace,
        wanted: u32,
        age: Option<Duration>,
    ) -> Room {
        let states = cluster.states().zip(self.silences(cluster, grace));
        let counted = states.map(|(state, silence)| match state {
            NodeState::Connecting => None,
            _ => silence,
        });
        let counted: Vec<_> = counted.collect();
        let (nodes, now) = (self.views(&counted), cluster.now);
        let intervals = self.limited.windows.len();
        let binding = plan::binding(&nodes, intervals, wanted.into(), now).unwrap_or(0);
        let shares = self.shape.nodes.iter().map(|node| node.share_in(binding));
        let ends = nodes.iter().flat_map(|(_, view)| view.ends_in(binding));
        let last = ends.max().unwrap_or(now).max(now);
        // A view rounds the units of this process up to buckets of its own. Those that were just taken are free sooner.
        let spent = age.zip(self.limited.windows.get(binding));
        let spent = spent.map(|(age, window)| now.plus(age).plus(window.counts_for()));
        Room {
            left: plan::left(&nodes, now),
            limit: shares.fold(0, u32::saturating_add),
            free_at: spent.map_or(last, |spent| spent.min(last)),
        }
    }

    /// The time until there are `wanted` units beyond those for which others wait.
    pub(super) fn wait(
        &self,
        cluster: &Cluster,
        silent: &[Option<Silence>],
        wanted: u32,
    ) -> Duration {
        let line = self
            .waiting()
            .map(|spending| u64::from(spending.amount.least));
        let wanted = line.sum::<u64>() + u64::from(wanted);
        let most = self
            .limited
            .windows
            .first()
            .map_or(0, |w| w.kept() + w.ahead());
        plan::wait(&self.views(silent), wanted, cluster.now).unwrap_or(Duration::from_millis(most))
    }

    /// The number of units for the waiting callers that can be served now. It is at least the number that the first
    /// caller wants.
    pub(super) fn wanted(&self, cluster: &Cluster, silent: &[Option<Silence>]) -> Option<Amount> {
        let first = self.waiting().next()?;
        let room = plan::left(&self.views(silent), cluster.now);
        let mut most = 0;
        for spending in self.waiting() {
            let left = room - most;
            if spending.amount.least > left {
                break;
            }
            most += spending.amount.most.min(left);
        }
        let least = first.amount.least;
        Some(Amount {
            least,
            most: most.max(least),
        })
    }

    /// Notes that one waiting caller is gone. Returns true if it was the first.
    pub(super) fn somebody_left(&mut self) -> bool {
        let Some(queue) = &mut self.queue else {
            return false;
        };
        queue.gone += 1;
        let is_gone = |spending: &Spending| spending.reply.is_closed();
        let was_first = queue.line.front().is_some_and(is_gone);
        queue.drop_gone();
        if queue.gone > queue.line.len() / 2 {
            queue.line.retain(|spending| !is_gone(spending));
            queue.gone = 0;
        }
        was_first
    }

    /// Removes the callers at the front that are gone.
    pub(super) fn drop_gone(&mut self) {
        if let Some(queue) = &mut self.queue {
            queue.drop_gone();
        }
    }

    /// The shares of these nodes added up, taken or not.
    pub(super) fn shares(&self, silent: &[Option<Silence>]) -> u64 {
        let views = self.views(silent);
        views.iter().map(|(_, view)| u64::from(view.share())).sum()
    }

    /// The callers that still wait.
    fn waiting(&self) -> impl Iterator<Item = &Spending> {
        let waits = |spending: &&Spending| !spending.reply.is_closed();
        let queue = self.queue.as_ref();
        let line = queue.into_iter().flat_map(|queue| &queue.line);
        line.filter(waits)
    }

    fn is_idle(&self) -> bool {
        let is_idle = |queue: &Queue| {
            queue.line.is_empty()
                && !queue.is_served
                && queue.looking.is_none()
                && queue.due.is_none()
        };
        self.queue.as_deref().is_none_or(is_idle)
    }

    /// Returns true if it may be forgotten: nobody waits, and it was not used for a while.
    pub(super) fn is_over(&self, now: Tick) -> bool {
        self.is_idle() && now.since(self.used_at) >= self.shape.idle
    }

    /// The error while no node can say how many units there are.
    pub(super) fn outage(&self, cluster: &Cluster, silent: &[Option<Silence>]) -> Error {
        let quarantine = silent.iter().filter_map(|silence| match silence {
            Some(Silence::Quarantined(left)) => Some(*left),
            _ => None,
        });
        let quarantine = quarantine.min();
        let vote = |silence: &Option<Silence>| match silence {
            Some(silence) => Vote::None(silence.clone()),
            None => Vote::Confirmed,
        };
        let mut missing = silent.iter().flatten().peekable();
        let is_far = missing.peek().is_some()
            && missing.all(|silence| matches!(silence, Silence::OutOfReach(_)));
        let again =
            quarantine.map_or_else(|| cluster.try_again(1), |left| left.max(SHORTEST_PAUSE));
        let votes = silent.iter().map(vote).collect();
        let report = cluster.report(self.limited.name.as_str(), 1, votes, again);
        match quarantine {
            Some(_) => cluster.quarantined(report),
            None if is_far => Error::TooSlow(report),
            None => Error::NoQuorum(report),
        }
    }

    fn views(&self, silent: &[Option<Silence>]) -> Vec<(usize, &View)> {
        let nodes = self.shape.nodes.iter().zip(silent).enumerate();
        let asked = nodes.filter(|(_, (_, silence))| silence.is_none());
        let view = |node: usize| self.known.iter().find(|view| view.node as usize == node);
        asked
            .map(|(node, (unknown, _))| (node, view(node).unwrap_or(unknown)))
            .collect()
    }

    /// For how long the result of a LOOK is trusted. Units that are taken meanwhile do not become free again within
    /// that time.
    fn trust(&self) -> Duration {
        let shortest = self.limited.windows.first().map(|window| window.period);
        TRUST.min(shortest.unwrap_or(TRUST) / 4)
    }
}

impl Queue {
    /// Removes the callers at the front that are gone.
    fn drop_gone(&mut self) {
        let is_gone = |spending: &Spending| spending.reply.is_closed();
        while self.line.front().is_some_and(is_gone) {
            self.line.pop_front();
            self.gone = self.gone.saturating_sub(1);
        }
    }
}
