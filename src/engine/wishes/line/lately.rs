//! For which locks somebody stood in line a moment ago: who asks for one of them stands in line at once, and is spared an attempt that
//! would be refused.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use crate::base::{clock::Tick, name::Name};

/// A line of which nothing was heard for so long may be gone.
const LATELY: Duration = Duration::from_secs(1);
/// Of so many names at most; a newer one takes the place of an older.
const KEPT: usize = 256;

/// By a number for the name. Two of the same number are not told apart: it only says which way is likely to be shorter.
#[derive(Default)]
pub(super) struct Lately(Vec<Option<(u32, Tick)>>);

impl Lately {
    /// Somebody stands in line for it.
    pub(super) fn stands(&mut self, name: &Name, now: Tick) {
        self.0.resize(KEPT, None);
        let number = number(name.as_str());
        if let Some(place) = self.0.get_mut(place(number)) {
            *place = Some((number, now));
        }
    }

    /// Nobody does.
    pub(super) fn freed(&mut self, name: &Name) {
        if let Some(place) = self.0.get_mut(place(number(name.as_str()))) {
            *place = None;
        }
    }

    pub(super) fn has(&self, name: &Name, now: Tick) -> bool {
        let number = number(name.as_str());
        let known = self.0.get(place(number)).copied().flatten();
        known.is_some_and(|(its, at)| its == number && now < at.plus(LATELY))
    }
}

/// A number for a text.
pub(super) fn number(text: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish() as u32
}

fn place(number: u32) -> usize {
    number as usize % KEPT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_known_for_a_second_and_of_so_many_names() {
        let at = |ms: u64| Tick::from_nanos(ms * 1_000_000);
        let name = |n: usize| Name::new(format!("job:{n}")).unwrap();
        let mut lately = Lately::default();
        assert!(!lately.has(&name(0), at(0)));
        lately.stands(&name(0), at(5));
        assert!(lately.has(&name(0), at(1004)) && !lately.has(&name(0), at(1005)));
        assert!(!lately.has(&name(1), at(5)));
        lately.freed(&name(0));
        assert!(!lately.has(&name(0), at(5)));
        for n in 0..100_000 {
            lately.stands(&name(n), at(5));
        }
        let known = (0..100_000).filter(|n| lately.has(&name(*n), at(6)));
        assert!((1..=KEPT).contains(&known.count()));
        assert!(lately.has(&name(99_999), at(6)), "the newest is");
    }
}
