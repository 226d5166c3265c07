//! Limits how many acquisitions ask the nodes at the same time. This file is pure.
//!
//! Only a few acquisitions of one target ask at a time, and the others wait in the engine. A crowd that asks at once
//! would keep all other names waiting. A flood of different names is limited too: the answers would come too late, and
//! healthy nodes would look as if they were away.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
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
    /// The number of acquisitions that ask or rest.
    asking: usize,
    /// The number of acquisitions that join the queue without an attempt.
    joining: usize,
    waiting: BTreeSet<AcquisitionId>,
    /// The report of the last attempt, if it was refused.
    refusal: Option<Report>,
}

impl Throttle {
    /// Returns true if the acquisition may ask now. Otherwise it waits. With `at_once` it may ask, unless too many ask
    /// for its own target.
    pub(super) fn enter(&mut self, target: &Target, id: AcquisitionId, at_once: bool) -> bool {
        let line = self.lines.entry(target.clone()).or_default();
        if line.asking < most_asking(target) {
            if at_once && line.waiting.is_empty() {
                line.asking += 1;
                return true;
            }
            if line.asking + line.waiting.len() < most_asking(target) {
                self.free.push_back(target.clone());
            }
        }
        line.waiting.insert(id);
        false
    }

    /// The next acquisition that may ask, if the nodes keep up, or if none has begun for a while.
    pub(super) fn begin(
        &mut self,
        now: Tick,
        keep_up: impl FnOnce() -> bool,
    ) -> Option<AcquisitionId> {
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

    fn next(&mut self) -> Option<AcquisitionId> {
        if !self.find_next() {
            return None;
        }
        let line = self.lines.get_mut(&self.free.pop_front()?)?;
        let id = line.waiting.pop_first()?;
        line.asking += 1;
        Some(id)
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
    pub(super) fn ask_now(&mut self, target: &Target, id: AcquisitionId) {
        if let Some(line) = self.lines.get_mut(target) {
            line.asking += usize::from(line.waiting.remove(&id));
        }
    }

    /// An acquisition that waited is gone.
    pub(super) fn leave(&mut self, target: &Target, id: AcquisitionId) {
        if let Some(line) = self.lines.get_mut(target) {
            line.waiting.remove(&id);
        }
        self.tidy(target);
    }

    /// Returns true if an acquisition that asks may join the queue without an attempt, and then counts it as joining.
    /// It may not while others make attempts, because it would come before them.
    pub(super) fn try_join(&mut self, target: &Target) -> bool {
        let line = self.lines.get_mut(target);
        line.is_some_and(|line| {
            let may = line.asking == line.joining + 1;
            line.joining += usize::from(may);
            may
        })
    }

    /// An acquisition that was joining makes an attempt instead.
    pub(super) fn asks_instead(&mut self, target: &Target) {
        if let Some(line) = self.lines.get_mut(target) {
            line.joining = line.joining.saturating_sub(1);
        }
    }

    /// An acquisition that was joining is in the queue, or is gone.
    pub(super) fn joined(&mut self, target: &Target) {
        self.asks_instead(target);
        self.done(target);
    }

    /// An acquisition that asked is done, or is gone.
    pub(super) fn done(&mut self, target: &Target) {
        let Some(line) = self.lines.get_mut(target) else {
            return;
        };
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
        ids.iter().map(|id| Some(AcquisitionId(*id))).collect()
    }

    /// One name, and acquisitions 0 to `acquisitions`. The first of them ask.
    fn crowd(acquisitions: u64) -> Throttle {
        let mut throttle = Throttle::default();
        for id in 0..acquisitions {
            assert_eq!(
                throttle.enter(&name("a"), AcquisitionId(id), true),
                id < MOST
            );
        }
        throttle
    }

    fn refusal() -> Option<Report> {
        Some(Report::new("a", 2, Vec::new(), None))
    }

    #[test]
    fn crowd_asks_a_few_at_a_time_and_in_order() {
        let mut throttle = crowd(MOST + 4);
        assert_eq!((throttle.find_next(), throttle.next()), (false, None));
        assert!(
            throttle.enter(&name("b"), AcquisitionId(999), true),
            "another name"
        );
        throttle.done(&name("a"));
        throttle.done(&name("a"));
        assert!(throttle.find_next());
        assert!(
            !throttle.enter(&name("a"), AcquisitionId(500), true),
            "no overtaking"
        );
        throttle.leave(&name("a"), AcquisitionId(MOST + 1));
        assert_eq!(
            [throttle.next(), throttle.next()][..],
            ids(&[MOST, MOST + 2])
        );
        assert_eq!((throttle.next(), throttle.find_next()), (None, false));
    }

    #[test]
    fn acquisitions_that_may_not_ask_at_once_follow_in_order() {
        let mut throttle = Throttle::default();
        for id in 0..3 {
            assert!(!throttle.enter(&name("a"), AcquisitionId(id), false));
        }
        assert!(
            !throttle.enter(&name("a"), AcquisitionId(3), true),
            "behind them"
        );
        throttle.leave(&name("a"), AcquisitionId(1));
        let next: Vec<_> = (0..3).map(|_| throttle.next()).collect();
        assert_eq!(next, ids(&[0, 2, 3]));
        assert_eq!(throttle.next(), None);
        (0..3).for_each(|_| throttle.done(&name("a")));
        assert_eq!(throttle.len(), 0);
    }

    #[test]
    fn acquisition_joins_without_attempt_only_if_no_other_makes_one() {
        let (mut throttle, target) = (Throttle::default(), name("a"));
        assert!(throttle.enter(&target, AcquisitionId(1), true));
        assert!(throttle.try_join(&target));
        assert!(throttle.enter(&target, AcquisitionId(2), true));
        assert!(throttle.try_join(&target), "beside others that join");
        throttle.asks_instead(&target);
        assert!(throttle.enter(&target, AcquisitionId(3), true));
        assert!(!throttle.try_join(&target), "one of them makes an attempt");
        throttle.done(&target);
        throttle.done(&target);
        throttle.joined(&target);
        assert_eq!(throttle.len(), 0);
    }

    #[test]
    fn acquisition_whose_time_is_over_asks_beyond_the_limit() {
        let mut throttle = crowd(MOST + 3);
        throttle.ask_now(&name("a"), AcquisitionId(0));
        throttle.ask_now(&name("a"), AcquisitionId(MOST));
        throttle.ask_now(&name("a"), AcquisitionId(MOST + 1));
        // Two more than the limit ask, so the end of two frees no permit. (Acquisition 0 asked before.)
        throttle.done(&name("a"));
        throttle.done(&name("a"));
        assert_eq!(throttle.next(), None);
        throttle.done(&name("a"));
        assert_eq!(throttle.next(), Some(AcquisitionId(MOST + 2)));
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
            throttle.leave(&name("a"), AcquisitionId(id));
        }
        (0..MOST).for_each(|_| throttle.done(&name("a")));
        assert_eq!(throttle.next(), None);
        assert_eq!(throttle.len(), 0);
    }

    proptest! {
        /// Permits are used as long as any acquisition waits for one, and in order.
        #[test]
        fn no_acquisition_is_forgotten(acts in prop::collection::vec((0..5u8, 0..60u64, any::<bool>()), 0..400)) {
            let mut throttle = Throttle::default();
            let (mut last, mut asking, mut waiting) = (0, Vec::new(), BTreeMap::new());
            for (act, pick, one) in acts {
                let of = name(if one { "a" } else { "b" });
                match act {
                    0..3 => {
                        last += 1;
                        match throttle.enter(&of, AcquisitionId(last), pick % 3 > 0) {
                            true => asking.push((last, of)),
                            false => drop(waiting.insert(last, of)),
                        }
                    }
                    3 if !asking.is_empty() => {
                        let (id, of) = asking.remove(pick as usize % asking.len());
                        // It does not wait, so neither of these calls changes anything.
                        throttle.leave(&of, AcquisitionId(id));
                        throttle.ask_now(&of, AcquisitionId(id));
                        throttle.done(&of);
                    }
                    _ => {
                        let id = last.saturating_sub(pick);
                        if let Some(of) = waiting.remove(&id) {
                            if one {
                                throttle.ask_now(&of, AcquisitionId(id));
                                asking.push((id, of));
                            } else {
                                throttle.leave(&of, AcquisitionId(id));
                            }
                        }
                    }
                }
                while let Some(AcquisitionId(id)) = throttle.next() {
                    let of = waiting.remove(&id).expect("it waited");
                    prop_assert!(!waiting.iter().any(|(other, it)| *it == of && *other < id));
                    asking.push((id, of));
                }
                for of in waiting.values() {
                    let asking = asking.iter().filter(|(_, it)| it == of).count();
                    prop_assert!(asking as u64 >= MOST, "a permit is free");
                }
            }
            for (id, of) in &waiting {
                throttle.leave(of, AcquisitionId(*id));
            }
            asking.iter().for_each(|(_, of)| throttle.done(of));
            while throttle.next().is_some() {}
            prop_assert_eq!(throttle.len(), 0);
        }
    }
}
