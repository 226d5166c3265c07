//! One node's share at the exact instants at which something changes.

use proptest::prelude::*;

use super::*;

fn window(ms: u64) -> Window {
    Window {
        period: Duration::from_millis(ms),
        limit: 100,
    }
}

fn scale(window: Window, now: u64) -> Scale {
    Scale::new(window, now, Rules::ALL)
}

/// The share of one node through all its commands.
struct Node {
    window: Window,
    share: u32,
    known: Option<Ledger>,
}

impl Node {
    /// The place where the units were counted, or the wait if there were too few.
    fn spend(&mut self, now: u64, units: u32, age: u64) -> Result<Stamp, Option<Duration>> {
        let scale = scale(self.window, now);
        let known = self.known.as_ref().filter(|ledger| now <= ledger.until);
        let (mut ledger, moved) = Ledger::at(known, scale);
        if units > ledger.room(self.share, scale) {
            let wait = ledger.wait(units, self.share, scale);
            if moved {
                ledger.written(scale);
                self.known = Some(ledger);
            }
            return Err(wait);
        }
        let stamp = ledger.spend(units, age, scale);
        ledger.written(scale);
        self.known = Some(ledger);
        Ok(stamp)
    }

    fn refund(&mut self, units: u32, stamp: Stamp) {
        if let Some(ledger) = &mut self.known {
            ledger.refund(units, stamp);
        }
    }
}

#[test]
fn a_unit_counts_to_the_last_instant_and_not_one_longer() {
    for ms in [100, 101, 1_000, 60_000, 86_400_000] {
        let window = window(ms);
        for now in [1_760_000_000_000, 1_760_000_000_001, 7 * window.bucket()] {
            let mut node = Node {
                window,
                share: 1,
                known: None,
            };
            let age = window.ahead() / 2;
            let stamp = node.spend(now, 1, age).unwrap();
            let end = stamp.bucket * window.bucket();
            assert!(end >= now + age && end < now + age + window.bucket());
            let free_at = end + window.kept();
            assert!(node.spend(free_at - 1, 1, 0).is_err(), "{ms}");
            assert!(node.spend(free_at, 1, 0).is_ok(), "{ms}");
        }
    }
}

#[test]
fn units_too_far_ahead_count_as_taken_now() {
    let window = window(1_000);
    let mut node = Node {
        window,
        share: 5,
        known: None,
    };
    let ahead = node.spend(2_000_000, 3, 50).unwrap();
    // The clock goes back by ten seconds.
    let behind = node.spend(1_990_000, 2, 50).unwrap();
    assert_ne!(ahead.era, behind.era);
    let wait = node.spend(1_990_000, 1, 50).unwrap_err().unwrap();
    assert!(wait <= Duration::from_millis(window.kept() + window.ahead() + window.bucket()));
    // Units that were counted before are not given back, because nobody knows which bucket they are in.
    node.refund(3, ahead);
    assert!(node.spend(1_990_000, 1, 50).is_err());
    node.refund(2, behind);
    assert!(node.spend(1_990_000, 2, 50).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// For any sequence of requests, no interval of W sees more uses than the share. Each unit is used either at once
    /// or at the last instant at which it may be used, by the same clock.
    #[test]
    fn no_interval_sees_more_than_the_share(
        ms in prop::sample::select(vec![100_u64, 137, 1_000, 10_000]),
        share in 1_u32..8,
        asked in prop::collection::vec((0_u64..120, 1_u32..4, 0_u64..100, any::<bool>(), any::<bool>()), 1..300),
    ) {
        let window = window(ms);
        let mut node = Node { window, share, known: None };
        let mut now = 1_760_000_000_000;
        let mut used: Vec<(u64, u32)> = Vec::new();
        for (pause, units, age, late, back) in asked {
            now += pause * ms / 1_000;
            let age = age * window.ahead() / 100;
            if let Ok(stamp) = node.spend(now, units, age) {
                if back {
                    node.refund(units, stamp);
                } else {
                    used.push((if late { now + age } else { now }, units));
                }
            }
        }
        used.sort_unstable();
        for (at, _) in &used {
            let within = used.iter().filter(|(other, _)| (*at..at + ms).contains(other));
            let sum: u32 = within.map(|(_, units)| units).sum();
            prop_assert!(sum <= share, "{sum} of {share} within {ms} ms from {at}");
        }
    }

    /// A wait is exact: one ms before its end there are too few units, and at its end there are enough.
    #[test]
    fn a_wait_is_exact(
        ms in prop::sample::select(vec![100_u64, 1_000, 60_000]),
        share in 1_u32..10,
        wanted in 1_u32..10,
        asked in prop::collection::vec((0_u64..200, 1_u32..4), 1..40),
    ) {
        let window = window(ms);
        let mut node = Node { window, share, known: None };
        let mut now = 1_760_000_000_000;
        for (pause, units) in asked {
            now += pause * ms / 1_000;
            let _ = node.spend(now, units, window.ahead() / 2);
        }
        match node.spend(now, wanted, 0) {
            Ok(_) => {}
            Err(None) => prop_assert!(wanted > share),
            Err(Some(wait)) => {
                let at = now + u64::try_from(wait.as_millis()).unwrap();
                prop_assert!(node.spend(at - 1, wanted, 0).is_err());
                prop_assert!(node.spend(at, wanted, 0).is_ok());
            }
        }
    }

    /// A clock that goes back frees nothing: each unit counts for at least as long as it would have, by true time.
    #[test]
    fn a_clock_that_goes_back_frees_nothing(
        share in 1_u32..6,
        asked in prop::collection::vec((0_u64..150, 1_u32..3, 0_u64..400, any::<bool>()), 1..200),
    ) {
        let ms = 1_000;
        let window = window(ms);
        let mut node = Node { window, share, known: None };
        let (mut truly, mut behind) = (1_760_000_000_000_u64, 0_u64);
        let mut used: Vec<(u64, u32)> = Vec::new();
        for (pause, units, slip, slips) in asked {
            truly += pause;
            behind += if slips { slip } else { 0 };
            if node.spend(truly - behind, units, 50).is_ok() {
                used.push((truly + 50, units));
            }
        }
        for (at, _) in &used {
            let within = used.iter().filter(|(other, _)| (*at..at + ms).contains(other));
            let sum: u32 = within.map(|(_, units)| units).sum();
            prop_assert!(sum <= share, "{sum} of {share}");
        }
    }
}
