//! The limits that may be in force: every limit that was asked for, except those that a later one has replaced for
//! good.

/// The limits of one semaphore, in the order in which they were asked for.
#[derive(Debug)]
pub(crate) struct Resizes {
    all: Vec<Resize>,
    used_at: u64,
    /// A limit that nobody uses for this long may be forgotten, ns.
    kept: u64,
}

#[derive(Debug)]
struct Resize {
    slots: u32,
    asked_at: u64,
    /// When its caller was told that it is in force. `None` if that has not happened yet, or it failed.
    done_at: Option<u64>,
}

impl Resizes {
    /// The limit with which the programs are made.
    pub(crate) fn new(slots: u32, kept: u64) -> Self {
        let made = Resize {
            slots,
            asked_at: 0,
            done_at: Some(0),
        };
        Self {
            all: vec![made],
            used_at: 0,
            kept,
        }
    }

    /// Somebody has got a slot, or has given it up. If nobody had done so for a long time, each limit may be in force
    /// again.
    pub(crate) fn used(&mut self, now: u64) {
        if now.saturating_sub(self.used_at) >= self.kept {
            self.all.iter_mut().for_each(|resize| resize.done_at = None);
        }
        self.used_at = now;
    }

    pub(crate) fn asked(&mut self, slots: u32, asked_at: u64) {
        self.all.push(Resize {
            slots,
            asked_at,
            done_at: None,
        });
    }

    /// The resize that was asked for at this instant has succeeded.
    pub(crate) fn done(&mut self, asked_at: u64, now: u64) {
        let resize = self
            .all
            .iter_mut()
            .find(|resize| resize.asked_at == asked_at);
        if let Some(resize) = resize {
            resize.done_at = Some(now);
        }
    }

    /// The greatest limit of all.
    pub(crate) fn greatest(&self) -> u32 {
        self.all
            .iter()
            .map(|resize| resize.slots)
            .max()
            .unwrap_or(0)
    }

    /// The smallest and the greatest limit that may be in force for a call that is made at this time. A limit is
    /// replaced if it had succeeded before a later one was asked for, and the later one has succeeded by then. A limit
    /// whose resize failed may be in force at any time.
    pub(crate) fn in_force(&self, asked_at: u64) -> (u32, u32) {
        let stands = |resize: &&Resize| {
            let replaces = |later: &Resize| {
                later.done_at.is_some_and(|at| at <= asked_at)
                    && resize.done_at.is_some_and(|at| at < later.asked_at)
            };
            !self.all.iter().any(replaces)
        };
        let standing = || self.all.iter().filter(stands).map(|resize| resize.slots);
        (standing().min().unwrap_or(0), standing().max().unwrap_or(0))
    }

    /// When the last resize was asked for that has succeeded by then.
    pub(crate) fn last_done(&self, now: u64) -> u64 {
        let done = self.all.iter().rev();
        let mut done = done.filter(|resize| resize.done_at.is_some_and(|at| at <= now));
        done.next().map_or(0, |resize| resize.asked_at)
    }

    /// The limit that was asked for last.
    pub(crate) fn last(&self) -> u32 {
        self.all.last().map_or(0, |resize| resize.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_over_when_a_later_one_has_succeeded() {
        let mut resizes = Resizes::new(3, 1000);
        resizes.asked(2, 10);
        assert_eq!((resizes.in_force(15), resizes.greatest()), ((2, 3), 3));
        resizes.done(10, 20);
        assert_eq!(
            resizes.in_force(19),
            (2, 3),
            "asked before it had succeeded"
        );
        assert_eq!(resizes.in_force(20), (2, 2));
        resizes.asked(5, 30);
        assert_eq!(resizes.in_force(40), (2, 5), "it may be in force");
        resizes.asked(1, 35);
        resizes.done(35, 40);
        assert_eq!(resizes.in_force(50), (1, 5), "the one before has failed");
        assert_eq!((resizes.greatest(), resizes.last()), (5, 1));
    }

    #[test]
    fn an_unused_limit_is_forgotten() {
        let mut resizes = Resizes::new(7, 100);
        resizes.asked(2, 10);
        resizes.done(10, 20);
        resizes.used(99);
        assert_eq!(resizes.in_force(99), (2, 2));
        resizes.used(199);
        assert_eq!(resizes.in_force(199), (2, 7));
    }

    #[test]
    fn either_of_two_concurrent_resizes_may_be_in_force() {
        let mut resizes = Resizes::new(1, 1000);
        resizes.asked(4, 10);
        resizes.asked(2, 12);
        resizes.done(10, 20);
        resizes.done(12, 21);
        assert_eq!(resizes.in_force(30), (2, 4));
    }
}
