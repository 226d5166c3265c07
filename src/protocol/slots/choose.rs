//! Chooses the slot to try for.

use super::view::View;

/// The slot to try for, with the greatest token that any node has given for it. It is a slot that some node already has
/// for this search, and that enough nodes have or could have for it. Of these it is one that most nodes have. Ties are
/// broken at random: `up_to(n)` returns a random number from 0 to n.
pub(super) fn target(
    views: &[View],
    needed: usize,
    limit: u32,
    up_to: &mut dyn FnMut(u64) -> u64,
) -> Option<(u32, u64)> {
    let mut mine: Vec<u32> = views
        .iter()
        .filter_map(View::mine)
        .map(|(s, _)| s)
        .collect();
    mine.sort_unstable();
    mine.dedup();
    let votes = |slot: u32| views.iter().filter(|view| view.has(slot)).count();
    mine.retain(|slot| *slot < limit && offered(views, *slot) >= needed);
    let most = mine.iter().map(|slot| votes(*slot)).max()?;
    mine.retain(|slot| votes(*slot) == most);
    let slot = pick(&mine, up_to)?;
    let tokens = views.iter().filter_map(View::mine);
    let tokens = tokens.filter_map(|(mine, token)| (mine == slot).then_some(token));
    Some((slot, tokens.max()?))
}

/// A slot, chosen at random, that fits and that at least `needed` nodes would give. Returns the number of such slots
/// too.
pub(super) fn free(
    views: &[View],
    needed: usize,
    limit: u32,
    fits: impl Fn(u32) -> bool,
    up_to: &mut dyn FnMut(u64) -> u64,
) -> Option<(u32, usize)> {
    let free: Vec<u32> = (0..limit)
        .filter(|slot| offered(views, *slot) >= needed && fits(*slot))
        .collect();
    Some((pick(&free, up_to)?, free.len()))
}

/// Returns true if every slot is taken on at least `needed` nodes and free on none of the nodes that have answered.
/// Otherwise a slot may be free without any push. An owner that has it on a few nodes will give it back. And a slot
/// that is free on one node may have become free on the others too.
pub(super) fn is_full(views: &[View], needed: usize, limit: u32) -> bool {
    let known = || views.iter().filter(|view| view.known.is_some());
    (0..limit).all(|slot| {
        let taken = known().filter(|view| view.is_taken(slot)).count();
        taken >= needed && taken == known().count()
    })
}

fn offered(views: &[View], slot: u32) -> usize {
    views.iter().filter(|view| view.offers(slot)).count()
}

fn pick(slots: &[u32], up_to: &mut dyn FnMut(u64) -> u64) -> Option<u32> {
    let last = slots.len().checked_sub(1)? as u64;
    slots.get(usize::try_from(up_to(last)).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{base::taken::Taken, node::answer::Slots};

    fn view(mine: Option<(u32, u64)>, others: &[u32], may_take: bool) -> View {
        let mut taken = Taken::default();
        let all = others.iter().copied().chain(mine.map(|(slot, _)| slot));
        all.for_each(|slot| taken.set(slot, true));
        View {
            known: Some(Slots {
                mine,
                taken,
                version: 1,
                may_take,
                ticket: 0,
                next_free: None,
            }),
            ..View::default()
        }
    }

    fn first(_: u64) -> u64 {
        0
    }

    #[test]
    fn the_target_is_the_winnable_slot_that_most_nodes_granted() {
        let views = [
            view(Some((4, 7)), &[], true),
            view(Some((2, 6)), &[], true),
            view(Some((4, 9)), &[2], true),
        ];
        assert_eq!(target(&views, 2, 5, &mut first), Some((4, 9)));
        assert_eq!(
            target(&views, 2, 4, &mut first),
            Some((2, 6)),
            "below the limit"
        );
    }

    #[test]
    fn a_slot_taken_on_too_many_nodes_is_not_a_target() {
        let views = [
            view(Some((1, 7)), &[], true),
            view(None, &[1], true),
            view(None, &[1], true),
        ];
        assert_eq!(target(&views, 2, 3, &mut first), None);
        assert_eq!(free(&views, 2, 3, |_| true, &mut first), Some((0, 2)));
    }

    #[test]
    fn a_free_slot_counts_only_on_nodes_where_it_may_be_taken() {
        let views = [
            view(Some((1, 7)), &[], true),
            view(None, &[], false),
            view(None, &[], false),
        ];
        assert_eq!(target(&views, 2, 3, &mut first), None);
        assert_eq!(free(&views, 2, 3, |_| true, &mut first), None);
    }

    #[test]
    fn a_semaphore_is_full_when_each_slot_is_taken_on_a_majority() {
        let full = [
            view(None, &[0, 1], true),
            view(None, &[0, 1], true),
            View::default(),
        ];
        assert!(is_full(&full, 2, 2));
        let partly = [
            view(None, &[0, 1], true),
            view(None, &[1], true),
            View::default(),
        ];
        assert!(!is_full(&partly, 2, 2));
        let freed = [
            view(None, &[0, 1], true),
            view(None, &[0, 1], true),
            view(None, &[1], true),
        ];
        assert!(!is_full(&freed, 2, 2), "it may be free on the others too");
    }

    fn any_view() -> impl Strategy<Value = View> {
        let mine = prop::option::of((0..6_u32, 1..9_u64));
        let others = prop::collection::vec(0..6_u32, 0..5);
        (mine, others, any::<bool>(), any::<bool>()).prop_map(|(mine, others, may, known)| {
            match known {
                true => view(mine, &others, may || mine.is_some()),
                false => View::default(),
            }
        })
    }

    proptest! {
        /// For all answers of the nodes: a search that follows the target can get it on a majority, and no other slot
        /// has more votes.
        #[test]
        fn a_target_can_win_a_majority(
            views in prop::collection::vec(any_view(), 1..6),
            limit in 1..7_u32,
            random in any::<u64>(),
        ) {
            let needed = views.len() / 2 + 1;
            let mut up_to = |most: u64| random % (most + 1);
            if let Some((slot, token)) = target(&views, needed, limit, &mut up_to) {
                prop_assert!(slot < limit);
                let votes = |slot| views.iter().filter(|view| view.has(slot)).count();
                prop_assert!(votes(slot) > 0);
                prop_assert!(offered(&views, slot) >= needed);
                for other in 0..limit {
                    prop_assert!(votes(other) <= votes(slot) || offered(&views, other) < needed);
                }
                prop_assert!(views.iter().filter_map(View::mine).any(|mine| mine == (slot, token)));
            }
            if let Some((slot, count)) = free(&views, needed, limit, |_| true, &mut up_to) {
                prop_assert!(slot < limit && offered(&views, slot) >= needed && count > 0);
                prop_assert!(!is_full(&views, needed, limit) || views.iter().any(|view| view.has(slot)));
            }
        }
    }
}
