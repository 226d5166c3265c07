//! Limits how many lines are logged in a minute.

use std::{collections::VecDeque, time::Duration};

use crate::base::clock::Tick;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// At most `most` lines within any minute.
pub(crate) struct Budget {
    most: usize,
    written: VecDeque<Tick>,
}

impl Budget {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            written: VecDeque::new(),
        }
    }

    pub(crate) fn pass(&mut self, now: Tick) -> bool {
        while self
            .written
            .front()
            .is_some_and(|at| now.since(*at) >= MINUTE)
        {
            self.written.pop_front();
        }
        let passes = self.written.len() < self.most;
        if passes {
            self.written.push_back(now);
        }
        passes
    }
}
