//! What the nodes say to those who wish: to an attempt, to one who waits in line, to one who wants a slot.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    Asking, Follows, Wishes, line,
    waiter::{Counts, Waiter},
};
use crate::{
    Silence,
    base::owner::Entry,
    engine::{net::Net, timers::Key},
    node::{Push, Says, session::RoundId},
    protocol::ballot::answers::Said,
};

impl Wishes {
    /// A node answered an attempt.
    pub(in crate::engine) fn heard(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Said, Silence>,
    ) -> Follows {
        let Some(Asking { waiter, attempt }) = self.asking.get_mut(&round) else {
            return Follows::Stray(answer);
        };
        attempt.heard(net, node, answer);
        waiter
            .wish
            .seen
            .fetch_max(attempt.largest_counter(), Relaxed);
        self.look(net, round)
    }

    /// A node answered a raise, of an attempt or of one who waits in line.
    pub(in crate::engine) fn raised(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Said, Silence>,
    ) -> Follows {
        if self.asking.contains_key(&round) {
            return self.heard(net, round, node, answer);
        }
        if self.slots.knows(round) {
            let follows = self.slots.raised(net, round, node, &answer);
            return self.follow(net, follows);
        }
        if !self.line.knows(round) {
            return Follows::Stray(answer);
        }
        let follows = self.line.raised(net, round, node, answer);
        self.follow(net, follows)
    }

    /// A node answered one who waits in line.
    pub(in crate::engine) fn joined(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Said, Silence>,
    ) -> Follows {
        let follows = self.line.joined(net, round, node, answer);
        self.follow(net, follows)
    }

    /// A node answered one who wants a slot.
    pub(in crate::engine) fn took(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Said, Silence>,
    ) -> Follows {
        if !self.slots.knows(round) {
            return Follows::Stray(answer);
        }
        let follows = self.slots.heard(net, round, node, answer);
        self.follow(net, follows)
    }

    /// A node has been given back a slot.
    pub(in crate::engine) fn gave_back(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Said, Silence>,
    ) -> Follows {
        if !self.slots.knows(round) {
            return Follows::Stray(answer);
        }
        let follows = self.slots.yielded(net, round, node, &answer);
        self.follow(net, follows)
    }

    /// A node says something unasked.
    pub(in crate::engine) fn pushed(&mut self, net: &mut Net, node: usize, push: Push) -> Follows {
        if push.says == Says::Freed {
            self.freed(net, &push.entry);
            return Follows::Nothing;
        }
        let follows = match self.slots.pushed(net, node, &push) {
            Some(follows) => follows,
            None => self.line.pushed(net, node, push),
        };
        self.follow(net, follows)
    }

    /// Tells a caller whose wait in line is over, or asks for what was not to be had there.
    pub(super) fn follow(&mut self, net: &mut Net, follows: line::Follows) -> Follows {
        self.make_room_in_line();
        match follows {
            line::Follows::Nothing => Follows::Nothing,
            line::Follows::Won(grant) => Follows::Grant(grant),
            line::Follows::Turn(writer, grant) => {
                self.attempt(net, writer);
                Follows::Grant(grant)
            }
            line::Follows::Over(mut waiter, error) => {
                match waiter.writer.take() {
                    Some(writer) => self.asks_alone(net, writer),
                    None => waiter.answer(error),
                }
                Follows::Nothing
            }
            line::Follows::Ask(mut waiter) => {
                if let Some(queue) = waiter.counts_no_more(Counts::Joins) {
                    self.turns.asks_instead(&queue);
                    waiter.counts = Counts::Asks;
                }
                match waiter.writer.take() {
                    Some(mut writer) => {
                        writer.counts = waiter.counts;
                        self.asks_alone(net, writer);
                    }
                    None => self.ask(net, waiter),
                }
                Follows::Nothing
            }
        }
    }

    /// It wishes no more, and has not got it.
    pub(super) fn forget(&mut self, net: &mut Net, waiter: &mut Waiter) {
        self.calls.give_up(net, waiter);
        self.make_room(waiter);
    }

    /// A wish that asked or rested is over, or stands in line now: its place is another's.
    pub(super) fn make_room(&mut self, waiter: &mut Waiter) {
        if let Some(queue) = waiter.counts_no_more(Counts::Asks) {
            self.turns.done(&queue);
        }
    }

    /// Those who asked for a place in line are answered, or gone.
    pub(super) fn make_room_in_line(&mut self) {
        for queue in self.line.decided() {
            self.turns.joined(&queue);
        }
    }

    /// A read-write lock was freed: all who wait for it ask again.
    fn freed(&mut self, net: &mut Net, entry: &Entry) {
        for id in self.calls.called(entry) {
            if let Some(waiter) = self.resting.get(&id) {
                let at = waiter.answers_the_call(net);
                net.timers.at(Key::Wish(id), at);
            } else if let Some(asking) = self.rounds.get(&id).and_then(|it| self.asking.get_mut(it))
                && let Some(known) = &mut asking.waiter.known
            {
                known.is_called = true;
            }
        }
    }
}
