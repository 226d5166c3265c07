//! Many who wait, and what they are told.

use super::*;

/// Wishes for one name, each of which waits for at most `within` ms.
fn crowd(world: &mut World, wishes: u64, within: Option<u64>) -> Vec<Answered> {
    let wait = Wait::For(within.map(Duration::from_millis));
    let ask = |id| {
        world.ask(|wish| {
            wish.id = WishId(id);
            wish.wait = wait;
        })
    };
    (1..=wishes).map(ask).collect()
}

#[test]
fn a_crowd_on_one_name_asks_sixteen_at_a_time_and_in_order() {
    let mut world = World::new(1);
    let mut answers = crowd(&mut world, 20, None);
    assert_eq!(world.sent().len(), 16);
    let mut free = world.ask(|wish| wish.claim = Claim::Mutex(Name::new("b").unwrap()));
    assert_eq!(world.sent(), [(0, 'A')], "another name");
    let mut tried = world.try_lock();
    assert_eq!(world.sent(), [(0, 'A')], "one attempt stands in no line");
    world
        .core
        .answered(0, [Ok(Said::Mutex(mutex::Reply::Granted(7)))]);
    assert!(
        matches!(answers[0].try_recv(), Ok(Ok(Some(_)))),
        "it is dropped here"
    );
    assert_eq!(world.sent(), [(0, 'A')], "the next one has its place");
    for _ in 1..16 {
        world.core.answered(0, [Ok(held())]);
    }
    world
        .core
        .answered(0, [Ok(Said::Mutex(mutex::Reply::Granted(8)))]);
    assert!(matches!(free.try_recv(), Ok(Ok(Some(_)))));
    world.core.answered(0, [Ok(held())]);
    assert!(matches!(tried.try_recv(), Ok(Ok(None))));
    world
        .core
        .answered(0, [Ok(Said::Mutex(mutex::Reply::Granted(9)))]);
    assert!(
        matches!(answers[16].try_recv(), Ok(Ok(Some(_)))),
        "it was the 17th"
    );

    // A wish that goes away makes room, in the line or before it.
    world.sent();
    world.core.event(Event::Cancel(WishId(18)));
    assert_eq!(
        world.sent(),
        [(0, 'R'), (0, 'A')],
        "the 18th asked, now the 19th does"
    );
}

#[test]
fn whose_wait_ends_in_the_line_is_told_what_another_was_told() {
    let mut world = World::new(1);
    let mut first = crowd(&mut world, 16, None);
    let mut late: Vec<_> = [100, 50, 300]
        .into_iter()
        .enumerate()
        .map(|(i, ms)| {
            world.ask(|wish| {
                wish.id = WishId(50 + i as u64);
                wish.wait = Wait::For(Some(Duration::from_millis(ms)));
            })
        })
        .collect();
    assert_eq!(world.sent().len(), 16);
    world.at(50);
    assert_eq!(world.sent(), [], "there is no time to ask");
    let told = late[1].try_recv().unwrap();
    let Err(Error::NoQuorum(report)) = told else {
        panic!("{told:?}")
    };
    let unheard = crate::Vote::None(crate::Silence::WaitOver);
    assert!(report.nodes().iter().all(|node| node.vote == unheard));
    world.core.answered(0, [Ok(held())]);
    world.at(99);
    assert!(late[0].try_recv().is_err());
    world.at(100);
    let told = late[0].try_recv().unwrap();
    assert!(
        matches!(told, Err(Error::Held(ref report)) if report.nodes().len() == 1),
        "{told:?}"
    );
    let holder = "\"a\" is held by web-1:77 (for another 1.0 s unless renewed)";
    assert_eq!(told.unwrap_err().to_string(), holder);
    for _ in 1..16 {
        world.core.answered(0, [Ok(held())]);
    }
    world.at(101);
    assert!(late[2].try_recv().is_err() && first[0].try_recv().is_err());
}

#[test]
fn a_crowd_that_goes_away_leaves_nothing() {
    for way in 0..3 {
        let mut world = World::new(1);
        let mut answers = crowd(&mut world, 10_000, Some(60_000));
        match way {
            0 => (1..=10_000).for_each(|id| world.core.event(Event::Cancel(WishId(id)))),
            1 => (1..=10_000)
                .rev()
                .for_each(|id| world.core.event(Event::Cancel(WishId(id)))),
            _ => {
                world.core.close();
                for answer in &mut answers {
                    assert!(matches!(answer.try_recv(), Ok(Err(Error::Closed))));
                }
            }
        }
        world.at(0);
        assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
    }
}

/// The callers are gone, and the engine has not heard of it yet.
#[test]
fn a_caller_that_is_gone_does_not_ask() {
    let mut world = World::new(1);
    let mut answers = crowd(&mut world, 200, None);
    world.sent();
    let last = answers.split_off(199);
    answers.truncate(16);
    world.core.event(Event::Cancel(WishId(1)));
    for _ in 0..20 {
        world.at(0);
    }
    assert_eq!(world.sent(), [(0, 'R'), (0, 'A')], "the last one asks");
    drop(last);
}

/// No majority: each finds out, one after the other, without an end of the stack.
#[test]
fn a_crowd_before_dead_nodes_is_told_so() {
    let mut world = World::new(1);
    let mut answers = crowd(&mut world, 10_000, None);
    world.core.disconnected(0, &Disconnected("died".into()));
    for _ in 0..10_000 / 16 {
        world.at(0);
    }
    for answer in &mut answers {
        assert!(matches!(answer.try_recv(), Ok(Err(Error::NoQuorum(_)))));
    }
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn whom_no_majority_answers_is_told_when_enough_nodes_will_have_been_dialled() {
    let mut world = World::new(3);
    let pause = |world: &mut World| {
        let error = world.try_lock().try_recv().unwrap().unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error}");
        error.retry_after().unwrap().as_millis()
    };
    for node in [1, 2] {
        world.core.disconnected(node, &Disconnected("died".into()));
    }
    let first = pause(&mut world);
    assert!(
        (75..=100).contains(&first),
        "the first back-off: {first} ms"
    );
    for round in 1..=10 {
        world.at(round * 10_000);
        assert_eq!(world.greeted(), [0]);
        world.meet(0);
        for node in [1, 2] {
            let no = DialError::Unreachable("no".into());
            world.core.dial_failed(node, &no);
        }
    }
    let last = pause(&mut world);
    assert!((2_550..=5_050).contains(&last), "the longest: {last} ms");
    world.at(102_000);
    let less = pause(&mut world);
    assert_eq!(less + 2_000, last, "it is a time, not a guess");

    // Nobody knows when one that is being dialled, or owes an answer, will be there.
    world.at(106_000);
    assert_eq!(pause(&mut world), 550);
}

/// When a caller is to try again is for callers: a wish that waits goes by how long its attempts take.
#[test]
fn a_wait_through_an_outage_rests_for_as_long_as_an_attempt_took() {
    let mut world = World::new(1);
    let mut answer = world.ask(|wish| wish.wait = Wait::For(None));
    assert_eq!(world.sent(), [(0, 'A')]);
    world.core.answered(0, [Ok(held())]);
    let (mut now, mut rests) = (0, Vec::new());
    for _ in 0..20 {
        let from = now;
        loop {
            now += 1;
            world.at(now);
            let sent = world.sent();
            if sent.contains(&(0, 'R')) {
                world
                    .core
                    .answered(0, [Ok(Said::Mutex(mutex::Reply::Released(false)))]);
            }
            if sent.contains(&(0, 'A')) {
                break;
            }
        }
        rests.push(now - from);
        now += 80;
        world.at(now);
        let busy = Fault::Error("BUSY a script".into());
        world.core.answered(0, [Err(busy)]);
    }
    assert!(is_open(&mut answer));
    let outage = &rests[1..];
    assert!(outage.iter().all(|ms| (82..=101).contains(ms)), "{rests:?}");
}
