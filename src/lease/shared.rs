//! The state that a lease's holder, its watches and the engine share. One word holds the end of the lease, and makes a
//! loss final.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    FencingToken, LossReason, Lost,
    base::{
        clock::{Clock, Tick},
        name::Name,
    },
};

const LOST: u64 = 0;
const NOT_LOST: u8 = 0;

/// The shared state of one lease.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: Name,
    pub(crate) token: FencingToken,
    /// The slot, for a lease of a semaphore.
    slot: Option<u32>,
    clock: Arc<dyn Clock>,
    asked_at: Tick,
    /// How long before the end of the validity a loss is announced, in ns.
    notice: AtomicU64,
    /// The end of the lease, or `LOST`. The first caller that finds the end passed stores `LOST`. A later extension
    /// then finds `LOST`, and revives nothing.
    valid_until: AtomicU64,
    reason: AtomicU8,
    /// The reason of the loss, if the lease ends by the clock.
    reason_at_end: AtomicU8,
    beat_at: AtomicU64,
    lost: Notify,
}

impl Shared {
    pub(crate) fn new(
        name: Name,
        token: FencingToken,
        clock: Arc<dyn Clock>,
        asked_at: Tick,
        notice: Duration,
        valid_until: Tick,
    ) -> Self {
        let now = clock.now().nanos();
        Self {
            name,
            token,
            slot: None,
            clock,
            asked_at,
            notice: AtomicU64::new(nanos(notice)),
            valid_until: AtomicU64::new(valid_until.nanos()),
            reason: AtomicU8::new(NOT_LOST),
            reason_at_end: AtomicU8::new(code(LossReason::Expired)),
            beat_at: AtomicU64::new(now),
            lost: Notify::new(),
        }
    }

    /// The same for this slot of a semaphore.
    pub(crate) fn of_slot(self, slot: Option<u32>) -> Self {
        Self { slot, ..self }
    }

    /// The slot of a semaphore; empty for a lock.
    pub(crate) fn slots(&self) -> &[u32] {
        self.slot.as_slice()
    }

    pub(crate) fn validity(&self) -> Duration {
        let mut until = self.valid_until.load(SeqCst);
        loop {
            if until == LOST {
                return Duration::ZERO;
            }
            let now = self.clock.now();
            if now < self.announce_at(until) {
                return Tick::from_nanos(until).since(now);
            }
            match self
                .valid_until
                .compare_exchange(until, LOST, SeqCst, SeqCst)
            {
                Ok(_) => {
                    self.announce(self.reason_at_end.load(SeqCst));
                    return Duration::ZERO;
                }
                Err(newer) => until = newer,
            }
        }
    }

    /// For tests: how long before its end a loss is announced.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn notice(&self) -> Duration {
        Duration::from_nanos(self.notice.load(SeqCst))
    }

    /// Moves the end, unless the old end has already passed, and sets how long before it a loss is announced. Passing
    /// `in_time` as false is a trap of protocol §10.
    pub(crate) fn prolong(&self, until: Tick, notice: Duration, in_time: bool) -> bool {
        let prolonged = self.move_end(until, in_time);
        if prolonged {
            // Stored after the end. In between, the loss at the new end would be announced too late; the loss at the
            // old end is never announced too early.
            self.notice.store(nanos(notice), SeqCst);
        }
        prolonged
    }

    fn move_end(&self, until: Tick, in_time: bool) -> bool {
        if !in_time {
            self.valid_until.store(until.nanos(), SeqCst);
            return true;
        }
        let old = self.valid_until.load(SeqCst);
        // This looks at the clock, and makes a loss final.
        if self.validity().is_zero() {
            return false;
        }
        self.valid_until
            .compare_exchange(old, until.nanos(), SeqCst, SeqCst)
            .is_ok()
    }

    /// Ends the lease now. The first reason stands.
    pub(crate) fn lose(&self, reason: LossReason) {
        if self.valid_until.swap(LOST, SeqCst) != LOST {
            self.announce(code(reason));
        }
    }

    pub(crate) fn set_reason_at_end(&self, reason: LossReason) {
        self.reason_at_end.store(code(reason), SeqCst);
    }

    /// The loss, if the lease is over by now.
    pub(crate) fn lost_now(&self) -> Option<Lost> {
        self.validity().is_zero().then(|| Lost {
            reason: self.reason(),
        })
    }

    pub(crate) async fn lost(&self) -> LossReason {
        loop {
            let notified = self.lost.notified();
            if self.reason.load(SeqCst) != NOT_LOST {
                return self.reason();
            }
            notified.await;
        }
    }

    pub(crate) fn held_for(&self) -> Duration {
        self.clock.now().since(self.asked_at)
    }

    pub(crate) fn beat(&self) {
        self.beat_at.store(self.clock.now().nanos(), SeqCst);
    }

    pub(crate) fn beat_at(&self) -> Tick {
        Tick::from_nanos(self.beat_at.load(SeqCst))
    }

    fn announce_at(&self, until: u64) -> Tick {
        Tick::from_nanos(until.saturating_sub(self.notice.load(SeqCst)))
    }

    fn announce(&self, reason: u8) {
        let _ = self
            .reason
            .compare_exchange(NOT_LOST, reason, SeqCst, SeqCst);
        self.lost.notify_waiters();
    }

    fn reason(&self) -> LossReason {
        let reason = match self.reason.load(SeqCst) {
            // The end was found passed, and that was not announced yet.
            NOT_LOST => self.reason_at_end.load(SeqCst),
            reason => reason,
        };
        match reason {
            2 => LossReason::Evicted,
            3 => LossReason::MaxHold,
            4 => LossReason::NoHeartbeat,
            5 => LossReason::NodesLost,
            6 => LossReason::Released,
            _ => LossReason::Expired,
        }
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

const fn code(reason: LossReason) -> u8 {
    match reason {
        LossReason::Expired => 1,
        LossReason::Evicted => 2,
        LossReason::MaxHold => 3,
        LossReason::NoHeartbeat => 4,
        LossReason::NodesLost => 5,
        LossReason::Released => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock::ManualClock;

    const MS: u64 = 1_000_000;

    fn lease() -> (Arc<ManualClock>, Shared) {
        let clock = Arc::new(ManualClock::default());
        clock.set(Tick::from_nanos(100 * MS), 0);
        let shared = Shared::new(
            Name::new("a").unwrap(),
            FencingToken::from_counter(1),
            clock.clone(),
            Tick::from_nanos(100 * MS),
            Duration::from_millis(20),
            Tick::from_nanos(200 * MS),
        );
        (clock, shared)
    }

    #[test]
    fn validity_ends_a_notice_before_the_end_and_stays_ended() {
        let (clock, lease) = lease();
        assert_eq!(lease.validity(), Duration::from_millis(100));
        clock.set(Tick::from_nanos(180 * MS - 1), 0);
        assert_eq!(lease.validity(), Duration::from_nanos(20 * MS + 1));
        clock.set(Tick::from_nanos(180 * MS), 0);
        assert_eq!(lease.validity(), Duration::ZERO);
        assert!(
            !lease.prolong(Tick::from_nanos(900 * MS), Duration::from_millis(20), true),
            "loss is final"
        );
        assert_eq!(
            lease.lost_now(),
            Some(Lost {
                reason: LossReason::Expired
            })
        );
    }

    #[test]
    fn an_extension_that_comes_at_the_end_is_too_late() {
        let (clock, lease) = lease();
        clock.set(Tick::from_nanos(180 * MS), 0);
        assert!(!lease.prolong(Tick::from_nanos(900 * MS), Duration::from_millis(20), true));
        assert_eq!(lease.validity(), Duration::ZERO);
    }

    #[tokio::test]
    async fn the_first_reason_stands() {
        let (_, lease) = lease();
        lease.lose(LossReason::Evicted);
        lease.lose(LossReason::Released);
        assert_eq!(lease.lost().await, LossReason::Evicted);
    }
}
