//! Bootstrap, and the raise of terms.

use super::*;

/// The survey has found no counters.
const UNUSED: Answer = Answer::Admission(admission::Reply::Surveyed {
    used: false,
    lock: None,
});

fn admits(sent: &[(usize, Command)]) -> Vec<(usize, Mode, u64)> {
    let admit = |(node, command): &_| match command {
        Command::Admission(admission::Command::Admit(admit)) => {
            (*node, admit.mode, admit.witnessed)
        }
        other => panic!("{other:?}"),
    };
    sent.iter().map(admit).collect()
}

#[test]
fn new_masters_are_met_twice_surveyed_and_admitted_with_a_history() {
    let mut world = World::witnessed(&[6_000; 3]);
    let mut answer = world.bootstrap(Mode::New);
    assert!(world.until_sent().is_empty(), "not for long enough yet");
    world.witnessed = vec![6_500; 3];
    world.at(1_500);
    let surveys = world.until_sent();
    assert!(matches!(
        surveys[..],
        [
            (0, Command::Admission(admission::Command::Survey)),
            (1, Command::Admission(admission::Command::Survey)),
            (2, Command::Admission(admission::Command::Survey))
        ]
    ));
    world.all_say(&[UNUSED; 3]);
    let admitted = admits(&world.until_sent());
    let whole = 27 * 3600 * 1000;
    assert_eq!(admitted, [0, 1, 2].map(|node| (node, Mode::New, whole)));
    world.all_say(&[const { Answer::Admission(admission::Reply::Admitted(true)) }; 3]);
    assert!(answer.try_recv().is_err(), "until all of them vote");
    world.witnessed = vec![whole; 3];
    world.until_sent();
    assert!(matches!(answer.try_recv(), Ok(Ok(()))));
}

#[test]
fn a_refused_bootstrap_names_the_used_node_its_lock_and_the_wait() {
    let refused = |lock: Option<&str>| {
        let mut world = World::witnessed(&[6_500, 7_300, 8_000]);
        let mut answer = world.bootstrap(Mode::New);
        world.until_sent();
        let lock = lock.map(|name| Name::new(name).unwrap());
        world.core.answered(0, [Ok(UNUSED)]);
        world.core.answered(
            1,
            [Ok(Answer::Admission(admission::Reply::Surveyed {
                used: true,
                lock,
            }))],
        );
        let error = answer.try_recv().unwrap().unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        error.to_string()
    };
    let why = refused(Some("invoice:42"));
    let which = "n1 holds counters, so it has given out locks (\"invoice:42\" is one of them), and";
    assert!(why.contains(which), "{why}");
    assert!(!why.contains("HKEYS"), "{why}");
    assert!(why.contains("28.8 s"), "the longest: {why}");

    let why = refused(None);
    let which =
        "n1 holds counters, so it has given out locks (HKEYS quorate:c0 there names them), and";
    assert!(why.contains(which), "{why}");

    // Anybody may choose a name, so it may be any text.
    let long = "b".repeat(400);
    let why = refused(Some(&format!("a\x1b[2J\n{long}")));
    assert!(why.contains(r#"("a\u{1b}[2J\nbbb"#), "{why}");
    assert!(why.contains("bbb…\" is one") && why.len() < 700, "{why}");
}

#[test]
fn a_forced_bootstrap_asks_for_no_counters_and_writes_z() {
    let mut world = World::witnessed(&[0, TERMS.quarantine(), 0]);
    let mut answer = world.bootstrap(Mode::Forced);
    let admitted = admits(&world.until_sent());
    assert_eq!(admitted, [0, 1, 2].map(|n| (n, Mode::Forced, 35_300)));
    world
        .core
        .answered(0, [Ok(Answer::Admission(admission::Reply::Admitted(true)))]);
    world.core.answered(
        1,
        [Ok(Answer::Admission(admission::Reply::Admitted(false)))],
    );
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let why = "2 of 3 nodes are available and all are needed (1 whose memory changed)";
    assert_eq!(error.to_string(), format!("\"bootstrap\": {why}"));
}

/// Otherwise the first node that learns the greater terms would teach them to nodes that then fall back into
/// quarantine. A raise that breaks off would stop the fleet.
#[test]
fn a_raise_writes_w_everywhere_before_it_writes_terms_anywhere() {
    for mode in [Mode::New, Mode::Raise] {
        let mut world = World::lesser(&[25_200, 40_000, 25_200]);
        let mut answer = world.bootstrap(mode);
        assert_eq!(raised(&world.until_sent()), [LESSER; 3]);
        world
            .core
            .answered(0, [Ok(Answer::Admission(admission::Reply::Admitted(true)))]);
        world
            .core
            .answered(1, [Ok(Answer::Admission(admission::Reply::Admitted(true)))]);
        assert!(world.until_sent().is_empty(), "not before all have it");
        world
            .core
            .answered(2, [Ok(Answer::Admission(admission::Reply::Admitted(true)))]);
        assert_eq!(raised(&world.until_sent()), [TERMS; 3]);
        world.all_say(&[const { Answer::Admission(admission::Reply::Admitted(true)) }; 3]);
        (world.terms, world.witnessed) = (vec![TERMS; 3], vec![40_000; 3]);
        world.until_sent();
        assert!(matches!(answer.try_recv(), Ok(Ok(()))));
    }
}

/// Terms smaller than those that this client asks for.
const LESSER: Terms = Terms {
    max_ttl: Duration::from_secs(20),
    margin: Duration::from_secs(5),
};

impl World {
    /// Nodes of a fleet with smaller terms than this client asks for, each witnessed for this long in ms.
    fn lesser(witnessed: &[u64]) -> Self {
        let mut world = Self::witnessed(&vec![TERMS.quarantine(); witnessed.len()]);
        world.terms = vec![LESSER; witnessed.len()];
        world.witnessed = witnessed.to_vec();
        // The nodes say so when they are met next.
        world.at(6_000);
        assert!(world.until_sent().is_empty());
        world
    }
}

/// The terms that a raise wrote to each of three nodes.
fn raised(sent: &[(usize, Command)]) -> Vec<Terms> {
    assert_eq!(admits(sent), [0, 1, 2].map(|n| (n, Mode::Raise, 35_300)));
    let terms = |(_, command): &_| match command {
        Command::Admission(admission::Command::Admit(admit)) => admit.terms,
        other => panic!("{other:?}"),
    };
    sent.iter().map(terms).collect()
}

#[test]
fn a_raise_without_greater_terms_ends_once_a_majority_answers() {
    for witnessed in [[35_300; 3], [0; 3], [35_300, 0, 0]] {
        let mut world = World::witnessed(&witnessed);
        world.core.disconnected(2, &Disconnected("died".into()));
        let mut answer = world.bootstrap(Mode::Raise);
        assert!(matches!(answer.try_recv(), Ok(Ok(()))), "{witnessed:?}");
        assert!(world.until_sent().is_empty(), "and nothing was written");
    }
}

#[test]
fn a_raise_waits_for_a_quarantine_for_as_long_as_it_takes() {
    let mut world = World::lesser(&[40_000, 40_000, 0]);
    let mut answer = world.bootstrap(Mode::Raise);
    for second in 7..30 {
        world.at(second * 1_000);
        assert!(world.until_sent().is_empty(), "not before all vote");
        assert!(is_open(&mut answer));
    }
    world.witnessed[2] = 25_200;
    world.at(30_500);
    assert_eq!(raised(&world.until_sent()), [LESSER; 3]);
}

#[test]
fn a_raise_names_the_node_that_is_missing_after_a_while() {
    let mut world = World::lesser(&[40_000, 40_000, 0]);
    let mut answer = world.bootstrap(Mode::Raise);
    assert!(world.until_sent().is_empty());
    world.core.disconnected(1, &Disconnected("died".into()));
    world.at(7_900);
    assert!(world.until_sent().is_empty());
    assert!(is_open(&mut answer));
    world.at(8_000);
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let said: Vec<String> = error
        .report()
        .unwrap()
        .nodes()
        .iter()
        .map(|n| n.vote.to_string())
        .collect();
    assert_eq!(
        said,
        ["confirmed", "unreachable: died", "quarantined for 25.2 s"]
    );
}

/// Another client raises the terms too, or a memory was lost. The caller can mend neither.
#[test]
fn a_raise_refused_half_way_starts_over() {
    let mut world = World::lesser(&[40_000; 3]);
    let mut answer = world.bootstrap(Mode::Raise);
    assert_eq!(raised(&world.until_sent()), [LESSER; 3]);
    world.at(6_001);
    world.all_say(&[true, false, true].map(|is| Answer::Admission(admission::Reply::Admitted(is))));
    let again = world.until_sent();
    assert_eq!(raised(&again), [LESSER; 3], "from the beginning");
    world.terms = vec![TERMS; 3];
    world.at(6_002);
    world.all_say(&[const { Answer::Admission(admission::Reply::Admitted(false)) }; 3]);
    assert!(world.until_sent().is_empty());
    assert!(
        matches!(answer.try_recv(), Ok(Ok(()))),
        "somebody else has done it"
    );
}

/// All nodes restarted from their disks. Their records are vouched for (v = 1), so what this client asks for does not
/// replace their terms, and they will vote with the smaller ones.
#[test]
fn a_raise_of_a_fleet_in_quarantine_is_not_done_before_it_is_raised() {
    let mut world = World::lesser(&[0; 3]);
    let mut answer = world.bootstrap(Mode::Raise);
    assert!(world.until_sent().is_empty());
    assert!(is_open(&mut answer), "Ok, and nothing was raised");
    world.witnessed = vec![25_200; 3];
    world.at(7_500);
    assert_eq!(raised(&world.until_sent()), [LESSER; 3]);
}

/// The raise has succeeded: two of three nodes vote with the greater terms.
#[test]
fn a_written_raise_succeeds_although_one_node_is_lost() {
    let mut world = World::lesser(&[40_000; 3]);
    let mut answer = world.bootstrap(Mode::Raise);
    assert_eq!(raised(&world.until_sent()), [LESSER; 3]);
    world.all_say(&[const { Answer::Admission(admission::Reply::Admitted(true)) }; 3]);
    assert_eq!(raised(&world.until_sent()), [TERMS; 3]);
    world.all_say(&[const { Answer::Admission(admission::Reply::Admitted(true)) }; 3]);
    world.terms = vec![TERMS; 3];
    world.core.disconnected(2, &Disconnected("died".into()));
    world.until_sent();
    for ms in [7_000, 7_500, 8_000, 8_500] {
        world.at(ms);
        world.until_sent();
    }
    let said = answer.try_recv().unwrap();
    assert!(said.is_ok(), "{}", said.unwrap_err());
}

#[test]
fn a_bootstrap_whose_caller_is_gone_ends_and_writes_nothing() {
    let mut world = World::witnessed(&[6_500; 3]);
    drop(world.bootstrap(Mode::New));
    assert!(world.until_sent().is_empty());

    // The next bootstrap is not refused because of the first one, and it is not forced either.
    drop(world.bootstrap(Mode::Forced));
    let mut answer = world.bootstrap(Mode::New);
    let surveys = world.until_sent();
    assert!(matches!(
        surveys[..],
        [(_, Command::Admission(admission::Command::Survey)), ..]
    ));
    assert!(is_open(&mut answer));
}
