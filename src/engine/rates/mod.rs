//! Units of rate limits: one node gives them, and is asked alone where it may have enough (protocol §7).

mod limit;
mod nodes;
mod search;

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use self::{
    limit::Limit,
    search::{Asked, For, Said, Search, count, split},
};
use crate::{
    Error, Silence, Vote,
    base::{clock::Tick, ids::ById, rules::Rule, sweep::Sweep},
    engine::{
        event::{Spending, Waits},
        net::{Net, SHORTEST_PAUSE},
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
        words::{Amount, Grace, Limited, Outcome, Part, Purse, Units},
    },
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
            let wait = limit.wait(net, &silent, spending.amount.least);
            let left = limit.left(net, spending.grace);
            let _ = spending.reply.send(Ok(Outcome::Denied { wait, left }));
            return;
        }
        let (amount, grace) = (spending.amount, spending.grace);
        self.go_on(net, Search::new(id, For::One(spending), amount, grace));
    }

    pub(super) fn peek(
        &mut self,
        net: &mut Net,
        limited: Arc<Limited>,
        grace: Grace,
        reply: Responder<Outcome>,
    ) {
        let id = self.limit_of(net, &limited);
        self.go_on(
            net,
            Search::new(id, For::Peek(reply), Amount::exactly(1), grace),
        );
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
        let Some(amount) = limit.wanted(net, &silent) else {
            return;
        };
        limit.is_served = true;
        self.go_on(net, Search::new(id, For::Line, amount, grace));
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
            let operation = Operation::new(request::Units::Refund {
                meter: meter.clone(),
                units: part.units,
                stamps: part.stamps,
            });
            let tag = Purpose::Refund.of(net.new_round());
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

// ---- The next step of one search: which nodes to ask, and its outcome

/// Waiters look again after this time, regardless of answers.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// The longest wait that is told to a caller whose answers came too late several times.
const SOON: Duration = Duration::from_secs(1);
/// After this number of collisions in a row it no longer counts as one.
const MOST_COLLISIONS: u32 = 8;

impl Rates {
    /// Does what is planned for it.
    fn go_on(&mut self, net: &mut Net, mut search: Search) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        search.look_at_nodes(limit.silences(net, search.grace));
        for (node, silence) in search.silent.iter().enumerate() {
            if let (Some(Silence::OutOfReach(trip)), Some(id)) =
                (silence, net.settings.nodes.get(node))
            {
                let name = &limit.limited.name;
                net.journal
                    .out_of_reach(node, id, name, *trip, search.grace.most);
            }
        }
        let plan = match search.whom {
            _ if search.is_in_vain() => Plan::Never,
            For::Peek(_) if !limit.is_known(net, &search) => Plan::Look,
            For::Peek(_) => Plan::Wait(Duration::ZERO),
            _ => limit.plan(net, &search),
        };
        if plan == Plan::Never && search.asks_the_late_again() {
            return self.go_on(net, search);
        }
        if matches!(plan, Plan::Wait(_) | Plan::Never) && search.may_park(net) {
            return self.park(net, search);
        }
        if search.is_in_vain() {
            return self.no_node(net, search);
        }
        if let (For::Peek(_), Plan::Look) = (&search.whom, &plan) {
            return self.look(net, search);
        }
        if let For::Peek(reply) = search.whom {
            let wait = limit.wait(net, &search.silent, 1);
            let left = limit.left(net, search.grace);
            let _ = reply.send(Ok(Outcome::Denied { wait, left }));
            return;
        }
        match plan {
            Plan::Ask(_) if search.tries >= TRIES => {
                let bucket = limit.limited.windows.first().map_or(1, |w| w.bucket());
                let wait = Duration::from_millis(bucket).min(SOON);
                self.deny(net, search, wait);
            }
            Plan::Ask(nodes) => self.ask(net, search, nodes),
            Plan::Look => self.look(net, search),
            Plan::Wait(wait) => self.deny(net, search, wait),
            // There were enough if all nodes answered.
            Plan::Never => self.no_node(net, search),
        }
    }

    /// Nodes that are being met may have units.
    fn park(&mut self, net: &mut Net, mut search: Search) {
        let until = search
            .parked
            .unwrap_or(net.now.plus(net.settings.node_timeout));
        search.parked = Some(until);
        let round = net.new_round();
        net.timers.at(Key::of(Purpose::Spend.of(round)), until);
        self.parked.insert(round, search);
    }

    /// One of them is met, or the wait for them is over.
    fn unpark(&mut self, net: &mut Net, round: RoundId) {
        let Some(search) = self.parked.remove(&round) else {
            return;
        };
        net.timers.cancel(Key::of(Purpose::Spend.of(round)));
        self.go_on(net, search);
    }

    fn ask(&mut self, net: &mut Net, mut search: Search, nodes: Vec<(usize, u32)>) {
        search.tries += 1;
        let round_trips = nodes.iter().map(|(node, _)| net.mean_round_trip(*node));
        search.age = search.grace.age(round_trips.max().unwrap_or_default());
        if let Some(limit) = self.limits.get_mut(&search.limit) {
            limit.used_at = net.now;
        }
        let round = net.new_round();
        let tag = Purpose::Spend.of(round);
        for (node, units) in nodes {
            let Some(limit) = self.limits.get_mut(&search.limit) else {
                return;
            };
            let Some(meter) = limit.meter(node) else {
                continue;
            };
            let operation = Operation::new(request::Units::Spend {
                meter: meter.clone(),
                units,
                age: search.age,
            });
            let unasked = round::ask(net, tag, &operation, [node]).pop();
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
                sent_at: net.now,
                took: Duration::ZERO,
                said,
            });
        }
        if search.is_answered() {
            return self.answered(net, search);
        }
        round::arm(net, tag);
        self.searches.insert(round, search);
    }

    /// All that were asked for units have answered.
    fn answered(&mut self, net: &mut Net, mut search: Search) {
        let late = search.late_nodes();
        let (parts, since) = search.take_given();
        if count(&parts) >= search.amount.least
            && let Some(since) = since
        {
            let since = match net.holds(Rule::AgeFromSending) {
                true => since,
                false => net.now,
            };
            if net.now < since.plus(search.age) {
                return self.give(net, search, parts, since);
            }
            // The next attempt asks other nodes, so this one does not count as a failed try.
            search.tries = search.tries.saturating_sub(1);
            search.late += 1;
            search.failed.extend(late);
        } else {
            search.collided |= !parts.is_empty();
        }
        self.refund(net, search.limit, parts);
        self.go_on(net, search);
    }

    /// Asks all nodes what is taken; or waits for what somebody else asks them just now.
    fn look(&mut self, net: &mut Net, mut search: Search) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        limit.used_at = net.now;
        search.looked_at = Some(net.now);
        search.looks += 1;
        if let Some(looks) = limit.looking.and_then(|round| self.looks.get_mut(&round)) {
            looks.waiting.push(search);
            return;
        }
        let round = net.new_round();
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
            let look = Operation::new(request::Units::Look {
                meter: meter.clone(),
            });
            let unasked = round::ask(net, tag, &look, [node]).pop();
            // Nobody waits for a node that is too far away. Its answer measures its round trip once more.
            if !is_far {
                match unasked {
                    Some(silent) => looks.silent.push(silent),
                    None => looks.outstanding.push(node),
                }
            }
        }
        limit.looking = Some(round);
        looks.waiting.push(search);
        self.looks.insert(round, looks);
        round::arm(net, tag);
        self.look_is_over(net, round);
    }

    fn deny(&mut self, net: &mut Net, search: Search, wait: Duration) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        match search.whom {
            For::One(spending) => {
                let left = limit.left(net, search.grace);
                let _ = spending.reply.send(Ok(Outcome::Denied { wait, left }));
            }
            For::Line => {
                limit.is_served = false;
                let wait = match search.collided && limit.collisions < MOST_COLLISIONS {
                    true => {
                        limit.collisions += 1;
                        wait.min(pause(net))
                    }
                    false => wait,
                };
                self.rest(net, search.limit, wait);
            }
            For::Peek(_) => {}
        }
    }

    /// Waiters of this limit rest for this time.
    fn rest(&mut self, net: &mut Net, id: LimitId, wait: Duration) {
        if let Some(limit) = self.limits.get_mut(&id)
            && !limit.line.is_empty()
        {
            // Others may give units back, and nodes come back: nobody says so.
            let wait = limit.opens_in(net).map_or(wait, |opens| wait.min(opens));
            let wait = wait.clamp(SHORTEST_REST, LONGEST_REST);
            let due = net.now.plus(wait);
            limit.due = Some(due);
            net.timers.cancel(Key::Limit(id));
            net.timers.at(Key::Limit(id), due);
        }
    }

    /// No node can say.
    fn no_node(&mut self, net: &mut Net, search: Search) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        let error = outage(net, limit, &search.silent);
        let is_outage = !matches!(error, Error::TooSlow(_));
        let stays = |spending: &Spending| spending.waits == Waits::Always && is_outage;
        match search.whom {
            For::One(Spending { reply, .. }) | For::Peek(reply) => {
                let _ = reply.send(Err(error));
            }
            For::Line if !search.is_in_vain() => {
                // It wants more than the nodes that answer have in all. Others want less.
                limit.is_served = false;
                let shares = limit.shares(&search.silent);
                while let Some(first) = limit.line.front() {
                    let is_possible = u64::from(first.amount.least) <= shares;
                    if is_possible || stays(first) {
                        break;
                    }
                    if let Some(first) = limit.line.pop_front() {
                        let _ = first.reply.send(Err(error.clone()));
                    }
                }
                let again = error.retry_after().unwrap_or(SHORTEST_PAUSE);
                self.rest(net, search.limit, again.min(SHORTEST_PAUSE));
            }
            For::Line => {
                limit.is_served = false;
                let (stay, go): (Vec<Spending>, Vec<Spending>) =
                    limit.line.drain(..).partition(stays);
                limit.line.extend(stay);
                for spending in go {
                    let _ = spending.reply.send(Err(error.clone()));
                }
                let again = error.retry_after().unwrap_or(SHORTEST_PAUSE);
                self.rest(net, search.limit, again);
            }
        }
    }

    /// Gives these units to whom they were asked for.
    fn give(&mut self, net: &mut Net, search: Search, mut parts: Vec<Part>, since: Tick) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        let left = limit.left(net, search.grace);
        let purse = &self.purse;
        let units = |limited: &Arc<Limited>, parts, age| {
            let purse = Weak::clone(purse);
            Units::new(Arc::clone(limited), parts, purse, since.plus(age), left)
        };
        match search.whom {
            For::One(spending) => {
                let units = units(&limit.limited, parts, search.age);
                // Where nobody hears it any more they go back.
                let _ = spending.reply.send(Ok(Outcome::Given(units)));
            }
            For::Line => {
                limit.is_served = false;
                limit.collisions = 0;
                limit.due = None;
                while let Some(first) = limit.line.front() {
                    if first.reply.is_closed() {
                        limit.line.pop_front();
                        continue;
                    }
                    let there = count(&parts);
                    if first.amount.least > there || there == 0 {
                        break;
                    }
                    let Some(first) = limit.line.pop_front() else {
                        break;
                    };
                    let some = split(&mut parts, first.amount.most.min(there));
                    // They were counted for no longer.
                    let age = first.grace.most.min(search.age);
                    let units = units(&limit.limited, some, age);
                    let _ = first.reply.send(Ok(Outcome::Given(units)));
                }
                self.refund(net, search.limit, parts);
                self.serve(net, search.limit);
            }
            For::Peek(_) => {}
        }
    }
}

/// After a collision: up to 16 round trips, so that one of two comes first.
fn pause(net: &mut Net) -> Duration {
    let most = u64::try_from((net.round_trip() * 16).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(net.chance.up_to(most))
}

// ---- Answers of nodes

impl Rates {
    pub(in crate::engine) fn heard(
        &mut self,
        net: &mut Net,
        purpose: Purpose,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        match purpose {
            Purpose::Meter => self.looked(net, round, node, answer),
            _ if self.late.contains_key(&(round, node)) => {
                self.given_late(net, round, node, answer);
            }
            _ => self.spent(net, round, node, answer),
        }
    }

    /// Answers are due.
    pub(in crate::engine) fn round_due(&mut self, net: &mut Net, purpose: Purpose, round: RoundId) {
        if self.parked.contains_key(&round) {
            return self.unpark(net, round);
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
        for (node, silence) in round::due(net, purpose.of(round), outstanding) {
            match purpose {
                Purpose::Meter => self.looked(net, round, node, Err(silence)),
                _ => {
                    let search = self.searches.get_mut(&round);
                    if let Some(asked) = search.and_then(|search| {
                        let limit = search.limit;
                        search.asked_of(node).map(|asked| (limit, asked.units))
                    }) {
                        self.late.insert((round, node), asked);
                    }
                    self.spent(net, round, node, Err(silence));
                }
            }
        }
    }

    fn spent(
        &mut self,
        net: &mut Net,
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
        asked.took = net.now.since(asked.sent_at);
        if let Some(view) = self
            .limits
            .get_mut(&id)
            .and_then(|limit| limit.view_mut(node))
        {
            view.answered(units);
            match &answer {
                Ok(Answer::Spent { room, .. }) => {
                    view.takes(net.now, units, age);
                    view.has(net.now, *room);
                }
                Ok(Answer::Full { room, .. }) => view.found_full(net.now, *room),
                // Nothing was done.
                Err(Silence::ScriptsFlushed | Silence::NotAdmitted | Silence::Failed(_)) => {}
                _ => view.takes(net.now, units, age),
            }
        }
        match answer {
            Ok(Answer::Spent { stamps, .. }) => asked.said = Some(Said::Spent(stamps)),
            Ok(Answer::Full { .. }) => asked.said = Some(Said::Full),
            other => {
                // No other answer fits.
                let silence = other.err().unwrap_or(Silence::TimedOut);
                asked.said = Some(Said::Nothing);
                search.found_silent(node, silence);
            }
        }
        if search.is_answered()
            && let Some(search) = self.searches.remove(&round)
        {
            net.timers.cancel(Key::of(Purpose::Spend.of(round)));
            self.answered(net, search);
        }
    }

    /// Nobody waits for it any more: what was given goes back.
    fn given_late(
        &mut self,
        net: &mut Net,
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
            self.refund(net, id, vec![part]);
        }
    }

    fn looked(
        &mut self,
        net: &mut Net,
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
                    view.looked(net.now, taken);
                }
            }
            Ok(_) => looks.silent.push((node, Silence::TimedOut)),
            Err(silence) => looks.silent.push((node, silence)),
        }
        self.look_is_over(net, round);
    }

    fn look_is_over(&mut self, net: &mut Net, round: RoundId) {
        let is_over = |looks: &Looks| looks.outstanding.is_empty();
        if !self.looks.get(&round).is_some_and(is_over) {
            return;
        }
        net.timers.cancel(Key::of(Purpose::Meter.of(round)));
        let Some(looks) = self.looks.remove(&round) else {
            return;
        };
        if let Some(limit) = self.limits.get_mut(&looks.limit) {
            limit.looking = None;
        }
        for mut search in looks.waiting {
            for (node, silence) in &looks.silent {
                search.found_silent(*node, silence.clone());
            }
            self.go_on(net, search);
        }
    }
}
