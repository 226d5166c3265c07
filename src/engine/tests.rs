//! The core on its own: answers in an order that real nodes seldom give.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use proptest::prelude::*;
use redis_protocol::resp3::types::OwnedFrame;
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

type Answered = oneshot::Receiver<Result<Option<Lease>, Error>>;

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
        self.core.tick();
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

    fn try_lock(&mut self) -> Answered {
        self.ask(|_| {})
    }

    fn ask(&mut self, settings: impl FnOnce(&mut Wish)) -> Answered {
        let (reply, answer) = oneshot::channel();
        let mut wish = Wish {
            id: 1_000_000,
            name: Name::new("a").unwrap(),
            ttl: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            renewal: Renewal::off(),
            patience: Patience::Try,
            seen: Arc::new(AtomicU64::new(0)),
            reply,
        };
        settings(&mut wish);
        self.core.event(Event::Acquire(wish));
        answer
    }

    /// What node 0 was asked last, answered by this frame.
    fn answer_last(&mut self, frame: OwnedFrame) {
        let effects = std::iter::from_fn(|| self.core.next_effect());
        let sent = effects.filter_map(|effect| match effect {
            Effect::Send(0, batch) => batch.commands().last().cloned(),
            _ => None,
        });
        let command = sent.last().unwrap();
        self.core
            .answered(0, crate::node::redis::answer(&command, frame));
    }

    /// What went out: the node, and R for RELEASE, T for RAISE, A for ACQUIRE, E for EXTEND.
    fn sent(&mut self) -> Vec<(usize, char)> {
        let effects = std::iter::from_fn(|| self.core.next_effect());
        effects
            .filter_map(|effect| match effect {
                Effect::Send(node, batch) => match batch.commands() {
                    [Command::Acquire { .. }] => Some((node, 'A')),
                    [Command::Raise { .. }] => Some((node, 'T')),
                    [Command::Release { .. }] => Some((node, 'R')),
                    [Command::Extend { .. }] => Some((node, 'E')),
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

/// Longer than the lease is the node timeout: what is lost once would else be lost for good.
#[test]
fn a_short_lease_survives_a_lost_answer_to_its_renewal() {
    let mut world = World::new(3);
    let mut answer = world.ask(|wish| {
        wish.ttl = Duration::from_millis(600);
        wish.renewal = Renewal::auto();
    });
    for node in 0..3 {
        world.core.answered(node, Ok(Said::Granted(7)));
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    world.sent();
    world.at(200);
    assert_eq!(world.sent(), [(0, 'E'), (1, 'E'), (2, 'E')]);
    world.core.answered(0, Ok(Said::Extended));
    world.core.disconnected(1, &Disconnected("reset".into()));
    world.at(260);
    world.core.connected(1, 8);
    world.meet(1, 3);
    world.sent();
    world.at(399);
    assert_eq!(
        world.sent(),
        [(0, 'E'), (1, 'E'), (2, 'E')],
        "node 2 is silent"
    );
    world.core.answered(0, Ok(Said::Extended));
    world.core.answered(1, Ok(Said::Extended));
    world.at(590);
    assert!(lease.is_valid() && lease.validity() > Duration::from_millis(300));
    // The first one fails at last.
    world.at(720);
    assert!(lease.is_valid());
    assert!(world.sent().len() <= 2, "node 2 is stalled");
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

proptest! {
    #[test]
    fn whatever_a_server_says_is_told_in_short_and_plainly(
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
            world.answer_last(array(vec![text, number(5), number(7)]));
            let seen = inspected.try_recv().unwrap().unwrap();
            let holder = seen.holder().unwrap();
            told.extend([holder.entry.clone(), holder.label.clone()]);
        } else if place < 3 {
            let mut answer = world.try_lock();
            world.answer_last(if place == 1 { error } else { text });
            told.push(answer.try_recv().unwrap().unwrap_err().to_string());
        } else {
            // Met anew.
            world.core.disconnected(0, &Disconnected("died".into()));
            world.at(60_000);
            world.core.connected(0, 8);
            world.answer_last(if place == 7 {
                error
            } else {
                let good = ["master", "standalone", "noeviction", "7.0.15", "r/0/-1"];
                let mut fields: Vec<_> = good.into_iter().map(plain).collect();
                fields.extend([number(1), OwnedFrame::Null, number(1)]);
                // Role, mode, eviction or version.
                fields[place - 3] = text;
                array(fields)
            });
            let mut answer = world.try_lock();
            told.push(answer.try_recv().unwrap().unwrap_err().to_string());
        }
        world.at(60_001);
        told.extend(world._engine.status.nodes().iter().map(ToString::to_string));
        for text in told {
            prop_assert!(text.len() < 2_000, "{} bytes", text.len());
            prop_assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}
