//! Queues: which nodes are asked for what, and what follows from their answers.

mod entering;

use super::*;
use crate::{
    Renewal,
    node::{Fault, Incoming, Push, Says, answer::Ahead},
};

const ALL: [usize; 3] = [0, 1, 2];
/// The guard of every node in these tests.
const GUARD: &str = "30000 3 3 word 5000 i";

fn all(letter: char) -> Vec<(usize, char)> {
    ALL.map(|node| (node, letter)).to_vec()
}

fn in_line() -> Answer {
    Answer::InLine {
        rank: 0,
        ahead: Ahead {
            remaining: Some(Duration::from_secs(5)),
            ticket: 0,
            holder: Some("0123456789abcdef0123456789abcdef@web-1:77".into()),
            is_reserved: false,
        },
    }
}

impl World {
    /// An acquisition that is registered on three nodes by its first request. Returns that request.
    fn waits(&mut self, renewal: Renewal) -> (Answered, (Entry, Place)) {
        let wait = Wait::For(None);
        let answer = self.ask(|acquisition| {
            (
                acquisition.id,
                acquisition.request.wait,
                acquisition.request.renewal,
            ) = (AcquisitionId::of_call(1), wait, renewal);
        });
        assert_eq!(self.sent(), all('A'));
        ALL.iter().for_each(|node| {
            self.core.answered(*node, [Ok(held())]);
        });
        let place = self.place();
        ALL.iter().for_each(|node| self.says(*node, in_line()));
        (answer, place)
    }

    /// The attempt is taken back from the node that has not refused it. The JOIN follows.
    fn place(&mut self) -> (Entry, Place) {
        let mut place = None;
        let mut kinds = Vec::new();
        for effect in std::iter::from_fn(|| self.core.next_effect()).collect::<Vec<_>>() {
            if let Effect::Send(_, operation, _) = effect {
                kinds.push(letter(&operation.command().request().unwrap().verb));
                place = joins(operation.command()).or(place);
            }
        }
        self.core.mark_written();
        assert_eq!(kinds, ['R', 'J', 'J', 'J'], "{kinds:?}");
        self.says(2, Answer::Released(false));
        place.unwrap()
    }

    fn pushes(&mut self, node: usize, (entry, _): &(Entry, Place), says: Says) {
        let entry = entry.clone();
        self.core.came(node, [Incoming::Push(Push { entry, says })]);
    }
}

fn handed(token: u64) -> Says {
    handed_by(1, token)
}

fn handed_by(seq: u64, token: u64) -> Says {
    let guard = GUARD.into();
    Says::Granted { seq, token, guard }
}

#[test]
fn a_refused_acquisition_queues_and_is_granted_by_two_pushes() {
    let mut world = World::new(3);
    let (mut answer, place) = world.waits(Renewal::auto());
    assert_eq!((place.1.seq, &*place.1.channel), (1, "quorate:wake:test"));
    world.at(100);
    world.pushes(1, &place, handed(7));
    assert!(is_open(&mut answer));
    world.pushes(1, &place, handed(7));
    assert!(is_open(&mut answer), "the same again");
    world.pushes(2, &place, handed(7));
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(lease.token().as_u64(), 7);
    // Until it is confirmed the lease is good for its term, counted from the JOIN.
    assert_eq!(lease.validity(), Duration::from_millis(1_000 - 12 - 100));
    // The EXTEND is sent after a hundredth of that, because the caller's work may be done by then.
    world.at(108);
    assert_eq!(world.sent(), []);
    world.at(109);
    assert_eq!(world.sent(), all('E'));
    world.says(0, Answer::Lost);
    world.says(1, Answer::Extended);
    world.says(2, Answer::Extended);
    assert!(lease.validity() > Duration::from_secs(8));
    assert_eq!(
        world.sent(),
        [(0, 'P')],
        "put back where it was not handed over"
    );
    drop(lease);
}

#[test]
fn a_lease_that_is_not_confirmed_is_over_with_its_term() {
    let mut world = World::new(3);
    let (mut answer, place) = world.waits(Renewal::auto());
    world.pushes(1, &place, handed(7));
    world.pushes(2, &place, handed(7));
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    world.at(937);
    assert!(lease.is_valid());
    world.at(938);
    assert!(!lease.is_valid(), "50 ms before the end of its term");
}

#[test]
fn without_renewal_the_lease_is_returned_once_confirmed() {
    let mut world = World::new(3);
    let (mut answer, place) = world.waits(Renewal::off());
    world.pushes(1, &place, handed(7));
    world.pushes(2, &place, handed(7));
    assert!(is_open(&mut answer));
    assert_eq!(world.sent(), all('E'));
    world.says(1, Answer::Extended);
    world.says(2, Answer::Extended);
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert!(lease.validity() > Duration::from_secs(8));

    // No node confirms it.
    let mut world = World::new(3);
    let (mut answer, place) = world.waits(Renewal::off());
    world.pushes(1, &place, handed(7));
    world.pushes(2, &place, handed(7));
    world.at(1_000);
    let told = answer.try_recv().unwrap();
    assert!(matches!(told, Err(Error::TooSlow(_))), "{told:?}");
}

#[test]
fn a_push_to_nobody_or_by_an_unknown_request_changes_nothing() {
    let mut world = World::new(3);
    let (mut answer, place) = world.waits(Renewal::auto());
    let mut other = place.clone();
    other.0 = Entry::read("0123456789abcdef0123456789abcdef@web-1:77").unwrap();
    for node in ALL {
        world.pushes(node, &other, handed(7));
        world.pushes(node, &place, handed_by(9, 7));
    }
    assert!(is_open(&mut answer));
}

#[test]
fn hand_over_with_another_guard_is_ignored() {
    let mut world = World::new(3);
    let (mut answer, place) = world.waits(Renewal::auto());
    for node in ALL {
        let (seq, token, guard) = (1, 7, "30000 3 3 word 5000 j".into());
        world.pushes(node, &place, Says::Granted { seq, token, guard });
    }
    assert!(is_open(&mut answer));
    world.pushes(0, &place, handed(7));
    world.pushes(1, &place, handed(7));
    assert!(!is_open(&mut answer));
}

#[test]
fn a_cancelled_waiter_leaves_every_node_that_it_asked() {
    let mut world = World::new(3);
    let (answer, place) = world.waits(Renewal::auto());
    drop(answer);
    world.core.event(Event::Cancel(AcquisitionId::of_call(1)));
    assert_eq!(world.sent(), all('R'));
    world.pushes(0, &place, handed(7));
    assert_eq!(world.sent(), [], "what comes later finds nobody");
    ALL.iter()
        .for_each(|node| world.says(*node, Answer::Released(true)));
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn queued_caller_that_is_gone_leaves_at_the_next_push() {
    let mut world = World::new(3);
    let (answer, place) = world.waits(Renewal::auto());
    drop(answer);
    world.pushes(1, &place, handed(7));
    assert_eq!(world.sent(), all('R'));
    world.core.event(Event::Cancel(AcquisitionId::of_call(1)));
    assert_eq!(world.sent(), []);
}

#[test]
fn waiters_register_again_on_a_node_that_comes_back() {
    let mut world = World::new(3);
    let (_answer, place) = world.waits(Renewal::auto());
    world.core.disconnected(1, &Disconnected("died".into()));
    world.sent();
    world.core.connected(1, 8, None, true);
    world.greeted();
    world.meet(1);
    let sent = world.until_sent();
    let again = sent
        .iter()
        .find_map(|(node, command)| Some((*node, joins(command)?)));
    let (node, (entry, again)) = again.unwrap();
    assert_eq!((node, again.ticket, again.seq), (1, place.1.ticket, 2));
    assert_eq!(entry, place.0);
}

/// A node that is back counts as one that hears the waiter, until it fails to answer.
#[test]
fn a_briefly_cut_off_waiter_does_not_leave_while_registering_again() {
    let mut world = World::new(3);
    let (_answer, _) = world.waits(Renewal::auto());
    world.at(300);
    assert_eq!(world.sent(), all('J'), "the head is heard of");
    world.says(0, in_line());
    for node in [1, 2] {
        world.dies(node);
    }
    world.sent();
    world.at(700);
    for node in [1, 2] {
        world.comes_back(node, TERMS.quarantine());
        assert!(world.sent().contains(&(node, 'J')));
    }
    world.at(1_100);
    let sent = world.sent();
    assert!(sent.iter().all(|(_, what)| *what != 'R'), "{sent:?}");
}

#[test]
fn a_node_that_cannot_call_is_told_no_channel() {
    let mut world = World::new(1);
    world.core.disconnected(0, &Disconnected("died".into()));
    world.sent();
    world.core.connected(0, 8, None, false);
    world.greeted();
    world.meet(0);
    let _answer = world.ask(|acquisition| acquisition.request.wait = Wait::For(None));
    world.until_sent();
    world.core.answered(0, [Ok(held())]);
    let sent = world.until_sent();
    let place = sent.iter().find_map(|(_, command)| joins(command));
    let channel = place.map(|(_, place)| place.channel);
    assert_eq!(channel.as_deref(), Some(""));
}

#[test]
fn tickets_grow_though_the_clock_stands_and_others_are_ahead() {
    let mut world = World::new(1);
    let mut last = 0;
    for id in 1..=3 {
        let _kept = world.ask(|acquisition| {
            (acquisition.id, acquisition.request.wait) =
                (AcquisitionId::of_call(id), Wait::For(None))
        });
        world.until_sent();
        let refused = Answer::Held {
            which: None,
            remaining: None,
            counter: 6,
            holder: None,
            ticket: if id == 2 { 1 << 52 } else { 5 },
        };
        world.says(0, refused);
        let sent = world.until_sent();
        let place = sent.iter().find_map(|(_, command)| joins(command));
        let (_, Place { ticket, .. }) = place.unwrap();
        assert!(ticket > last, "{ticket} after {last}");
        assert!(id < 2 || ticket > 1 << 52);
        last = ticket;
        world.says(0, Answer::Released(false));
        world.says(0, in_line());
        std::mem::forget(_kept);
    }
}
