//! Whose turn it is to ask. Pure.
//!
//! Before a wish stands in line on the nodes it makes an attempt, or asks for a place there that nobody knows yet. Of one queue only
//! a few do so at a time, and the others wait in the engine: a crowd that comes at once would keep all other names waiting. Nor do
//! all of a flood of names ask at once: their answers would come too late, and healthy nodes would look as if they were away.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use super::event::WishId;
use crate::{
    Report,
    base::{clock::Tick, shrink::Room as _},
    node::request::{Side, Target},
};

/// While the nodes have enough to answer one more asks so often: other requests may keep them busy for good.
const NEVERTHELESS: Duration = Duration::from_millis(5);

/// The wishes that wait for their first attempt; their ids grow, so that the smallest came first.
pub(super) struct Turns<W> {
    lines: HashMap<Target, Line<W>>,
    /// The line of everyone who stands in one.
    queues: HashMap<WishId, Target>,
    /// One entry for every place that became free while somebody stood in line, or was free when somebody came.
    free: VecDeque<Target>,
    /// When one asks though the nodes have enough to answer.
    nevertheless_at: Tick,
}

/// The greatest number of wishes for one target that ask or rest at a time. Readers do not stand in each other's way.
fn most_asking(target: &Target) -> usize {
    match target.side() {
        Some(Side::Reader) => 256,
        Some(Side::Writer) | None => 16,
    }
}

struct Line<W> {
    asking: usize,
    /// Those of them that ask for a place in line at once, without an attempt.
    joining: usize,
    waiting: BTreeMap<WishId, W>,
    /// What the last one who asked was told, if it was refused.
    refusal: Option<Report>,
}

impl<W> Default for Turns<W> {
    fn default() -> Self {
        Self {
            lines: HashMap::new(),
            queues: HashMap::new(),
            free: VecDeque::new(),
            nevertheless_at: Tick::default(),
        }
    }
}

impl<W> Turns<W> {
    /// A new wish. It comes back if it may ask at once, else it stands in line; `at_once`: it may, unless its own queue is full.
    pub(super) fn enter(
        &mut self,
        queue: &Target,
        id: WishId,
        wish: W,
        at_once: bool,
    ) -> Option<W> {
        let line = self.lines.entry(queue.clone()).or_insert_with(|| Line {
            asking: 0,
            joining: 0,
            waiting: BTreeMap::new(),
            refusal: None,
        });
        if line.asking < most_asking(queue) {
            if at_once && line.waiting.is_empty() {
                line.asking += 1;
                return Some(wish);
            }
            if line.asking + line.waiting.len() < most_asking(queue) {
                self.free.push_back(queue.clone());
            }
        }
        line.waiting.insert(id, wish);
        self.queues.insert(id, queue.clone());
        None
    }

    /// The one that asks now, in a place that is free: if the nodes keep up, or none has for a while.
    pub(super) fn begin(&mut self, now: Tick, keep_up: impl FnOnce() -> bool) -> Option<W> {
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

    /// When [`begin`](Self::begin) may have somebody.
    pub(super) fn due(&self, now: Tick, keep_up: impl FnOnce() -> bool) -> Option<Tick> {
        (!self.free.is_empty()).then(|| match keep_up() {
            true => now,
            false => now.max(self.nevertheless_at),
        })
    }

    fn next(&mut self) -> Option<W> {
        if !self.find_next() {
            return None;
        }
        let line = self.lines.get_mut(&self.free.pop_front()?)?;
        let (id, wish) = line.waiting.pop_first()?;
        line.asking += 1;
        self.queues.remove(&id);
        Some(wish)
    }

    /// Whether somebody's turn has come. Places that nobody waits for any more are forgotten.
    pub(super) fn find_next(&mut self) -> bool {
        while let Some(queue) = self.free.front() {
            let line = self.lines.get(queue);
            if line.is_some_and(|it| it.asking < most_asking(queue) && !it.waiting.is_empty()) {
                return true;
            }
            self.free.pop_front();
        }
        self.free.give_back();
        false
    }

    /// What one of this queue was told: refused, with this report, or something else.
    pub(super) fn told(&mut self, queue: &Target, refusal: Option<Report>) {
        if let Some(line) = self.lines.get_mut(queue) {
            line.refusal = refusal;
        }
    }

    /// The last one of this queue who asked was refused, with this report.
    pub(super) fn refusal(&self, queue: &Target) -> Option<Report> {
        self.lines.get(queue)?.refusal.clone()
    }

    /// The time of one who stands in line is over: from now on it counts among those who ask, until it is done.
    pub(super) fn over(&mut self, id: WishId) -> Option<W> {
        let queue = self.queues.remove(&id)?;
        let line = self.lines.get_mut(&queue)?;
        let wish = line.waiting.remove(&id)?;
        line.asking += 1;
        Some(wish)
    }

    /// One that stands in line does not wish any more.
    pub(super) fn leave(&mut self, id: WishId) -> Option<W> {
        let queue = self.queues.remove(&id)?;
        let wish = self.lines.get_mut(&queue)?.waiting.remove(&id);
        self.tidy(&queue);
        wish
    }

    /// Whether one of those who ask may do so for a place at once, and counts as one who does: not while others make their attempts, as it
    /// would come before them.
    pub(super) fn try_join(&mut self, queue: &Target) -> bool {
        let line = self.lines.get_mut(queue);
        line.is_some_and(|line| {
            let may = line.asking == line.joining + 1;
            line.joining += usize::from(may);
            may
        })
    }

    /// One that asked for a place makes an attempt instead.
    pub(super) fn asks_instead(&mut self, queue: &Target) {
        if let Some(line) = self.lines.get_mut(queue) {
            line.joining = line.joining.saturating_sub(1);
        }
    }

    /// One that asked for a place is done, or does not wish any more.
    pub(super) fn joined(&mut self, queue: &Target) {
        self.asks_instead(queue);
        self.done(queue);
    }

    /// One of this queue that asked is done, or does not wish any more.
    pub(super) fn done(&mut self, queue: &Target) {
        let Some(line) = self.lines.get_mut(queue) else {
            return;
        };
        line.asking = line.asking.saturating_sub(1);
        if line.asking < most_asking(queue) && !line.waiting.is_empty() {
            self.free.push_back(queue.clone());
        }
        self.tidy(queue);
    }

    fn tidy(&mut self, queue: &Target) {
        let empty = |line: &Line<W>| line.asking == 0 && line.waiting.is_empty();
        if self.lines.get(queue).is_some_and(empty) {
            self.lines.remove(queue);
        }
    }

    /// Nobody gets a turn any more: all who stand in line, in order.
    pub(super) fn close(&mut self) -> Vec<W> {
        let mut all = BTreeMap::new();
        for (_, mut line) in std::mem::take(self).lines {
            all.append(&mut line.waiting);
        }
        all.into_values().collect()
    }

    /// All that is kept.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> usize {
        self.queues.len() + self.lines.len() + self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::name::Name;

    const MOST: u64 = 16;

    fn name(name: &str) -> Target {
        Target::mutex(Name::new(name).unwrap())
    }

    /// One name, and wishes 0 to `wishes`, of which the first ask.
    fn crowd(wishes: u64) -> Turns<u64> {
        let mut turns = Turns::default();
        for id in 0..wishes {
            let asks = turns.enter(&name("a"), WishId(id), id, true);
            assert_eq!(asks, (id < MOST).then_some(id));
        }
        turns
    }

    fn refusal() -> Option<Report> {
        Some(Report::new("a", 2, Vec::new(), None))
    }

    #[test]
    fn so_many_ask_and_the_others_follow_in_order() {
        let mut turns = crowd(MOST + 4);
        assert_eq!((turns.find_next(), turns.next()), (false, None));
        assert_eq!(
            turns.enter(&name("b"), WishId(999), 999, true),
            Some(999),
            "another name"
        );
        for asks in [7, 3] {
            assert_eq!(turns.leave(WishId(asks)), None);
            turns.done(&name("a"));
        }
        assert!(turns.find_next());
        assert_eq!(
            turns.enter(&name("a"), WishId(500), 500, true),
            None,
            "no overtaking"
        );
        assert_eq!(
            turns.leave(WishId(MOST + 1)),
            Some(MOST + 1),
            "tired of waiting"
        );
        assert_eq!([turns.next(), turns.next()], [Some(MOST), Some(MOST + 2)]);
        assert_eq!((turns.next(), turns.find_next()), (None, false));
    }

    #[test]
    fn who_may_not_ask_at_once_follows_in_order() {
        let mut turns = Turns::default();
        for id in 0..3 {
            assert_eq!(turns.enter(&name("a"), WishId(id), id, false), None);
        }
        assert_eq!(
            turns.enter(&name("a"), WishId(3), 3, true),
            None,
            "behind them"
        );
        assert_eq!(turns.leave(WishId(1)), Some(1));
        let next: Vec<u64> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(next, [0, 2, 3]);
        (0..3).for_each(|_| turns.done(&name("a")));
        assert_eq!(turns.len(), 0);
    }

    #[test]
    fn who_joins_does_not_come_before_one_who_attempts() {
        let (mut turns, queue) = (Turns::default(), name("a"));
        assert_eq!(turns.enter(&queue, WishId(1), 1, true), Some(1));
        assert!(turns.try_join(&queue));
        assert_eq!(turns.enter(&queue, WishId(2), 2, true), Some(2));
        assert!(turns.try_join(&queue), "beside others who join");
        turns.asks_instead(&queue);
        assert_eq!(turns.enter(&queue, WishId(3), 3, true), Some(3));
        assert!(!turns.try_join(&queue), "one of them makes an attempt");
        turns.done(&queue);
        turns.done(&queue);
        turns.joined(&queue);
        assert_eq!(turns.len(), 0);
    }

    #[test]
    fn whose_time_is_over_leaves_and_frees_no_place() {
        let mut turns = crowd(MOST + 3);
        assert_eq!(turns.over(WishId(0)), None, "it asks");
        assert_eq!(turns.over(WishId(MOST)), Some(MOST));
        assert_eq!(turns.over(WishId(MOST + 1)), Some(MOST + 1));
        // Two more than may ask: their leaving frees nothing.
        turns.done(&name("a"));
        turns.done(&name("a"));
        assert_eq!(turns.next(), None);
        turns.done(&name("a"));
        assert_eq!(turns.next(), Some(MOST + 2));
    }

    #[test]
    fn the_last_refusal_is_known_until_another_is_told_something_else() {
        let mut turns = crowd(MOST + 1);
        assert_eq!(turns.refusal(&name("a")), None);
        turns.told(&name("a"), refusal());
        assert_eq!(turns.refusal(&name("a")), refusal());
        assert_eq!(turns.refusal(&name("b")), None, "another name");
        turns.told(&name("a"), None);
        assert_eq!(turns.refusal(&name("a")), None);
    }

    #[test]
    fn thousands_leave_at_once_and_nothing_is_left() {
        let all = 100_000;
        let mut turns = crowd(all);
        for id in (MOST..all).rev() {
            assert_eq!(turns.leave(WishId(id)), Some(id));
        }
        (0..MOST).for_each(|_| turns.done(&name("a")));
        assert_eq!(turns.next(), None);
        assert_eq!(turns.len(), 0);

        let mut turns = crowd(all);
        assert_eq!(turns.close(), (MOST..all).collect::<Vec<_>>());
        assert_eq!(turns.leave(WishId(0)), None);
        assert_eq!(turns.len(), 0);
    }

    proptest! {
        /// Whatever happens, places are used as long as anybody waits for one, and in order.
        #[test]
        fn nobody_is_forgotten(acts in prop::collection::vec((0..5u8, 0..60u64, any::<bool>()), 0..400)) {
            let mut turns = Turns::default();
            let (mut last, mut asking, mut waiting) = (0, Vec::new(), BTreeMap::new());
            for (act, pick, one) in acts {
                let of = name(if one { "a" } else { "b" });
                match act {
                    0..3 => {
                        last += 1;
                        match turns.enter(&of, WishId(last), last, pick % 3 > 0) {
                            Some(id) => asking.push((id, of)),
                            None => drop(waiting.insert(last, of)),
                        }
                    }
                    3 if !asking.is_empty() => {
                        let (id, of) = asking.remove(pick as usize % asking.len());
                        prop_assert_eq!(turns.leave(WishId(id)), None);
                        turns.done(&of);
                    }
                    _ => {
                        let id = last.saturating_sub(pick);
                        let was = waiting.remove(&id);
                        if one {
                            let over = turns.over(WishId(id));
                            prop_assert_eq!(over.is_some(), was.is_some());
                            asking.extend(was.map(|of| (id, of)));
                        } else if was.is_some() {
                            prop_assert_eq!(turns.leave(WishId(id)), Some(id));
                        }
                    }
                }
                while let Some(id) = turns.next() {
                    let of = waiting.remove(&id).expect("it waited");
                    prop_assert!(!waiting.iter().any(|(other, it)| *it == of && *other < id));
                    asking.push((id, of));
                }
                for of in waiting.values() {
                    let asking = asking.iter().filter(|(_, it)| it == of).count();
                    prop_assert!(asking as u64 >= MOST, "a place is free");
                }
            }
            for id in waiting.keys() {
                turns.leave(WishId(*id));
            }
            asking.iter().for_each(|(_, of)| turns.done(of));
            while turns.next().is_some() {}
            prop_assert_eq!(turns.len(), 0);
        }
    }
}
