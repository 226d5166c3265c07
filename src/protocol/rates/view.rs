//! What is known of the units of one node.

use std::time::Duration;

use crate::base::{clock::Tick, quota::Window};

/// One node. It is seen through what it answered last: others may have taken units since, so there are never more than
/// this says, but for those that were given back.
#[derive(Debug)]
pub(crate) struct View {
    intervals: Vec<Interval>,
    /// In requests that are under way.
    asked: u32,
    /// When it said last what is taken, and until when.
    pub(crate) looked_at: Option<Tick>,
}

#[derive(Debug)]
struct Interval {
    window: Window,
    share: u32,
    /// Units, and when they are free; the first first.
    taken: Vec<(Tick, u32)>,
}

impl View {
    /// Of which nothing is known: all may be free.
    pub(crate) fn new(windows: impl Iterator<Item = (Window, u32)>) -> Self {
        let intervals = windows.map(|(window, share)| Interval {
            window,
            share,
            taken: Vec::new(),
        });
        Self {
            intervals: intervals.collect(),
            asked: 0,
            looked_at: None,
        }
    }

    /// How many units there may be at that instant.
    pub(crate) fn room(&self, at: Tick) -> u32 {
        self.room_then(at).saturating_sub(self.asked)
    }

    /// The same, if none of what is asked for now is given.
    pub(crate) fn room_then(&self, at: Tick) -> u32 {
        let rooms = self.intervals.iter().map(|interval| interval.room(at));
        rooms.min().unwrap_or(0)
    }

    /// How many units there are if none is taken.
    pub(crate) fn share(&self) -> u32 {
        let shares = self.intervals.iter().map(|interval| interval.share);
        shares.min().unwrap_or(0)
    }

    /// When units that count now are free.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Tick> + '_ {
        let all = self.intervals.iter();
        all.flat_map(|interval| interval.taken.iter().map(|(end, _)| *end))
    }

    /// So many were asked for.
    pub(crate) fn asks(&mut self, units: u32) {
        self.asked = self.asked.saturating_add(units);
    }

    /// That request is answered, or never will be.
    pub(crate) fn answered(&mut self, units: u32) {
        self.asked = self.asked.saturating_sub(units);
    }

    /// So many units are taken that may be used for `age` from now on.
    pub(crate) fn takes(&mut self, now: Tick, units: u32, age: Duration) {
        for interval in &mut self.intervals {
            interval.takes(now, units, age);
        }
    }

    /// So many were given back.
    pub(crate) fn gives_back(&mut self, units: u32) {
        for interval in &mut self.intervals {
            let mut units = units;
            // The newest: what is given back was taken a moment ago.
            for (_, taken) in interval.taken.iter_mut().rev() {
                let back = (*taken).min(units);
                *taken -= back;
                units -= back;
            }
        }
    }

    /// It said how many there are.
    pub(crate) fn has(&mut self, now: Tick, room: u32) {
        for interval in &mut self.intervals {
            interval.free_at_least(now, room);
        }
        // Somebody else took the others, in whichever interval: the shortest is looked at again first.
        if let Some(first) = self.intervals.first_mut() {
            let more = first.room(now).saturating_sub(room);
            if more > 0 {
                self.looked_at = None;
            }
            let ahead = Duration::from_millis(first.window.ahead());
            first.takes(now, more, ahead);
        }
    }

    /// It said that there are only so many: what it was thought to have is not known.
    pub(crate) fn found_full(&mut self, now: Tick, room: u32) {
        self.has(now, room);
        self.looked_at = None;
    }

    /// It said what is taken, by interval, and for how much longer.
    pub(crate) fn looked(
        &mut self,
        now: Tick,
        taken: impl IntoIterator<Item = Vec<(Duration, u32)>>,
    ) {
        for (interval, taken) in self.intervals.iter_mut().zip(taken) {
            let ends = taken.into_iter();
            interval.taken = ends.map(|(left, units)| (now.plus(left), units)).collect();
        }
        self.looked_at = Some(now);
    }
}

impl Interval {
    fn room(&self, at: Tick) -> u32 {
        let counts = self.taken.iter().filter(|(end, _)| *end > at);
        let taken = counts.fold(0_u32, |sum, (_, units)| sum.saturating_add(*units));
        self.share.saturating_sub(taken)
    }

    fn takes(&mut self, now: Tick, units: u32, age: Duration) {
        self.taken.retain(|(end, units)| *end > now && *units > 0);
        if units == 0 {
            return;
        }
        let [kept, width] = [self.window.kept(), self.window.bucket()].map(Duration::from_millis);
        let end = now.plus(age).plus(kept).plus(width);
        // One entry for each bucket, or there were as many as requests.
        let width = u64::try_from(width.as_nanos()).unwrap_or(u64::MAX).max(1);
        let end = Tick::from_nanos(end.nanos().div_ceil(width).saturating_mul(width));
        match self.taken.iter_mut().rev().find(|(other, _)| *other == end) {
            Some((_, taken)) => *taken = taken.saturating_add(units),
            None => self.taken.push((end, units)),
        }
    }

    /// What was thought to be taken is free: the oldest, most likely.
    fn free_at_least(&mut self, now: Tick, room: u32) {
        let mut more = room.saturating_sub(self.room(now));
        for (end, units) in &mut self.taken {
            if *end > now {
                let free = (*units).min(more);
                *units -= free;
                more -= free;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    fn view(share: u32) -> View {
        let window = Window {
            period: SECOND,
            limit: 3 * share,
        };
        View::new([(window, share)].into_iter())
    }

    #[test]
    fn what_is_taken_is_free_after_its_interval() {
        let mut view = view(5);
        view.takes(at(0), 3, Duration::ZERO);
        assert_eq!((view.room(at(0)), view.room(at(1011))), (2, 2));
        // A of a second is 1,014 ms, a bucket 39: 1,053 ms is the end of one.
        assert_eq!((view.room(at(1052)), view.room(at(1053))), (2, 5));
    }

    #[test]
    fn what_is_asked_for_is_nobody_elses() {
        let mut view = view(5);
        view.asks(4);
        assert_eq!(view.room(at(0)), 1);
        view.answered(4);
        assert_eq!(view.room(at(0)), 5);
    }

    #[test]
    fn the_node_knows_better() {
        let mut view = view(5);
        view.has(at(0), 1);
        assert_eq!(view.room(at(0)), 1);
        view.has(at(1), 4);
        assert_eq!(view.room(at(1)), 4);
        view.looked(at(2), [vec![(SECOND, 2), (SECOND * 2, 2)]]);
        assert_eq!([2, 1002, 2002].map(|ms| view.room(at(ms))), [1, 3, 5]);
        view.gives_back(1);
        assert_eq!([2, 1002].map(|ms| view.room(at(ms))), [2, 4]);
    }
}
