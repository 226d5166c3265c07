//! One limit: what is known of its units, and who waits for some.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::search::Search;
use crate::{
    Silence,
    base::clock::Tick,
    engine::{event::Spending, net::Net},
    node::{request::Meter, session::RoundId, status::NodeState},
    protocol::rates::{
        plan::{self, Plan, Seen},
        view::View,
        words::{Amount, Grace, Limited},
    },
};

/// A search looks no more often; then it goes by what it knows.
const MOST_LOOKS: u32 = 3;

/// What was looked at so long ago is known still, at most.
const TRUST: Duration = Duration::from_secs(1);

pub(super) struct Limit {
    pub(super) limited: Arc<Limited>,
    nodes: Vec<Node>,
    /// For how long a memory must have been watched.
    history: Duration,
    /// Those who wait, in order.
    pub(super) line: VecDeque<Spending>,
    /// How many of them wait no more. They are put out of line by and by: thousands may lose patience at once.
    gone: usize,
    /// Units are being asked for, for those in front.
    pub(super) is_served: bool,
    /// How often in a row they collided with others that want many.
    pub(super) collisions: u32,
    /// When there may be some for the first of them.
    pub(super) due: Option<Tick>,
    /// All nodes are asked what is taken.
    pub(super) looking: Option<RoundId>,
    pub(super) used_at: Tick,
}

struct Node {
    meter: Meter,
    view: View,
}

impl Limit {
    pub(super) fn new(net: &Net, limited: Arc<Limited>) -> Self {
        let total = net.total();
        let node = |node: usize| {
            let rank = net.settings.rank(node);
            let windows = limited.windows.iter();
            let shares: Vec<_> = windows
                .map(|window| (*window, window.share(total, rank)))
                .collect();
            Node {
                view: View::new(shares.iter().copied()),
                meter: Meter {
                    name: limited.name.clone(),
                    masters: u32::try_from(total).unwrap_or(u32::MAX),
                    windows: shares.into(),
                },
            }
        };
        let history = limited.windows.iter().map(|window| window.history());
        Self {
            nodes: (0..total).map(node).collect(),
            history: history.max().unwrap_or_default(),
            line: VecDeque::new(),
            gone: 0,
            is_served: false,
            collisions: 0,
            due: None,
            looking: None,
            used_at: net.now,
            limited,
        }
    }

    pub(super) fn meter(&self, node: usize) -> Option<&Meter> {
        self.nodes.get(node).map(|node| &node.meter)
    }

    pub(super) fn view_mut(&mut self, node: usize) -> Option<&mut View> {
        self.nodes.get_mut(node).map(|node| &mut node.view)
    }

    /// Why each node cannot be asked now: it does not vote, it may have forgotten units that count, or it is so far away
    /// that its units would come too late. If all nodes are too far away, all are asked: one of them may have become faster.
    pub(super) fn silences(&self, net: &Net, grace: Grace) -> Vec<Option<Silence>> {
        let silence = |(node, state): (usize, NodeState)| {
            net.silence_with_history(node, &state, self.history)
        };
        let mut silences: Vec<_> = net.states().enumerate().map(silence).collect();
        let is_far = |node| net.mean_round_trip(node) >= grace.most;
        let asked = |(node, silence): (usize, &Option<Silence>)| silence.is_none() && !is_far(node);
        if silences.iter().enumerate().any(asked) {
            for (node, silence) in silences.iter_mut().enumerate() {
                if silence.is_none() && is_far(node) {
                    *silence = Some(Silence::OutOfReach(net.mean_round_trip(node)));
                }
            }
        }
        silences
    }

    /// How soon a node may be asked that votes and is too young yet. Nothing else happens to it then.
    pub(super) fn opens_in(&self, net: &Net) -> Option<Duration> {
        let states = net.states().enumerate();
        let voting = states.filter(|(_, state)| *state == NodeState::Voting);
        voting
            .filter_map(|(node, _)| net.too_young(node, self.history))
            .min()
    }

    /// The next step of a search.
    pub(super) fn plan(&self, net: &mut Net, search: &Search) -> Plan {
        let nodes = self.views(&search.silent);
        let trusted = net.now.minus(self.trust());
        let fresh = search.looked_at.map_or(trusted, |at| at.min(trusted));
        // Others take units all the time: what is known is never true for long.
        let fresh = (search.looks < MOST_LOOKS).then_some(fresh);
        let round_trips: Vec<Duration> = (0..net.total())
            .map(|node| net.mean_round_trip(node))
            .collect();
        let seen = Seen {
            nodes: &nodes,
            now: net.now,
            fresh,
        };
        let chance = &mut net.chance;
        plan::plan(seen, search.amount, &round_trips, |most| {
            chance.up_to(most.saturating_sub(1))
        })
    }

    /// Whether every node that may be asked has said what is taken.
    pub(super) fn is_known(&self, net: &Net, search: &Search) -> bool {
        if search.looks >= MOST_LOOKS {
            return true;
        }
        let since = search.looked_at.unwrap_or(net.now);
        let views = self.views(&search.silent);
        let mut views = views.iter();
        views.all(|(_, view)| view.looked_at.is_some_and(|at| at >= since))
    }

    /// How many units there are, as far as is known: those of nodes that are being met too.
    pub(super) fn left(&self, net: &Net, grace: Grace) -> u32 {
        let states = net.states().zip(self.silences(net, grace));
        let counted = states.map(|(state, silence)| match state {
            NodeState::Connecting => None,
            _ => silence,
        });
        let counted: Vec<_> = counted.collect();
        plan::left(&self.views(&counted), net.now)
    }

    /// Until there are so many behind those who wait.
    pub(super) fn wait(&self, net: &Net, silent: &[Option<Silence>], wanted: u32) -> Duration {
        let line = self
            .waiting()
            .map(|spending| u64::from(spending.amount.least));
        let wanted = line.sum::<u64>() + u64::from(wanted);
        let most = self
            .limited
            .windows
            .first()
            .map_or(0, |w| w.kept() + w.ahead());
        plan::wait(&self.views(silent), wanted, net.now).unwrap_or(Duration::from_millis(most))
    }

    /// How many of those who wait can be served now, as units: at least what the first of them wants.
    pub(super) fn wanted(&self, net: &Net, silent: &[Option<Silence>]) -> Option<Amount> {
        let first = self.waiting().next()?;
        let room = plan::left(&self.views(silent), net.now);
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

    /// One of those who wait has gone. Whether it was the first.
    pub(super) fn somebody_left(&mut self) -> bool {
        self.gone += 1;
        let is_gone = |spending: &Spending| spending.reply.is_closed();
        let was_first = self.line.front().is_some_and(is_gone);
        self.drop_gone();
        if self.gone > self.line.len() / 2 {
            self.line.retain(|spending| !is_gone(spending));
            self.gone = 0;
        }
        was_first
    }

    /// Those in front who wait no more are put out of line.
    pub(super) fn drop_gone(&mut self) {
        let is_gone = |spending: &Spending| spending.reply.is_closed();
        while self.line.front().is_some_and(is_gone) {
            self.line.pop_front();
            self.gone = self.gone.saturating_sub(1);
        }
    }

    /// How many units these nodes have in all, taken or not.
    pub(super) fn shares(&self, silent: &[Option<Silence>]) -> u64 {
        let views = self.views(silent);
        views.iter().map(|(_, view)| u64::from(view.share())).sum()
    }

    /// Those who wait still.
    fn waiting(&self) -> impl Iterator<Item = &Spending> {
        let waits = |spending: &&Spending| !spending.reply.is_closed();
        self.line.iter().filter(waits)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.line.is_empty() && !self.is_served && self.looking.is_none()
    }

    fn views(&self, silent: &[Option<Silence>]) -> Vec<(usize, &View)> {
        let nodes = self.nodes.iter().zip(silent).enumerate();
        let asked = nodes.filter(|(_, (_, silence))| silence.is_none());
        asked.map(|(i, (node, _))| (i, &node.view)).collect()
    }

    /// For how long what was looked at is known. Units that are taken meanwhile are not free again so soon.
    fn trust(&self) -> Duration {
        let shortest = self.limited.windows.first().map(|window| window.period);
        TRUST.min(shortest.unwrap_or(TRUST) / 4)
    }
}
