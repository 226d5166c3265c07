//! Limits how many acquisitions ask the nodes at the same time. This file is pure.
//!
//! Only a few acquisitions of one target ask at a time, and the others wait in the engine. A crowd that asks at once
//! would keep all other names waiting. A flood of different names is limited too: the answers would come too late, and
//! healthy nodes would look as if they were away.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    mem,
    time::Duration,
};

use crate::{
    Report,
    base::{clock::Tick, shrink::Shrink as _},
    engine::event::AcquisitionId,
    node::request::{Side, Target},
};

/// While the nodes have enough to answer, one more acquisition still begins this often, because other requests may keep
/// the nodes busy for good.
const NEVERTHELESS: Duration = Duration::from_millis(5);

/// The acquisitions that wait for their first attempt. Their ids grow, so the smallest came first.
#[derive(Default)]
pub(super) struct Throttle {
    lines: HashMap<Target, Line>,
    /// One entry for every permit that became free while an acquisition waited, or that was free when an acquisition
    /// came.
    free: VecDeque<Target>,
    /// The time from which one more acquisition may ask although the nodes have enough to answer.
    nevertheless_at: Tick,
}

/// A permit to ask the nodes for a target. Its holder [gives it back](Throttle::give_back).
pub(super) struct Permit {
    target: Target,
    /// It is used to join the queue without an attempt. Otherwise it is for attempts.
    is_joining: bool,
}

/// The greatest number of acquisitions of one target that ask or rest at a time. Readers get more, because they do not
/// exclude each other.
fn most_asking(target: &Target) -> usize {
    match target.side() {
        Some(Side::Reader) => 256,
        Some(Side::Writer) | None => 16,
    }
}

#[derive(Default)]
struct Line {
    /// The number of permits.
    asking: usize,
    /// The number of permits that are used to join the queue without an attempt.
    joining: usize,
    waiting: BTreeSet<AcquisitionId>,
    /// The report of the last attempt, if it was refused.
    refusal: Option<Report>,
}

impl Permit {
    pub(super) fn is_joining(&self) -> bool {
        self.is_joining
    }
}

impl Line {
    fn permit(&mut self, target: Target) -> Permit {
        self.asking += 1;
        Permit {
            target,
            is_joining: false,
        }
    }
}

impl Throttle {
    /// The permit, if the acquisition may ask now. Otherwise it waits. With `at_once` it may ask, unless too many ask
    /// for its own target.
    pub(super) fn enter(
        &mut self,
        target: &Target,
        id: AcquisitionId,
        at_once: bool,
    ) -> Option<Permit> {
        let line = self.lines.entry(target.clone()).or_default();
        if line.asking < most_asking(target) {
            if at_once && line.waiting.is_empty() {
                return Some(line.permit(target.clone()));
            }
            if line.asking + line.waiting.len() < most_asking(target) {
                self.free.push_back(target.clone());
            }
        }
        let is_new = line.waiting.insert(id);
        debug_assert!(is_new, "it waits twice");
        None
    }

    /// The next acquisition that may ask, if the nodes keep up, or if none has begun for a while.
    pub(super) fn begin(
        &mut self,
        now: Tick,
        keep_up: impl FnOnce() -> bool,
    ) -> Option<(AcquisitionId, Permit)> {
        if !self.find_next() {
            return None;
        }
        if !keep_up() {
            if now < self.nevertheless_at {
                return None;
            }
            self.nevertheless_at = now.plus(NEVERTHELESS);
        }
        self.next()
    }

    /// The time at which [`begin`](Self::begin) may return an acquisition.
    pub(super) fn due(&self, now: Tick, keep_up: impl FnOnce() -> bool) -> Option<Tick> {
        (!self.free.is_empty()).then(|| match keep_up() {
            true => now,
            false => now.max(self.nevertheless_at),
        })
    }

    fn next(&mut self) -> Option<(AcquisitionId, Permit)> {
        if !self.find_next() {
            return None;
        }
        let target = self.free.pop_front()?;
        let line = self.lines.get_mut(&target)?;
        let id = line.waiting.pop_first()?;
        Some((id, line.permit(target)))
    }

    /// Returns true if some acquisition may ask. Drops permits for which no acquisition waits any more.
    pub(super) fn find_next(&mut self) -> bool {
        while let Some(target) = self.free.front() {
            let line = self.lines.get(target);
            if line.is_some_and(|it| it.asking < most_asking(target) && !it.waiting.is_empty()) {
                return true;
            }
            self.free.pop_front();
        }
        self.free.shrink_if_empty();
        false
    }

    /// The last attempt for this target was refused with this report. `None` if it ended in another way.
    pub(super) fn told(&mut self, target: &Target, refusal: Option<Report>) {
        if let Some(line) = self.lines.get_mut(target) {
            line.refusal = refusal;
        }
    }

    /// The report of the last attempt for this target, if it was refused.
    pub(super) fn refusal(&self, target: &Target) -> Option<Report> {
        self.lines.get(target)?.refusal.clone()
    }

    /// An acquisition that waits asks now, because its time is over.
    pub(super) fn ask_now(&mut self, target: &Target, id: AcquisitionId) -> Option<Permit> {
        let line = self.lines.get_mut(target)?;
        let waited = line.waiting.remove(&id);
        waited.then(|| line.permit(target.clone()))
    }

    /// An acquisition that waited is gone.
    pub(super) fn leave(&mut self, target: &Target, id: AcquisitionId) {
        if let Some(line) = self.lines.get_mut(target) {
            line.waiting.remove(&id);
        }
        self.tidy(target);
    }

    /// Returns true if the holder of this permit may join the queue without an attempt. It may not while others make
    /// attempts, because it would come before them.
    pub(super) fn try_join(&mut self, permit: &mut Permit) -> bool {
        debug_assert!(!permit.is_joining, "it joins already");
        let line = self.lines.get_mut(&permit.target);
        line.is_some_and(|line| {
            let may = line.asking == line.joining + 1;
            line.joining += usize::from(may);
            permit.is_joining = may;
            may
        })
    }

    /// From now on the permit is for attempts.
    pub(super) fn makes_attempts(&mut self, permit: &mut Permit) {
        if mem::take(&mut permit.is_joining)
            && let Some(line) = self.lines.get_mut(&permit.target)
        {
            debug_assert!(line.joining > 0, "it was not counted");
            line.joining = line.joining.saturating_sub(1);
        }
    }

    /// The holder of this permit is done, or queued, or gone.
    pub(super) fn give_back(&mut self, mut permit: Permit) {
        self.makes_attempts(&mut permit);
        let target = &permit.target;
        let Some(line) = self.lines.get_mut(target) else {
            debug_assert!(false, "a permit without a line");
            return;
        };
        debug_assert!(line.asking > line.joining, "it was not counted");
        line.asking = line.asking.saturating_sub(1);
        if line.asking < most_asking(target) && !line.waiting.is_empty() {
            self.free.push_back(target.clone());
        }
        self.tidy(target);
    }

    fn tidy(&mut self, target: &Target) {
        let empty = |line: &Line| line.asking == 0 && line.waiting.is_empty();
        if self.lines.get(target).is_some_and(empty) {
            self.lines.remove(target);
        }
    }

    /// The number of entries in all tables.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.lines.len() + self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::base::name::Name;

    const MOST: u64 = 16;

    fn name(name: &str) -> Target {
        Target::mutex(Name::new(name).unwrap())
    }

    fn ids(ids: &[u64]) -> Vec<Option<AcquisitionId>> {
        ids.iter()
            .map(|id| Some(AcquisitionId::of_call(*id)))
            .collect()
    }

    fn permit(target: &Target) -> Permit {
        Permit {
            target: target.clone(),
            is_joining: false,
        }
    }

    /// The acquisition that asks next. These tests count permits, so [`done`] makes the one that is given back.
    fn next(throttle: &mut Throttle) -> Option<AcquisitionId> {
        throttle.next().map(|(id, _)| id)
    }

    fn done(throttle: &mut Throttle, target: &Target) {
        throttle.give_back(permit(target));
    }

    /// One name, and acquisitions 0 to `acquisitions`. The first of them ask.
    fn crowd(acquisitions: u64) -> Throttle {
        let mut throttle = Throttle::default();
        for id in 0..acquisitions {
            let permit = throttle.enter(&name("a"), AcquisitionId::of_call(id), true);
            assert_eq!(permit.is_some(), id < MOST);
        }
        throttle
    }

    fn refusal() -> Option<Report> {
        Some(Report::new("a", 2, Vec::new(), None))
    }

    #[test]
    fn crowd_asks_a_few_at_a_time_and_in_order() {
        let mut throttle = crowd(MOST + 4);
        assert_eq!((throttle.find_next(), next(&mut throttle)), (false, None));
        assert!(
            throttle
                .enter(&name("b"), AcquisitionId::of_call(999), true)
                .is_some(),
            "another name"
        );
        done(&mut throttle, &name("a"));
        done(&mut throttle, &name("a"));
        assert!(throttle.find_next());
        assert!(
            throttle
                .enter(&name("a"), AcquisitionId::of_call(500), true)
                .is_none(),
            "no overtaking"
        );
        throttle.leave(&name("a"), AcquisitionId::of_call(MOST + 1));
        assert_eq!(
            [next(&mut throttle), next(&mut throttle)][..],
            ids(&[MOST, MOST + 2])
        );
        assert_eq!((next(&mut throttle), throttle.find_next()), (None, false));
    }

    #[test]
    fn acquisitions_that_may_not_ask_at_once_follow_in_order() {
        let mut throttle = Throttle::default();
        for id in 0..3 {
            assert!(
                throttle
                    .enter(&name("a"), AcquisitionId::of_call(id), false)
                    .is_none()
            );
        }
        assert!(
            throttle
                .enter(&name("a"), AcquisitionId::of_call(3), true)
                .is_none(),
            "behind them"
        );
        throttle.leave(&name("a"), AcquisitionId::of_call(1));
        let all: Vec<_> = (0..3).map(|_| next(&mut throttle)).collect();
        assert_eq!(all, ids(&[0, 2, 3]));
        assert_eq!(next(&mut throttle), None);
        (0..3).for_each(|_| done(&mut throttle, &name("a")));
        assert_eq!(throttle.len(), 0);
    }

    #[test]
    fn acquisition_joins_without_attempt_only_if_no_other_makes_one() {
        let (mut throttle, target) = (Throttle::default(), name("a"));
        let enter =
            |throttle: &mut Throttle, id| throttle.enter(&target, AcquisitionId::of_call(id), true);
        let mut first = enter(&mut throttle, 1).unwrap();
        assert!(throttle.try_join(&mut first));
        let mut second = enter(&mut throttle, 2).unwrap();
        assert!(throttle.try_join(&mut second), "beside others that join");
        throttle.makes_attempts(&mut first);
        assert!(second.is_joining() && !first.is_joining());
        let mut third = enter(&mut throttle, 3).unwrap();
        assert!(
            !throttle.try_join(&mut third),
            "one of them makes an attempt"
        );
        for permit in [first, second, third] {
            throttle.give_back(permit);
        }
        assert_eq!(throttle.len(), 0);
    }

    #[test]
    fn acquisition_whose_time_is_over_asks_beyond_the_limit() {
        let mut throttle = crowd(MOST + 3);
        let asks = [0, MOST, MOST + 1].map(|id| {
            throttle
                .ask_now(&name("a"), AcquisitionId::of_call(id))
                .is_some()
        });
        assert_eq!(asks, [false, true, true], "the first asks already");
        // Two more than the limit ask, so the end of two frees no permit.
        done(&mut throttle, &name("a"));
        done(&mut throttle, &name("a"));
        assert_eq!(next(&mut throttle), None);
        done(&mut throttle, &name("a"));
        assert_eq!(next(&mut throttle), Some(AcquisitionId::of_call(MOST + 2)));
    }

    #[test]
    fn last_refusal_is_known_until_an_attempt_ends_in_another_way() {
        let mut throttle = crowd(MOST + 1);
        assert_eq!(throttle.refusal(&name("a")), None);
        throttle.told(&name("a"), refusal());
        assert_eq!(throttle.refusal(&name("a")), refusal());
        assert_eq!(throttle.refusal(&name("b")), None, "another name");
        throttle.told(&name("a"), None);
        assert_eq!(throttle.refusal(&name("a")), None);
    }

    #[test]
    fn crowd_that_leaves_at_once_leaves_nothing() {
        let all = 100_000;
        let mut throttle = crowd(all);
        for id in (MOST..all).rev() {
            throttle.leave(&name("a"), AcquisitionId::of_call(id));
        }
        (0..MOST).for_each(|_| done(&mut throttle, &name("a")));
        assert_eq!(next(&mut throttle), None);
        assert_eq!(throttle.len(), 0);
    }

    proptest! {
        /// Permits are used as long as any acquisition waits for one, and in order.
        #[test]
        fn no_acquisition_is_forgotten(acts in prop::collection::vec((0..7u8, 0..60u64, any::<bool>()), 0..400)) {
            let mut throttle = Throttle::default();
            let (mut last, mut asking, mut waiting) = (0, Vec::new(), BTreeMap::new());
            for (act, pick, one) in acts {
                let of = name(if one { "a" } else { "b" });
                let any = pick as usize % asking.len().max(1);
                match act {
                    0..3 => {
                        last += 1;
                        let id = AcquisitionId::of_call(last);
                        match throttle.enter(&of, id, pick % 3 > 0) {
                            Some(permit) => asking.push((id, permit)),
                            None => drop(waiting.insert(id, of)),
                        }
                    }
                    3 if !asking.is_empty() => {
                        let (id, permit) = asking.remove(any);
                        // It does not wait, so neither of these calls changes anything.
                        throttle.leave(&of, id);
                        prop_assert!(throttle.ask_now(&of, id).is_none());
                        throttle.give_back(permit);
                    }
                    4 if !asking.is_empty() && !asking[any].1.is_joining() => {
                        let of = asking[any].1.target.clone();
                        let others = asking.iter().filter(|(_, it)| it.target == of && !it.is_joining()).count();
                        prop_assert_eq!(throttle.try_join(&mut asking[any].1), others == 1);
                    }
                    5 if !asking.is_empty() => throttle.makes_attempts(&mut asking[any].1),
                    _ => {
                        let id = AcquisitionId::of_call(last.saturating_sub(pick));
                        if let Some(of) = waiting.remove(&id) {
                            if one {
                                asking.push((id, throttle.ask_now(&of, id).expect("it waited")));
                            } else {
                                throttle.leave(&of, id);
                            }
                        }
                    }
                }
                while let Some((id, permit)) = throttle.next() {
                    let of = waiting.remove(&id).expect("it waited");
                    prop_assert!(!waiting.iter().any(|(other, it)| *it == of && *other < id));
                    asking.push((id, permit));
                }
                for of in waiting.values() {
                    let asking = asking.iter().filter(|(_, it)| it.target == *of).count();
                    prop_assert!(asking as u64 >= MOST, "a permit is free");
                }
            }
            for (id, of) in &waiting {
                throttle.leave(of, *id);
            }
            for (_, permit) in asking {
                throttle.give_back(permit);
            }
            while throttle.next().is_some() {}
            prop_assert_eq!(throttle.len(), 0);
        }
    }
}
