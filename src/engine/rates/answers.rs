//! What nodes answer who were asked for units, or what is taken.

use super::{Looks, Rates, search::Said};
use crate::{
    Silence,
    engine::{
        claim::units::{self, Metered},
        net::Net,
        round::{self, Request},
        timers::Key,
    },
    node::{Reply, session::RoundId},
    protocol::rates::words::Part,
};

impl Rates {
    pub(in crate::engine) fn heard(
        &mut self,
        net: &mut Net,
        (request, round): (Request, RoundId),
        node: usize,
        answer: Result<Reply, Silence>,
    ) {
        let answer = answer.and_then(|reply| units::metered(reply).ok_or(Silence::TimedOut));
        match request {
            Request::Meter => self.looked(net, round, node, answer),
            _ if self.late.contains_key(&(round, node)) => {
                self.given_late(net, round, node, answer);
            }
            _ => self.spent(net, round, node, answer),
        }
    }

    /// Answers are due.
    pub(in crate::engine) fn round_due(&mut self, net: &mut Net, request: Request, round: RoundId) {
        if self.parked.contains_key(&round) {
            return self.unpark(net, round);
        }
        let outstanding: Vec<usize> = match request {
            Request::Meter => self
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
        for (node, silence) in round::due(net, request.of(round), outstanding) {
            match request {
                Request::Meter => self.looked(net, round, node, Err(silence)),
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
        answer: Result<Metered, Silence>,
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
                Ok(Metered::Spent { room, .. }) => {
                    view.takes(net.now, units, age);
                    view.has(net.now, *room);
                }
                Ok(Metered::Full { room, .. }) => view.is_full(net.now, *room),
                // Nothing was done.
                Err(Silence::ScriptsFlushed | Silence::NotAdmitted | Silence::Failed(_)) => {}
                _ => view.takes(net.now, units, age),
            }
        }
        match answer {
            Ok(Metered::Spent { stamps, .. }) => asked.said = Some(Said::Spent(stamps)),
            Ok(Metered::Full { .. }) => asked.said = Some(Said::Full),
            Ok(_) => asked.said = Some(Said::Nothing),
            Err(silence) => {
                asked.said = Some(Said::Nothing);
                search.is_silent(node, silence);
            }
        }
        if search.is_answered()
            && let Some(search) = self.searches.remove(&round)
        {
            net.timers.cancel(Key::of(Request::Spend.of(round)));
            self.answered(net, search);
        }
    }

    /// Nobody waits for it any more: what was given goes back.
    fn given_late(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Metered, Silence>,
    ) {
        if let (Some((id, units)), Ok(Metered::Spent { stamps, .. })) =
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
        answer: Result<Metered, Silence>,
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
            Ok(Metered::Seen(taken)) => {
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

    pub(super) fn look_is_over(&mut self, net: &mut Net, round: RoundId) {
        let is_over = |looks: &Looks| looks.outstanding.is_empty();
        if !self.looks.get(&round).is_some_and(is_over) {
            return;
        }
        net.timers.cancel(Key::of(Request::Meter.of(round)));
        let Some(looks) = self.looks.remove(&round) else {
            return;
        };
        if let Some(limit) = self.limits.get_mut(&looks.limit) {
            limit.looking = None;
        }
        for mut search in looks.waiting {
            for (node, silence) in &looks.silent {
                search.is_silent(*node, silence.clone());
            }
            self.go_on(net, search);
        }
    }
}
