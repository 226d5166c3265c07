//! What follows for one search: whom to ask next, and what to say in the end.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use super::{
    Looks, Rates, SHORTEST_REST, TRIES, outage,
    search::{Asked, For, Said, Search, count, split},
};
use crate::{
    Error, Silence,
    base::{clock::Tick, rules::Rule},
    engine::{
        claim::units,
        event::{Spending, Waits},
        net::{Net, SHORTEST_PAUSE},
        round::{self, Request},
        timers::{Key, LimitId},
    },
    node::session::RoundId,
    protocol::rates::{
        plan::Plan,
        words::{Limited, Outcome, Part, Units},
    },
};

/// Those who wait look anew after this, whatever was said.
const LONGEST_REST: Duration = Duration::from_secs(5);
/// Who came too late again and again is told to try again after this at most.
const SOON: Duration = Duration::from_secs(1);
/// After so many collisions in a row nobody believes any more that it was one.
const MOST_COLLISIONS: u32 = 8;

impl Rates {
    /// Does what is planned for it.
    pub(super) fn go_on(&mut self, net: &mut Net, mut search: Search) {
        let Some(limit) = self.limits.get_mut(&search.limit) else {
            return;
        };
        search.look_at_nodes(limit.silences(net, search.grace));
        for (node, silence) in search.silent.iter().enumerate() {
            if let (Some(Silence::OutOfReach(trip)), Some(id)) =
                (silence, net.settings.nodes.get(node))
            {
                let times = (*trip, search.grace.most);
                let name = &limit.limited.name;
                net.journal.out_of_reach((node, id), name, times);
            }
        }
        let wanted = (search.least, search.most);
        let plan = match search.whom {
            _ if search.is_in_vain() => Plan::Never,
            For::Peek(_) if !limit.is_known(net, &search) => Plan::Look,
            For::Peek(_) => Plan::Wait(Duration::ZERO),
            _ => limit.plan(net, wanted, &search),
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
    pub(super) fn park(&mut self, net: &mut Net, mut search: Search) {
        let until = search
            .parked
            .unwrap_or(net.now.plus(net.settings.node_timeout));
        search.parked = Some(until);
        let round = net.new_round();
        net.timers.at(Key::of(Request::Spend.of(round)), until);
        self.parked.insert(round, search);
    }

    /// One of them is met, or the wait for them is over.
    pub(super) fn unpark(&mut self, net: &mut Net, round: RoundId) {
        let Some(search) = self.parked.remove(&round) else {
            return;
        };
        net.timers.cancel(Key::of(Request::Spend.of(round)));
        self.go_on(net, search);
    }

    pub(super) fn ask(&mut self, net: &mut Net, mut search: Search, nodes: Vec<(usize, u32)>) {
        search.tries += 1;
        let round_trips = nodes.iter().map(|(node, _)| net.mean_round_trip(*node));
        search.age = search.grace.age(round_trips.max().unwrap_or_default());
        if let Some(limit) = self.limits.get_mut(&search.limit) {
            limit.used_at = net.now;
        }
        let round = net.new_round();
        let tag = Request::Spend.of(round);
        for (node, units) in nodes {
            let Some(limit) = self.limits.get_mut(&search.limit) else {
                return;
            };
            let Some(meter) = limit.meter(node) else {
                continue;
            };
            let operation = units::spend(meter, units, search.age);
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
    pub(super) fn answered(&mut self, net: &mut Net, mut search: Search) {
        let late = search.late_nodes();
        let (parts, since) = search.take_given();
        if count(&parts) >= search.least
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
    pub(super) fn look(&mut self, net: &mut Net, mut search: Search) {
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
        let tag = Request::Meter.of(round);
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
            let unasked = round::ask(net, tag, &units::look(meter), [node]).pop();
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

    pub(super) fn deny(&mut self, net: &mut Net, search: Search, wait: Duration) {
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

    /// Those who wait rest for so long.
    pub(super) fn rest(&mut self, net: &mut Net, id: LimitId, wait: Duration) {
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
    pub(super) fn no_node(&mut self, net: &mut Net, search: Search) {
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
                // More than the nodes that answer have, whatever is taken; others want less.
                limit.is_served = false;
                let shares = limit.shares(&search.silent);
                while let Some(first) = limit.line.front() {
                    let is_possible = u64::from(first.least) <= shares;
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
    pub(super) fn give(
        &mut self,
        net: &mut Net,
        search: Search,
        mut parts: Vec<Part>,
        since: Tick,
    ) {
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
                    if first.least > there || there == 0 {
                        break;
                    }
                    let Some(first) = limit.line.pop_front() else {
                        break;
                    };
                    let some = split(&mut parts, first.most.min(there));
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
