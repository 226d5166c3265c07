//! One attempt: votes, the raise, and what its caller is told.

use super::*;

/// Otherwise there would be two holders: the RELEASEs are on their way when the deciding vote comes.
#[test]
fn an_attempt_that_was_rolled_back_is_not_won_by_a_late_vote() {
    let mut world = World::new(5);
    let mut answer = world.try_lock();
    assert_eq!(world.sent().len(), 5);
    world.at(280);
    world.core.answered(0, [Ok(Answer::Granted(7))]);
    world.core.answered(1, [Ok(Answer::Granted(8))]);
    world.core.answered(3, [Ok(held())]);
    world.at(300);
    world.core.answered(2, [Ok(Answer::Granted(7))]);
    world.at(500);
    assert_eq!(
        world.sent(),
        [(0, 'T'), (2, 'T')],
        "the deadline: raised without the slow one"
    );
    world.at(510);
    world.core.disconnected(0, &Disconnected("died".into()));
    let released: Vec<_> = world
        .sent()
        .into_iter()
        .filter(|(_, what)| *what == 'R')
        .collect();
    let wanted = [(1, 'R'), (2, 'R'), (4, 'R')];
    assert_eq!(released, wanted, "rolled back, but where it was refused");
    world.at(520);
    world.core.answered(4, [Ok(Answer::Granted(8))]);
    world.core.answered(2, [Ok(Answer::Raised(8))]);
    assert!(
        !world.sent().contains(&(4, 'T')),
        "nor is anything raised any more"
    );
    assert!(
        matches!(answer.try_recv(), Ok(Ok(None))),
        "it is told as held"
    );
}

#[test]
fn a_late_grant_beside_a_raise_is_raised_too_and_counts() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    world.at(10);
    world.core.answered(0, [Ok(Answer::Granted(7))]);
    world.core.answered(1, [Ok(Answer::Granted(8))]);
    world.at(21);
    assert_eq!(world.sent(), [(0, 'T')], "one more reply time, then raised");
    world.core.answered(2, [Ok(Answer::Granted(5))]);
    assert_eq!(world.sent(), [(2, 'T')]);
    world.core.answered(0, [Ok(Answer::Lost)]);
    world.core.answered(2, [Ok(Answer::Raised(8))]);
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(lease.token().as_u64(), 8);
}

proptest! {
    #[test]
    fn any_server_text_is_reported_short_and_without_control_characters(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        huge in any::<bool>(),
        place in 0..8usize,
    ) {
        let attributes = None;
        let data = bytes.repeat(if huge { 3_000 } else { 1 });
        let error = OwnedFrame::BlobError { data: data.clone(), attributes: None };
        let text = OwnedFrame::BlobString { data, attributes };
        let plain = |text: &str| OwnedFrame::SimpleString { data: text.into(), attributes: None };
        let number = |data| OwnedFrame::Number { data, attributes: None };
        let array = |data| OwnedFrame::Array { data, attributes: None };

        let mut world = World::new(1);
        let mut told = Vec::new();
        if place == 0 {
            let (reply, mut inspected) = oneshot::channel();
            let name = Name::new("a").unwrap();
            world.core.event(Event::Inspect { name, reply });
            let [left, counter, time, waiting] = [5, 7, 9, 0].map(number);
            let lock = array(vec![text.clone(), left, counter, time, waiting]);
            let [version, limit, time, waiting, slot, left, counter] = [1, 2, 9, 0, 1, 5, 7].map(number);
            let bits = OwnedFrame::BlobString { data: b"@".to_vec(), attributes: None };
            let line = array(vec![]);
            let holders = array(vec![slot, text.clone(), left, counter]);
            let slots = array(vec![version, limit, bits, time, waiting, holders, line]);
            let one = || array(vec![number(1), text.clone(), number(5)]);
            let rwlock = array(vec![text.clone(), number(5), number(7), one(), one()]);
            world.answer_last_of([lock, slots, rwlock]);
            let seen = inspected.try_recv().unwrap().unwrap();
            let slots = seen.slots();
            let (readers, writers) = (seen.readers(), seen.waiting_writers());
            told.extend([writers[0].entry.clone(), writers[0].label.clone()]);
            let mutex = [seen.holder().unwrap(), &slots[0].holder];
            for holder in mutex.into_iter().chain([seen.writer().unwrap(), &readers[0].holder]) {
                told.extend([holder.entry.clone(), holder.label.clone()]);
            }
        } else if place < 3 {
            let mut answer = world.try_lock();
            world.answer_last(if place == 1 { error } else { text });
            told.push(answer.try_recv().unwrap().unwrap_err().to_string());
        } else {
            // The node is met again.
            world.core.disconnected(0, &Disconnected("died".into()));
            world.at(60_000);
            world.core.connected(0, 8, None, true);
            world.answer_last(if place == 7 {
                error
            } else {
                let good = ["master", "standalone", "noeviction", "7.0.15", "r/0/-1"];
                let mut fields: Vec<_> = good.into_iter().map(plain).collect();
                fields.extend([OwnedFrame::Null, number(1)]);
                // The role, the mode, the eviction policy or the version.
                fields[place - 3] = text;
                array(fields)
            });
            let mut answer = world.try_lock();
            told.push(answer.try_recv().unwrap().unwrap_err().to_string());
        }
        world.at(60_001);
        told.extend(world._engine.status().nodes().iter().map(ToString::to_string));
        for text in told {
            prop_assert!(text.len() < 2_000, "{} bytes", text.len());
            prop_assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}

/// The fault is the node's, not the caller's: another attempt may succeed.
#[test]
fn an_error_answer_of_a_node_is_not_an_invalid_setting() {
    let mut world = World::witnessed(&[6_500, 7_300, 8_000]);
    let mut answer = world.bootstrap(Mode::New);
    world.until_sent();
    world
        .core
        .answered(1, [Err(Fault::Error("BUSY a script".into()))]);
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let told = error.report().unwrap().to_string();
    assert!(
        told.contains("n1: answered with an error: BUSY a script"),
        "{told}"
    );
    assert!(error.is_retryable() && error.retry_after() > Some(Duration::ZERO));

    let mut world = World::witnessed(&[6_500; 3]);
    world.at(1_200);
    for node in world.greeted() {
        world
            .core
            .answered(node, [Err(Fault::Error("NOPERM this user".into()))]);
    }
    let error = world
        .bootstrap(Mode::Forced)
        .try_recv()
        .unwrap()
        .unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let told = error.report().unwrap().nodes()[2].to_string();
    assert!(
        told.contains("n2: refused:") && told.contains("NOPERM"),
        "{told}"
    );
}

#[test]
fn missing_random_bits_are_a_system_error() {
    let mut world = World::new(3);
    world.core.set_chance(Chance::Dry);
    let error = world.try_lock().try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::System(_)), "{error}");
    assert!(world.sent().is_empty(), "nobody was asked");
    assert_eq!((left(&world), error.retry_after()), (0, None));
    world.core.set_chance(Chance::seeded(2));
    world.try_lock();
    assert_eq!(world.sent().len(), 3, "and it goes on");
}

#[test]
fn a_handle_asks_for_more_than_the_greatest_counter_it_was_told_of() {
    const GREATEST: u64 = 1 << 52;
    let mut world = World::new(3);
    let seen = Arc::new(AtomicU64::new(0));
    let _first = world.ask(|acquisition| acquisition.request.seen = Arc::clone(&seen));
    let refused = Answer::Held {
        which: None,
        remaining: None,
        counter: GREATEST,
        holder: None,
        ticket: 0,
    };
    world.says(1, refused);
    while world.core.next_effect().is_some() {}
    let _second = world.ask(|acquisition| acquisition.request.seen = Arc::clone(&seen));
    let sent = world.until_sent();
    let floor = |(_, command): &(usize, Command)| match command.request()?.verb {
        Verb::Acquire { floor, .. } => Some(floor),
        _ => None,
    };
    let floors: Vec<_> = sent.iter().filter_map(floor).collect();
    assert_eq!(floors, [GREATEST + 1; 3]);
}

/// Many answers are read together. The time after the last of them decides.
#[test]
fn a_vote_is_judged_by_a_clock_that_is_read_after_it() {
    let mut world = World::new(1);
    let mut answers = [world.try_lock(), world.try_lock()];
    world.sent();
    let clock = Arc::clone(&world.clock);
    let over = clock.now().plus(Duration::from_secs(10));
    let read = [false, true].into_iter().map(|last| {
        if last {
            clock.set(over, 0);
        }
        Ok(Answer::Granted(7))
    });
    world.core.answered(0, read);
    for answer in &mut answers {
        let told = answer.try_recv().unwrap();
        assert!(matches!(told, Err(Error::TooSlow(_))), "{told:?}");
    }
}

/// The process may be paused between two answers that it reads together. A memory counts as watched only since its
/// record was read. It may have been emptied in the meantime, and would otherwise vote too early.
#[test]
fn a_memory_is_not_watched_from_before_its_record_was_read() {
    let mut world = World::new(1);
    let _asked = [world.try_lock(), world.try_lock()];
    let refusal = || Err(crate::node::Fault::NotAdmitted);
    world.core.answered(0, [refusal()]);
    world.sent();
    // In flight: the second ACQUIRE, and a handshake.
    let (clock, met) = (Arc::clone(&world.clock), world.met(0));
    let stopped = clock.now().plus(Duration::from_secs(20));
    let read = [refusal(), Ok(met)].into_iter().enumerate();
    let read = read.map(|(place, answer)| {
        if place == 1 {
            clock.set(stopped, 0);
        }
        answer
    });
    world.core.answered(0, read);
    world.sent();
    let _asked = world.try_lock();
    world.core.answered(0, [refusal()]);
    let last = std::iter::from_fn(|| world.core.next_effect()).last();
    let Some(Effect::Send(_, operation, _)) = last else {
        panic!("{last:?}");
    };
    match operation.command() {
        Command::Admission(admission::Command::Handshake(hello)) => {
            assert_eq!(hello.witnessed, world.witnessed[0]);
        }
        other => panic!("{other:?}"),
    }
}

/// A request that waits for others to join it must not be alone, and there must not be enough of them yet.
#[test]
fn requests_are_gathered_only_while_somebody_waits_for_others() {
    let mut world = World::new(3);
    let ask = |world: &mut World| {
        let answer = world.try_lock();
        while world.core.next_effect().is_some() {}
        answer
    };
    assert!(!world.core.may_gather(3), "nothing is there to be sent");
    let mut first = ask(&mut world);
    assert!(!world.core.may_gather(3), "it is alone");
    world.core.mark_written();
    assert!(!world.core.may_gather(3), "all has left");
    let _others = [ask(&mut world), ask(&mut world)];
    assert!(world.core.may_gather(3));
    let _enough = ask(&mut world);
    assert!(!world.core.may_gather(3), "it is enough");
    world.core.mark_written();
    for node in 0..2 {
        let all = (0..4).map(|_| Ok(Answer::Granted(7)));
        world.core.answered(node, all);
    }
    assert!(first.try_recv().is_ok());
    let _alone = ask(&mut world);
    assert!(
        !world.core.may_gather(3),
        "the third's answers are not waited for"
    );
}
