//! The queue, to the millisecond.

use std::sync::Arc;

use super::*;
use crate::node::{
    mutex::cases::Queued,
    push::{Push, Says},
    request::Waiting,
};

const CHANNEL: &str = "here";

/// S is 1 s, the life 3 s, the claim 50 ms.
fn place(seq: u64, ticket: u64) -> Place {
    Place {
        seq,
        ticket,
        only_last: false,
        term: ms(1000),
        lock_delay: ms(7),
        life: ms(3000),
        claim: ms(50),
        channel: CHANNEL.into(),
    }
}

fn join((owner, place): &Queued) -> Command {
    let join = Verb::Acquire {
        ttl: ms(20_000),
        floor: 0,
        wait: Waiting::Queue(place.clone()),
    };
    request(*owner, join)
}

/// A node whose channel is listened to. Owner 1 holds the lock for a minute, and these wait since T.
fn waited_for(places: &[Queued]) -> Node {
    let mut node = Node::new(Rules::ALL);
    node.air.subscribe(&CHANNEL.into());
    node.ask(&acquire(1, 60_000, 0), T);
    for place in places {
        let reply = node.ask(&join(place), T);
        assert!(matches!(reply, Answer::InLine { .. }), "{reply:?}");
    }
    node
}

fn heard(node: &mut Node) -> Vec<(Entry, Says)> {
    let told = node
        .air
        .take()
        .into_iter()
        .map(|(channel, Push { entry, says })| {
            assert_eq!(channel, Arc::from(CHANNEL));
            (entry, says)
        });
    told.collect()
}

fn after(n: u64) -> u64 {
    T + n * 1000
}

#[test]
fn a_head_is_handed_the_lock_while_it_is_fresh_and_called_while_it_lives() {
    let granted = Says::Granted {
        seq: 4,
        token: 2,
        guard: GUARD.into(),
    };
    for (waited, says, left) in [
        (500, Some(granted), Some(ms(1007))),
        (501, Some(Says::Called), None),
        (3000, Some(Says::Called), None),
        (3001, None, None),
    ] {
        let node = &mut waited_for(&[(2, place(4, 50))]);
        node.ask(&release(1), after(waited));
        let told: Vec<_> = says.map(|says| (entry(2), says)).into_iter().collect();
        assert_eq!(heard(node), told, "{waited}");
        let time = after(waited);
        let locks = node.memory.locks(time).map(|(_, _, left)| left);
        assert_eq!(locks.collect::<Vec<_>>(), Vec::from_iter(left), "{waited}");
    }
}

#[test]
fn a_new_waiter_is_not_told_that_it_is_next_for_a_quarter_of_s() {
    let place = |owner: u128, seq, term| {
        let place = Place {
            term: ms(term),
            ..place(seq, 40 + 10 * owner as u64)
        };
        (owner, place)
    };
    for (seq, term, head, later, is_told) in [
        (1, 1000, 1000, 0, false),
        (1, 1000, 1000, 250, false),
        (1, 1000, 1000, 251, true),
        (2, 1000, 1000, 0, true),
        // It asks again at the latest when the term of the hand-over ends.
        (1, 4000, 1000, 0, false),
        (1, 4001, 1000, 0, true),
        // The head is not fresh, and has 50 ms to come.
        (1, 200, 20, 11, false),
        (1, 201, 20, 11, true),
    ] {
        let node = &mut waited_for(&[place(2, 4, head), place(3, seq, term)]);
        node.ask(&release(1), after(later));
        let told: Vec<_> = heard(node).into_iter().map(|(entry, _)| entry).collect();
        let wanted = if is_told {
            vec![entry(2), entry(3)]
        } else {
            vec![entry(2)]
        };
        assert_eq!(told, wanted, "{seq} {term} {later}");
    }
    // After the clock went back, the node does not know when the waiter came.
    let node = &mut waited_for(&[place(2, 4, 1000), place(3, 1, 1000)]);
    node.ask(&release(1), T - 1000);
    assert_eq!(heard(node).len(), 2);
}

#[test]
fn a_reservation_runs_for_the_claim() {
    // The last case is a clock that went back.
    for (then, kept) in [(649, true), (650, false), (599, false)] {
        let node = &mut waited_for(&[(2, place(4, 50)), (3, place(1, 60))]);
        node.ask(&release(1), after(600));
        let next = Says::Next { after: ms(50) };
        assert_eq!(heard(node), [(entry(2), Says::Called), (entry(3), next)]);
        let reply = node.ask(&acquire(9, 10, 0), after(then));
        let (holder, remaining) = match kept {
            true => (entry(2), ms(1)),
            // Waiter 3 is not fresh either, and is called.
            false => (entry(3), ms(50)),
        };
        let held = Answer::Held {
            which: None,
            remaining: Some(remaining),
            counter: 1,
            holder: Some(holder.text()),
            ticket: 60,
        };
        assert_eq!(reply, held, "{then}");
    }
}

#[test]
fn a_queue_lasts_four_lives_and_is_looked_for_as_long() {
    for (later, waiting) in [(12_000, 1), (12_001, 0)] {
        let node = &mut waited_for(&[(2, place(1, 50))]);
        match node.ask(&inspect(), after(later)) {
            Answer::InspectedMutex(it) => assert_eq!(it.waiting, waiting, "{later}"),
            other => panic!("{other:?}"),
        }
    }
    // A request with three lives left or more changes nothing. With less left, it makes the rest four lives again.
    for (beat, last) in [(3000, 12_000), (3001, 15_001)] {
        let node = &mut waited_for(&[(2, place(1, 50))]);
        node.ask(&join(&(2, place(2, 50))), after(beat));
        let there = |time| node.memory.lines.count(&name(), time / 1000);
        assert_eq!([there(after(last)), there(after(last + 1))], [1, 0]);
        let stand = |time| node.memory.lines.stand(time / 1000);
        assert_eq!([stand(after(last)), stand(after(last + 1))], [true, false]);
    }
}

/// Nothing is written for a head that was not told, and the release happens nevertheless.
#[test]
fn a_full_server_that_has_not_written_serves_nobody() {
    let node = &mut waited_for(&[(2, place(1, 50))]);
    node.ask(&evict(), T);
    let held = Answer::Held {
        which: None,
        remaining: Some(Duration::ZERO),
        counter: 1,
        holder: None,
        ticket: 50,
    };
    let full = node.try_ask(&acquire(9, 10, 0), T, Writes::Small);
    assert_eq!(full, Ok(held));
    assert_eq!(heard(node), []);
    assert_eq!(node.memory.locks(T).count(), 0);
    // UNLINK of old counters comes first. A full server permits it, and then every write after it.
    node.counters.set_begun(T - TWO_DAYS_US - 1);
    let full = node.try_ask(&acquire(9, 10, 0), T, Writes::Small);
    assert!(
        matches!(full, Ok(Answer::Held { ticket: 50, .. })),
        "{full:?}"
    );
    assert_eq!(heard(node).len(), 1);
}
