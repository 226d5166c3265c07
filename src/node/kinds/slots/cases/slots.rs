//! Slots are taken, kept, and expire.

use tokio::time::sleep;

use super::*;

fn with_ttl(mut command: Request, is: Duration) -> Request {
    if let Verb::Acquire { ttl, .. } | Verb::Extend { ttl, .. } = &mut command.verb {
        *ttl = is;
    }
    command
}

fn with_floor(mut command: Request, is: u64) -> Request {
    if let Verb::Acquire { floor, .. } = &mut command.verb {
        *floor = is;
    }
    command
}

pub(super) async fn a_free_slot_is_taken_and_its_counter_grows(trial: &mut Trial<'_>) {
    // The wanted slot, or others in steps from there, wrapping around at the end. The steps here are 1, 2, 3 and 4.
    for (owner, want, slot) in [(1, 3, 3), (2, 3, 4), (3, 9, 1), (4, 13, 2), (5, 16, 0)] {
        let answer = ask(trial, pick(&(owner, seat(7)), 5, want)).await;
        assert_eq!(answer.mine, Some((slot, P)), "{owner}");
        assert!(answer.may_take && answer.taken.contains(&slot), "{owner}");
        assert_eq!((answer.version, answer.ticket), (0, 7));
        assert!(soon_free(answer.next_free, secs(15)));
    }
    let full = mine(trial, pick(&once(6), 5, 0)).await;
    assert_eq!(full, None);
    let all = [(0, 5), (1, 3), (2, 4), (3, 1), (4, 2)];
    assert_eq!(holders(trial).await, held_by(&all));
    assert_eq!(in_line(trial).await, owners(&[]));
    // Each slot has its own counter.
    say(trial, release(1)).await;
    assert_eq!(mine(trial, pick(&once(7), 5, 3)).await, Some((3, P + 1)));
    say(trial, release(2)).await;
    assert_eq!(mine(trial, pick(&once(8), 5, 4)).await, Some((4, P + 1)));
    // An entry that wants no slot takes none.
    say(trial, release(3)).await;
    let none = mine(trial, take(&once(9), 5, Mode::Pick, None)).await;
    assert_eq!(none, None);
    // Nor does an entry that wants one at the limit.
    assert_eq!(mine(trial, to(&once(9), 5, 5)).await, None);
    assert_eq!(trial.pushes().await, []);
}

pub(super) async fn a_free_slot_is_found_even_if_the_steps_miss_it(trial: &mut Trial<'_>) {
    // In steps of 2 among four slots: 0, 2, 0, 2 and so on. Then it takes the next free one.
    for (owner, want, slot) in [(1, 4, 0), (2, 4, 2), (3, 4, 1), (4, 4, 3)] {
        let taken = mine(trial, pick(&once(owner), 4, want)).await;
        assert_eq!(taken, Some((slot, P)), "{owner}");
    }
    // The largest possible semaphore: from the last slot, in steps of 1.
    for (owner, slot) in [(1, 65_535), (2, 0), (3, 1)] {
        let mut command = pick(&once(owner), 65_536, u32::MAX);
        let gatherers = Pool {
            family: Family::Gatherers,
            ..pool("a")
        };
        command.target = Target::Slot(gatherers, Some(u32::MAX));
        let taken = mine(trial, command).await;
        assert_eq!(taken, Some((slot, P)), "{owner}");
    }
}

pub(super) async fn each_semaphore_has_its_own_slots(trial: &mut Trial<'_>) {
    let of = |n: &str, family: Family, floor: u64| {
        let mut command = pick(&once(1), 2, 1);
        let name = name(n);
        command.target = Target::Slot(Pool { name, family }, Some(1));
        with_floor(command, floor)
    };
    let (permits, gatherers) = (Family::Permits, Family::Gatherers);
    for (n, family, floor) in [
        ("a", permits, 10),
        ("a", gatherers, 20),
        ("0:a", permits, 30),
        ("a\n\0:é b", permits, 40),
        ("a\n\0:é b", gatherers, 50),
    ] {
        let taken = mine(trial, of(n, family, floor)).await;
        assert_eq!(taken, Some((1, floor)), "{n:?} {family:?}");
    }
    assert_eq!(say(trial, release(1)).await, Answer::Released(true));
    for (n, family, token) in [("a", permits, 11), ("a", gatherers, 20)] {
        let taken = mine(trial, of(n, family, 0)).await;
        assert_eq!(taken, Some((1, token)), "{n:?} {family:?}");
    }
}

pub(super) async fn a_repeated_take_prolongs_and_never_shortens(trial: &mut Trial<'_>) {
    let one = (1, seat(7));
    assert_eq!(mine(trial, pick(&one, 3, 1)).await, Some((1, P)));
    for (seconds, mode, want, left) in [
        (20, Mode::Pick, Some(2), 20),
        (5, Mode::Move, None, 20),
        (5, Mode::Move, Some(1), 20),
        (5, Mode::Move, Some(3), 20),
    ] {
        let again = take(
            &(
                1,
                Seat {
                    ticket: 9,
                    ..one.1.clone()
                },
            ),
            3,
            mode,
            want,
        );
        let answer = ask(trial, with_ttl(again, secs(seconds))).await;
        assert_eq!(answer.mine, Some((1, P)), "{mode:?} {want:?}");
        assert!(answer.may_take);
        assert_eq!((answer.taken, answer.ticket), (vec![1], 7));
        assert!(soon_free(answer.next_free, secs(left)));
    }
    let left = inspected(trial).await.holders.pop().unwrap().remaining;
    assert!(about(left, secs(20)), "{left:?}");
}

pub(super) async fn a_move_takes_the_wanted_slot_in_place_of_the_old(trial: &mut Trial<'_>) {
    let one = (1, seat(7));
    mine(trial, pick(&one, 3, 0)).await;
    mine(trial, pick(&once(2), 3, 2)).await;
    let moved = ask(trial, to(&one, 3, 1)).await;
    assert_eq!(moved.mine, Some((1, P)));
    assert_eq!((moved.taken, moved.ticket), (vec![1, 2], 7));
    // It moves back and forth, each time with a new token.
    assert_eq!(mine(trial, to(&one, 3, 0)).await, Some((0, P + 1)));
    assert_eq!(mine(trial, to(&one, 3, 1)).await, Some((1, P + 1)));
    // Another owner has that slot.
    assert_eq!(mine(trial, to(&one, 3, 2)).await, Some((1, P + 1)));
    assert_eq!(holders(trial).await, held_by(&[(1, 1), (2, 2)]));
    // A waiter is told of the old slot.
    mine(trial, pick(&once(3), 3, 0)).await;
    mine(trial, wait(&(4, seat(50)), 3)).await;
    say(trial, release(2)).await;
    assert_eq!(trial.pushes().await, [free(4, 2)]);
    mine(trial, wait(&(4, seat(50)), 3)).await;
    assert_eq!(mine(trial, to(&one, 3, 2)).await, Some((2, P + 1)));
    assert_eq!(trial.pushes().await, [free(4, 1)]);
}

pub(super) async fn a_slot_ends_with_its_ttl(trial: &mut Trial<'_>) {
    let short = |owner, want| with_ttl(pick(&once(owner), 3, want), millis(600));
    for owner in 1..=3 {
        ask(trial, short(owner, owner as u32 - 1)).await;
    }
    let answer = ask(trial, wait(&once(4), 3)).await;
    // The ttl, rounded up.
    assert!(answer.next_free.unwrap() <= millis(600 + 1));
    sleep(millis(650)).await;
    assert_eq!(say(trial, raise(1, 0, P)).await, Answer::Lost);
    assert_eq!(say(trial, extend(1, 0, secs(9))).await, Answer::Lost);
    assert_eq!(say(trial, release(1)).await, Answer::Released(false));
    let asked = ask(trial, pick(&once(2), 3, 2)).await;
    assert_eq!(asked.mine, Some((2, P + 1)), "its own is over as well");
    assert_eq!(asked.taken, [2]);
    assert_eq!(holders(trial).await, held_by(&[(2, 2)]));
}

pub(super) async fn an_unused_semaphore_is_forgotten(trial: &mut Trial<'_>) {
    let ttl = millis(300);
    let brief = |command: Request| with_ttl(command, ttl);
    trial.restart_with(ttl).await;
    // A holder keeps the state alive, and so does a waiter.
    mine(trial, brief(pick(&once(1), 1, 0))).await;
    for _ in 0..27 {
        sleep(ttl / 6).await;
        let extended = say(trial, brief(extend(1, 0, secs(1)))).await;
        assert_eq!(extended, Answer::Extended);
    }
    let other = say(trial, brief(pick(&once(2), 2, 0))).await;
    assert_eq!(other, Answer::Conflict(slots(1)));
    for _ in 0..5 {
        sleep(ttl).await;
        ask(trial, brief(wait(&(3, seat(50)), 1))).await;
    }
    assert_eq!(in_line(trial).await, owners(&[3]));
    sleep(ttl * 4 + millis(50)).await;
    assert_eq!(inspected(trial).await, PoolInspection::default());
    let taken = mine(trial, pick(&once(2), 2, 0)).await;
    assert_eq!(taken.map(|(slot, _)| slot), Some(0));
}

/// For units of a rate limit, which are taken for longer than the fleet's longest ttl.
pub(super) async fn a_units_counter_stays_near_the_clock_too(trial: &mut Trial<'_>) {
    let units = Pool {
        family: Family::Units {
            kept: secs(3_600),
            history: Duration::ZERO,
        },
        ..pool("a")
    };
    let mut command = with_floor(pick(&once(1), 1, 0), u64::MAX);
    command.target = Target::Slot(units.clone(), Some(0));
    let from = trial.wall_us().await + 20_000_000;
    let (_, token) = mine(trial, command).await.unwrap();
    let until = trial.wall_us().await + 20_000_000 + 1000;
    assert!((from..until).contains(&token), "{token} from {from}");
    let minute = 60_000_000;
    let mut command = raise(1, 0, MAX_TOKEN);
    command.target = Target::Slot(units, Some(0));
    let Answer::Raised(raised) = say(trial, command).await else {
        panic!()
    };
    let until = trial.wall_us().await + 20_000_000 + minute + 1000;
    assert!((from + minute..until).contains(&raised), "{raised}");
}

pub(super) async fn a_slots_counter_stays_near_the_clock(trial: &mut Trial<'_>) {
    let command = with_floor(pick(&once(1), 1, 0), u64::MAX);
    let from = trial.wall_us().await + 20_000_000;
    let (_, token) = mine(trial, command).await.unwrap();
    let until = trial.wall_us().await + 20_000_000 + 1000;
    assert!((from..until).contains(&token), "{token} from {from}");
    let minute = 60_000_000;
    let Answer::Raised(raised) = say(trial, raise(1, 0, MAX_TOKEN)).await else {
        panic!()
    };
    let until = trial.wall_us().await + 20_000_000 + minute + 1000;
    assert!((from + minute..until).contains(&raised), "{raised}");
}
