//! This process's knowledge of the units of one node.

use std::{sync::Arc, time::Duration};

use crate::base::{clock::Tick, quota::Window};

/// The units of one node, according to its last answer. Others may have taken units since, so there are never more
/// units than this says, except for units that were given back.
///
/// A process may have one for each of a million keys, so it is small.
#[derive(Clone, Debug)]
pub(crate) struct View {
    /// Each interval, and the node's share of its limit.
    windows: Arc<[(Window, u32)]>,
    /// The units that are taken. Those of one interval are in the order in which they become free.
    taken: Vec<Taken>,
    /// The index of the node.
    pub(crate) node: u32,
    /// Units in requests that are under way.
    asked: u32,
    /// The last time at which the node said which units are taken, and until when.
    pub(crate) looked_at: Option<Tick>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    /// When they become free.
    end: Tick,
    units: u32,
    interval: u32,
}

impl View {
    /// A view of a node of which nothing is known: all units may be free.
    pub(crate) fn new(node: usize, windows: Arc<[(Window, u32)]>) -> Self {
        Self {
            node: u32::try_from(node).unwrap_or(u32::MAX),
            windows,
            taken: Vec::new(),
            asked: 0,
            looked_at: None,
        }
    }

    /// Each interval, and the node's share of its limit.
    pub(crate) fn windows(&self) -> &Arc<[(Window, u32)]> {
        &self.windows
    }

    /// The number of units that there may be at that time.
    pub(crate) fn room(&self, at: Tick) -> u32 {
        self.room_then(at).saturating_sub(self.asked)
    }

    /// The same, if the requests under way get nothing.
    pub(crate) fn room_then(&self, at: Tick) -> u32 {
        let rooms = (0..self.windows.len()).map(|interval| self.room_in(interval, at));
        rooms.min().unwrap_or(0)
    }

    /// The number of units if none is taken.
    pub(crate) fn share(&self) -> u32 {
        let shares = self.windows.iter().map(|(_, share)| *share);
        shares.min().unwrap_or(0)
    }

    /// The number of units of one interval if none is taken.
    pub(crate) fn share_in(&self, interval: usize) -> u32 {
        self.windows.get(interval).map_or(0, |(_, share)| *share)
    }

    /// The times at which units that are taken now become free.
    pub(crate) fn ends(&self) -> impl Iterator<Item = Tick> + '_ {
        let taken = self.taken.iter().filter(|taken| taken.units > 0);
        taken.map(|taken| taken.end)
    }

    /// These times in one interval.
    pub(crate) fn ends_in(&self, interval: usize) -> impl Iterator<Item = Tick> + '_ {
        let taken = self.taken_in(interval).filter(|taken| taken.units > 0);
        taken.map(|taken| taken.end)
    }

    /// The number of units that one interval alone would allow, if the requests under way get nothing.
    pub(crate) fn room_in(&self, interval: usize, at: Tick) -> u32 {
        let counts = self.taken_in(interval).filter(|taken| taken.end > at);
        let taken = counts.fold(0_u32, |sum, taken| sum.saturating_add(taken.units));
        self.share_in(interval).saturating_sub(taken)
    }

    /// This number of units was asked for.
    pub(crate) fn asks(&mut self, units: u32) {
        self.asked = self.asked.saturating_add(units);
    }

    /// That request was answered, or never will be.
    pub(crate) fn answered(&mut self, units: u32) {
        debug_assert!(units <= self.asked, "it was not asked for so many");
        self.asked = self.asked.saturating_sub(units);
    }

    /// This number of units was taken. They may be used for `age` from now on.
    pub(crate) fn takes(&mut self, now: Tick, units: u32, age: Duration) {
        for interval in 0..self.windows.len() {
            self.takes_in(interval, now, units, age);
        }
    }

    /// This number of units was given back.
    pub(crate) fn gives_back(&mut self, units: u32) {
        for interval in 0..self.windows.len() {
            let mut units = units;
            // The newest units go first, because units that are given back were taken a moment ago.
            for taken in self.taken_in_mut(interval).rev() {
                let back = taken.units.min(units);
                taken.units -= back;
                units -= back;
            }
        }
    }

    /// The node said how many units it has, by interval.
    pub(crate) fn has(&mut self, now: Tick, rooms: &[u32]) {
        for (interval, room) in rooms.iter().enumerate() {
            if self.learn_room(interval, now, *room) {
                self.looked_at = None;
            }
        }
    }

    /// The node said which units are taken, by interval, and for how much longer.
    pub(crate) fn looked(
        &mut self,
        now: Tick,
        taken: impl IntoIterator<Item = Vec<(Duration, u32)>>,
    ) {
        self.taken.clear();
        for (interval, taken) in (0..).zip(taken) {
            let taken = taken.into_iter().map(|(left, units)| Taken {
                end: now.plus(left),
                units,
                interval,
            });
            self.taken.extend(taken);
        }
        self.taken.shrink_to_fit();
        self.looked_at = Some(now);
    }

    // ---- one interval -----------------------------------------------------------------------

    fn taken_in(&self, interval: usize) -> impl Iterator<Item = &Taken> + '_ {
        let taken = self.taken.iter();
        taken.filter(move |taken| taken.interval as usize == interval)
    }

    fn taken_in_mut(
        &mut self,
        interval: usize,
    ) -> impl DoubleEndedIterator<Item = &mut Taken> + '_ {
        let taken = self.taken.iter_mut();
        taken.filter(move |taken| taken.interval as usize == interval)
    }

    fn takes_in(&mut self, interval: usize, now: Tick, units: u32, age: Duration) {
        self.taken.retain(|taken| {
            taken.interval as usize != interval || (taken.end > now && taken.units > 0)
        });
        let Some((window, _)) = self.windows.get(interval) else {
            return;
        };
        if units == 0 {
            return;
        }
        let [kept, width] = [window.kept(), window.bucket()].map(Duration::from_millis);
        let end = now.plus(age).plus(kept).plus(width);
        // There is one entry for each bucket. Otherwise there would be as many entries as requests.
        let width = u64::try_from(width.as_nanos()).unwrap_or(u64::MAX).max(1);
        let end = Tick::from_nanos(end.nanos().div_ceil(width).saturating_mul(width));
        let mut newest = self.taken_in_mut(interval).rev();
        if let Some(taken) = newest.find(|taken| taken.end == end) {
            taken.units = taken.units.saturating_add(units);
            return;
        }
        drop(newest);
        if self.taken.is_empty() {
            // Most keys of a crowd are used once.
            self.taken.reserve_exact(self.windows.len());
        }
        self.taken.push(Taken {
            end,
            units,
            interval: u32::try_from(interval).unwrap_or(u32::MAX),
        });
    }

    /// The node has this many units. Returns true if others took some of which this process did not know.
    fn learn_room(&mut self, interval: usize, now: Tick, room: u32) -> bool {
        self.free_at_least(interval, now, room);
        let more = self.room_in(interval, now).saturating_sub(room);
        let ahead = self.windows.get(interval).map_or(0, |(w, _)| w.ahead());
        self.takes_in(interval, now, more, Duration::from_millis(ahead));
        more > 0
    }

    /// Units that were thought to be taken are free. Most likely they are the oldest.
    fn free_at_least(&mut self, interval: usize, now: Tick, room: u32) {
        let mut more = room.saturating_sub(self.room_in(interval, now));
        for taken in self.taken_in_mut(interval) {
            if taken.end > now {
                let free = taken.units.min(more);
                taken.units -= free;
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
        View::new(0, [(window, share)].into())
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
