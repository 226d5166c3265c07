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
        admission::{BootRecord, Meeting, Mode, Server, Stored, Terms, run},
        session::Effect,
    },
    owner::{Chance, Label},
    rules::Rules,
    settings::Settings,
};

const TERMS: Terms = Terms {
    max_ttl: Duration::from_secs(30),
    margin: Duration::from_secs(5),
};

struct World {
    core: Core,
    clock: Arc<ManualClock>,
    /// For how long each memory was witnessed.
    witnessed: Vec<u64>,
    _engine: Engine,
    _events: mpsc::UnboundedReceiver<Event>,
}

impl World {
    /// n nodes that vote.
    fn new(n: usize) -> Self {
        Self::witnessed(&vec![TERMS.quarantine(); n])
    }

    /// So many nodes, each witnessed for so long.
    fn witnessed(witnessed: &[u64]) -> Self {
        let n = witnessed.len();
        let clock = Arc::new(ManualClock::default());
        let nodes: Vec<Arc<str>> = (0..n).map(|i| format!("n{i}").into()).collect();
        let shared: Arc<dyn Clock> = clock.clone();
        let status = Arc::new(Status::new(Arc::clone(&shared), &nodes));
        let (engine, events) = Engine::new(status, shared);
        let settings = Settings {
            nodes,
            node_timeout: Duration::from_millis(500),
            list: "word".into(),
            prefix: "quorate".into(),
            terms: TERMS,
            label: Label::new("test").unwrap(),
            allow_eviction: false,
            rules: Rules::ALL,
        };
        let core = Core::new(Arc::new(settings), Chance::seeded(1), &engine);
        let mut world = Self {
            core,
            clock,
            witnessed: witnessed.to_vec(),
            _engine: engine,
            _events: events,
        };
        world.at(0);
        for node in 0..n {
            world.core.connected(node, 7);
        }
        // Once more, where what the fleet's terms are was not known yet.
        loop {
            let greeted = world.greeted();
            if greeted.is_empty() {
                return world;
            }
            for node in greeted {
                world.meet(node);
            }
        }
    }

    fn at(&mut self, ms: u64) {
        self.clock.set(
            Tick::from_nanos(1_000_000_000_000 + ms * 1_000_000),
            1_700_000_000_000_000 + ms * 1000,
        );
        self.core.tick();
    }

    fn meet(&mut self, node: usize) {
        let run = run(&format!("r{node}"), "0000000000", "-1");
        let server = Server {
            run: run.clone(),
            role: "master".into(),
            mode: "standalone".into(),
            eviction: "noeviction".into(),
            version: "7.0.15".into(),
        };
        let record = BootRecord {
            masters: self.witnessed.len() as u64,
            list: "word".into(),
            terms: TERMS,
            run,
            id: "i".into(),
            vouched: true,
            used: false,
            witnessed: self.witnessed[node],
        };
        let meeting = Meeting {
            server,
            open: record.votes(),
            stored: Stored::Record(record),
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

    /// The nodes that were sent a handshake.
    fn greeted(&mut self) -> Vec<usize> {
        let effects = std::iter::from_fn(|| self.core.next_effect());
        let greeted = |effect| match effect {
            Effect::Send(node, batch, _) => {
                let hello = matches!(batch.commands(), [Command::Handshake(_)]);
                hello.then_some(node)
            }
            _ => None,
        };
        effects.filter_map(greeted).collect()
    }

    /// What went out: the node, and R for RELEASE, T for RAISE, A for ACQUIRE, S for a survey.
    fn sent(&mut self) -> Vec<(usize, char)> {
        let effects = std::iter::from_fn(|| self.core.next_effect());
        effects
            .filter_map(|effect| match effect {
                Effect::Send(node, batch, _) => match batch.commands() {
                    [Command::Acquire { .. }] => Some((node, 'A')),
                    [Command::Raise { .. }] => Some((node, 'T')),
                    [Command::Release { .. }] => Some((node, 'R')),
                    [Command::Survey] => Some((node, 'S')),
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }
}

impl World {
    fn bootstrap(&mut self, force: bool) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, answer) = oneshot::channel();
        self.core.event(Event::Bootstrap {
            within: Duration::from_secs(2),
            force,
            reply,
        });
        answer
    }

    /// Answers handshakes until something else goes out, and returns that.
    fn until_sent(&mut self) -> Vec<(usize, Command)> {
        for _ in 0..10 {
            let mut rest = Vec::new();
            for effect in std::iter::from_fn(|| self.core.next_effect()).collect::<Vec<_>>() {
                if let Effect::Send(node, batch, _) = effect {
                    match batch.commands() {
                        [Command::Handshake(_)] => self.meet(node),
                        commands => rest.extend(commands.iter().map(|c| (node, c.clone()))),
                    }
                }
            }
            if !rest.is_empty() {
                return rest;
            }
        }
        Vec::new()
    }

    fn all_say(&mut self, said: &[Said]) {
        for (node, said) in said.iter().enumerate() {
            self.core.answered(node, Ok(said.clone()));
        }
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

fn admits(sent: &[(usize, Command)]) -> Vec<(usize, Mode, u64)> {
    let admit = |(node, command): &_| match command {
        Command::Admit(admit) => (*node, admit.mode, admit.witnessed),
        other => panic!("{other:?}"),
    };
    sent.iter().map(admit).collect()
}

#[test]
fn new_masters_are_met_twice_asked_for_counters_and_admitted_with_a_history() {
    let mut world = World::witnessed(&[6_000; 3]);
    let mut answer = world.bootstrap(false);
    assert!(world.until_sent().is_empty(), "not for long enough yet");
    world.witnessed = vec![6_500; 3];
    world.at(1_500);
    let surveys = world.until_sent();
    assert!(matches!(
        surveys[..],
        [
            (0, Command::Survey),
            (1, Command::Survey),
            (2, Command::Survey)
        ]
    ));
    world.all_say(&[const { Said::Surveyed(false) }; 3]);
    let admitted = admits(&world.until_sent());
    let whole = 27 * 3600 * 1000;
    assert_eq!(admitted, [0, 1, 2].map(|node| (node, Mode::New, whole)));
    world.all_say(&[const { Said::Admitted(true) }; 3]);
    assert!(answer.try_recv().is_err(), "until all of them vote");
    world.witnessed = vec![whole; 3];
    world.until_sent();
    assert!(matches!(answer.try_recv(), Ok(Ok(()))));
}

#[test]
fn a_bootstrap_of_masters_with_counters_names_the_node_and_the_wait() {
    let mut world = World::witnessed(&[6_500, 7_300, 8_000]);
    let mut answer = world.bootstrap(false);
    world.until_sent();
    world.core.answered(1, Ok(Said::Surveyed(true)));
    let why = answer.try_recv().unwrap().unwrap_err().to_string();
    assert!(why.contains("n1 holds counters"), "{why}");
    assert!(why.contains("28.8 s"), "the longest: {why}");
}

#[test]
fn a_forced_bootstrap_asks_for_no_counters_and_writes_z() {
    let mut world = World::witnessed(&[0, TERMS.quarantine(), 0]);
    let mut answer = world.bootstrap(true);
    let admitted = admits(&world.until_sent());
    assert_eq!(admitted, [0, 1, 2].map(|n| (n, Mode::Forced, 35_300)));
    world.core.answered(0, Ok(Said::Admitted(true)));
    world.core.answered(1, Ok(Said::Admitted(false)));
    let why = answer.try_recv().unwrap().unwrap_err().to_string();
    assert!(why.contains("changed meanwhile"), "{why}");
}
