//! What one does who has heard enough: raises tokens, moves to a slot, gives all back, or waits.

use std::time::Duration;

use super::{APART, MOVES, PLENTY, SHORTEST_REST, STRAIGHT, Seat, UpTo};
use crate::{
    base::{clock::Tick, rules::Rule},
    protocol::slots::{
        choose,
        view::View,
        words::{Ask, Step},
    },
};

impl Seat {
    pub(super) fn act(&mut self, now: Tick, up_to: UpTo<'_>) -> Step {
        let wants = self.moves < MOVES;
        if let Some(step) = self.raise().filter(|_| wants) {
            return step;
        }
        let limit = self.limit.slots;
        let target = choose::target(&self.views, self.needed, limit, up_to);
        let step = target
            .filter(|_| wants)
            .and_then(|(want, token)| self.try_for(now, want, Some(token)));
        if let Some(step) = step {
            return step;
        }
        // Where there is plenty, nothing is given back first. Who rests, or was called to a slot, does that.
        let rests = self.retry_at.or(self.look_at).is_some();
        let may = self.waits && !rests && self.hints.is_empty();
        let plenty = match may && self.moves < STRAIGHT {
            true => self.free(up_to).filter(|(_, count)| *count >= PLENTY),
            false => None,
        };
        let step = plenty.and_then(|(want, _)| self.try_for(now, want, None));
        if let Some(step) = step {
            return step;
        }
        let mut held: Vec<usize> = self.held_nodes().collect();
        if !self.rules.hold(Rule::YieldAllSlots) {
            held.pop();
        }
        if !held.is_empty() || !self.waits {
            if !self.waits {
                return match self.answers() >= self.needed {
                    true => Step::Refused,
                    false => Step::NoQuorum,
                };
            }
            self.retry_at = Some(now.plus(random(self.apart(1), up_to)));
            return self.give_back(now, held);
        }
        self.trying = None;
        self.moves = 0;
        if let Some(want) = self.hints.pop() {
            self.hints.clear();
            if want < limit {
                return self.take(now, Ask::Move { want, floor: None });
            }
            // The limit has grown.
            self.ask_all(now);
        }
        self.wait(now, up_to)
    }

    /// None: all have it already, and it did not fit, or its tokens cannot be made equal.
    fn try_for(&mut self, now: Tick, want: u32, floor: Option<u64>) -> Option<Step> {
        self.moves += 1;
        let step = self.take(now, Ask::Move { want, floor });
        let is_asked = !matches!(&step, Step::Take(nodes, _) if nodes.is_empty());
        is_asked.then_some(step)
    }

    /// Nothing is ours: tries again where something may be free, and is heard of now and then.
    pub(super) fn wait(&mut self, now: Tick, up_to: UpTo<'_>) -> Step {
        let limit = self.limit.slots;
        let in_front = self.views.iter().filter(|view| view.may_take()).count() >= self.needed;
        let free = match in_front {
            true => self.free(up_to),
            false => None,
        };
        let is_over = |rest: Option<Tick>| rest.is_some_and(|at| at <= now);
        match (free, is_over(self.retry_at)) {
            (Some((want, _)), true) => {
                (self.retry_at, self.look_at, self.looks) = (None, None, 0);
                self.moves += 1;
                return self.take(now, Ask::Move { want, floor: None });
            }
            (Some((_, count)), false) => {
                let at = now.plus(random(self.apart(count), up_to));
                self.retry_at.get_or_insert(at);
                self.look_at = None;
            }
            (None, true) => {
                // What is not a majority's is given back without a word.
                self.retry_at = None;
                self.ask_all(now);
            }
            (None, false) if is_over(self.look_at) => {
                self.look_at = None;
                self.ask_all(now);
            }
            (None, false) => {
                let unsettled = in_front && !choose::is_full(&self.views, self.needed, limit);
                if self.retry_at.or(self.look_at).is_none() && unsettled {
                    self.looks = self.looks.saturating_add(1);
                    let doubled = self.apart(1) * 2_u32.pow(self.looks.min(8));
                    let within = doubled.min(self.terms.term() / 2);
                    self.look_at = Some(now.plus(within / 2 + random(within / 2, up_to)));
                }
            }
        }
        let views = self.views.iter().enumerate();
        let due: Vec<usize> = views
            .filter_map(|(node, view)| {
                let is_due = view.ask_at.is_some_and(|at| at <= now.plus(SHORTEST_REST))
                    || view.lags(self.ticket);
                is_due.then_some(node)
            })
            .collect();
        if due.is_empty() {
            let asks = self.views.iter().filter_map(|view| view.ask_at);
            return self.rest(now, asks.chain(self.retry_at).chain(self.look_at).min());
        }
        self.sent(now, &due, false);
        Step::Take(due, Ask::Stay)
    }

    /// Q nodes have a slot for us, with unequal tokens, and nobody was raised yet.
    pub(super) fn raise(&mut self) -> Option<Step> {
        let mut slots: Vec<u32> = self
            .views
            .iter()
            .filter_map(View::mine)
            .map(|(s, _)| s)
            .collect();
        slots.sort_unstable();
        slots.dedup();
        for slot in slots {
            let of = self.views.iter().filter_map(View::mine);
            let mut tokens: Vec<u64> = of.filter_map(|(s, t)| (s == slot).then_some(t)).collect();
            tokens.sort_unstable();
            // The smallest that Q nodes can be raised to.
            let Some(token) = self.needed.checked_sub(1).and_then(|nth| tokens.get(nth)) else {
                continue;
            };
            let token = *token;
            if slot >= self.limit.slots || self.raise == Some((slot, token)) {
                continue;
            }
            let behind = |view: &View| view.mine().is_some_and(|(s, t)| s == slot && t < token);
            let mut nodes = Vec::new();
            for (node, view) in self.views.iter_mut().enumerate() {
                if behind(view) && !view.is_pending() {
                    view.is_raising = true;
                    nodes.push(node);
                }
            }
            if nodes.is_empty() {
                continue;
            }
            self.raise = Some((slot, token));
            self.moves += 1;
            return Some(Step::Raise(slot, token, nodes));
        }
        None
    }

    /// A slot that a majority would give, at random, and how many there are. While the limit shrinks only those are free
    /// that fit in with what is taken above.
    fn free(&self, up_to: UpTo<'_>) -> Option<(u32, usize)> {
        let limit = self.limit.slots;
        let known: Vec<&View> = self.views.iter().filter(|v| v.known.is_some()).collect();
        let shrinks = known.iter().any(|view| view.has_above(limit));
        let fits = |slot| !shrinks || self.fits(slot, &known);
        choose::free(&self.views, self.needed, limit, fits, up_to)
    }

    /// Those who got in each other's way try again within this, the sooner the more slots are free. Where nodes have been
    /// silent a round trip seems to be long, but nobody waits so long with what it sees free.
    fn apart(&self, free: usize) -> Duration {
        let (one, ttl) = (self.terms.round_trip, self.terms.ttl);
        let within = one * APART / u32::try_from(free).unwrap_or(APART);
        within.min((ttl / 8).max(one * 2))
    }

    pub(super) fn ask_all(&mut self, now: Tick) {
        for view in &mut self.views {
            if !view.is_silent && !view.is_awaited {
                view.ask_at = Some(now);
            }
        }
    }
}

fn random(within: Duration, up_to: UpTo<'_>) -> Duration {
    let most = u64::try_from(within.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(up_to(most))
}
