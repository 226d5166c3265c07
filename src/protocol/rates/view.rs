//! This process's knowledge of the units of one node.

use std::time::Duration;

use crate::base::{clock::Tick, quota::Window};

/// The units of one node, according to its last answer. Others may have taken units since, so there are never more
/// units than this says, except for units that were given back.
#[derive(Debug)]
pub(crate) struct View {
    intervals: Vec<Interval>,
    /// Units in requests that are under way.
    asked: u32,
    /// The last time at which the node said which units are taken, and until when.
    pub(crate) looked_at: Option<Tick>,
}

#[derive(Debug)]
struct Interval {
    window: Window,
    share: u32,
    /// The units that are taken, and when they become free, the earliest first.
    taken: Vec<(Tick, u32)>,
}

impl View {
    /// A view of a node of which nothing is known: all units may be free.
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

    /// The number of units that there may be at that time.
    pub(crate) fn room(&self, at: Tick) -> u32 {
        self.room_then(at).saturating_sub(self.asked)
    }

    /// The same, if the requests under way get nothing.
    pub(crate) fn room_then(&self, at: Tick) -> u32 {
        let rooms = self.intervals.iter().map(|interval| interval.room(at));
        rooms.min().unwrap_or(0)
    }

    /// The number of units if none is taken.
    pub(crate) fn share(&self) -> u32 {
        let shares = self.intervals.iter().map(|interval| interval.share);
        shares.min().unwrap_or(0)
    }

    /// The number of units of one interval if none is taken.
    pub(crate) fn share_in(&self, interval: usize) -> u32 {
        self.intervals.get(interval).map_or(0, |one| one.share)
    }

    /// The times at which units that are taken now become free.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Tick> + '_ {
        (0..self.intervals.len()).flat_map(|interval| self.ends_in(interval))
    }

    /// These times in one interval.
    pub(crate) fn ends_in(&self, interval: usize) -> impl Iterator<Item = Tick> + '_ {
        let taken = self.intervals.get(interval).map(|one| &one.taken);
        let taken = taken.into_iter().flatten();
        taken.filter(|(_, units)| *units > 0).map(|(end, _)| *end)
    }

    /// The number of units that one interval alone would allow, if the requests under way get nothing.
    pub(crate) fn room_in(&self, interval: usize, at: Tick) -> u32 {
        self.intervals.get(interval).map_or(0, |one| one.room(at))
    }

    /// This number of units was asked for.
    pub(crate) fn asks(&mut self, units: u32) {
        self.asked = self.asked.saturating_add(units);
    }

    /// That request was answered, or never will be.
    pub(crate) fn answered(&mut self, units: u32) {
        self.asked = self.asked.saturating_sub(units);
    }

    /// This number of units was taken. They may be used for `age` from now on.
    pub(crate) fn takes(&mut self, now: Tick, units: u32, age: Duration) {
        for interval in &mut self.intervals {
            interval.takes(now, units, age);
        }
    }

    /// This number of units was given back.
    pub(crate) fn gives_back(&mut self, units: u32) {
        for interval in &mut self.intervals {
            let mut units = units;
            // The newest units go first, because units that are given back were taken a moment ago.
            for (_, taken) in interval.taken.iter_mut().rev() {
                let back = (*taken).min(units);
                *taken -= back;
                units -= back;
            }
        }
    }

    /// The node said how many units it has, by interval.
    pub(crate) fn has(&mut self, now: Tick, rooms: &[u32]) {
        for (interval, room) in self.intervals.iter_mut().zip(rooms) {
            if interval.has(now, *room) {
                self.looked_at = None;
            }
        }
    }

    /// The node said that it has only this many units in its fullest interval. The view was wrong, so it counts as
    /// unknown.
    pub(crate) fn found_full(&mut self, now: Tick, room: u32) {
        for interval in &mut self.intervals {
            interval.free_at_least(now, room);
        }
        // Nothing says which interval is that full, and a LOOK follows. Until then it is the shortest one.
        if let Some(first) = self.intervals.first_mut() {
            first.has(now, room);
        }
        self.looked_at = None;
    }

    /// The node said which units are taken, by interval, and for how much longer.
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
        // There is one entry for each bucket. Otherwise there would be as many entries as requests.
        let width = u64::try_from(width.as_nanos()).unwrap_or(u64::MAX).max(1);
        let end = Tick::from_nanos(end.nanos().div_ceil(width).saturating_mul(width));
        match self.taken.iter_mut().rev().find(|(other, _)| *other == end) {
            Some((_, taken)) => *taken = taken.saturating_add(units),
            None => self.taken.push((end, units)),
        }
    }

    /// The node has this many units. Returns true if others took some of which this process did not know.
    fn has(&mut self, now: Tick, room: u32) -> bool {
        self.free_at_least(now, room);
        let more = self.room(now).saturating_sub(room);
        let ahead = Duration::from_millis(self.window.ahead());
        self.takes(now, more, ahead);
        more > 0
    }

    /// Units that were thought to be taken are free. Most likely they are the oldest.
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
    fn taken_units_are_free_after_their_interval() {
        let mut view = view(5);
        view.takes(at(0), 3, Duration::ZERO);
        assert_eq!((view.room(at(0)), view.room(at(1011))), (2, 2));
        // A of a second is 1,014 ms, and a bucket is 39 ms wide. 1,053 ms is the end of a bucket.
        assert_eq!((view.room(at(1052)), view.room(at(1053))), (2, 5));
    }

    #[test]
    fn requested_units_are_not_counted_as_free() {
        let mut view = view(5);
        view.asks(4);
        assert_eq!(view.room(at(0)), 1);
        view.answered(4);
        assert_eq!(view.room(at(0)), 5);
    }

    #[test]
    fn a_nodes_answer_replaces_the_estimate() {
        let mut view = view(5);
        view.has(at(0), &[1]);
        assert_eq!(view.room(at(0)), 1);
        view.has(at(1), &[4]);
        assert_eq!(view.room(at(1)), 4);
        view.looked(at(2), [vec![(SECOND, 2), (SECOND * 2, 2)]]);
        assert_eq!([2, 1002, 2002].map(|ms| view.room(at(ms))), [1, 3, 5]);
        view.gives_back(1);
        assert_eq!([2, 1002].map(|ms| view.room(at(ms))), [2, 4]);
    }
}
