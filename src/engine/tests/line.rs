//! Waiting in line: what is asked of whom, and what follows from what nodes say.

use super::*;
use crate::{
    Renewal,
    node::{Fault, Incoming, Push, Says, mutex::Ahead},
};

const ALL: [usize; 3] = [0, 1, 2];

fn all(letter: char) -> Vec<(usize, char)> {
    ALL.map(|node| (node, letter)).to_vec()
}

fn in_line() -> mutex::Reply {
    mutex::Reply::InLine {
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
    /// A wish that stands in line on three nodes by its first request: what it asked for.
    fn waits(&mut self, renewal: Renewal) -> (Answered, mutex::Place) {
        let wait = Wait::For(None);
        let answer = self.ask(|wish| {
            (wish.id, wish.wait, wish.renewal) = (WishId(1), wait, renewal);
        });
        assert_eq!(self.sent(), all('A'));
        ALL.iter().for_each(|node| {
            self.core.answered(*node, [Ok(held())]);
        });
        let place = self.place();
        ALL.iter().for_each(|node| self.says(*node, in_line()));
        (answer, place)
    }

    /// The attempt is taken back from the node that has not refused it, and behind that comes the JOIN.
    fn place(&mut self) -> mutex::Place {
        let mut place = None;
        let mut kinds = Vec::new();
        for effect in std::iter::from_fn(|| self.core.next_effect()).collect::<Vec<_>>() {
            if let Effect::Send(_, operation, _) = effect {
                match operation.command() {
                    Command::Mutex(mutex::Command::Release { .. }) => kinds.push('R'),
                    Command::Mutex(mutex::Command::Join { place: joined, .. }) => {
                        kinds.push('J');
                        place = Some(joined.clone());
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        self.core.left();
        assert_eq!(kinds, ['R', 'J', 'J', 'J'], "{kinds:?}");
        self.says(2, mutex::Reply::Released(false));
        place.unwrap()
    }

    fn pushes(&mut self, node: usize, place: &mutex::Place, says: Says) {
        let entry = place.entry.clone();
        self.core.came(node, [Incoming::Push(Push { entry, says })]);
    }
}

fn handed(token: u64) -> Says {
    Says::Granted {
        seq: 1,
        token,
        term: Duration::from_secs(1),
    }
}

#[test]
fn who_is_refused_takes_a_place_behind_its_rollback_and_is_granted_by_two_pushes() {
    let mut world = World::new(3);
    let (mut answer, place) = world.waits(Renewal::auto());
    assert_eq!((place.seq, &*place.channel), (1, "quorate:wake:test"));
    world.at(100);
    world.pushes(1, &place, handed(7));
    assert!(is_open(&mut answer));
    world.pushes(1, &place, handed(7));
    assert!(is_open(&mut answer), "the same again");
    world.pushes(2, &place, handed(7));
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(lease.token().as_u64(), 7);
    // It is good for its term, from the JOIN on, until it is confirmed.
    assert_eq!(lease.validity(), Duration::from_millis(1_000 - 12 - 100));
    // A hundredth of that later, as its section may be over by then.
    world.at(108);
    assert_eq!(world.sent(), []);
    world.at(109);
    assert_eq!(world.sent(), all('E'));
    world.says(0, mutex::Reply::Lost);
    world.says(1, mutex::Reply::Extended);
    world.says(2, mutex::Reply::Extended);
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
fn who_does_not_renew_gets_the_lease_when_it_is_confirmed() {
    let mut world = World::new(3);
    let (mut answer, place) = world.waits(Renewal::off());
    world.pushes(1, &place, handed(7));
    world.pushes(2, &place, handed(7));
    assert!(is_open(&mut answer));
    assert_eq!(world.sent(), all('E'));
    world.says(1, mutex::Reply::Extended);
    world.says(2, mutex::Reply::Extended);
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert!(lease.validity() > Duration::from_secs(8));

    // Nobody confirms it.
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
    other.entry = crate::owner::Entry::read("0123456789abcdef0123456789abcdef@web-1:77").unwrap();
    for node in ALL {
        world.pushes(node, &other, handed(7));
        let unknown = Says::Granted {
            seq: 9,
            token: 7,
            term: Duration::from_secs(1),
        };
        world.pushes(node, &place, unknown);
    }
    assert!(is_open(&mut answer));
}

#[test]
fn who_gives_up_leaves_every_node_that_it_asked() {
    let mut world = World::new(3);
    let (answer, place) = world.waits(Renewal::auto());
    drop(answer);
    world.core.event(Event::Cancel(WishId(1)));
    assert_eq!(world.sent(), all('R'));
    world.pushes(0, &place, handed(7));
    assert_eq!(world.sent(), [], "what comes later finds nobody");
    ALL.iter()
        .for_each(|node| world.says(*node, mutex::Reply::Released(true)));
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn a_node_that_comes_back_is_told_of_everybody_who_waits() {
    let mut world = World::new(3);
    let (_answer, place) = world.waits(Renewal::auto());
    world.core.disconnected(1, &Disconnected("died".into()));
    world.sent();
    world.core.connected(1, 8, None, true);
    world.greeted();
    world.meet(1);
    let sent = world.until_sent();
    let again = sent.iter().find_map(|(node, command)| match command {
        Command::Mutex(mutex::Command::Join { place, .. }) => Some((*node, place.clone())),
        _ => None,
    });
    let (node, again) = again.unwrap();
    assert_eq!((node, again.ticket, again.seq), (1, place.ticket, 2));
    assert_eq!(again.entry, place.entry);
}

#[test]
fn a_node_that_cannot_call_is_told_no_channel() {
    let mut world = World::new(1);
    world.core.disconnected(0, &Disconnected("died".into()));
    world.sent();
    world.core.connected(0, 8, None, false);
    world.greeted();
    world.meet(0);
    let _answer = world.ask(|wish| wish.wait = Wait::For(None));
    world.until_sent();
    world.core.answered(0, [Ok(held())]);
    let sent = world.until_sent();
    let channel = sent.iter().find_map(|(_, command)| match command {
        Command::Mutex(mutex::Command::Join { place, .. }) => Some(place.channel.clone()),
        _ => None,
    });
    assert_eq!(channel.as_deref(), Some(""));
}

#[test]
fn tickets_grow_though_the_clock_stands_and_others_are_ahead() {
    let mut world = World::new(1);
    let mut last = 0;
    for id in 1..=3 {
        let _kept = world.ask(|wish| (wish.id, wish.wait) = (WishId(id), Wait::For(None)));
        world.until_sent();
        let refused = mutex::Reply::Held {
            remaining: None,
            counter: 6,
            holder: None,
            ticket: if id == 2 { 1 << 52 } else { 5 },
        };
        world.says(0, refused);
        let sent = world.until_sent();
        let ticket = sent.iter().find_map(|(_, command)| match command {
            Command::Mutex(mutex::Command::Join { place, .. }) => Some(place.ticket),
            _ => None,
        });
        let ticket = ticket.unwrap();
        assert!(ticket > last, "{ticket} after {last}");
        assert!(id < 2 || ticket > 1 << 52);
        last = ticket;
        world.says(0, mutex::Reply::Released(false));
        world.says(0, in_line());
        std::mem::forget(_kept);
    }
}

impl World {
    /// One came through the line and has released: others may wait there. Its ticket.
    fn came_through(&mut self) -> u64 {
        let (mut answer, place) = self.waits(Renewal::auto());
        self.pushes(1, &place, handed(7));
        self.pushes(2, &place, handed(7));
        let _lease = answer.try_recv().unwrap().unwrap().unwrap();
        self.frees();
        place.ticket
    }

    fn frees(&mut self) {
        let id = self.core.first_lease().unwrap();
        let _released = self.release(id);
        assert_eq!(self.sent(), all('R'));
        let freed = mutex::Reply::Released(true);
        ALL.iter().for_each(|node| self.says(*node, freed.clone()));
    }

    fn wants_it_again(&mut self) -> Answered {
        let wait = Wait::For(None);
        self.ask(|wish| {
            (wish.id, wish.wait, wish.renewal) = (WishId(2), wait, Renewal::auto());
        })
    }

    /// The places that were asked for, and whether only as the last; after the RELEASEs that went before.
    fn joins(&mut self) -> (Vec<usize>, Vec<(mutex::Place, bool)>) {
        let (mut released, mut joins) = (Vec::new(), Vec::new());
        for (node, command) in self.until_sent() {
            match command {
                Command::Mutex(mutex::Command::Release { .. }) => released.push(node),
                Command::Mutex(mutex::Command::Join {
                    place, only_last, ..
                }) => joins.push((place, only_last)),
                other => panic!("{other:?}"),
            }
        }
        self.core.left();
        (released, joins)
    }
}

fn full() -> Fault {
    Fault::Error("OOM command not allowed".into())
}

fn others_are_ahead(ticket: u64) -> mutex::Reply {
    mutex::Reply::Held {
        remaining: Some(Duration::from_secs(1)),
        counter: 6,
        holder: Some("0123456789abcdef0123456789abcdef@web-1:77".into()),
        ticket,
    }
}

#[test]
fn where_others_wait_one_joins_at_once_and_behind_all_where_that_came_before_some() {
    let mut world = World::new(3);
    let before = world.came_through();
    let mut answer = world.wants_it_again();
    let (released, joins) = world.joins();
    assert_eq!((released.len(), joins.len()), (0, 3));
    assert!(
        joins
            .iter()
            .all(|(place, last)| *last && place.ticket > before)
    );
    let first = joins[0].0.clone();
    let far = first.ticket + 1_000_000;
    world.says(0, others_are_ahead(far));
    assert_eq!(world.sent(), []);
    world.says(1, others_are_ahead(5));
    // Only the node that has not answered may know that place.
    let (released, joins) = world.joins();
    assert_eq!((released, joins.len()), (vec![2], 3));
    for (place, last) in &joins {
        assert!(!last && place.ticket > far && place.entry != first.entry);
        assert_eq!(place.entry, joins[0].0.entry);
    }
    world.says(2, in_line());
    world.says(2, mutex::Reply::Released(false));
    ALL.iter().for_each(|node| world.says(*node, in_line()));
    let place = joins[0].0.clone();
    world.pushes(0, &place, handed(8));
    world.pushes(2, &place, handed(8));
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(lease.token().as_u64(), 8);
}

#[test]
fn a_lock_that_is_free_by_then_is_won_by_joining_and_nobody_is_expected_after_that() {
    let mut world = World::new(3);
    world.came_through();
    let mut answer = world.wants_it_again();
    assert_eq!(world.sent(), all('J'));
    let taken = mutex::Reply::Taken { counter: 8, seq: 1 };
    world.says(0, taken.clone());
    world.says(1, taken);
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(lease.token().as_u64(), 8);
    world.says(2, mutex::Reply::Taken { counter: 8, seq: 1 });
    world.sent();
    world.frees();
    let wait = Wait::For(None);
    let _kept = world.ask(|wish| (wish.id, wish.wait) = (WishId(3), wait));
    assert_eq!(world.sent(), all('A'));
}

#[test]
fn a_line_that_was_not_heard_of_for_a_second_is_not_expected() {
    for (ms, letter) in [(900, 'J'), (1_001, 'A')] {
        let mut world = World::new(3);
        world.came_through();
        world.at(ms);
        world.sent();
        let _kept = world.wants_it_again();
        assert_eq!(world.sent(), all(letter), "{ms}");
    }
}

#[test]
fn who_joins_at_once_and_is_not_heard_asks_as_if_nobody_waited() {
    let mut world = World::new(3);
    world.came_through();
    let mut answer = world.wants_it_again();
    assert_eq!(world.sent(), all('J'));
    world.core.answered(0, [Err(full())]);
    assert_eq!(world.sent(), []);
    world.core.answered(1, [Err(full())]);
    let sent = world.sent();
    assert_eq!(sent, [all('R'), all('A')].concat());
    // It is the first attempt, and fails as such.
    world.core.answered(0, [Err(full())]);
    for node in [0, 1] {
        world.core.answered(node, [Err(full())]);
        world.core.answered(node, [Err(full())]);
    }
    let told = answer.try_recv().unwrap();
    assert!(matches!(told, Err(Error::NoQuorum(_))), "{told:?}");
}

#[test]
fn one_attempt_is_never_a_place() {
    for wait in [Wait::Never, Wait::For(Some(Duration::ZERO))] {
        let mut world = World::new(3);
        world.came_through();
        let _kept = world.ask(|wish| (wish.id, wish.wait) = (WishId(2), wait));
        assert_eq!(world.sent(), all('A'), "{wait:?}");
    }
}

#[test]
fn of_a_crowd_that_joins_at_once_a_few_are_under_way_at_a_time() {
    let mut world = World::new(3);
    world.came_through();
    let wait = Wait::For(None);
    let _kept: Vec<_> = (2..100)
        .map(|id| world.ask(|wish| (wish.id, wish.wait) = (WishId(id), wait)))
        .collect();
    assert_eq!(world.sent().len(), 16 * 3);
    // Two nodes have given all of these their places: the next begin.
    for node in [0, 1] {
        for _ in 0..16 {
            world.says(node, in_line());
        }
    }
    world.at(1);
    assert_eq!(world.sent().len(), 16 * 3);
}

#[test]
fn nobody_joins_at_once_while_one_who_came_before_makes_an_attempt() {
    let mut world = World::new(3);
    let wait = Wait::For(None);
    let ask = |world: &mut World, id| {
        std::mem::forget(world.ask(|wish| (wish.id, wish.wait) = (WishId(id), wait)));
        world.sent()
    };
    assert_eq!(ask(&mut world, 1), all('A'));
    assert_eq!(ask(&mut world, 2), all('A'));
    // The first is refused, and stands in line: others wait there from now on.
    for node in [0, 1] {
        world.core.answered(node, [Ok(held())]);
    }
    assert_eq!(world.sent(), [vec![(2, 'R')], all('J')].concat());
    assert_eq!(
        ask(&mut world, 3),
        all('A'),
        "the second has not joined yet"
    );
}

#[test]
fn who_does_not_wait_for_a_place_any_more_leaves_room_for_others() {
    for hears_first in [false, true] {
        let mut world = World::new(3);
        world.came_through();
        let wait = Wait::For(None);
        for id in 2..18 {
            drop(world.ask(|wish| (wish.id, wish.wait) = (WishId(id), wait)));
        }
        assert_eq!(world.sent().len(), 16 * 3);
        if hears_first {
            (0..16).for_each(|_| world.says(0, in_line()));
        }
        for id in 2..18 {
            world.core.event(Event::Cancel(WishId(id)));
        }
        world.sent();
        let _kept = world.ask(|wish| (wish.id, wish.wait) = (WishId(18), wait));
        assert_eq!(world.sent(), all('J'), "{hears_first}");
    }
}
