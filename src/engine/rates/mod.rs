//! Units of rate limits. Each unit is given by one node; if that node may have enough, it is the only one that is asked
//! (protocol §7).
//!
//! A [`Search`] waits in one place at a time, and [`Rates::advance`] says what it does when that wait is over:
//!
//! | it waits in | for | then |
//! | --- | --- | --- |
//! | `ready` | its turn in this step of the engine | [`Next`] |
//! | `searches` | the answers to its requests for units | `ready` |
//! | `looks` | the answers to a LOOK, together with others | `ready` |
//! | `parked` | nodes that are being met | `ready` |

mod limit;
mod limits;
mod search;

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::Duration,
};

use self::{
    limits::Limits,
    search::{Asked, For, Said, Search, count, split},
};
use crate::{
    Error, Silence,
    base::{clock::Tick, ids::ById, rules::Rule, shrink::Shrink as _},
    engine::{
        cluster::{Cluster, SHORTEST_PAUSE},
        event::{Spending, Waits},
        round,
        timers::{Key, LimitId},
    },
    lease::response::Responder,
    node::{
        Operation,
        answer::Answer,
        request,
        session::{Purpose, RoundId},
    },
    protocol::rates::{
        plan::Plan,
        words::{Amount, Crowd, Denial, Grace, Limited, Outcome, Part, Purse, Units},
    },
};

/// After this number of failed attempts a caller is told to wait.
const TRIES: u32 = 4;
/// The shortest pause of a caller that waits for units.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// All limits that are in use in this process, and the requests for them.
pub(super) struct Rates {
    limits: Limits,
    /// Searches that take their next step now.
    ready: VecDeque<Search>,
    searches: ById<RoundId, Search>,
    /// The LOOKs that are under way, and the searches that wait for the results.
    looks: ById<RoundId, Looks>,
    /// Requests that are not waited for any more. Their units may still be given.
    late: ById<(RoundId, usize), (LimitId, u32)>,
    /// Searches that wait for nodes that are being met.
    parked: ById<RoundId, Search>,
    purse: Weak<dyn Purse>,
}

/// The next step of a search.
enum Next {
    /// Decides again.
    Decide,
    /// Asks these nodes for this many units each.
    Ask(Vec<(usize, u32)>),
    /// Asks all nodes which units are taken.
    Look,
    /// Waits for nodes that are being met, because they may have units.
    Park,
    /// The caller gets these units, which were asked for at this time.
    Give(Vec<Part>, Tick),
    /// There are not enough units before this time has passed.
    Deny(Duration),
    /// The caller only wanted to know what is left.
    Show,
    /// No node answers, or those that do have too few units.
    NoNode,
}

/// A LOOK on all nodes.
struct Looks {
    limit: LimitId,
    outstanding: Vec<usize>,
    silent: Vec<(usize, Silence)>,
    waiting: Vec<Search>,
}

impl Rates {
    pub(super) fn new(purse: Weak<dyn Purse>) -> Self {
        Self {
            limits: Limits::default(),
            ready: VecDeque::new(),
            searches: ById::new(),
            looks: ById::new(),
            late: ById::new(),
            parked: ById::new(),
            purse,
        }
    }

    // ---- what callers ask -------------------------------------------------------------------

    pub(super) fn begin(&mut self, cluster: &mut Cluster, spending: Spending) {
        let id = self.limits.used(cluster, &spending.limited);
        let Some(limit) = self.limits.get_mut(&id) else {
            return;
        };
        limit.drop_gone();
        if spending.waits != Waits::Never {
            limit.queue().line.push_back(spending);
            self.serve(cluster, id);
            return self.advance(cluster);
        }
        // A caller that does not wait must not overtake those that do.
        if limit.is_waited_for() {
            let silent = limit.silences(cluster, spending.grace);
            let wait = limit.wait(cluster, &silent, spending.amount.least);
            let least = spending.amount.least;
            let room = limit
                .room(cluster, spending.grace, least, None)
                .below(least);
            let _ = spending
                .reply
                .send(Ok(Outcome::Denied(Denial { wait, room })));
            return;
        }
        let (amount, grace) = (spending.amount, spending.grace);
        self.ready
            .push_back(Search::new(id, For::One(spending), amount, grace));
        self.advance(cluster);
    }

    pub(super) fn peek(
        &mut self,
        cluster: &mut Cluster,
        limited: Arc<Limited>,
        grace: Grace,
        reply: Responder<Outcome>,
    ) {
        let id = self.limits.used(cluster, &limited);
        self.ready
            .push_back(Search::new(id, For::Peek(reply), Amount::exactly(1), grace));
        self.advance(cluster);
    }

    pub(super) fn stop_waiting(&mut self, cluster: &mut Cluster, limited: &Arc<Limited>) {
        let Some(id) = self.limits.find(limited) else {
            return;
        };
        // The caller that is first now may want fewer units.
        if let Some(limit) = self.limits.get_mut(&id)
            && limit.somebody_left()
        {
            limit.queue().due = None;
            self.serve(cluster, id);
            self.advance(cluster);
        }
    }

    /// Takes back units that were given and not used.
    pub(super) fn take_back(
        &mut self,
        cluster: &mut Cluster,
        limited: &Arc<Limited>,
        parts: Vec<Part>,
    ) {
        let id = self.limits.used(cluster, limited);
        self.refund(cluster, id, parts);
        if let Some(limit) = self.limits.get_mut(&id)
            && limit.is_waited_for()
        {
            limit.queue().due = None;
            self.serve(cluster, id);
            self.advance(cluster);
        }
    }

    /// The states of nodes have changed. Callers that wait may get units of a node that is back.
    pub(super) fn look_at_nodes(&mut self, cluster: &mut Cluster) {
        for id in self.limits.waited_for() {
            if let Some(limit) = self.limits.get_mut(&id) {
                limit.queue().due = None;
            }
            self.serve(cluster, id);
            self.advance(cluster);
        }
        // The order must come from the seed, not from a hash, so that a simulation can be repeated.
        let mut parked: Vec<RoundId> = self.parked.keys().copied().collect();
        parked.sort_unstable();
        for round in parked {
            self.unpark(cluster, round);
            self.advance(cluster);
        }
    }

    // ---- callers that wait -------------------------------------------------------------------

    /// There may be units for the first caller that waits.
    pub(super) fn line_due(&mut self, cluster: &mut Cluster, id: LimitId) {
        if let Some(limit) = self.limits.get_mut(&id) {
            limit.queue().due = None;
            self.serve(cluster, id);
            self.advance(cluster);
        }
    }

    /// Makes a search for the callers at the front.
    fn serve(&mut self, cluster: &mut Cluster, id: LimitId) {
        let Some(limit) = self.limits.get_mut(&id) else {
            return;
        };
        limit.drop_gone();
        if !limit.is_waited_for() {
            return;
        }
        let queue = limit.queue();
        if queue.is_served || queue.due.is_some() {
            return;
        }
        let graces = limit.queue().line.iter().map(|spending| spending.grace);
        let grace = graces.reduce(Grace::max).unwrap_or_default();
        let silent = limit.silences(cluster, grace);
        let Some(amount) = limit.wanted(cluster, &silent) else {
            return;
        };
        limit.queue().is_served = true;
        self.ready
            .push_front(Search::new(id, For::Line, amount, grace));
    }

    // ---- inside -----------------------------------------------------------------------------

    /// Gives units back. The request is sent once, whether it arrives or not.
    fn refund(&mut self, cluster: &mut Cluster, id: LimitId, parts: Vec<Part>) {
        let Some(limit) = self.limits.get_mut(&id) else {
            return;
        };
        for part in parts {
            let Some(meter) = limit.meter(part.node) else {
                continue;
            };
            let operation = Operation::new(request::Units::Refund {
                meter,
                units: part.units,
                stamps: part.stamps,
            });
            let tag = Purpose::Refund.of(cluster.new_round());
            let times = if cluster.rule_holds(Rule::RefundOnce) {
                1
            } else {
                2
            };
            for _ in 0..times {
                round::ask(cluster, tag, &operation, [part.node]);
            }
            if let Some(view) = limit.view_mut(part.node) {
                view.gives_back(part.units);
            }
        }
    }

    /// From now on this map of limiters is looked through from time to time.
    pub(super) fn join_crowd(&mut self, cluster: &mut Cluster, crowd: Weak<dyn Crowd>) {
        self.limits.join_crowd(cluster, crowd);
    }

    /// Forgets limits that nobody uses any more.
    pub(super) fn sweep(&mut self, cluster: &mut Cluster) {
        // Callers wait for a search, and units of a late answer go back, even if the limit was not used for long.
        let searches = self.searches.values().chain(self.parked.values());
        let searched = searches.map(|search| search.limit);
        let looked_at = self.looks.values().map(|looks| looks.limit);
        let late = self.late.values().map(|(limit, _)| *limit);
        let needed = searched.chain(looked_at).chain(late).collect();
        self.limits.sweep(cluster, &needed);
    }

    /// The engine ends.
    pub(super) fn clear(&mut self) {
        self.limits = Limits::default();
        self.ready.clear();
        self.searches.clear();
        self.looks.clear();
        self.late.clear();
        self.parked.clear();
    }
}

// ---- The next step of one search: which nodes to ask, and its outcome

/// Waiters look again after this time, even if no answer suggests it.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The longest wait that is told to a caller whose attempts have all failed.
const SOON: Duration = Duration::from_secs(1);
/// After this number of collisions in a row a collision is treated as a denial.
const MOST_COLLISIONS: u32 = 8;

impl Rates {
    /// Takes the next step of all searches that are ready. A step leaves the search where it waits, or ends it; no step
    /// calls the next one. The steps that follow from one come before the other searches.
    fn advance(&mut self, cluster: &mut Cluster) {
        while let Some(mut search) = self.ready.pop_front() {
            match self.next(cluster, &mut search) {
                Next::Decide => self.ready.push_front(search),
                Next::Ask(nodes) => self.ask(cluster, search, nodes),
                Next::Look => self.look(cluster, search),
                Next::Park => self.park(cluster, search),
                Next::Give(parts, since) => self.give(cluster, search, parts, since),
                Next::Deny(wait) => self.deny(cluster, search, wait),
                Next::Show => self.show(cluster, search),
                Next::NoNode => self.no_node(cluster, search),
            }
        }
        self.ready.shrink_if_empty();
    }

    fn next(&mut self, cluster: &mut Cluster, search: &mut Search) -> Next {
        debug_assert!(search.is_answered(), "it waits for answers");
        // It was not asked for yet, or is settled.
        match search.asked.is_empty() {
            true => self.decide(cluster, search),
            false => self.settle(cluster, search),
        }
    }

    fn decide(&mut self, cluster: &mut Cluster, search: &mut Search) -> Next {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            debug_assert!(false, "a limit is forgotten although it is searched");
            return Next::NoNode;
        };
        search.look_at_nodes(limit.silences(cluster, search.grace));
        for (node, silence) in search.silent.iter().enumerate() {
            if let (Some(Silence::OutOfReach(trip)), Some(id)) =
                (silence, cluster.settings.nodes.get(node))
            {
                let name = &limit.limited.name;
                cluster
                    .journal
                    .out_of_reach(node, id, name, *trip, search.grace.most);
            }
        }
        let plan = match search.whom {
            _ if search.is_in_vain() => Plan::Never,
            For::Peek(_) if !limit.is_known(cluster, search) => Plan::Look,
            For::Peek(_) => Plan::Wait(Duration::ZERO),
            _ => limit.plan(cluster, search),
        };
        if plan == Plan::Never && search.asks_the_late_again() {
            return Next::Decide;
        }
        if matches!(plan, Plan::Wait(_) | Plan::Never) && search.may_park(cluster) {
            return Next::Park;
        }
        match plan {
            Plan::Ask(_) if search.tries >= TRIES => {
                let bucket = limit.limited.windows.first().map_or(1, |w| w.bucket());
                Next::Deny(Duration::from_millis(bucket).min(SOON))
            }
            Plan::Ask(nodes) => Next::Ask(nodes),
            Plan::Look => Next::Look,
            Plan::Wait(_) if matches!(search.whom, For::Peek(_)) => Next::Show,
            Plan::Wait(wait) => Next::Deny(wait),
            // No node answers, or there would be enough units if all nodes answered.
            Plan::Never => Next::NoNode,
        }
    }

    /// All nodes that were asked for units have answered.
    fn settle(&mut self, cluster: &mut Cluster, search: &mut Search) -> Next {
        let late = search.late_nodes();
        let (parts, since) = search.take_given();
        if count(&parts) >= search.amount.least
            && let Some(since) = since
        {
            let since = match cluster.rule_holds(Rule::AgeFromSending) {
                true => since,
                false => cluster.now,
            };
            if cluster.now < since.plus(search.age) {
                return Next::Give(parts, since);
            }
            // The next attempt asks other nodes, so this one does not count as a failed attempt.
            search.tries = search.tries.saturating_sub(1);
            search.late += 1;
            search.failed.extend(late);
        } else {
            search.collided |= !parts.is_empty();
        }
        self.refund(cluster, search.limit, parts);
        Next::Decide
    }

    /// Sets a search aside while nodes are being met, because they may have units.
    fn park(&mut self, cluster: &mut Cluster, mut search: Search) {
        debug_assert!(search.asked.is_empty(), "its units would be lost");
        let until = search
            .parked
            .unwrap_or(cluster.now.plus(cluster.settings.node_timeout));
        search.parked = Some(until);
        let round = cluster.new_round();
        cluster.timers.at(Key::of(Purpose::Spend.of(round)), until);
        let before = self.parked.insert(round, search);
        debug_assert!(before.is_none(), "two searches of one round");
    }

    /// A node was met, or the wait for nodes is over.
    fn unpark(&mut self, cluster: &mut Cluster, round: RoundId) {
        if let Some(search) = self.parked.remove(&round) {
            cluster.timers.cancel(Key::of(Purpose::Spend.of(round)));
            self.ready.push_front(search);
        }
    }

    fn ask(&mut self, cluster: &mut Cluster, mut search: Search, nodes: Vec<(usize, u32)>) {
        search.tries += 1;
        let round_trips = nodes.iter().map(|(node, _)| cluster.mean_round_trip(*node));
        search.age = search.grace.age(round_trips.max().unwrap_or_default());
        if let Some(limit) = self.limits.get_mut(&search.limit) {
            limit.used_at = cluster.now;
        }
        let round = cluster.new_round();
        let tag = Purpose::Spend.of(round);
        for (node, units) in nodes {
            let Some(limit) = self.limits.get_mut(&search.limit) else {
                return;
            };
            let Some(meter) = limit.meter(node) else {
                continue;
            };
            let operation = Operation::new(request::Units::Spend {
                meter,
                units,
                age: search.age,
            });
            let unasked = round::ask(cluster, tag, &operation, [node]).pop();
            let said = match unasked {
                Some(silent) => {
                    search.failed.push(silent);
                    Some(Said::Nothing)
                }
                None => {
                    if let Some(view) = limit.view_mut(node) {
                        view.asks(units);
                    }
                    None
                }
            };
            search.asked.push(Asked {
                node,
                units,
                sent_at: cluster.now,
                took: Duration::ZERO,
                said,
            });
        }
        if search.is_answered() {
            return self.ready.push_front(search);
        }
        round::arm(cluster, tag);
        let before = self.searches.insert(round, search);
        debug_assert!(before.is_none(), "two searches of one round");
    }

    /// Asks all nodes which units are taken. If such a LOOK is under way already, waits for its result.
    fn look(&mut self, cluster: &mut Cluster, mut search: Search) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        limit.used_at = cluster.now;
        search.looked_at = Some(cluster.now);
        search.looks += 1;
        if let Some(looks) = limit.looking().and_then(|round| self.looks.get_mut(&round)) {
            looks.waiting.push(search);
            return;
        }
        let round = cluster.new_round();
        let tag = Purpose::Meter.of(round);
        let mut looks = Looks {
            limit: search.limit,
            outstanding: Vec::new(),
            silent: Vec::new(),
            waiting: Vec::new(),
        };
        for (node, silence) in search.silent.iter().enumerate() {
            let is_far = matches!(silence, Some(Silence::OutOfReach(_)));
            let Some(meter) = limit.meter(node).filter(|_| silence.is_none() || is_far) else {
                continue;
            };
            let look = Operation::new(request::Units::Look { meter });
            let unasked = round::ask(cluster, tag, &look, [node]).pop();
            // Nobody waits for a node that is too far away. Its answer is used to measure the round trip again.
            if !is_far {
                match unasked {
                    Some(silent) => looks.silent.push(silent),
                    None => looks.outstanding.push(node),
                }
            }
        }
        limit.queue().looking = Some(round);
        looks.waiting.push(search);
        self.looks.insert(round, looks);
        round::arm(cluster, tag);
        self.look_is_over(cluster, round);
    }

    fn show(&mut self, cluster: &mut Cluster, search: Search) {
        let (Some(limit), For::Peek(reply)) = (self.limits.get(search.limit), search.whom) else {
            return;
        };
        let wait = limit.wait(cluster, &search.silent, 1);
        let room = limit.room(cluster, search.grace, 1, None);
        let _ = reply.send(Ok(Outcome::Denied(Denial { wait, room })));
    }

    fn deny(&mut self, cluster: &mut Cluster, search: Search, wait: Duration) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        match search.whom {
            For::One(spending) => {
                let least = spending.amount.least;
                let room = limit.room(cluster, search.grace, least, None).below(least);
                let _ = spending
                    .reply
                    .send(Ok(Outcome::Denied(Denial { wait, room })));
            }
            For::Line => {
                limit.queue().is_served = false;
                let wait = match search.collided && limit.queue().collisions < MOST_COLLISIONS {
                    true => {
                        limit.queue().collisions += 1;
                        wait.min(pause(cluster))
                    }
                    false => wait,
                };
                self.rest(cluster, search.limit, wait);
            }
            For::Peek(_) => {}
        }
    }

    /// Lets the waiters of this limit rest for this time.
    fn rest(&mut self, cluster: &mut Cluster, id: LimitId, wait: Duration) {
        if let Some(limit) = self.limits.get_mut(&id)
            && limit.is_waited_for()
        {
            // Others may give units back, and nodes may come back, without any message to this client. So the rest is
            // bounded.
            let wait = limit
                .opens_in(cluster)
                .map_or(wait, |opens| wait.min(opens));
            let wait = wait.clamp(SHORTEST_REST, LONGEST_REST);
            let due = cluster.now.plus(wait);
            limit.queue().due = Some(due);
            cluster.timers.cancel(Key::Limit(id));
            cluster.timers.at(Key::Limit(id), due);
        }
    }

    /// No node can say if there are units.
    fn no_node(&mut self, cluster: &mut Cluster, search: Search) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        let error = limit.outage(cluster, &search.silent);
        let is_outage = !matches!(error, Error::TooSlow(_));
        let stays = |spending: &Spending| spending.waits == Waits::Always && is_outage;
        match search.whom {
            For::One(Spending { reply, .. }) | For::Peek(reply) => {
                let _ = reply.send(Err(error));
            }
            For::Line if !search.is_in_vain() => {
                // The first caller wants more than the nodes that answer have together. Other callers may want less.
                limit.queue().is_served = false;
                let shares = limit.shares(&search.silent);
                while let Some(first) = limit.queue().line.front() {
                    let is_possible = u64::from(first.amount.least) <= shares;
                    if is_possible || stays(first) {
                        break;
                    }
                    if let Some(first) = limit.queue().line.pop_front() {
                        let _ = first.reply.send(Err(error.clone()));
                    }
                }
                let again = error.retry_after().unwrap_or(SHORTEST_PAUSE);
                self.rest(cluster, search.limit, again.min(SHORTEST_PAUSE));
            }
            For::Line => {
                limit.queue().is_served = false;
                let (stay, go): (Vec<Spending>, Vec<Spending>) =
                    limit.queue().line.drain(..).partition(stays);
                limit.queue().line.extend(stay);
                for spending in go {
                    let _ = spending.reply.send(Err(error.clone()));
                }
                let again = error.retry_after().unwrap_or(SHORTEST_PAUSE);
                self.rest(cluster, search.limit, again);
            }
        }
    }

    /// Gives these units to the callers for which they were asked.
    fn give(&mut self, cluster: &mut Cluster, search: Search, mut parts: Vec<Part>, since: Tick) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        debug_assert!(count(&parts) >= search.amount.least, "too few units");
        let room = limit.room(cluster, search.grace, 0, Some(search.age));
        let purse = &self.purse;
        let units = |limited: &Arc<Limited>, parts, age| {
            let purse = Weak::clone(purse);
            Units::new(Arc::clone(limited), parts, purse, since.plus(age), room)
        };
        match search.whom {
            For::One(spending) => {
                let units = units(&limit.limited, parts, search.age);
                // If the caller is gone, the units go back.
                let _ = spending.reply.send(Ok(Outcome::Given(units)));
            }
            For::Line => {
                debug_assert!(limit.queue().is_served, "two searches for one queue");
                limit.queue().is_served = false;
                limit.queue().collisions = 0;
                limit.queue().due = None;
                while let Some(first) = limit.queue().line.front() {
                    if first.reply.is_closed() {
                        limit.queue().line.pop_front();
                        continue;
                    }
                    let there = count(&parts);
                    if first.amount.least > there || there == 0 {
                        break;
                    }
                    let Some(first) = limit.queue().line.pop_front() else {
                        break;
                    };
                    let some = split(&mut parts, first.amount.most.min(there));
                    // The nodes counted the units for this age and no longer.
                    let age = first.grace.most.min(search.age);
                    let units = units(&limit.limited, some, age);
                    let _ = first.reply.send(Ok(Outcome::Given(units)));
                }
                self.refund(cluster, search.limit, parts);
                self.serve(cluster, search.limit);
            }
            For::Peek(_) => {}
        }
    }
}

/// A random pause after a collision, of up to 16 round trips, so that one of two searches comes first.
fn pause(cluster: &mut Cluster) -> Duration {
    let most = u64::try_from((cluster.round_trip() * 16).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(cluster.chance.up_to(most))
}

// ---- Answers of nodes

impl Rates {
    pub(in crate::engine) fn heard(
        &mut self,
        cluster: &mut Cluster,
        purpose: Purpose,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        match purpose {
            Purpose::Meter => self.looked(cluster, round, node, answer),
            _ if self.late.contains_key(&(round, node)) => {
                self.given_late(cluster, round, node, answer);
            }
            _ => self.spent(cluster, round, node, answer),
        }
        self.advance(cluster);
    }

    /// The answers are due.
    pub(in crate::engine) fn round_due(
        &mut self,
        cluster: &mut Cluster,
        purpose: Purpose,
        round: RoundId,
    ) {
        if self.parked.contains_key(&round) {
            self.unpark(cluster, round);
            return self.advance(cluster);
        }
        let outstanding: Vec<usize> = match purpose {
            Purpose::Meter => self
                .looks
                .get(&round)
                .map(|looks| looks.outstanding.clone()),
            _ => self
                .searches
                .get(&round)
                .map(|search| search.outstanding().collect()),
        }
        .unwrap_or_default();
        let outstanding = outstanding.into_iter().map(|node| (node, None));
        for (node, silence) in round::due(cluster, purpose.of(round), outstanding) {
            match purpose {
                Purpose::Meter => self.looked(cluster, round, node, Err(silence)),
                _ => {
                    let search = self.searches.get_mut(&round);
                    if let Some(asked) = search.and_then(|search| {
                        let limit = search.limit;
                        search.asked_of(node).map(|asked| (limit, asked.units))
                    }) {
                        self.late.insert((round, node), asked);
                    }
                    self.spent(cluster, round, node, Err(silence));
                }
            }
        }
        self.advance(cluster);
    }

    fn spent(
        &mut self,
        cluster: &mut Cluster,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        let Some(search) = self.searches.get_mut(&round) else {
            return;
        };
        let (id, age) = (search.limit, search.age);
        let Some(asked) = search.asked_of(node) else {
            return;
        };
        let units = asked.units;
        asked.took = cluster.now.since(asked.sent_at);
        if let Some(view) = self
            .limits
            .get_mut(&id)
            .and_then(|limit| limit.view_mut(node))
        {
            view.answered(units);
            match &answer {
                Ok(Answer::Spent { rooms, .. }) => {
                    view.takes(cluster.now, units, age);
                    view.has(cluster.now, rooms);
                }
                // The view was wrong, so a LOOK follows.
                Ok(Answer::Full { rooms, .. }) => {
                    view.has(cluster.now, rooms);
                    view.looked_at = None;
                }
                // The node has not taken any units.
                Err(Silence::ScriptsFlushed | Silence::NotAdmitted | Silence::Failed(_)) => {}
                _ => view.takes(cluster.now, units, age),
            }
        }
        match answer {
            Ok(Answer::Spent { stamps, .. }) => asked.said = Some(Said::Spent(stamps)),
            Ok(Answer::Full { .. }) => asked.said = Some(Said::Full),
            other => {
                // No other answer fits the request.
                let silence = other.err().unwrap_or(Silence::TimedOut);
                asked.said = Some(Said::Nothing);
                search.found_silent(node, silence);
            }
        }
        if search.is_answered()
            && let Some(search) = self.searches.remove(&round)
        {
            cluster.timers.cancel(Key::of(Purpose::Spend.of(round)));
            self.ready.push_front(search);
        }
    }

    /// Nobody waits for this answer any more, so units that were given go back.
    fn given_late(
        &mut self,
        cluster: &mut Cluster,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        if let (Some((id, units)), Ok(Answer::Spent { stamps, .. })) =
            (self.late.remove(&(round, node)), answer)
        {
            let part = Part {
                node,
                units,
                stamps,
            };
            self.refund(cluster, id, vec![part]);
        }
    }

    fn looked(
        &mut self,
        cluster: &mut Cluster,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        let Some(looks) = self.looks.get_mut(&round) else {
            return;
        };
        let outstanding = looks.outstanding.len();
        looks.outstanding.retain(|other| *other != node);
        if looks.outstanding.len() == outstanding {
            return;
        }
        match answer {
            Ok(Answer::Metered(taken)) => {
                let limit = self.limits.get_mut(&looks.limit);
                if let Some(view) = limit.and_then(|limit| limit.view_mut(node)) {
                    let taken = taken.iter().map(|interval| {
                        let units = interval.iter().map(|taken| (taken.left, taken.units));
                        units.collect()
                    });
                    view.looked(cluster.now, taken);
                }
            }
            Ok(_) => looks.silent.push((node, Silence::TimedOut)),
            Err(silence) => looks.silent.push((node, silence)),
        }
        self.look_is_over(cluster, round);
    }

    fn look_is_over(&mut self, cluster: &mut Cluster, round: RoundId) {
        let is_over = |looks: &Looks| looks.outstanding.is_empty();
        if !self.looks.get(&round).is_some_and(is_over) {
            return;
        }
        cluster.timers.cancel(Key::of(Purpose::Meter.of(round)));
        let Some(mut looks) = self.looks.remove(&round) else {
            return;
        };
        if let Some(limit) = self.limits.get_mut(&looks.limit) {
            limit.queue().looking = None;
            limit.drop_idle_queue();
        }
        for search in looks.waiting.iter_mut() {
            for (node, silence) in &looks.silent {
                search.found_silent(*node, silence.clone());
            }
        }
        // In the order in which they came.
        for search in looks.waiting.into_iter().rev() {
            self.ready.push_front(search);
        }
    }
}
