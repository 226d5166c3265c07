//! Recently contended names. Their callers join the queue without an attempt, which would be refused.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use crate::base::{clock::Tick, name::Name};

/// A queue of which nothing was heard for this long may be gone.
const RECENTLY: Duration = Duration::from_secs(1);
/// The greatest number of names that are kept. A newer name may replace an older one.
const KEPT: usize = 256;

/// The names, by hash. Two names with the same hash are not told apart: a wrong answer only costs time.
#[derive(Default)]
pub(super) struct Contended(Vec<Option<(u32, Tick)>>);

impl Contended {
    /// Others are queued for this name.
    pub(super) fn insert(&mut self, name: &Name, now: Tick) {
        self.0.resize(KEPT, None);
        let hash = hash(name.as_str());
        if let Some(entry) = self.0.get_mut(index(hash)) {
            *entry = Some((hash, now));
        }
    }

    /// Nobody is queued for this name.
    pub(super) fn remove(&mut self, name: &Name) {
        if let Some(entry) = self.0.get_mut(index(hash(name.as_str()))) {
            *entry = None;
        }
    }

    pub(super) fn has(&self, name: &Name, now: Tick) -> bool {
        let hash = hash(name.as_str());
        let known = self.0.get(index(hash)).copied().flatten();
        known.is_some_and(|(known, at)| known == hash && now < at.plus(RECENTLY))
    }
}

/// The hash of a text, to compare it with others.
pub(super) fn hash(text: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish() as u32
}

fn index(hash: u32) -> usize {
    hash as usize % KEPT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_contended_for_a_second_and_replaced_by_newer_ones() {
        let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        let name = |n: usize| Name::new(format!("job:{n}")).unwrap();
        let mut names = Contended::default();
        assert!(!names.has(&name(0), at(0)));
        names.insert(&name(0), at(5));
        assert!(names.has(&name(0), at(1004)) && !names.has(&name(0), at(1005)));
        assert!(!names.has(&name(1), at(5)));
        names.remove(&name(0));
        assert!(!names.has(&name(0), at(5)));
        for n in 0..100_000 {
            names.insert(&name(n), at(5));
        }
        let known = (0..100_000).filter(|n| names.has(&name(*n), at(6)));
        assert!((1..=KEPT).contains(&known.count()));
        assert!(names.has(&name(99_999), at(6)), "the newest is");
    }
}
