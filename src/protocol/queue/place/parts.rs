//! One who has a part of the nodes: who else has which, and whether to give way to them.

use super::{NEVER, Place, Step, next_beat};
use crate::{
    base::clock::Tick,
    protocol::queue::beats::{Beat, Entered, Has},
};

impl Place {
    /// A place that is to be the last stands once a majority has it: so nobody stood on a majority before whom it comes. Where one node
    /// refuses it, a majority has to have said with which tickets others stand there.
    pub(super) fn enter(&mut self, now: Tick) -> Option<Step> {
        if !self.only_last {
            return None;
        }
        let of = |is: fn(&Beat) -> bool| self.beats.iter().filter(|beat| is(beat)).count();
        let entered = of(|beat| beat.entered == Entered::Yes);
        let refused = of(|beat| beat.entered == Entered::No);
        let needed = self.votes.needed();
        if entered >= needed {
            self.only_last = false;
            for beat in &mut self.beats {
                if std::mem::take(&mut beat.entered) == Entered::No {
                    beat.now(now);
                }
            }
            return None;
        }
        if refused > 0 && entered + refused >= needed {
            return Some(Step::Again);
        }
        let open = of(Beat::is_open);
        (entered + refused + open < needed).then_some(Step::Unheard)
    }

    /// One more node has handed over: the others follow soon, or are asked.
    pub(super) fn voted(&mut self, now: Tick, node: usize, was_partial: bool) {
        if let Some((token, seq)) = self.votes.is_late(node) {
            let unequal = self.unequal.get_or_insert_default();
            unequal.late.push((token, (node, seq)));
        }
        let follow = now.plus(self.terms.votes_follow());
        self.hasten_at.get_or_insert(follow);
        if let Some(beat) = self.beats.get_mut(node) {
            (beat.has, beat.holder) = (Has::Unknown, 0);
        }
        if !was_partial {
            // What was said before may be over by now: all were of another.
            for beat in &mut self.beats {
                beat.holder = 0;
                if beat.has != Has::Silent {
                    beat.has = Has::Unknown;
                }
            }
        }
    }

    /// Who has it on the nodes that are not ours.
    pub(super) fn others(&self) -> impl Iterator<Item = Has> + '_ {
        let beats = self.beats.iter().enumerate();
        beats.filter_map(|(node, beat)| (!self.votes.has(node)).then_some(beat.has))
    }

    /// Whether others must go first: some nodes are ours, and those that we may still get are too few for a majority
    /// as long as they do not give way, who stand before us; or somebody has a majority.
    pub(super) fn is_blocked(&self) -> bool {
        let ours = self.beats.len() - self.others().count();
        if ours == 0 {
            return false;
        }
        let open = self.others().filter(|has| has.may_be_ours()).count();
        let too_few = ours + open < self.votes.needed();
        too_few && self.others().any(|has| has == Has::Before) || self.is_won_by_another()
    }

    /// Whether a majority names one who has it: that is a lease, and gives way to nobody.
    fn is_won_by_another(&self) -> bool {
        let named = |holder: u32| {
            let same = self.beats.iter().filter(|beat| beat.holder == holder);
            same.count() >= self.votes.needed()
        };
        let mut holders = self.beats.iter().map(|beat| beat.holder);
        holders.any(|holder| holder != 0 && named(holder))
    }

    pub(super) fn give_way(&mut self, now: Tick) -> Vec<(usize, u64)> {
        (self.hasten_at, self.unequal) = (None, None);
        let given = self.votes.give_way();
        for (node, _) in &given {
            if let Some(beat) = self.beats.get_mut(*node) {
                beat.by(next_beat(now, self.terms.as_head()));
            }
        }
        given
    }

    /// Asks those who have not voted though others have; asks those again whose vote is over.
    pub(super) fn look_at_votes(&mut self, now: Tick) {
        if !self.votes.is_partial() {
            self.hasten_at = None;
        } else if self.hasten_at.is_some_and(|at| at <= now) {
            // Once for these votes: a call, a hand-over or a beat follows.
            self.hasten_at = Some(NEVER);
            self.ask_the_others(now);
        }
    }

    /// A majority has handed over with unequal tokens. It waits for the rest for one more round trip, and raises then.
    pub(super) fn split(&mut self, now: Tick) -> Option<Step> {
        if !self.votes.is_raised() {
            // Never for so long that what we have may be over.
            let left = self.votes.next_lapse().map(|at| at.since(now) / 2);
            let patience = left.map_or(self.terms.round_trip, |left| {
                left.min(self.terms.round_trip)
            });
            let unequal = self.unequal.get_or_insert_default();
            let settle_at = *unequal.settle_at.get_or_insert(now.plus(patience));
            let all = (0..self.beats.len()).all(|node| self.votes.has(node));
            if now < settle_at && !all {
                return None;
            }
            unequal.raise_until = Some(now.plus(self.terms.votes_follow() * 2));
            let (token, behind) = self.votes.raise();
            return Some(Step::Raise(token, behind));
        }
        let raise_until = self.unequal.as_ref().and_then(|it| it.raise_until);
        if raise_until.is_some_and(|until| until <= now) {
            let given = self.give_way(now);
            return (!given.is_empty()).then_some(Step::GiveWay(given));
        }
        None
    }
}
