//! The core on its own: answers in an order that real nodes seldom give.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use super::{core::Core, *};
use crate::{
    clock::{ManualClock, Tick},
    node::{
        Command, Disconnected, Reply as Said,
        admission::{BootRecord, FORMAT, Meeting, Server, run},
        session::Effect,
    },
    owner::{Chance, Label},
    rules::Rules,
    settings::Settings,
};

struct World {
    core: Core,
    clock: Arc<ManualClock>,
    _engine: Engine,
    _events: mpsc::UnboundedReceiver<Event>,
}

impl World {
    /// n nodes that vote.
    fn new(n: usize) -> Self {
        let clock = Arc::new(ManualClock::default());
        let nodes: Vec<Arc<str>> = (0..n).map(|i| format!("n{i}").into()).collect();
        let shared: Arc<dyn Clock> = clock.clone();
        let status = Arc::new(Status::new(Arc::clone(&shared), &nodes));
        let (engine, events) = Engine::new(status, shared);
        let settings = Settings {
            nodes,
            node_timeout: Duration::from_millis(500),
            max_ttl: Duration::from_secs(30),
            margin: Duration::from_secs(5),
            label: Label::new("test").unwrap(),
            allow_eviction: false,
            rules: Rules::ALL,
        };
        let core = Core::new(Arc::new(settings), Chance::seeded(1), &engine);
        let mut world = Self {
            core,
            clock,
            _engine: engine,
            _events: events,
        };
        world.at(0);
        for node in 0..n {
            world.core.connected(node, 7);
            world.meet(node, n);
        }
        world.sent();
        world
    }

    fn at(&mut self, ms: u64) {
        self.clock.set(
            Tick::from_nanos(1_000_000_000_000 + ms * 1_000_000),
            1_700_000_000_000_000 + ms * 1000,
        );
        self.core.tick(self.clock.now());
    }

    fn meet(&mut self, node: usize, fleet: usize) {
        let run = run(&format!("r{node}"), "0000000000", "-1");
        let server = Server {
            run: run.clone(),
            role: "master".into(),
            mode: "standalone".into(),
            eviction: "noeviction".into(),
            version: "7.0.15".into(),
            time: 1,
        };
        let record = Some(BootRecord {
            format: FORMAT,
            fleet: fleet as u64,
            run,
            id: "i".into(),
            max_ttl: Duration::from_secs(30),
            witnessed: 35_300,
            since: 0,
        });
        let meeting = Meeting {
            server,
            record,
            open: true,
        };
        self.core.answered(node, Ok(Said::Met(Box::new(meeting))));
    }

    fn try_lock(&mut self) -> oneshot::Receiver<Result<Option<Lease>, Error>> {
        let (reply, answer) = oneshot::channel();
        self.core.event(Event::Acquire(Wish {
            id: 1_000_000,
            name: Name::new("a").unwrap(),
            ttl: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            renewal: Renewal::off(),
            patience: Patience::Try,
            seen: Arc::new(AtomicU64::new(0)),
            reply,
        }));
        answer
    }

    /// What went out: the node, and R for RELEASE, T for RAISE, A for ACQUIRE.
    fn sent(&mut self) -> Vec<(usize, char)> {
        let effects: Vec<Effect> = std::iter::from_fn(|| self.core.next_effect()).collect();
        self.core.left();
        let effects = effects.into_iter();
        effects
            .filter_map(|effect| match effect {
                Effect::Send(node, batch) => match batch.commands() {
                    [Command::Acquire { .. }] => Some((node, 'A')),
                    [Command::Raise { .. }] => Some((node, 'T')),
                    [Command::Release { .. }] => Some((node, 'R')),
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }
}

fn held() -> Said {
    Said::Held {
        remaining: Some(Duration::from_secs(1)),
        counter: 6,
    }
}

/// Two holders otherwise: the RELEASEs are on their way when the deciding vote comes.
#[test]
fn an_attempt_that_was_rolled_back_is_not_won_by_a_late_vote() {
    let mut world = World::new(5);
    let mut answer = world.try_lock();
    assert_eq!(world.sent().len(), 5);
    world.at(280);
    world.core.answered(0, Ok(Said::Granted(7)));
    world.core.answered(1, Ok(Said::Granted(8)));
    world.core.answered(3, Ok(held()));
    world.at(300);
    world.core.answered(2, Ok(Said::Granted(7)));
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
    assert_eq!(
        released,
        [(1, 'R'), (2, 'R'), (3, 'R'), (4, 'R')],
        "rolled back"
    );
    world.at(520);
    world.core.answered(4, Ok(Said::Granted(8)));
    world.core.answered(2, Ok(Said::Raised(8)));
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
    world.core.answered(0, Ok(Said::Granted(7)));
    world.core.answered(1, Ok(Said::Granted(8)));
    world.at(21);
    assert_eq!(world.sent(), [(0, 'T')], "one more reply time, then raised");
    world.core.answered(2, Ok(Said::Granted(5)));
    assert_eq!(world.sent(), [(2, 'T')]);
    world.core.answered(0, Ok(Said::Lost));
    world.core.answered(2, Ok(Said::Raised(8)));
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(lease.token().as_u64(), 8);
}

#[test]
fn two_that_shut_down_are_told_the_same() {
    let mut world = World::new(1);
    let mut answer = world.try_lock();
    world.core.answered(0, Ok(Said::Granted(7)));
    let _lease = answer.try_recv().unwrap().unwrap().unwrap();
    let mut told = Vec::new();
    for within in [5, 9] {
        let (reply, answer) = oneshot::channel();
        world.core.event(Event::Shutdown {
            within: Duration::from_secs(within),
            reply,
        });
        told.push(answer);
    }
    assert!(
        told.iter_mut().all(|answer| answer.try_recv().is_err()),
        "a lease is held"
    );
    world.at(5_000);
    for mut answer in told {
        assert_eq!(answer.try_recv().unwrap(), ["a"]);
    }
}

#[test]
fn a_node_that_was_flushed_does_not_make_a_release_lost() {
    let mut world = World::new(1);
    let mut answer = world.try_lock();
    world.core.answered(0, Ok(Said::Granted(7)));
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    let (reply, mut inspected) = oneshot::channel();
    world.core.event(Event::Inspect {
        name: Name::new("a").unwrap(),
        reply,
    });
    world.core.answered(0, Err(crate::node::Fault::NotAdmitted));
    assert!(inspected.try_recv().is_ok());
    let id = *world.core.leases.keys().next().unwrap();
    let (reply, mut released) = oneshot::channel();
    world.core.event(Event::Release {
        lease: id,
        reply: Some(reply),
    });
    world.sent();
    // The handshake that NOT_ADMITTED asked for is answered by an error, the RELEASE by "not yours".
    world
        .core
        .answered(0, Err(crate::node::Fault::Error("BUSY".into())));
    world.core.answered(0, Ok(Said::Released(false)));
    let answer = released.try_recv().unwrap();
    assert!(matches!(answer, Err(Error::NoQuorum(_))), "{answer:?}");
    std::mem::forget(lease);
}

/// No answer: neither a reply nor an error yet.
fn is_open<T>(answer: &mut oneshot::Receiver<T>) -> bool {
    matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
}

impl World {
    /// The process stands still: the clock goes on, and nobody looks.
    fn pause_until(&mut self, ms: u64) {
        self.clock.set(
            Tick::from_nanos(1_000_000_000_000 + ms * 1_000_000),
            1_700_000_000_000_000 + ms * 1000,
        );
    }

    fn inspect(&mut self) -> oneshot::Receiver<Result<Inspection, Error>> {
        let (reply, answer) = oneshot::channel();
        let name = Name::new("a").unwrap();
        self.core.event(Event::Inspect { name, reply });
        answer
    }

    fn lease(&mut self) -> (Lease, u64) {
        let mut answer = self.try_lock();
        self.sent();
        for node in 0..3 {
            self.core.answered(node, Ok(Said::Granted(7)));
        }
        let lease = answer.try_recv().unwrap().unwrap().unwrap();
        (lease, *self.core.leases.keys().next().unwrap())
    }
}

#[test]
fn an_attempt_waits_from_when_its_requests_left() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.pause_until(3_000);
    world.sent();
    world.at(3_499);
    assert!(is_open(&mut answer));
    world.at(3_500);
    assert!(matches!(answer.try_recv(), Ok(Err(Error::NoQuorum(_)))));
}

#[test]
fn a_deadline_counts_once_the_sockets_were_looked_at() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    world.pause_until(9_000);
    let seen = |ms: u64| Tick::from_nanos(1_000_000_000_000 + ms * 1_000_000);
    world.core.tick(seen(499));
    assert!(is_open(&mut answer));
    world.core.answered(0, Ok(Said::Granted(7)));
    world.core.tick(seen(500));
    assert!(matches!(answer.try_recv(), Ok(Err(Error::NoQuorum(_)))));
}

#[test]
fn every_task_waits_from_when_its_requests_left() {
    let mut world = World::new(3);
    let mut inspected = world.inspect();
    world.pause_until(2_000);
    world.sent();
    world.at(2_499);
    assert!(is_open(&mut inspected));
    world.at(2_500);
    assert!(inspected.try_recv().is_ok());

    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    let (reply, mut extended) = oneshot::channel();
    world.core.event(Event::Extend { lease: id, reply });
    world.pause_until(2_000);
    world.sent();
    world.at(2_499);
    assert!(is_open(&mut extended));
    world.at(2_500);
    assert!(matches!(extended.try_recv(), Ok(Err(Error::NoQuorum(_)))));

    let mut world = World::new(3);
    let (lease, id) = world.lease();
    let (reply, mut released) = oneshot::channel();
    let reply = Some(reply);
    world.core.event(Event::Release { lease: id, reply });
    world.pause_until(2_000);
    world.sent();
    world.at(2_499);
    assert!(is_open(&mut released));
    world.at(2_500);
    assert!(matches!(released.try_recv(), Ok(Err(Error::NoQuorum(_)))));
    std::mem::forget(lease);
}

/// Who answers everything in time is waited for beside others that do not.
#[test]
fn a_late_node_does_not_make_the_others_late() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    // This one's requests leave later than the others'.
    world.core.disconnected(2, &Disconnected("died".into()));
    world.at(499);
    assert!(is_open(&mut answer));
    world.core.answered(0, Ok(Said::Granted(7)));
    world.at(500);
    assert!(matches!(answer.try_recv(), Ok(Err(Error::NoQuorum(_)))));
}

#[test]
fn requests_wait_while_open_is_being_restored() {
    let mut world = World::new(3);
    let (_lease, _) = world.lease();
    let mut first = world.try_lock();
    world.sent();
    for node in 0..3 {
        world
            .core
            .answered(node, Err(crate::node::Fault::NotAdmitted));
    }
    // Its next attempt waits like whoever asks now.
    let mut second = world.inspect();
    world.sent();
    world.at(400);
    assert!(is_open(&mut first) && is_open(&mut second));
    assert_eq!(world.sent(), []);
    world.meet(0, 3);
    assert_eq!(world.sent(), [], "one votes");
    world.meet(1, 3);
    let asked: Vec<_> = world
        .sent()
        .into_iter()
        .filter(|(_, k)| *k == 'A')
        .collect();
    assert_eq!(asked, [(0, 'A'), (1, 'A')]);
    for node in 0..2 {
        world.core.answered(node, Ok(Said::Released(false)));
        let (holder, counter) = (None, 7);
        world
            .core
            .answered(node, Ok(Said::Inspected { holder, counter }));
        world.core.answered(node, Ok(Said::Granted(8)));
    }
    assert!(matches!(first.try_recv(), Ok(Ok(Some(_)))));
}

#[test]
fn requests_do_not_wait_longer_than_for_an_answer() {
    let mut world = World::new(3);
    let _other = world.inspect();
    world.sent();
    for node in 0..3 {
        world
            .core
            .answered(node, Err(crate::node::Fault::NotAdmitted));
    }
    world.sent();
    world.at(100);
    let mut answer = world.try_lock();
    world.at(499);
    assert!(is_open(&mut answer));
    world.at(500);
    let answer = answer.try_recv();
    assert!(
        matches!(answer, Ok(Err(Error::NoQuorum(_)))),
        "the handshakes are late"
    );
}
