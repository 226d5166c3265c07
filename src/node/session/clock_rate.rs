//! The rate of a node's clock compared with this client's, for operators. Leases are safe while both slew by at most
//! 0.5 %.

use std::time::Duration;

use crate::base::{clock::Tick, text::seconds};

/// The shortest time over which the rate is measured. A round trip of 100 ms is 0.06 % of it.
const SPAN: Duration = Duration::from_secs(180);

/// The slew that each clock may have, in millionths.
const SLEW_PPM: u128 = 5_000;

#[derive(Default)]
pub(super) struct ClockRate {
    /// The reading at which the measurement began.
    first: Option<Reading>,
    warning: Option<String>,
}

/// The node's TIME in µs, which was read at some time between `sent` and `answered`.
#[derive(Clone, Copy)]
struct Reading {
    sent: Tick,
    answered: Tick,
    time: u64,
}

impl ClockRate {
    /// The node's clock showed `time` µs at some time between these two. Returns a warning if it is new.
    pub(super) fn read(&mut self, sent: Tick, answered: Tick, time: u64) -> Option<&str> {
        let now = Reading {
            sent,
            answered,
            time,
        };
        let Some(first) = self.first else {
            self.first = Some(now);
            return None;
        };
        if sent.since(first.sent) < SPAN {
            return None;
        }
        self.first = Some(now);
        // A clock that stays wrong is reported once.
        let before = self.warning.take();
        let is_new = before.is_none();
        self.warning = warning(first, now).map(|new| before.unwrap_or(new));
        self.warning().filter(|_| is_new)
    }

    /// The warning for operators, while the clock is off.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

fn warning(first: Reading, now: Reading) -> Option<String> {
    // The time that passed on the node, and two bounds for the time that passed here. Within these bounds the node is
    // right.
    let least = now.sent.since(first.answered).as_micros();
    let most = now.answered.since(first.sent).as_micros();
    let theirs = u128::from(now.time.saturating_sub(first.time));
    let (off, fast) = match theirs {
        _ if theirs > most => (theirs - most, true),
        _ => (least.saturating_sub(theirs), false),
    };
    if off * 1_000_000 <= most * SLEW_PPM {
        return None;
    }
    let (thousandths, faster) = (
        off * 100_000 / most.max(1),
        if fast { "faster" } else { "slower" },
    );
    Some(format!(
        "over {} its clock went {}.{:02} % {faster} than this machine's, or was set, and leases tolerate 0.5 % for \
         each clock: check the time synchronisation of both (chrony: maxslewrate 4000)",
        seconds(Duration::from_micros(
            u64::try_from(most).unwrap_or(u64::MAX)
        )),
        thousandths / 1_000,
        thousandths % 1_000 / 10,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);

    /// The node's clock is off by this rate, and TIME is read at this percentage of each round trip.
    fn after(span: Duration, ppm: i64, part: u32) -> Option<String> {
        let mut rate = ClockRate::default();
        let start = Tick::default().plus(SPAN);
        for passed in [Duration::ZERO, span] {
            let sent = start.plus(passed);
            let read = passed + RTT * part / 100;
            let micros = i64::try_from(read.as_micros()).unwrap();
            let time = u64::try_from(1_000_000 + micros + micros * ppm / 1_000_000).unwrap();
            rate.read(sent, sent.plus(RTT), time);
        }
        rate.warning().map(str::to_owned)
    }

    #[test]
    fn a_clock_that_is_too_fast_or_too_slow_is_named() {
        for part in [0, 50, 100] {
            let fast = after(SPAN, 12_000, part).unwrap();
            assert!(fast.contains("% faster"), "{fast}");
            assert!(fast.starts_with("over 180.1 s its clock went 1."), "{fast}");
            let slow = after(SPAN, -12_000, part).unwrap();
            assert!(slow.contains("% slower"), "{slow}");
        }
    }

    /// Reads the clock once a minute. Returns how many readings gave a new warning.
    fn news(rate: &mut ClockRate, at: &mut (Duration, i64), minutes: u64, ppm: i64) -> usize {
        let news = (1..=minutes).filter(|_| {
            at.0 += Duration::from_secs(60);
            at.1 += 60_000_000 + 60 * ppm;
            let sent = Tick::default().plus(at.0);
            let time = u64::try_from(at.1).unwrap();
            rate.read(sent, sent.plus(RTT), time).is_some()
        });
        news.count()
    }

    #[test]
    fn a_wrong_clock_rate_is_news_once_until_it_was_right() {
        let (mut rate, mut at) = (ClockRate::default(), (Duration::ZERO, 0));
        assert_eq!(news(&mut rate, &mut at, 20, 100), 0);
        assert_eq!(news(&mut rate, &mut at, 20, 20_000), 1);
        assert!(rate.warning().is_some());
        assert_eq!(news(&mut rate, &mut at, 20, 0), 0);
        assert_eq!(rate.warning(), None);
        assert_eq!(news(&mut rate, &mut at, 20, -20_000), 1);
        assert!(rate.warning().unwrap().contains("slower"));
    }

    #[test]
    fn allowed_or_briefly_measured_clock_rates_are_not_reported() {
        for part in [0, 50, 100] {
            assert_eq!(after(SPAN, 5_000, part), None);
            assert_eq!(after(SPAN, -5_000, part), None);
        }
        let short = SPAN - Duration::from_millis(1);
        assert_eq!(after(short, 500_000, 50), None);
    }
}
