//! Decides which nodes to ask for how many units.

use std::{cmp::Reverse, time::Duration};

use super::{view::View, words::Amount};
use crate::base::clock::Tick;

/// A node counts as near if its round trip is at most this much longer than twice that of the nearest node.
const NEAR: Duration = Duration::from_millis(2);

/// The next step of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Ask each of these nodes for this number of units.
    Ask(Vec<(usize, u32)>),
    /// Ask every node which units are taken. Without that it is not known how long to wait.
    Look,
    /// There are too few units for this long.
    Wait(Duration),
    /// These nodes never have as many units.
    Never,
}

/// The nodes, as they were last seen.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// The nodes that may be asked, each with its view.
    pub(crate) nodes: &'a [(usize, &'a View)],
    pub(crate) now: Tick,
    /// A view is known if the node was looked at since then. With `None` every view is known.
    pub(crate) fresh: Option<Tick>,
}

/// Asks for the preferred number of units, or for as many as there are if these are at least the least.
///
/// - `round_trips`: the round trip to each node, by the node's index.
/// - `chance`: returns a random number that is less than its argument.
pub(crate) fn plan(
    seen: Seen<'_>,
    amount: Amount,
    round_trips: &[Duration],
    chance: impl FnOnce(u64) -> u64,
) -> Plan {
    let Seen { nodes, now, fresh } = seen;
    let Amount { least, most } = amount;
    let rooms: Vec<(usize, u32)> = nodes
        .iter()
        .map(|(node, view)| (*node, view.room(now)))
        .collect();
    let wanted = u64::from(most).min(total(&rooms));
    if wanted >= u64::from(least) {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        return Plan::Ask(divide(rooms, wanted, round_trips, chance));
    }
    let is_known =
        |view: &View| fresh.is_none_or(|fresh| view.looked_at.is_some_and(|at| at >= fresh));
    match nodes.iter().all(|(_, view)| is_known(view)) {
        true => match wait(nodes, least.into(), now) {
            Some(wait) => Plan::Wait(wait),
            None => Plan::Never,
        },
        false => Plan::Look,
    }
}

/// The number of units that there may be.
pub(crate) fn left(nodes: &[(usize, &View)], now: Tick) -> u32 {
    let rooms = nodes.iter().map(|(_, view)| u64::from(view.room(now)));
    u32::try_from(rooms.sum::<u64>()).unwrap_or(u32::MAX)
}

/// The time until there are `wanted` units, if nobody takes any in the meantime. `None` if there never are.
pub(crate) fn wait(nodes: &[(usize, &View)], wanted: u64, now: Tick) -> Option<Duration> {
    let ends = nodes.iter().flat_map(|(_, view)| view.ends());
    first_end(ends, now, |at| {
        let rooms = nodes.iter().map(|(_, view)| u64::from(view.room_then(at)));
        rooms.sum::<u64>() >= wanted
    })
}

/// The interval that binds: it has `wanted` units the latest. If several have them now, it has the fewest.
pub(crate) fn binding(
    nodes: &[(usize, &View)],
    intervals: usize,
    wanted: u64,
    now: Tick,
) -> Option<usize> {
    let room = |interval: usize, at: Tick| {
        let rooms = nodes.iter().map(|(_, view)| view.room_in(interval, at));
        rooms.map(u64::from).sum::<u64>()
    };
    // If two are equal, `max_by_key` takes the last one, which is the longer interval.
    (0..intervals).max_by_key(|interval| {
        let left = room(*interval, now);
        let wait = match left >= wanted {
            true => Some(Duration::ZERO),
            false => {
                let ends = nodes.iter().flat_map(|(_, view)| view.ends_in(*interval));
                first_end(ends, now, |at| room(*interval, at) >= wanted)
            }
        };
        (wait.unwrap_or(Duration::MAX), Reverse(left))
    })
}

/// The time until the first of these ends, or now, at which there are enough units.
fn first_end(
    ends: impl Iterator<Item = Tick>,
    now: Tick,
    enough: impl Fn(Tick) -> bool,
) -> Option<Duration> {
    let mut ends: Vec<Tick> = ends.collect();
    ends.push(now);
    ends.retain(|end| *end >= now);
    ends.sort_unstable();
    let first = ends.partition_point(|end| !enough(*end));
    Some(ends.get(first)?.since(now))
}

fn total(rooms: &[(usize, u32)]) -> u64 {
    rooms.iter().map(|(_, room)| u64::from(*room)).sum()
}

/// One near node that has enough units, chosen with a probability in proportion to its units. If no node has enough,
/// the nodes with the most.
fn divide(
    mut rooms: Vec<(usize, u32)>,
    wanted: u32,
    round_trips: &[Duration],
    chance: impl FnOnce(u64) -> u64,
) -> Vec<(usize, u32)> {
    let rich = |rooms: &mut Vec<(usize, u32)>| rooms.retain(|(_, room)| *room >= wanted.max(1));
    let mut enough = rooms.clone();
    rich(&mut enough);
    let round_trip = |node: usize| round_trips.get(node).copied().unwrap_or_default();
    if let Some(nearest) = enough.iter().map(|(node, _)| round_trip(*node)).min() {
        enough.retain(|(node, _)| round_trip(*node) <= nearest * 2 + NEAR);
    }
    if !enough.is_empty() {
        let mut place = chance(total(&enough));
        for (node, room) in enough {
            match place.checked_sub(room.into()) {
                Some(rest) => place = rest,
                None => return vec![(node, wanted)],
            }
        }
    }
    rooms.sort_unstable_by_key(|(_, room)| std::cmp::Reverse(*room));
    let mut missing = wanted;
    rooms.retain_mut(|(_, room)| {
        *room = (*room).min(missing);
        missing -= *room;
        *room > 0
    });
    rooms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::quota::Window;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(ms: u64) -> Tick {
        Tick::from_nanos(ms * 1_000_000)
    }

    fn views(rooms: &[u32]) -> Vec<View> {
        let window = Window {
            period: SECOND,
            limit: 30,
        };
        let view = |room: &u32| {
            let mut view = View::new(0, [(window, 10)].into());
            view.looked(at(0), [vec![(SECOND, 10 - room)]]);
            view
        };
        rooms.iter().map(view).collect()
    }

    fn seen<'a>(nodes: &'a [(usize, &'a View)], now: u64, fresh: u64) -> Seen<'a> {
        Seen {
            nodes,
            now: at(now),
            fresh: Some(at(fresh)),
        }
    }

    fn planned(rooms: &[u32], (least, most): (u32, u32), place: u64) -> Plan {
        let asked = Amount { least, most };
        let views = views(rooms);
        let nodes: Vec<(usize, &View)> = views.iter().enumerate().collect();
        plan(seen(&nodes, 1, 0), asked, &[], |most| place.min(most - 1))
    }

    #[test]
    fn one_node_that_has_enough_is_asked() {
        assert_eq!(planned(&[0, 3, 5], (2, 2), 0), Plan::Ask(vec![(1, 2)]));
        assert_eq!(planned(&[0, 3, 5], (2, 2), 2), Plan::Ask(vec![(1, 2)]));
        assert_eq!(planned(&[0, 3, 5], (2, 2), 3), Plan::Ask(vec![(2, 2)]));
        assert_eq!(planned(&[0, 3, 5], (4, 4), 0), Plan::Ask(vec![(2, 4)]));
    }

    #[test]
    fn a_far_node_is_asked_once_the_near_ones_have_too_few() {
        let asked = |rooms: &[u32], wanted| {
            let views = views(rooms);
            let nodes: Vec<(usize, &View)> = views.iter().enumerate().collect();
            let round_trips = [1, 4, 5].map(Duration::from_millis);
            let wanted = Amount::exactly(wanted);
            plan(seen(&nodes, 1, 0), wanted, &round_trips, |most| most - 1)
        };
        assert_eq!(asked(&[3, 3, 9], 3), Plan::Ask(vec![(1, 3)]));
        assert_eq!(asked(&[3, 2, 9], 3), Plan::Ask(vec![(0, 3)]));
        assert_eq!(asked(&[2, 2, 9], 3), Plan::Ask(vec![(2, 3)]));
        assert_eq!(
            asked(&[2, 2, 4], 7),
            Plan::Ask(vec![(2, 4), (0, 2), (1, 1)])
        );
    }

    #[test]
    fn more_units_than_one_node_has_are_gathered() {
        assert_eq!(
            planned(&[2, 3, 5], (9, 9), 0),
            Plan::Ask(vec![(2, 5), (1, 3), (0, 1)])
        );
        assert_eq!(
            planned(&[2, 3, 5], (1, 99), 0),
            Plan::Ask(vec![(2, 5), (1, 3), (0, 2)])
        );
    }

    #[test]
    fn too_few_units_are_waited_for() {
        let wait = planned(&[1, 1, 0], (3, 3), 0);
        assert_eq!(wait, Plan::Wait(Duration::from_millis(999)));
        assert_eq!(planned(&[0, 0], (21, 21), 0), Plan::Never);
    }

    #[test]
    fn no_wait_is_told_before_the_nodes_were_looked_at() {
        let views = views(&[0, 0]);
        let nodes: Vec<(usize, &View)> = views.iter().enumerate().collect();
        let plan = plan(seen(&nodes, 500, 400), Amount::exactly(1), &[], |_| 0);
        assert_eq!(plan, Plan::Look);
    }
}
