//! Units of rate limits: one node gives them, and is asked alone where it may have enough (protocol §7).

mod answers;
mod limit;
mod nodes;
mod search;
mod steps;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use self::{
    limit::Limit,
    search::{For, Search},
};
use super::{
    event::{Spending, Waits},
    net::{Net, SHORTEST_PAUSE},
    round::{self, Request},
    timers::LimitId,
};
use crate::{
    Error, Silence, Vote,
    base::{ids::ById, rules::Rule, sweep::Sweep},
    engine::claim::units,
    lease::response::Responder,
    node::session::RoundId,
    protocol::rates::words::{Grace, Limited, Outcome, Part, Purse},
};

/// Who has asked so often in vain is told to wait.
const TRIES: u32 = 4;
/// A limit that nobody has used for this long is forgotten; its next use asks the nodes again.
const IDLE: Duration = Duration::from_secs(10);
/// Who waits for units looks no sooner than this.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// All limits that are in use here, and what is asked for.
pub(super) struct Rates {
    ids: HashMap<Arc<Limited>, LimitId>,
    limits: ById<LimitId, Limit>,
    last: u64,
    sweep: Sweep,
    searches: ById<RoundId, Search>,
    /// LOOKs under way, and who waits for what they find.
    looks: ById<RoundId, Looks>,
    /// What was waited for too long: it may be given still.
    late: ById<(RoundId, usize), (LimitId, u32)>,
    /// Searches that wait for nodes that are being met.
    parked: ById<RoundId, Search>,
    purse: Weak<dyn Purse>,
}

/// One question to all nodes.
struct Looks {
    limit: LimitId,
    outstanding: Vec<usize>,
    silent: Vec<(usize, Silence)>,
    waiting: Vec<Search>,
}

impl Rates {
    pub(super) fn new(purse: Weak<dyn Purse>) -> Self {
        Self {
            ids: HashMap::new(),
            limits: ById::new(),
            last: 0,
            sweep: Sweep::default(),
            searches: ById::new(),
            looks: ById::new(),
            late: ById::new(),
            parked: ById::new(),
            purse,
        }
    }

    // ---- what callers ask -------------------------------------------------------------------

    pub(super) fn begin(&mut self, net: &mut Net, spending: Spending) {
        let id = self.limit_of(net, &spending.limited);
        let Some(limit) = self.limits.get_mut(&id) else {
            return;
        };
        limit.drop_gone();
        if spending.waits != Waits::Never {
            limit.line.push_back(spending);
            return self.serve(net, id);
        }
        // Nobody overtakes those who wait.
        if !limit.line.is_empty() {
            let silent = limit.silences(net, spending.grace);
            let wait = limit.wait(net, &silent, spending.least);
            let left = limit.left(net, spending.grace);
            let _ = spending.reply.send(Ok(Outcome::Denied { wait, left }));
            return;
        }
        let (wanted, grace) = ((spending.least, spending.most), spending.grace);
        self.go_on(net, Search::new(id, For::One(spending), wanted, grace));
    }

    pub(super) fn peek(
        &mut self,
        net: &mut Net,
        limited: Arc<Limited>,
        grace: Grace,
        reply: Responder<Outcome>,
    ) {
        let id = self.limit_of(net, &limited);
        self.go_on(net, Search::new(id, For::Peek(reply), (1, 1), grace));
    }

    pub(super) fn stop_waiting(&mut self, net: &mut Net, limited: &Arc<Limited>) {
        let Some(id) = self.ids.get(limited).copied() else {
            return;
        };
        // Whoever is first now may want less.
        if let Some(limit) = self.limits.get_mut(&id)
            && limit.somebody_left()
        {
            limit.due = None;
            self.serve(net, id);
        }
    }

    /// Units that were given and not used.
    pub(super) fn take_back(&mut self, net: &mut Net, limited: &Arc<Limited>, parts: Vec<Part>) {
        let id = self.limit_of(net, limited);
        self.refund(net, id, parts);
        if let Some(limit) = self.limits.get_mut(&id)
            && !limit.line.is_empty()
        {
            limit.due = None;
            self.serve(net, id);
        }
    }

    /// Nodes have changed: those who wait may get units of one that is back.
    pub(super) fn look_at_nodes(&mut self, net: &mut Net) {
        let waited_for = |(id, limit): (&LimitId, &Limit)| (!limit.line.is_empty()).then_some(*id);
        let mut ids: Vec<LimitId> = self.limits.iter().filter_map(waited_for).collect();
        // In the order of a seed, not of a hash.
        ids.sort_unstable();
        for id in ids {
            if let Some(limit) = self.limits.get_mut(&id) {
                limit.due = None;
            }
            self.serve(net, id);
        }
        let mut parked: Vec<RoundId> = self.parked.keys().copied().collect();
        parked.sort_unstable();
        for round in parked {
            self.unpark(net, round);
        }
    }

    // ---- those who wait ---------------------------------------------------------------------

    /// There may be units for the first of those who wait.
    pub(super) fn line_due(&mut self, net: &mut Net, id: LimitId) {
        if let Some(limit) = self.limits.get_mut(&id) {
            limit.due = None;
            self.serve(net, id);
        }
    }

    /// Asks for what those in front want.
    pub(super) fn serve(&mut self, net: &mut Net, id: LimitId) {
        let Some(limit) = self.limits.get_mut(&id) else {
            return;
        };
        limit.drop_gone();
        if limit.is_served || limit.due.is_some() {
            return;
        }
        let graces = limit.line.iter().map(|spending| spending.grace);
        let grace = graces.reduce(Grace::max).unwrap_or_default();
        let silent = limit.silences(net, grace);
        let Some(wanted) = limit.wanted(net, &silent) else {
            return;
        };
        limit.is_served = true;
        self.go_on(net, Search::new(id, For::Line, wanted, grace));
    }

    // ---- inside -----------------------------------------------------------------------------

    /// Once: whether it comes or not.
    pub(super) fn refund(&mut self, net: &mut Net, id: LimitId, parts: Vec<Part>) {
        let Some(limit) = self.limits.get_mut(&id) else {
            return;
        };
        for part in parts {
            let Some(meter) = limit.meter(part.node) else {
                continue;
            };
            let operation = units::refund(meter, part.units, part.stamps);
            let tag = Request::Refund.of(net.new_round());
            let times = if net.holds(Rule::RefundOnce) { 1 } else { 2 };
            for _ in 0..times {
                round::ask(net, tag, &operation, [part.node]);
            }
            if let Some(view) = limit.view_mut(part.node) {
                view.gives_back(part.units);
            }
        }
    }

    fn limit_of(&mut self, net: &Net, limited: &Arc<Limited>) -> LimitId {
        self.forget(net);
        if let Some(id) = self.ids.get(limited) {
            if let Some(limit) = self.limits.get_mut(id) {
                limit.used_at = net.now;
            }
            return *id;
        }
        self.last += 1;
        let id = LimitId(self.last);
        self.limits.insert(id, Limit::new(net, Arc::clone(limited)));
        self.ids.insert(Arc::clone(limited), id);
        id
    }

    /// Drops the limits that nobody has used for a while.
    fn forget(&mut self, net: &Net) {
        if !self.sweep.is_due(self.limits.len(), net.now) {
            return;
        }
        // Longer than any request for its units is waited for.
        let idle = IDLE.max(net.settings.node_timeout * 4);
        let in_use = |limit: &Limit| !limit.is_idle() || net.now.since(limit.used_at) < idle;
        self.limits.retain(|_, limit| in_use(limit));
        self.ids.retain(|_, id| self.limits.contains_key(id));
        let left = self.limits.len();
        self.sweep.done(left, net.now);
        self.limits.shrink_to(2 * left);
        self.ids.shrink_to(2 * left);
    }

    /// The engine ends.
    pub(super) fn clear(&mut self) {
        self.ids.clear();
        self.limits.clear();
        self.searches.clear();
        self.looks.clear();
        self.late.clear();
        self.parked.clear();
    }
}

/// Why nobody can say how many units there are.
fn outage(net: &Net, limit: &Limit, silent: &[Option<Silence>]) -> Error {
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
    let again = quarantine.map_or_else(|| net.try_again(1), |left| left.max(SHORTEST_PAUSE));
    let votes = silent.iter().map(vote).collect();
    let report = net.report(limit.limited.name.as_str(), 1, votes, again);
    match quarantine {
        Some(_) => Error::Quarantined(report),
        None if is_far => Error::TooSlow(report),
        None => Error::NoQuorum(report),
    }
}
