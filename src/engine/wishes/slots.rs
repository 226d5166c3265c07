//! The wishes for a slot of a semaphore (protocol §6), and what travels between them and the nodes. What follows from
//! what is [`crate::protocol::slots`].

mod asking;

use self::asking::{Asking, Ends};
use super::{line::Follows, waiter::Waiter};
use std::{collections::HashMap, time::Duration};

use crate::{
    Error, Silence,
    base::{ids::ById, owner::Entry},
    engine::{attempt::new_owner, event::WishId, net::Net, timers::Key, wants::Slot},
    node::{Push, Says, answer::Answer, session::RoundId, status::NodeState},
    protocol::slots::words::{self, Step},
};
/// All who want a slot.
#[derive(Default)]
pub(super) struct Slots {
    asking: ById<WishId, Box<Asking>>,
    rounds: ById<RoundId, WishId>,
    entries: HashMap<Entry, WishId>,
    last_ticket: u64,
    /// The nodes that may be asked, when that was last looked at.
    voting: Vec<bool>,
}

impl Slots {
    pub(super) fn begin(&mut self, net: &mut Net, waiter: Box<Waiter>, slot: Slot) -> Follows {
        let entry = match new_owner(net, waiter.wish.id) {
            Ok(entry) => entry,
            Err(error) => return Follows::Over(waiter, error),
        };
        let ticket = net.clock.wall_us().max(self.last_ticket.saturating_add(1));
        self.last_ticket = ticket;
        let id = waiter.wish.id;
        let mut one = Box::new(Asking::new(net, waiter, slot, entry, ticket));
        if let Some(error) = one.needs_history(net) {
            return Follows::Over(one.waiter, error);
        }
        one.begin(net);
        self.rounds.insert(one.round, id);
        self.entries.insert(one.entry.clone(), id);
        self.asking.insert(id, one);
        self.look(net, id)
    }

    // ---- what nodes say ---------------------------------------------------------------------

    /// A node's answer to a TAKE.
    pub(super) fn heard(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) -> Follows {
        let Some((id, one)) = self.by_round(round) else {
            return Follows::Nothing;
        };
        one.standing.last.set(node, answer.clone());
        match answer {
            Ok(Answer::Slots {
                mine,
                taken,
                version,
                may_take,
                ticket,
                next_free,
            }) => {
                let slots = words::Slots {
                    mine,
                    taken,
                    version,
                    may_take,
                    ticket,
                    next_free,
                };
                one.answered(net, node, slots);
            }
            Ok(Answer::Conflict(limit)) => one.seat.conflicts(node, limit),
            Ok(_) | Err(_) => one.seat.unanswered(net.now, node),
        }
        self.look(net, id)
    }

    /// A node's answer to a YIELD.
    pub(super) fn yielded(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: &Result<Answer, Silence>,
    ) -> Follows {
        let Some((id, one)) = self.by_round(round) else {
            return Follows::Nothing;
        };
        match answer {
            Ok(Answer::Yielded) => one.seat.yielded(net.now, node),
            _ => one.seat.unanswered(net.now, node),
        }
        self.look(net, id)
    }

    /// A node's answer to a raise.
    pub(super) fn raised(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: &Result<Answer, Silence>,
    ) -> Follows {
        let Some((id, one)) = self.by_round(round) else {
            return Follows::Nothing;
        };
        let counter = match answer {
            Ok(Answer::Raised(counter)) => Some(*counter),
            _ => None,
        };
        one.seat.raised(net.now, node, counter);
        self.look(net, id)
    }

    /// A node says something unasked. None: to nobody who wants a slot.
    pub(super) fn pushed(&mut self, net: &mut Net, node: usize, push: &Push) -> Option<Follows> {
        let id = self.entries.get(&push.entry).copied()?;
        let one = self.asking.get_mut(&id)?;
        match push.says {
            Says::Free { slot } => one.seat.slot_freed(slot),
            Says::Called => one.seat.ask(net.now, node, Duration::ZERO),
            Says::Next { after } => one.seat.told_next(net.now, node, after),
            // Only locks are told this.
            Says::Granted { .. } | Says::Freed => {}
        }
        Some(self.look(net, id))
    }

    /// Whether it is the round of one who wants a slot.
    pub(super) fn knows(&self, round: RoundId) -> bool {
        self.rounds.contains_key(&round)
    }

    pub(super) fn has(&self, id: WishId) -> bool {
        self.asking.contains_key(&id)
    }

    /// Nodes have changed. Who is to be [looked at](Self::look) therefore.
    pub(super) fn look_at_nodes(&mut self, net: &Net) -> Vec<WishId> {
        let voting = net.states().map(|state| state == NodeState::Voting);
        let before = std::mem::replace(&mut self.voting, voting.collect());
        let mut changed = false;
        for (node, votes) in self.voting.iter().enumerate() {
            let did = before.get(node).copied().unwrap_or(false);
            if did == *votes {
                continue;
            }
            changed = true;
            for one in self.asking.values_mut() {
                match votes {
                    true => one.seat.came_back(net.now, node),
                    false => one.seat.went(node),
                }
            }
        }
        match changed {
            true => self.ids(),
            false => Vec::new(),
        }
    }

    /// All who want a slot, oldest first.
    pub(super) fn ids(&self) -> Vec<WishId> {
        let mut ids: Vec<WishId> = self.asking.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    // ---- what follows -----------------------------------------------------------------------

    /// The answers to a round are due.
    pub(super) fn round_due(&mut self, net: &mut Net, round: RoundId) -> Follows {
        let Some((id, one)) = self.by_round(round) else {
            return Follows::Nothing;
        };
        one.answers_due(net);
        self.look(net, id)
    }

    /// It wants none any more; what it may have left on the nodes is taken back. None: it never did.
    pub(super) fn leave(&mut self, net: &mut Net, id: WishId) -> Option<Box<Waiter>> {
        let one = self.take(net, id)?;
        one.take_back(net);
        Some(one.waiter)
    }

    /// Does what is to be done for one, until nothing is.
    pub(super) fn look(&mut self, net: &mut Net, id: WishId) -> Follows {
        let Some(one) = self.asking.get_mut(&id) else {
            return Follows::Nothing;
        };
        if one.waiter.wish.reply.is_closed() {
            self.leave(net, id);
            return Follows::Nothing;
        }
        if let Err(error) = self.look_aside(net, id) {
            return self.over(net, id, error);
        }
        let Some(one) = self.asking.get_mut(&id) else {
            return Follows::Nothing;
        };
        one.look_at_the_young(net);
        let rests = one.check_resting(net);
        loop {
            let step = match rests {
                true => Step::Rest(None),
                false => one.next(net),
            };
            if let Err(error) = one.can_be_had() {
                return self.over(net, id, error);
            }
            match step {
                Step::Take(nodes, ask) => one.ask(net, &nodes, ask),
                Step::Yield(nodes) => one.give_back(net, &nodes),
                Step::Raise(slot, token, nodes) => one.raise(net, slot, token, &nodes),
                Step::Won(won) => {
                    let Some(one) = self.take(net, id) else {
                        return Follows::Nothing;
                    };
                    return Follows::Won(Box::new(one.grant(net, won)));
                }
                Step::Refused | Step::NoQuorum | Step::Conflict(_) | Step::Rest(_) => {
                    return match one.ends(net, &step) {
                        Ends::Not => Follows::Nothing,
                        Ends::Again => Follows::Nothing,
                        Ends::With(error) => self.over(net, id, error),
                    };
                }
            }
        }
    }

    /// What is kept of them.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.asking.len() + self.rounds.len() + self.entries.len()
    }

    // ---- inside -----------------------------------------------------------------------------

    fn by_round(&mut self, round: RoundId) -> Option<(WishId, &mut Asking)> {
        let id = *self.rounds.get(&round)?;
        let one = self.asking.get_mut(&id)?;
        Some((id, one))
    }

    fn take(&mut self, net: &mut Net, id: WishId) -> Option<Box<Asking>> {
        let one = self.asking.remove(&id)?;
        net.timers.cancel(Key::Wish(id));
        net.timers.cancel(Key::of(one.tag()));
        self.rounds.remove(&one.round);
        self.entries.remove(&one.entry);
        Some(one)
    }

    fn over(&mut self, net: &mut Net, id: WishId, error: Error) -> Follows {
        match self.leave(net, id) {
            Some(waiter) => Follows::Over(waiter, error),
            None => Follows::Nothing,
        }
    }

    /// One that rested begins anew. One that stands in line and reaches no majority for long must not keep the others
    /// from theirs: it leaves the nodes that know it, and comes back under another name, since a RELEASE that is still
    /// owed would end the old one.
    fn look_aside(&mut self, net: &mut Net, id: WishId) -> Result<(), Error> {
        let Some(one) = self.asking.get_mut(&id) else {
            return Ok(());
        };
        if !one.begins_anew(net) {
            return Ok(());
        }
        let entry = new_owner(net, id)?;
        net.timers.cancel(Key::of(one.tag()));
        one.take_back(net);
        self.rounds.remove(&one.round);
        self.entries.remove(&one.entry);
        one.anew(net, entry);
        self.rounds.insert(one.round, id);
        self.entries.insert(one.entry.clone(), id);
        Ok(())
    }
}
