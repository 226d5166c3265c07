//! Nothing stands still: a lock that somebody waits for and nobody holds gets a holder within the stated time. The time
//! counts from the last fault.

use super::{Held, Operation, Violation, ms};

/// One lock.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    /// Since when a caller waits for it while nobody holds it.
    since: Option<u64>,
    /// The longest such time, ns.
    pub(crate) longest: u64,
}

impl Stall {
    /// `waits` is a caller that waits for the lock while nobody holds it. `quiet` is the instant since which there is
    /// no fault.
    pub(crate) fn look(
        &mut self,
        now: u64,
        waits: Option<Operation>,
        quiet: u64,
        bound: u64,
    ) -> Held {
        let Some(waits) = waits else {
            self.since = None;
            return Ok(());
        };
        let since = *self.since.get_or_insert(now);
        let still = now.saturating_sub(since.max(quiet));
        self.longest = self.longest.max(still);
        if still <= bound {
            return Ok(());
        }
        let what = format!("nobody got it for {} up to {}", ms(still), ms(now));
        Err(Violation::new("nothing stands still", what, &[&waits]))
    }

    /// Somebody has got the lock.
    pub(crate) fn over(&mut self) {
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    #[test]
    fn a_lock_that_no_waiter_gets_is_found() {
        let waits = || Some(operation(1, 5, 0, 0));
        let mut stall = Stall::default();
        assert_eq!(stall.look(10, waits(), 0, 50), Ok(()));
        assert_eq!(stall.look(60, waits(), 0, 50), Ok(()));
        assert_eq!(stall.look(61, waits(), 11, 50), Ok(()), "a fault");
        assert!(stall.look(61, waits(), 0, 50).is_err());
        stall.over();
        assert_eq!(stall.look(70, waits(), 0, 50), Ok(()));
        assert_eq!(stall.look(80, None, 0, 50), Ok(()));
        assert_eq!(stall.look(130, waits(), 0, 50), Ok(()));
    }
}
