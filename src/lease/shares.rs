//! One lease in several hands. Its shares are counted, and the last one frees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{
    Lease,
    keeper::{Keeper, LeaseId},
    shared::Shared,
    view::View,
};
use crate::{FencingToken, LossReason, lease::response::Response};

/// The common state of the shares of one lease. Each share has it as its keeper, and the last share to end frees the
/// lease. It keeps `K` for as long as there are shares.
pub(crate) struct Shares<K> {
    shared: Arc<Shared>,
    /// The keeper of the lease itself.
    keeper: Arc<dyn Keeper>,
    id: LeaseId,
    count: Mutex<Count>,
    _kept: K,
}

struct Count {
    /// The number of shares. At zero nobody can join any more.
    open: usize,
    /// A share was abandoned, so the last one leaves the lock to its ttl.
    is_abandoned: bool,
}

/// The step that follows the end of a share.
enum Left {
    Others,
    Free,
    Abandoned,
}

impl<K: Send + Sync + 'static> Shares<K> {
    /// Makes a lease the first of its shares. `None` if the lease was given up.
    pub(crate) fn of(mut lease: Lease, kept: K) -> Option<(Arc<Self>, Lease)> {
        let shares = Arc::new(Self {
            shared: Arc::clone(lease.view.shared()),
            keeper: Arc::clone(&lease.keeper),
            id: lease.id.take()?,
            count: Mutex::new(Count {
                open: 1,
                is_abandoned: false,
            }),
            _kept: kept,
        });
        let first = shares.share();
        Some((shares, first))
    }

    /// Returns one more share, unless the lease is over.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Lease> {
        if self.is_over() {
            return None;
        }
        let mut count = self.count();
        if count.open == 0 {
            return None;
        }
        count.open = count.open.saturating_add(1);
        Some(self.share())
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.shared.token
    }

    /// Returns true if the lease was lost, or all shares have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.validity().is_zero()
    }

    fn share(self: &Arc<Self>) -> Lease {
        Lease {
            view: View::of_share(Arc::clone(&self.shared)),
            keeper: Arc::clone(self) as Arc<dyn Keeper>,
            id: Some(self.id),
            others: Vec::new(),
            slots: Vec::new(),
        }
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends a share.
    fn leave(&self, is_abandoned: bool) -> Left {
        let left = {
            let mut count = self.count();
            count.is_abandoned |= is_abandoned;
            count.open = count.open.saturating_sub(1);
            match (count.open, count.is_abandoned) {
                (0, true) => Left::Abandoned,
                (0, false) => Left::Free,
                _ => return Left::Others,
            }
        };
        self.shared.lose(LossReason::Released);
        left
    }
}

impl<K: Send + Sync + 'static> Keeper for Shares<K> {
    fn extend(&self, _: LeaseId) -> Response<()> {
        self.keeper.extend(self.id)
    }

    fn release(&self, _: LeaseId) -> Response<()> {
        match self.leave(false) {
            Left::Free => return self.keeper.release(self.id),
            Left::Abandoned => self.keeper.abandon(self.id),
            Left::Others => {}
        }
        Response::ready(Ok(()))
    }

    fn free(&self, _: LeaseId) {
        match self.leave(false) {
            Left::Free => self.keeper.free(self.id),
            Left::Abandoned => self.keeper.abandon(self.id),
            Left::Others => {}
        }
    }

    fn abandon(&self, _: LeaseId) {
        match self.leave(true) {
            Left::Others => {}
            _ => self.keeper.abandon(self.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt;

    use super::*;
    use crate::{
        Error,
        base::{
            clock::{Clock, ManualClock, Tick},
            name::Name,
        },
    };

    /// A keeper that records the calls it gets.
    #[derive(Default)]
    struct Asked(Mutex<Vec<&'static str>>);

    impl Asked {
        fn put(&self, what: &'static str) -> Response<()> {
            self.0.lock().unwrap().push(what);
            Response::ready(Err(Error::Closed))
        }

        fn take(&self) -> Vec<&'static str> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    impl Keeper for Asked {
        fn extend(&self, _: LeaseId) -> Response<()> {
            self.put("extend")
        }

        fn release(&self, _: LeaseId) -> Response<()> {
            self.put("release")
        }

        fn free(&self, _: LeaseId) {
            self.put("free");
        }

        fn abandon(&self, _: LeaseId) {
            self.put("abandon");
        }
    }

    struct Bench {
        clock: Arc<ManualClock>,
        asked: Arc<Asked>,
        shared: Arc<Shared>,
        shares: Arc<Shares<Arc<()>>>,
        kept: Arc<()>,
    }

    /// A lease until 200 ms, with a notice of 20 ms, and its first share.
    fn bench() -> (Bench, Lease) {
        let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        let clock = Arc::new(ManualClock::default());
        clock.set(at(100), 0);
        let shared = Arc::new(Shared::new(
            Name::new("a").unwrap(),
            FencingToken::from_counter(1),
            Arc::clone(&clock) as Arc<dyn Clock>,
            at(100),
            Duration::from_millis(20),
            at(200),
        ));
        let (asked, kept) = (Arc::new(Asked::default()), Arc::new(()));
        let keeper = Arc::clone(&asked) as Arc<dyn Keeper>;
        let lease = Lease::new(Arc::clone(&shared), keeper, LeaseId(7));
        let (shares, first) = Shares::of(lease, Arc::clone(&kept)).unwrap();
        let bench = Bench {
            clock,
            asked,
            shared,
            shares,
            kept,
        };
        (bench, first)
    }

    fn release(lease: Lease) -> Result<(), Error> {
        lease.release().now_or_never().unwrap()
    }

    #[test]
    fn only_the_last_share_asks_the_keeper() {
        let (bench, first) = bench();
        let second = bench.shares.join().unwrap();
        let third = bench.shares.join().unwrap();
        release(first).unwrap();
        drop(second);
        assert!(bench.asked.take().is_empty());
        assert!(third.is_valid() && !bench.shares.is_over());
        assert!(matches!(
            third.extend().now_or_never(),
            Some(Err(Error::Closed))
        ));
        assert!(
            matches!(release(third), Err(Error::Closed)),
            "the keeper's answer"
        );
        assert_eq!(bench.asked.take(), ["extend", "release"]);
        assert!(bench.shares.join().is_none() && bench.shares.is_over());

        let (bench, first) = self::bench();
        drop(first);
        assert_eq!(bench.asked.take(), ["free"]);
        assert_eq!(Arc::strong_count(&bench.kept), 2);
        drop(bench.shares);
        assert_eq!(Arc::strong_count(&bench.kept), 1);
    }

    #[test]
    fn one_abandoned_share_leaves_the_lock_to_its_ttl() {
        for end in [drop, |last| release(last).unwrap(), Lease::abandon] {
            let (bench, first) = bench();
            let second = bench.shares.join().unwrap();
            first.abandon();
            assert!(bench.asked.take().is_empty());
            assert!(second.is_valid());
            end(second);
            assert_eq!(bench.asked.take(), ["abandon"]);
        }
        let (bench, first) = bench();
        first.abandon();
        assert_eq!(bench.asked.take(), ["abandon"]);
    }

    #[test]
    fn a_share_that_was_given_up_is_over_for_its_own_watches_only() {
        for end in [drop, |share| release(share).unwrap(), Lease::abandon] {
            let (bench, first) = bench();
            let second = bench.shares.join().unwrap();
            let (of_first, of_second) = (first.watch(), second.watch());
            let mut lost = Box::pin(of_first.lost());
            assert_eq!((&mut lost).now_or_never(), None);
            end(first);
            assert_eq!(lost.now_or_never(), Some(LossReason::Released));
            assert_eq!(of_first.validity(), Duration::ZERO);
            let lost = of_first.guard(async {}).now_or_never().unwrap();
            assert_eq!(lost.unwrap_err().reason, LossReason::Released);
            assert_eq!(of_second.lost().now_or_never(), None);
            assert_eq!(of_second.validity(), Duration::from_millis(100));
            bench.shared.lose(LossReason::Evicted);
            assert_eq!(of_first.lost().now_or_never(), Some(LossReason::Released));
            assert_eq!(of_second.lost().now_or_never(), Some(LossReason::Evicted));
        }
    }

    #[test]
    fn a_loss_reaches_every_share_and_none_joins_afterwards() {
        let (bench, first) = bench();
        let second = bench.shares.join().unwrap();
        let waiting = (first.watch(), second.watch());
        let mut waiting = Box::pin(async move { (waiting.0.lost().await, waiting.1.lost().await) });
        assert_eq!((&mut waiting).now_or_never(), None);
        bench.shared.lose(LossReason::NodesLost);
        let both = (LossReason::NodesLost, LossReason::NodesLost);
        assert_eq!(waiting.now_or_never(), Some(both));
        assert!(bench.shares.join().is_none());
        let watch = first.watch();
        for share in [first, second] {
            assert!(matches!(release(share), Err(Error::Lost(lost)) if lost.reason == both.0));
        }
        assert_eq!(
            watch.lost().now_or_never(),
            Some(both.0),
            "the first reason stands"
        );
        assert_eq!(bench.asked.take(), ["release"]);
    }

    /// The clock was not looked at since then, and the loss was not announced.
    #[test]
    fn a_lease_that_is_over_by_the_clock_is_not_joined() {
        let (bench, _first) = bench();
        bench.clock.set(Tick::from_nanos(180_000_000 - 1), 0);
        assert!(bench.shares.join().is_some());
        bench.clock.set(Tick::from_nanos(180_000_000), 0);
        assert!(bench.shares.join().is_none());
    }

    #[test]
    fn a_beat_counts_for_all_unless_its_share_was_given_up() {
        let (bench, first) = bench();
        let second = bench.shares.join().unwrap();
        let (stale, ms) = (first.watch(), 1_000_000);
        bench.clock.set(Tick::from_nanos(110 * ms), 0);
        first.beat();
        assert_eq!(bench.shared.beat_at(), Tick::from_nanos(110 * ms));
        drop(first);
        bench.clock.set(Tick::from_nanos(120 * ms), 0);
        stale.beat();
        assert_eq!(bench.shared.beat_at(), Tick::from_nanos(110 * ms));
        second.watch().beat();
        assert_eq!(bench.shared.beat_at(), Tick::from_nanos(120 * ms));
    }
}
