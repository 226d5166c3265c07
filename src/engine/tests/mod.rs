//! Tests of the core alone, with answers in an order that real nodes seldom give.

mod attempts;
mod bootstrap;
mod crowds;
mod deadlines;
mod end;
mod leases;
mod line;
mod repairs;
mod rwlocks;
mod seams;
mod slots;
mod waits;

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

use super::{
    core::TIMERS_AT_ONCE,
    event::{AcquireRequest, Acquisition, AcquisitionId, Caller},
    *,
};
use crate::{
    Error, Inspection, Lease, LeaseWatch, LossReason, Renewal,
    base::{
        clock::{Clock, ManualClock, Tick},
        name::Name,
        owner::{Chance, Entry, Label},
        rules::Rules,
    },
    engine::wants::Wants,
    lease::keeper::LeaseId,
    node::{
        Command, DialError, Disconnected, Fault,
        admission::{self, BootRecord, Meeting, Mode, Server, Stored, Terms, run},
        answer::Answer,
        request::{Place, Release, Request, Side, Target, Verb},
        session::Effect,
        settings::Settings,
    },
};

type Answered = oneshot::Receiver<Result<Option<Lease>, Error>>;

/// A for an ACQUIRE, J for a JOIN, Y for a YIELD, T for a RAISE, E for an EXTEND, P for a REPAIR, R for a RELEASE.
fn letter(verb: &Verb) -> char {
    match verb {
        Verb::Acquire { wait, .. } if wait.place().is_some() => 'J',
        Verb::Acquire { .. } => 'A',
        Verb::Yield { .. } => 'Y',
        Verb::Raise { .. } => 'T',
        Verb::Extend { .. } => 'E',
        Verb::Repair { .. } => 'P',
        Verb::Release(_) => 'R',
    }
}

/// The place in the queue of a mutex that a command asks for, and the entry.
fn joins(command: &Command) -> Option<(Entry, Place)> {
    let request = command.request()?;
    match &request.verb {
        Verb::Acquire { wait, .. } => Some((request.entry.clone(), wait.place()?.clone())),
        _ => None,
    }
}

const TERMS: Terms = Terms {
    max_ttl: Duration::from_secs(30),
    margin: Duration::from_secs(5),
};

struct World {
    core: Core,
    clock: Arc<ManualClock>,
    /// For how long each node's memory was witnessed, in ms.
    witnessed: Vec<u64>,
    /// The terms of each node.
    terms: Vec<Terms>,
    /// The number of acquisitions so far.
    acquisitions: u64,
    _engine: Engine,
    _events: mpsc::UnboundedReceiver<Event>,
}

impl World {
    /// `n` nodes that vote.
    fn new(n: usize) -> Self {
        Self::witnessed(&vec![TERMS.quarantine(); n])
    }

    /// One node for each of these times. Each was witnessed for that long in ms.
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
            ranks: None,
            prefix: "quorate".into(),
            terms: TERMS,
            label: Label::new("test").unwrap(),
            channel: "quorate:wake:test".into(),
            allow_eviction: false,
            rules: Rules::ALL,
        };
        let core = engine.core(Arc::new(settings), Chance::seeded(1));
        let mut world = Self {
            core,
            clock,
            witnessed: witnessed.to_vec(),
            terms: vec![TERMS; n],
            acquisitions: 0,
            _engine: engine,
            _events: events,
        };
        world.at(0);
        for node in 0..n {
            world.core.connected(node, 7, None, true);
        }
        // The nodes are met again, because the fleet's terms were not known at first.
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

    fn dies(&mut self, node: usize) {
        self.core.disconnected(node, &Disconnected("died".into()));
    }

    /// The node votes again. `witnessed` says for how long it was watched, in ms.
    fn comes_back(&mut self, node: usize, witnessed: u64) {
        self.witnessed[node] = witnessed;
        self.core.connected(node, 8, None, true);
        self.greeted();
        self.meet(node);
    }

    fn meet(&mut self, node: usize) {
        let met = self.met(node);
        self.core.answered(node, [Ok(met)]);
    }

    /// The answer to this node's handshake.
    fn met(&self, node: usize) -> Answer {
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
            time: u64::MAX,
            write: Some(Ok(())),
        };
        Answer::Admission(admission::Reply::Met(Box::new(meeting)))
    }

    fn try_lock(&mut self) -> Answered {
        self.ask(|_| {})
    }

    fn ask(&mut self, settings: impl FnOnce(&mut Acquisition)) -> Answered {
        let (reply, answer) = oneshot::channel();
        self.acquisitions += 1;
        let mut acquisition = Acquisition {
            // Far from the ids that tests choose.
            id: AcquisitionId::of_call(1_000_000 + self.acquisitions),
            request: AcquireRequest {
                wants: Wants::Lock(Target::mutex(Name::new("a").unwrap())),
                ttl: Duration::from_secs(10),
                lock_delay: Duration::ZERO,
                renewal: Renewal::off(),
                label: None,
                wait: Wait::Never,
                seen: Arc::new(AtomicU64::new(0)),
            },
            caller: Caller::now(),
            asked_at: self.clock.now(),
            reply,
        };
        settings(&mut acquisition);
        self.core.event(Event::Acquire(acquisition));
        answer
    }

    /// Answers the last request to node 0 by this frame.
    fn answer_last(&mut self, frame: OwnedFrame) {
        self.answer_last_of([frame]);
    }

    /// Answers the last requests to node 0 by these frames, in order.
    fn answer_last_of<const N: usize>(&mut self, frames: [OwnedFrame; N]) {
        let effects = std::iter::from_fn(|| self.core.next_effect());
        let sent = effects.filter_map(|effect| match effect {
            Effect::Send(0, operation, _) => Some(operation.command().clone()),
            _ => None,
        });
        let sent: Vec<Command> = sent.collect();
        let asked = sent[sent.len() - N..].iter().zip(frames);
        let answers = asked.map(|(command, frame)| crate::node::redis::answer(command, frame));
        let answers: Vec<_> = answers.collect();
        self.core.answered(0, answers);
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

    /// The requests that were sent: the node, and a letter as in [`letter`], or S for a survey.
    fn sent(&mut self) -> Vec<(usize, char)> {
        let effects: Vec<Effect> = std::iter::from_fn(|| self.core.next_effect()).collect();
        self.core.mark_written();
        let effects = effects.into_iter();
        effects
            .filter_map(|effect| match effect {
                Effect::Send(node, operation, _) => match operation.command() {
                    Command::Request(request) if matches!(request.target, Target::Mutex(_)) => {
                        Some((node, letter(&request.verb)))
                    }
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

    /// Answers handshakes until something else is sent, and returns that.
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

    fn all_say(&mut self, said: &[Answer]) {
        for (node, said) in said.iter().enumerate() {
            self.core.answered(node, [Ok(said.clone())]);
        }
    }
}

fn held() -> Answer {
    Answer::Held {
        which: None,
        remaining: Some(Duration::from_secs(1)),
        counter: 6,
        holder: Some("0123456789abcdef0123456789abcdef@web-1:77".into()),
        ticket: 0,
    }
}

fn left(world: &World) -> usize {
    let kept = world.core.leftovers().into_iter();
    let quiet = kept.filter(|(what, _)| !matches!(*what, "leases" | "releases"));
    quiet.map(|(_, kept)| kept).sum()
}

/// Returns true if neither a result nor an error has come yet.
fn is_open<T>(answer: &mut oneshot::Receiver<T>) -> bool {
    matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty))
}

impl World {
    /// The process is paused: the clock goes on, and the core does nothing.
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
            self.core.answered(node, [Ok(Answer::Granted(7))]);
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

    fn says(&mut self, node: usize, reply: Answer) {
        self.core.answered(node, [Ok(reply)]);
    }
}

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
