//! The core on its own: answers in an order that real nodes seldom give.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use proptest::prelude::*;
use redis_protocol::resp3::types::OwnedFrame;
use tokio::sync::{mpsc, oneshot};

use super::{event::WishId, *};
use crate::{
    Error, Inspection, Lease, LeaseWatch, LossReason, Renewal,
    claim::Claim,
    clock::{Clock, ManualClock, Tick},
    lease::keeper::LeaseId,
    name::Name,
    node::{
        Command, DialError, Disconnected, Fault, Reply as Said,
        admission::{self, BootRecord, Meeting, Mode, Server, Stored, Terms, run},
        mutex,
        session::Effect,
    },
    owner::{Chance, Label},
    rules::Rules,
    settings::Settings,
};

type Answered = oneshot::Receiver<Result<Option<Lease>, Error>>;
const TERMS: Terms = Terms {
    max_ttl: Duration::from_secs(30),
    margin: Duration::from_secs(5),
};

struct World {
    core: Core,
    clock: Arc<ManualClock>,
    /// For how long each memory was witnessed.
    witnessed: Vec<u64>,
    /// On what terms.
    terms: Vec<Terms>,
    _engine: Engine,
    _events: mpsc::UnboundedReceiver<Event>,
}

impl World {
    /// n nodes that vote.
    fn new(n: usize) -> Self {
        Self::witnessed(&vec![TERMS.quarantine(); n])
    }

    /// One node for each of these, witnessed for this long in ms.
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
        let core = engine.core(Arc::new(settings), Chance::seeded(1));
        let mut world = Self {
            core,
            clock,
            witnessed: witnessed.to_vec(),
            terms: vec![TERMS; n],
            _engine: engine,
            _events: events,
        };
        world.at(0);
        for node in 0..n {
            world.core.connected(node, 7, None);
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
        self.core.tick(self.clock.now());
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
            terms: self.terms[node],
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
        self.core.answered(
            node,
            Ok(Said::Admission(admission::Reply::Met(Box::new(meeting)))),
        );
    }

    fn try_lock(&mut self) -> Answered {
        self.ask(|_| {})
    }

    fn ask(&mut self, settings: impl FnOnce(&mut Wish)) -> Answered {
        let (reply, answer) = oneshot::channel();
        let mut wish = Wish {
            id: WishId(1_000_000),
            claim: Claim::Mutex(Name::new("a").unwrap()),
            ttl: Duration::from_secs(10),
            lock_delay: Duration::ZERO,
            renewal: Renewal::off(),
            wait: Wait::Never,
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
            Effect::Send(0, operation, _) => Some(operation.command().clone()),
            _ => None,
        });
        let command = sent.last().unwrap();
        self.core
            .answered(0, crate::node::redis::answer(&command, frame));
    }

    /// The nodes that were sent a handshake.
    fn greeted(&mut self) -> Vec<usize> {
        let effects = std::iter::from_fn(|| self.core.next_effect());
        let greeted = |effect| match effect {
            Effect::Send(node, operation, _) => {
                let hello = matches!(
                    operation.command(),
                    Command::Admission(admission::Command::Handshake(_))
                );
                hello.then_some(node)
            }
            _ => None,
        };
        effects.filter_map(greeted).collect()
    }

    /// What went out: the node, and R for RELEASE, T for RAISE, A for ACQUIRE, E for EXTEND, S for a survey.
    fn sent(&mut self) -> Vec<(usize, char)> {
        let effects: Vec<Effect> = std::iter::from_fn(|| self.core.next_effect()).collect();
        self.core.left();
        let effects = effects.into_iter();
        effects
            .filter_map(|effect| match effect {
                Effect::Send(node, operation, _) => match operation.command() {
                    Command::Mutex(mutex::Command::Acquire { .. }) => Some((node, 'A')),
                    Command::Mutex(mutex::Command::Raise { .. }) => Some((node, 'T')),
                    Command::Mutex(mutex::Command::Release { .. }) => Some((node, 'R')),
                    Command::Mutex(mutex::Command::Extend { .. }) => Some((node, 'E')),
                    Command::Admission(admission::Command::Survey) => Some((node, 'S')),
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }
}

impl World {
    fn bootstrap(&mut self, mode: Mode) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, answer) = oneshot::channel();
        self.core.event(Event::Bootstrap {
            within: Duration::from_secs(2),
            mode,
            reply,
        });
        answer
    }

    /// Answers handshakes until something else goes out, and returns that.
    fn until_sent(&mut self) -> Vec<(usize, Command)> {
        for _ in 0..10 {
            let mut rest = Vec::new();
            for effect in std::iter::from_fn(|| self.core.next_effect()).collect::<Vec<_>>() {
                if let Effect::Send(node, operation, _) = effect {
                    match operation.command() {
                        Command::Admission(admission::Command::Handshake(_)) => self.meet(node),
                        command => rest.push((node, command.clone())),
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
    Said::Mutex(mutex::Reply::Held {
        remaining: Some(Duration::from_secs(1)),
        counter: 6,
        holder: Some("0123456789abcdef0123456789abcdef@web-1:77".into()),
    })
}

/// Two holders otherwise: the RELEASEs are on their way when the deciding vote comes.
#[test]
fn an_attempt_that_was_rolled_back_is_not_won_by_a_late_vote() {
    let mut world = World::new(5);
    let mut answer = world.try_lock();
    assert_eq!(world.sent().len(), 5);
    world.at(280);
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Granted(7))));
    world
        .core
        .answered(1, Ok(Said::Mutex(mutex::Reply::Granted(8))));
    world.core.answered(3, Ok(held()));
    world.at(300);
    world
        .core
        .answered(2, Ok(Said::Mutex(mutex::Reply::Granted(7))));
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
    world
        .core
        .answered(4, Ok(Said::Mutex(mutex::Reply::Granted(8))));
    world
        .core
        .answered(2, Ok(Said::Mutex(mutex::Reply::Raised(8))));
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
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Granted(7))));
    world
        .core
        .answered(1, Ok(Said::Mutex(mutex::Reply::Granted(8))));
    world.at(21);
    assert_eq!(world.sent(), [(0, 'T')], "one more reply time, then raised");
    world
        .core
        .answered(2, Ok(Said::Mutex(mutex::Reply::Granted(5))));
    assert_eq!(world.sent(), [(2, 'T')]);
    world.core.answered(0, Ok(Said::Mutex(mutex::Reply::Lost)));
    world
        .core
        .answered(2, Ok(Said::Mutex(mutex::Reply::Raised(8))));
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
        world
            .core
            .answered(node, Ok(Said::Mutex(mutex::Reply::Granted(7))));
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    world.sent();
    world.at(200);
    assert_eq!(world.sent(), [(0, 'E'), (1, 'E'), (2, 'E')]);
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Extended)));
    world.core.disconnected(1, &Disconnected("reset".into()));
    world.at(260);
    world.core.connected(1, 8, None);
    world.meet(1);
    world.sent();
    world.at(399);
    assert_eq!(
        world.sent(),
        [(0, 'E'), (1, 'E'), (2, 'E')],
        "node 2 is silent"
    );
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Extended)));
    world
        .core
        .answered(1, Ok(Said::Mutex(mutex::Reply::Extended)));
    world.at(590);
    assert!(lease.is_valid() && lease.validity() > Duration::from_millis(300));
    world.sent();
    // The first one fails at last.
    world.at(720);
    assert!(lease.is_valid());
    assert!(world.sent().len() <= 2, "node 2 is stalled");
}

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

fn left(world: &World) -> usize {
    let kept = world.core.leftovers().into_iter();
    let quiet = kept.filter(|(what, _)| !matches!(*what, "leases" | "releases"));
    quiet.map(|(_, kept)| kept).sum()
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
        .answered(0, Ok(Said::Mutex(mutex::Reply::Granted(7))));
    assert!(
        matches!(answers[0].try_recv(), Ok(Ok(Some(_)))),
        "it is dropped here"
    );
    assert_eq!(world.sent(), [(0, 'A')], "the next one has its place");
    for _ in 1..16 {
        world.core.answered(0, Ok(held()));
    }
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Granted(8))));
    assert!(matches!(free.try_recv(), Ok(Ok(Some(_)))));
    world.core.answered(0, Ok(held()));
    assert!(matches!(tried.try_recv(), Ok(Ok(None))));
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Granted(9))));
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
    assert_eq!(world.sent(), [(0, 'A')], "nobody knows: it asks for itself");
    assert!(late[1].try_recv().is_err());
    world.core.answered(0, Ok(held()));
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
    for _ in 0..16 {
        world.core.answered(0, Ok(held()));
    }
    world.at(101);
    assert!(
        matches!(late[1].try_recv(), Ok(Err(Error::Held(_)))),
        "one attempt"
    );
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
fn two_that_shut_down_are_told_the_same() {
    let mut world = World::new(1);
    let mut answer = world.try_lock();
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Granted(7))));
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
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Granted(7))));
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    let (reply, mut inspected) = oneshot::channel();
    world.core.event(Event::Inspect {
        name: Name::new("a").unwrap(),
        reply,
    });
    world.core.answered(0, Err(crate::node::Fault::NotAdmitted));
    assert!(inspected.try_recv().is_ok());
    let id = world.core.first_lease().unwrap();
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
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Released(false))));
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
            world.core.connected(0, 8, None);
            world.answer_last(if place == 7 {
                error
            } else {
                let good = ["master", "standalone", "noeviction", "7.0.15", "r/0/-1"];
                let mut fields: Vec<_> = good.into_iter().map(plain).collect();
                fields.extend([OwnedFrame::Null, number(1)]);
                // Role, mode, eviction or version.
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

/// No counters.
const UNUSED: Said = Said::Admission(admission::Reply::Surveyed {
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
fn new_masters_are_met_twice_asked_for_counters_and_admitted_with_a_history() {
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
    world.all_say(&[const { Said::Admission(admission::Reply::Admitted(true)) }; 3]);
    assert!(answer.try_recv().is_err(), "until all of them vote");
    world.witnessed = vec![whole; 3];
    world.until_sent();
    assert!(matches!(answer.try_recv(), Ok(Ok(()))));
}

#[test]
fn a_bootstrap_of_masters_with_counters_names_the_node_the_lock_and_the_wait() {
    let refused = |lock: Option<&str>| {
        let mut world = World::witnessed(&[6_500, 7_300, 8_000]);
        let mut answer = world.bootstrap(Mode::New);
        world.until_sent();
        let lock = lock.map(|name| Name::new(name).unwrap());
        world.core.answered(0, Ok(UNUSED));
        world.core.answered(
            1,
            Ok(Said::Admission(admission::Reply::Surveyed {
                used: true,
                lock,
            })),
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

    // A name is anybody's text.
    let long = "b".repeat(400);
    let why = refused(Some(&format!("a\x1b[2J\n{long}")));
    assert!(why.contains(r#"("a\u{1b}[2J\nbbb"#), "{why}");
    assert!(why.contains("bbb…\" is one") && why.len() < 700, "{why}");
}

/// It is the node's, not the caller's: another try may do.
#[test]
fn an_error_that_a_node_answers_is_no_wrong_setting() {
    let mut world = World::witnessed(&[6_500, 7_300, 8_000]);
    let mut answer = world.bootstrap(Mode::New);
    world.until_sent();
    world
        .core
        .answered(1, Err(Fault::Error("BUSY a script".into())));
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
            .answered(node, Err(Fault::Error("NOPERM this user".into())));
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
    world.core.answered(0, Ok(held()));
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
                    .answered(0, Ok(Said::Mutex(mutex::Reply::Released(false))));
            }
            if sent.contains(&(0, 'A')) {
                break;
            }
        }
        rests.push(now - from);
        now += 80;
        world.at(now);
        let busy = Fault::Error("BUSY a script".into());
        world.core.answered(0, Err(busy));
    }
    assert!(is_open(&mut answer));
    let outage = &rests[1..];
    assert!(outage.iter().all(|ms| (82..=101).contains(ms)), "{rests:?}");
}

#[test]
fn no_random_bits_are_no_wrong_setting_either() {
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
fn a_forced_bootstrap_asks_for_no_counters_and_writes_z() {
    let mut world = World::witnessed(&[0, TERMS.quarantine(), 0]);
    let mut answer = world.bootstrap(Mode::Forced);
    let admitted = admits(&world.until_sent());
    assert_eq!(admitted, [0, 1, 2].map(|n| (n, Mode::Forced, 35_300)));
    world
        .core
        .answered(0, Ok(Said::Admission(admission::Reply::Admitted(true))));
    world
        .core
        .answered(1, Ok(Said::Admission(admission::Reply::Admitted(false))));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let why = "2 of 3 nodes are available and all are needed (1 whose memory changed)";
    assert_eq!(error.to_string(), format!("\"bootstrap\": {why}"));
}

/// Otherwise the first node that learns the greater terms teaches them to nodes that then fall back
/// into quarantine, and a raise that breaks off stops the fleet.
#[test]
fn a_raise_writes_w_everywhere_before_it_writes_terms_anywhere() {
    for mode in [Mode::New, Mode::Raise] {
        let mut world = World::lesser(&[25_200, 40_000, 25_200]);
        let mut answer = world.bootstrap(mode);
        assert_eq!(raised(&world.until_sent()), [LESSER; 3]);
        world
            .core
            .answered(0, Ok(Said::Admission(admission::Reply::Admitted(true))));
        world
            .core
            .answered(1, Ok(Said::Admission(admission::Reply::Admitted(true))));
        assert!(world.until_sent().is_empty(), "not before all have it");
        world
            .core
            .answered(2, Ok(Said::Admission(admission::Reply::Admitted(true))));
        assert_eq!(raised(&world.until_sent()), [TERMS; 3]);
        world.all_say(&[const { Said::Admission(admission::Reply::Admitted(true)) }; 3]);
        (world.terms, world.witnessed) = (vec![TERMS; 3], vec![40_000; 3]);
        world.until_sent();
        assert!(matches!(answer.try_recv(), Ok(Ok(()))));
    }
}

/// Less than this client asks for.
const LESSER: Terms = Terms {
    max_ttl: Duration::from_secs(20),
    margin: Duration::from_secs(5),
};

impl World {
    /// Nodes of a fleet with less than this client asks for, each witnessed for this long in ms.
    fn lesser(witnessed: &[u64]) -> Self {
        let mut world = Self::witnessed(&vec![TERMS.quarantine(); witnessed.len()]);
        world.terms = vec![LESSER; witnessed.len()];
        world.witnessed = witnessed.to_vec();
        // They say so when they are met next.
        world.at(6_000);
        assert!(world.until_sent().is_empty());
        world
    }
}

/// What a raise wrote to each of three nodes.
fn raised(sent: &[(usize, Command)]) -> Vec<Terms> {
    assert_eq!(admits(sent), [0, 1, 2].map(|n| (n, Mode::Raise, 35_300)));
    let terms = |(_, command): &_| match command {
        Command::Admission(admission::Command::Admit(admit)) => admit.terms,
        other => panic!("{other:?}"),
    };
    sent.iter().map(terms).collect()
}

#[test]
fn a_raise_of_nothing_is_done_as_soon_as_a_majority_answers() {
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

/// Somebody else raises too, or a memory was lost: neither is the caller's to mend.
#[test]
fn a_raise_that_is_refused_half_way_looks_anew() {
    let mut world = World::lesser(&[40_000; 3]);
    let mut answer = world.bootstrap(Mode::Raise);
    assert_eq!(raised(&world.until_sent()), [LESSER; 3]);
    world.at(6_001);
    world.all_say(&[true, false, true].map(|is| Said::Admission(admission::Reply::Admitted(is))));
    let again = world.until_sent();
    assert_eq!(raised(&again), [LESSER; 3], "from the beginning");
    world.terms = vec![TERMS; 3];
    world.at(6_002);
    world.all_say(&[const { Said::Admission(admission::Reply::Admitted(false)) }; 3]);
    assert!(world.until_sent().is_empty());
    assert!(
        matches!(answer.try_recv(), Ok(Ok(()))),
        "somebody else has done it"
    );
}

/// All restarted from their disks: their records are vouched for (v = 1), so what this client asks for does not
/// replace their terms, and they will vote with less.
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

/// What was asked for is done: two of three vote with the greater terms.
#[test]
fn a_raise_that_was_written_is_not_said_to_lack_a_majority_that_votes() {
    let mut world = World::lesser(&[40_000; 3]);
    let mut answer = world.bootstrap(Mode::Raise);
    assert_eq!(raised(&world.until_sent()), [LESSER; 3]);
    world.all_say(&[const { Said::Admission(admission::Reply::Admitted(true)) }; 3]);
    assert_eq!(raised(&world.until_sent()), [TERMS; 3]);
    world.all_say(&[const { Said::Admission(admission::Reply::Admitted(true)) }; 3]);
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

    // The next one is not refused because of it; and what it forced is over with it.
    drop(world.bootstrap(Mode::Forced));
    let mut answer = world.bootstrap(Mode::New);
    let surveys = world.until_sent();
    assert!(matches!(
        surveys[..],
        [(_, Command::Admission(admission::Command::Survey)), ..]
    ));
    assert!(is_open(&mut answer));
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

    fn lease(&mut self) -> (Lease, LeaseId) {
        let mut answer = self.try_lock();
        self.sent();
        for node in 0..3 {
            self.core
                .answered(node, Ok(Said::Mutex(mutex::Reply::Granted(7))));
        }
        let lease = answer.try_recv().unwrap().unwrap().unwrap();
        (lease, self.core.first_lease().unwrap())
    }
}

impl World {
    fn extend(&mut self, lease: LeaseId) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, answer) = oneshot::channel();
        self.core.event(Event::Extend { lease, reply });
        answer
    }

    fn release(&mut self, lease: LeaseId) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, answer) = oneshot::channel();
        let reply = Some(reply);
        self.core.event(Event::Release { lease, reply });
        answer
    }

    fn says(&mut self, node: usize, reply: mutex::Reply) {
        self.core.answered(node, Ok(Said::Mutex(reply)));
    }
}

/// Looks at a lease when it is woken.
struct Looks(LeaseWatch, AtomicBool);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.1.store(self.0.is_valid(), Relaxed);
    }
}

/// Another thread may go on at once.
#[test]
fn who_is_told_of_a_loss_finds_the_lease_lost() {
    let mut world = World::new(3);
    let (lease, id) = world.lease();
    let mut extended = world.extend(id);
    let looks = Arc::new(Looks(lease.watch(), AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&looks));
    let answer = pin!(&mut extended).poll(&mut Context::from_waker(&waker));
    assert!(answer.is_pending());
    world.says(0, mutex::Reply::Lost);
    assert!(lease.is_valid());
    world.says(1, mutex::Reply::Lost);
    assert!(matches!(extended.try_recv(), Ok(Err(Error::Lost(_)))));
    assert!(!looks.1.load(Relaxed), "told before");
}

#[test]
fn a_handle_asks_for_more_than_the_greatest_counter_it_was_told_of() {
    const GREATEST: u64 = 1 << 52;
    let mut world = World::new(3);
    let seen = Arc::new(AtomicU64::new(0));
    let _first = world.ask(|wish| wish.seen = Arc::clone(&seen));
    let refused = mutex::Reply::Held {
        remaining: None,
        counter: GREATEST,
        holder: None,
    };
    world.says(1, refused);
    while world.core.next_effect().is_some() {}
    let _second = world.ask(|wish| wish.seen = Arc::clone(&seen));
    let sent = world.until_sent();
    let floor = |(_, command): &(usize, Command)| match command {
        Command::Mutex(mutex::Command::Acquire { floor, .. }) => Some(*floor),
        _ => None,
    };
    let floors: Vec<_> = sent.iter().filter_map(floor).collect();
    assert_eq!(floors, [GREATEST + 1; 3]);
}

#[test]
fn where_a_lease_is_gone_it_is_not_extended_again() {
    let mut world = World::new(3);
    let (lease, id) = world.lease();
    let mut first = world.extend(id);
    assert_eq!(world.sent(), [(0, 'E'), (1, 'E'), (2, 'E')]);
    world.says(0, mutex::Reply::Lost);
    world.says(1, mutex::Reply::Extended);
    world.says(2, mutex::Reply::Extended);
    assert!(matches!(first.try_recv(), Ok(Ok(()))));
    let mut second = world.extend(id);
    assert_eq!(world.sent(), [(1, 'E'), (2, 'E')]);
    world.says(1, mutex::Reply::Lost);
    assert!(
        matches!(second.try_recv(), Ok(Err(Error::Lost(_)))),
        "two of three are gone"
    );
    assert!(!lease.is_valid());
}

/// Without it one eviction on one node would make a release whose other answers do not come look lost.
#[test]
fn a_grant_after_the_win_counts_for_the_lease() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    for node in 0..2 {
        world.says(node, mutex::Reply::Granted(7));
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    world.says(2, mutex::Reply::Granted(7));
    let id = world.core.first_lease().unwrap();
    let mut released = world.release(id);
    assert_eq!(world.sent(), [(0, 'R'), (1, 'R'), (2, 'R')]);
    world.says(0, mutex::Reply::Released(false));
    world.at(500);
    let answer = released.try_recv();
    assert!(
        matches!(answer, Ok(Err(Error::NoQuorum(_)))),
        "two may hold it still: {answer:?}"
    );
    drop(lease);
}

#[test]
fn a_release_goes_to_every_node_that_was_asked() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    for node in 0..2 {
        world.says(node, mutex::Reply::Granted(7));
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    let id = world.core.first_lease().unwrap();
    let _released = world.release(id);
    assert_eq!(world.sent(), [(0, 'R'), (1, 'R'), (2, 'R')]);
    drop(lease);
}

/// Nobody could renew or release it.
#[test]
fn what_is_granted_when_all_handles_are_gone_is_taken_back() {
    let mut world = World::new(3);
    let mut answer = world.try_lock();
    world.sent();
    let World {
        mut core, _engine, ..
    } = world;
    drop(_engine);
    for node in 0..2 {
        let granted = Said::Mutex(mutex::Reply::Granted(7));
        core.answered(node, Ok(granted));
    }
    assert!(answer.try_recv().is_err());
    let effects = std::iter::from_fn(|| core.next_effect());
    let released = |effect: &Effect| match effect {
        Effect::Send(_, operation, _) => operation.command().frees().is_some(),
        _ => false,
    };
    assert_eq!(effects.filter(released).count(), 3);
}

#[test]
fn leases_are_lost_with_the_runtime_and_still_released() {
    let mut world = World::new(3);
    let (lease, id) = world.lease();
    world.core.end();
    let lost = pin!(lease.lost()).poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(lost, Poll::Ready(LossReason::NodesLost));
    world.sent();
    world.core.event(Event::Release {
        lease: id,
        reply: None,
    });
    assert_eq!(world.sent(), [(0, 'R'), (1, 'R'), (2, 'R')]);
}

/// All nodes stall. The RELEASEs that follow are still on their way to the connections, which take back what
/// they have: the requests before them.
#[test]
fn what_connections_take_back_is_not_what_they_were_not_given_yet() {
    let mut world = World::new(3);
    let mut first = world.try_lock();
    world.sent();
    world.at(400);
    let mut second = world.ask(|wish| wish.claim = Claim::Mutex(Name::new("b").unwrap()));
    assert_eq!(world.sent(), [(0, 'A'), (1, 'A'), (2, 'A')]);
    world.at(500);
    assert!(matches!(first.try_recv(), Ok(Err(Error::NoQuorum(_)))));
    assert!(is_open(&mut second));
    let mut given = Vec::new();
    while let Some(effect) = world.core.next_effect() {
        match effect {
            Effect::Withdraw(node) => world.core.withdrawn(node, 1),
            Effect::Send(node, operation, _) => given.push((node, operation)),
            effect => panic!("{effect:?}"),
        }
    }
    assert!(matches!(second.try_recv(), Ok(Err(Error::NoQuorum(_)))));
    for node in 0..3 {
        world.says(node, mutex::Reply::Granted(7));
        let given = given.iter().filter(|(to, _)| *to == node);
        for (_, operation) in given {
            let released = matches!(
                operation.command(),
                Command::Mutex(mutex::Command::Release { .. })
            );
            assert!(released, "{operation:?}");
            world.says(node, mutex::Reply::Released(true));
        }
    }
    assert!(world.core.leftovers().contains(&("releases", 0)));
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
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Granted(7))));
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
    world
        .core
        .answered(0, Ok(Said::Mutex(mutex::Reply::Granted(7))));
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
    // Its next attempt waits like a request that comes now.
    let mut second = world.inspect();
    world.sent();
    world.at(400);
    assert!(is_open(&mut first) && is_open(&mut second));
    assert_eq!(world.sent(), []);
    world.meet(0);
    assert_eq!(world.sent(), [], "one votes");
    world.meet(1);
    let asked: Vec<_> = world
        .sent()
        .into_iter()
        .filter(|(_, k)| *k == 'A')
        .collect();
    assert_eq!(asked, [(0, 'A'), (1, 'A')]);
    for node in 0..2 {
        world
            .core
            .answered(node, Ok(Said::Mutex(mutex::Reply::Released(false))));
        let (holder, counter) = (None, 7);
        world.core.answered(
            node,
            Ok(Said::Mutex(mutex::Reply::Inspected { holder, counter })),
        );
        world
            .core
            .answered(node, Ok(Said::Mutex(mutex::Reply::Granted(8))));
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

// ---- the end ----------------------------------------------------------------------------------

const VOTES: u64 = 40_000;

impl World {
    fn shutdown(&mut self, within: u64) -> oneshot::Receiver<Vec<String>> {
        let (reply, answer) = oneshot::channel();
        let within = Duration::from_millis(within);
        self.core.event(Event::Shutdown { within, reply });
        answer
    }

    fn voting(&mut self, within: u64) -> oneshot::Receiver<Result<(), Error>> {
        let (reply, answer) = oneshot::channel();
        let within = Duration::from_millis(within);
        self.core.event(Event::Voting { within, reply });
        answer
    }
}

#[test]
fn a_shutdown_writes_the_count_of_a_quarantine_and_waits_for_that() {
    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    world.at(400);
    let mut answer = world.shutdown(2_000);
    assert_eq!(world.greeted(), [2]);
    assert!(is_open(&mut answer) && !world.core.is_done());
    world.meet(2);
    assert_eq!(answer.try_recv().unwrap(), [""; 0]);
    assert!(world.core.is_done());
}

#[test]
fn a_shutdown_where_no_node_is_in_quarantine_sends_nothing() {
    let mut world = World::new(3);
    world.at(400);
    let mut answer = world.shutdown(2_000);
    assert_eq!(world.greeted(), [0; 0]);
    assert!(answer.try_recv().is_ok() && world.core.is_done());
}

#[test]
fn a_shutdown_waits_for_the_count_no_longer_than_its_time_or_the_nodes() {
    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    let mut answer = world.shutdown(100);
    world.greeted();
    world.core.left();
    world.at(99);
    assert!(!world.core.is_done());
    world.at(100);
    assert!(answer.try_recv().is_ok() && world.core.is_done());

    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    let mut answer = world.shutdown(10_000);
    world.greeted();
    world.core.left();
    world.at(499);
    assert!(!world.core.is_done());
    world.at(500);
    assert!(answer.try_recv().is_ok() && world.core.is_done(), "stalled");

    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    let mut answer = world.shutdown(10_000);
    world.greeted();
    world.core.disconnected(2, &Disconnected("died".into()));
    assert!(answer.try_recv().is_ok() && world.core.is_done(), "gone");
}

#[test]
fn when_all_handles_are_gone_the_count_is_written_too() {
    let mut world = World::witnessed(&[VOTES, VOTES, 5_000]);
    world.at(400);
    world.core.close();
    assert_eq!(world.greeted(), [2]);
    assert!(!world.core.is_done());
    world.meet(2);
    assert!(world.core.is_done());
}

#[test]
fn voting_is_waited_for_and_named_where_it_does_not_come() {
    let mut world = World::witnessed(&[VOTES, 5_000, 5_000]);
    let (mut long, mut short) = (world.voting(2_000), world.voting(1_000));
    world.at(999);
    assert!(is_open(&mut short));
    world.at(1_000);
    let error = short.try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::Quarantined(_)), "{error}");
    assert_eq!(error.retry_after(), Some(Duration::from_millis(29_300)));
    world.witnessed[2] = VOTES;
    world.at(1_200);
    assert!(is_open(&mut long));
    assert_eq!(world.greeted(), [1, 2]);
    world.meet(2);
    assert!(matches!(long.try_recv(), Ok(Ok(()))));

    let mut world = World::witnessed(&[VOTES, 5_000, 5_000]);
    world.core.disconnected(1, &Disconnected("died".into()));
    world.core.disconnected(2, &Disconnected("died".into()));
    let error = world.voting(0).try_recv().unwrap().unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    assert!(error.to_string().contains("died"), "{error}");
}

/// The evidence names all of them, not only those that decided it.
#[test]
fn a_report_names_every_node_that_was_late() {
    let mut world = World::new(3);
    let (_lease, id) = world.lease();
    let (mut extended, mut tried) = (world.extend(id), world.try_lock());
    world.sent();
    world.at(500);
    let errors = [
        extended.try_recv().unwrap().err(),
        tried.try_recv().unwrap().err(),
    ];
    for error in errors {
        let Some(Error::NoQuorum(report)) = error else {
            panic!("{error:?}")
        };
        let late = report.nodes().iter();
        let late = late.filter(|node| node.vote == crate::Vote::None(crate::Silence::TimedOut));
        assert_eq!(late.count(), 3, "{report}");
    }
}

#[test]
fn who_does_not_wait_for_votes_any_more_is_forgotten() {
    let mut world = World::witnessed(&[VOTES, 5_000, 5_000]);
    let callers = |world: &World| world.core.leftovers()[6];
    let forgotten = world.voting(60_000);
    assert_eq!(callers(&world), ("callers", 1));
    drop(forgotten);
    world.at(1);
    assert_eq!(callers(&world), ("callers", 0));

    let mut closed = world.voting(60_000);
    let _ended = world.shutdown(1_000);
    assert!(
        matches!(closed.try_recv(), Err(oneshot::error::TryRecvError::Closed)),
        "the caller is told Closed"
    );
}
