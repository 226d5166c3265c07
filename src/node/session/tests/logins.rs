//! A login that expires is renewed in time, one node after the other.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

impl World {
    fn logged_in(&mut self, answer: Result<Option<Duration>, &str>) {
        let answer = answer.map_err(str::to_owned);
        self.step(|session, step| session.logged_in(step, answer));
    }

    /// Answers handshakes for as long as `d`, and returns when it logs in again.
    fn logs_in_within(&mut self, d: Duration) -> Option<Duration> {
        let (start, mut passed) = (self.now, Duration::ZERO);
        while passed < d {
            self.pass(10 * MS);
            passed = self.now.since(start);
            let logs_in = self.effects.iter().any(|e| matches!(e, Effect::LogIn(0)));
            let sent = self.sent();
            self.left();
            for _ in sent {
                self.meet(RUN, 40_000);
            }
            if logs_in {
                return Some(passed);
            }
        }
        None
    }
}

#[test]
fn a_login_is_renewed_when_70_to_80_percent_of_its_life_have_passed() {
    let mut world = World::voting();
    world.logged_in(Ok(Some(MINUTE)));
    for _ in 0..5 {
        let after = world.logs_in_within(MINUTE).unwrap();
        assert!(
            after >= MINUTE * 7 / 10 - 10 * MS && after <= MINUTE * 8 / 10 + 10 * MS,
            "{after:?}"
        );
        // It does not ask a second time before the answer.
        assert_eq!(world.logs_in_within(MINUTE), None);
        world.logged_in(Ok(Some(MINUTE)));
    }
    world.logged_in(Ok(None));
    assert_eq!(world.logs_in_within(3 * MINUTE), None, "it does not expire");
}

#[test]
fn a_login_that_failed_is_noted_and_tried_again() {
    let mut world = World::voting();
    world.session.take_changed();
    world.logged_in(Ok(Some(MINUTE)));
    assert!(!world.session.take_changed());
    assert!(world.logs_in_within(MINUTE).is_some());
    for why in ["WRONGPASS", "another reason"] {
        world.logged_in(Err(why));
        assert!(world.session.take_changed());
        assert_eq!(world.session.note().as_deref(), Some(why));
        // Three seconds are a twentieth of its life.
        let again = world.logs_in_within(MINUTE).unwrap();
        assert!(
            again >= Duration::from_secs(3) && again <= Duration::from_millis(6_050),
            "{again:?}"
        );
    }
    world.logged_in(Ok(Some(MINUTE)));
    assert_eq!(world.session.note(), None);
}

#[test]
fn one_node_logs_in_at_a_time() {
    let mut world = World::voting();
    world.logged_in(Ok(Some(MINUTE)));
    assert!(world.fleet.begin_login(2));
    assert_eq!(world.logs_in_within(MINUTE), None);
    world.fleet.end_login(1);
    assert_eq!(
        world.logs_in_within(MINUTE),
        None,
        "another node has the turn"
    );
    world.fleet.end_login(2);
    let soon = world.logs_in_within(MINUTE).unwrap();
    assert!(soon <= 110 * MS, "{soon:?}");
    assert!(!world.fleet.begin_login(2));
    // The connection ends while it logs in.
    let gone = Disconnected("gone".into());
    world.step(|session, step| session.disconnected(step, &gone));
    assert!(world.fleet.begin_login(2));
}

#[test]
fn a_short_life_does_not_make_a_loop() {
    let mut world = World::voting();
    for lasts in [Duration::ZERO, MS, Duration::from_secs(1)] {
        world.logged_in(Ok(Some(lasts)));
        let after = world.logs_in_within(MINUTE).unwrap();
        assert!(after >= 100 * MS, "{lasts:?}: {after:?}");
    }
}
