//! What may travel when, step by step.

use super::*;
use crate::{
    FencingToken,
    clock::cpu_time,
    name::Name,
    node::{
        Command,
        admission::{BootRecord, Handshake, Meeting, Server, Stored, Terms, Vouch},
        mutex,
    },
    owner::Label,
    rules::Rules,
};

const RUN: &str = "aaaa/00000000/-1";
const TERMS: Terms = Terms {
    max_ttl: Duration::from_secs(30),
    margin: Duration::from_secs(5),
};
/// Z of these terms.
const Z: u64 = 35_300;

struct World {
    now: Tick,
    settings: Arc<Settings>,
    fleet: Fleet,
    chance: Chance,
    effects: VecDeque<Effect>,
    heard: VecDeque<Heard>,
    session: Session,
}

impl World {
    fn new() -> Self {
        let now = Tick::from_nanos(1_000_000_000);
        let settings = Arc::new(Settings {
            nodes: vec!["a:1".into(), "b:1".into(), "c:1".into()],
            list: "word".into(),
            prefix: "quorate".into(),
            node_timeout: Duration::from_millis(500),
            terms: TERMS,
            label: Label::new("test").unwrap(),
            allow_eviction: false,
            rules: Rules::ALL,
        });
        Self {
            now,
            fleet: Fleet::new(Arc::clone(&settings)),
            settings,
            chance: Chance::seeded(1),
            effects: VecDeque::new(),
            heard: VecDeque::new(),
            session: Session::new(0, now),
        }
    }

    fn step<T>(&mut self, act: impl FnOnce(&mut Session, &mut Step<'_>) -> T) -> T {
        let mut step = Step {
            now: self.now,
            settings: &self.settings,
            fleet: &mut self.fleet,
            chance: &mut self.chance,
            effects: &mut self.effects,
            heard: &mut self.heard,
        };
        act(&mut self.session, &mut step)
    }

    /// Lets time pass and ticks whenever that is due; never twice at one instant for nothing.
    fn pass(&mut self, d: Duration) {
        let end = self.now.plus(d);
        let mut rings = 0;
        while let Some(at) = self
            .session
            .next_tick(&self.settings)
            .filter(|at| *at <= end)
        {
            rings = if at <= self.now { rings + 1 } else { 0 };
            assert!(rings < 10, "it rings for ever at {at:?}");
            self.now = self.now.max(at);
            let seen = self.now;
            self.step(|session, step| session.tick(step, seen));
        }
        self.now = end;
    }

    fn sent(&mut self) -> Vec<Command> {
        let effects = std::mem::take(&mut self.effects);
        let commands = |effect| match effect {
            Effect::Send(_, operation, _) => vec![operation.command().clone()],
            _ => Vec::new(),
        };
        effects.into_iter().flat_map(commands).collect()
    }

    fn dial(&mut self, client_id: u64) {
        self.pass(LAST_BACKOFF);
        assert!(
            self.effects.iter().any(|e| matches!(e, Effect::Dial(0))),
            "{:?}",
            self.effects
        );
        self.effects.clear();
        self.step(|session, step| session.connected(step, client_id, None));
    }

    /// The handshake is answered: this run, and so long witnessed.
    fn meet(&mut self, run: &str, witnessed: u64) {
        let record = record(run, witnessed);
        self.read(run, Stored::Record(record));
    }

    /// The handshake is answered by what stands there.
    fn read(&mut self, run: &str, stored: Stored) {
        let server = Server {
            run: run.into(),
            role: "master".into(),
            mode: "standalone".into(),
            eviction: "noeviction".into(),
            version: "7.0.15".into(),
        };
        let open = stored.record().is_some_and(BootRecord::votes);
        let meeting = Meeting {
            server,
            stored,
            open,
        };
        self.answer(Ok(Reply::Admission(admission::Reply::Met(Box::new(
            meeting,
        )))));
    }

    /// What was read of the neighbour b.
    fn see_neighbour(&mut self, record: Option<&BootRecord>) {
        self.fleet.see(self.now, 1, record);
    }

    /// The handshake that was sent last.
    fn hello(&mut self) -> Handshake {
        match self.sent().pop() {
            Some(Command::Admission(admission::Command::Handshake(hello))) => hello,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, answer: Answer) {
        self.step(|session, step| session.answered(step, answer));
    }

    /// Connected, met, voting.
    fn voting() -> Self {
        let mut world = Self::new();
        world.dial(7);
        world.meet(RUN, 40_000);
        world.sent();
        world
    }

    fn acquire(&mut self, round: u64) -> Result<(), Silence> {
        let command = Command::Mutex(mutex::Command::Acquire {
            name: name(),
            entry: entry(round),
            ttl: Duration::from_secs(10),
            floor: 1,
            max_ttl: TERMS.max_ttl,
        });
        let operation = Operation::new(command);
        self.step(|session, step| session.ask(step, tag(round), &operation))
    }

    fn left(&mut self) {
        let now = self.now;
        self.step(|session, _| session.left(now));
    }

    fn told(&mut self) -> Vec<(u64, Result<Reply, Silence>)> {
        let heard = self.heard.drain(..);
        heard.map(|h| (h.tag.round.0, h.answer)).collect()
    }

    fn release(&mut self, round: u64) -> DutyId {
        let until = self.now.plus(Duration::from_secs(10));
        self.step(|session, step| {
            session.release(step, &release_of(round), until, Some(tag(round)))
        })
    }

    fn state(&self) -> NodeState {
        self.session.state(self.now, &self.fleet)
    }
}

fn record(run: &str, witnessed: u64) -> BootRecord {
    BootRecord {
        masters: 3,
        list: "word".into(),
        terms: TERMS,
        run: run.into(),
        id: "id".into(),
        vouched: false,
        used: false,
        witnessed,
    }
}

fn name() -> Name {
    Name::new("a").unwrap()
}

fn tag(round: u64) -> Tag {
    let round = RoundId(round);
    Tag { round, request: 0 }
}

fn release_of(round: u64) -> Arc<Operation> {
    Operation::new(mutex::Command::Release {
        name: name(),
        entry: entry(round),
    })
}

fn entry(round: u64) -> Entry {
    let owner = uuid::Uuid::from_u128(round.into());
    Entry::new(owner, &Label::new("test").unwrap())
}

fn kinds(commands: &[Command]) -> Vec<&'static str> {
    let kind = |command: &Command| match command {
        Command::Admission(admission::Command::Handshake(_)) => "hello",
        Command::Mutex(mutex::Command::Acquire { .. }) => "acquire",
        Command::Mutex(mutex::Command::Release { .. }) => "release",
        Command::Server(server::Command::Disconnect { client: 7 }) => "kill 7",
        Command::Server(server::Command::LoadScripts) => "load",
        _ => "other",
    };
    commands.iter().map(kind).collect()
}

#[test]
fn the_handshake_comes_first_and_alone() {
    let mut world = World::new();
    world.dial(7);
    assert!(world.acquire(1).is_err(), "the handshake is unread");
    world.release(2);
    assert_eq!(kinds(&world.sent()), ["hello"]);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["release"]);
    assert_eq!(world.acquire(3), Ok(()));
}

#[test]
fn a_quarantined_node_gets_handshakes_and_releases_only() {
    let mut world = World::new();
    world.see_neighbour(Some(&record("bbbb/00000000/-1", 0)));
    world.dial(7);
    world.meet(RUN, 0);
    world.sent();
    assert_eq!(
        world.state(),
        NodeState::Quarantined(Duration::from_millis(Z))
    );
    assert!(matches!(world.acquire(1), Err(Silence::Quarantined(_))));
    world.release(2);
    world.pass(Duration::from_millis(1100));
    let sent = world.sent();
    assert_eq!(kinds(&sent), ["release", "hello"], "met again every second");
    let Some(Command::Admission(admission::Command::Handshake(hello))) = sent.last() else {
        panic!()
    };
    assert_eq!(hello.known, Some((RUN.into(), "id".into())));
    assert!(
        (1000..=1100).contains(&hello.witnessed),
        "counted by this clock: {}",
        hello.witnessed
    );
}

#[test]
fn a_node_that_does_not_answer_is_stalled_and_asked_for_nothing() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.pass(Duration::from_millis(499));
    assert_eq!(world.state(), NodeState::Voting);
    assert_eq!(world.acquire(2), Ok(()));
    world.release(2);
    world.pass(Duration::from_millis(1));
    assert!(matches!(world.state(), NodeState::Stalled(_)));
    assert_eq!(world.acquire(3), Err(Silence::Stalled));
    assert!(
        world
            .effects
            .iter()
            .any(|e| matches!(e, Effect::Withdraw(0)))
    );
    // The second ACQUIRE and its RELEASE had not left: neither is owed any more.
    world.step(|session, step| session.withdrawn(step, 2, 0));
    assert!(world.session.is_idle());
    world.sent();
    world.release(1);
    assert_eq!(
        kinds(&world.sent()),
        ["release"],
        "of what was written it still goes out"
    );
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
    assert_eq!(world.state(), NodeState::Voting, "any answer ends it");
}

#[test]
fn a_silent_node_is_dialled_anew_and_the_old_connection_ended_first() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.release(1);
    world.pass(Duration::from_secs(2));
    assert!(world.effects.iter().any(|e| matches!(e, Effect::Close(0))));
    assert!(matches!(
        world.heard.pop_front(),
        Some(Heard {
            tag: Tag {
                round: RoundId(1),
                ..
            },
            answer: Err(Silence::ConnectionLost),
            ..
        })
    ));
    world.effects.clear();
    world.dial(8);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["hello", "kill 7", "release"]);
}

#[test]
fn a_kill_that_failed_is_tried_again_and_one_that_is_forbidden_is_not() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["hello", "kill 7"]);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.pass(Duration::from_secs(6));
    assert_eq!(kinds(&world.sent()), ["hello"]);
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["kill 7"]);
    world.answer(Err(Fault::Withheld("NOPERM no".into())));
    assert_eq!(world.state(), NodeState::Voting, "it is not needed");
    world.pass(Duration::from_secs(6));
    world.meet(RUN, 40_000);
    assert_eq!(kinds(&world.sent()), ["hello"], "forgotten");
}

#[test]
fn in_another_run_the_old_id_is_a_strangers() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.release(1);
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    world.meet("bbbb/00000000/-1", 0);
    assert_eq!(kinds(&world.sent()), ["hello", "release"]);
}

#[test]
fn a_release_is_repeated_until_answered_or_over() {
    let mut world = World::voting();
    world.release(1);
    assert_eq!(kinds(&world.sent()), ["release"]);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.pass(Duration::from_millis(250));
    assert_eq!(kinds(&world.sent()), ["release"]);
    world.answer(Ok(Reply::Mutex(mutex::Reply::Released(true))));
    assert!(world.session.is_idle());
    world.release(2);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.pass(Duration::from_secs(10));
    assert!(world.session.is_idle(), "what it would free has expired");
}

#[test]
fn after_a_flush_of_scripts_an_acquire_is_not_sent_again_and_a_release_is() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.release(1);
    world.sent();
    world.answer(Err(Fault::NoScript));
    world.answer(Err(Fault::NoScript));
    assert_eq!(kinds(&world.sent()), ["load", "release"]);
    world.answer(Ok(Reply::Server(server::Reply::Loaded)));
    world.answer(Err(Fault::NoScript));
    assert_eq!(
        kinds(&world.sent()),
        ["load"],
        "a server that refuses scripts is not asked in a loop"
    );
    world.pass(Duration::from_millis(250));
    assert_eq!(kinds(&world.sent()), ["release"]);
    assert!(matches!(
        world.heard.pop_front(),
        Some(Heard {
            tag: Tag {
                round: RoundId(1),
                ..
            },
            answer: Err(Silence::ScriptsFlushed),
            ..
        })
    ));
}

#[test]
fn a_memory_that_is_not_admitted_is_met_again_before_anything_else() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.sent();
    world.answer(Err(Fault::NotAdmitted));
    assert_eq!(kinds(&world.sent()), ["hello"]);
    assert!(world.acquire(2).is_err());
}

#[test]
fn a_release_that_is_due_on_a_stalled_node_does_not_ring_for_ever() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.release(1);
    world.pass(Duration::from_millis(500));
    world.step(|session, step| session.withdrawn(step, 1, 0));
    world.pass(Duration::from_millis(100));
}

#[test]
fn a_handshake_that_fails_does_not_say_which_run_this_is() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.release(1);
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    world.answer(Err(Fault::Error("BUSY".into())));
    world.release(2);
    assert_eq!(
        kinds(&world.sent()),
        ["hello"],
        "7 may be a stranger's by now"
    );
    world.pass(Duration::from_secs(2));
    assert_eq!(kinds(&world.sent()), ["hello"]);
    world.meet("bbbb/00000000/-1", 0);
    assert_eq!(kinds(&world.sent()), ["release", "release"]);
}

#[test]
fn what_is_taken_back_is_what_the_shell_had_been_given() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    assert_eq!(world.acquire(2), Ok(()));
    world.release(3);
    // The second ACQUIRE had not left, and the shell does not have the RELEASE yet.
    world.step(|session, step| session.withdrawn(step, 1, 1));
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(5))));
    world.answer(Ok(Reply::Mutex(mutex::Reply::Released(false))));
    let heard: Vec<_> = world
        .heard
        .drain(..)
        .map(|h| (h.tag.round.0, h.answer))
        .collect();
    let granted = (1, Ok(Reply::Mutex(mutex::Reply::Granted(5))));
    assert_eq!(
        heard,
        [
            (2, Err(Silence::Stalled)),
            granted,
            (3, Ok(Reply::Mutex(mutex::Reply::Released(false))))
        ]
    );
}

/// A record of this fleet at the neighbour, that does not vote.
fn quiet() -> BootRecord {
    record("bbbb/00000000/-1", 0)
}

#[test]
fn what_is_witnessed_is_counted_from_the_last_answer_and_from_when_a_majority_is_seen() {
    let ms = Duration::from_millis;
    let mut world = World::new();
    world.dial(7);
    let first = world.hello();
    assert_eq!((first.known, first.witnessed), (None, 0));
    world.meet(RUN, 1000);
    world.pass(ms(1100));
    let alone = world.hello();
    assert_eq!((alone.known, alone.witnessed), (None, 0), "alone");
    world.meet(RUN, 1000);
    world.pass(ms(600));
    world.see_neighbour(Some(&quiet()));
    world.pass(ms(500));
    let hello = world.hello();
    assert_eq!(hello.known, Some((RUN.into(), "id".into())));
    assert!(
        (1400..=1500).contains(&hello.witnessed),
        "since two were in sight: {}",
        hello.witnessed
    );
    // On its way to here the server counts for nothing.
    world.pass(ms(400));
    world.meet(RUN, 1500);
    world.pass(ms(1100));
    let witnessed = world.hello().witnessed;
    assert!((2500..=2600).contains(&witnessed), "{witnessed}");
}

#[test]
fn a_new_connection_brings_nothing_that_was_witnessed_before() {
    let mut world = World::new();
    world.see_neighbour(Some(&quiet()));
    world.dial(7);
    world.meet(RUN, 1000);
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    let hello = world.hello();
    assert_eq!((hello.known, hello.witnessed), (None, 0));
}

#[test]
fn a_handshake_brings_what_the_fleet_knows() {
    let mut world = World::new();
    world.dial(7);
    let hello = world.hello();
    assert_eq!((hello.masters, &*hello.list), (3, "word"));
    assert_eq!((hello.vouch, hello.used), (Vouch::Stranger, false));
    assert_eq!(hello.terms, TERMS);
    world.meet(RUN, 0);
    let mut greater = record("bbbb/00000000/-1", 90_000);
    greater.terms.max_ttl = Duration::from_secs(60);
    world.see_neighbour(Some(&greater));
    world.pass(Duration::from_millis(1100));
    let hello = world.hello();
    assert_eq!((hello.vouch, hello.used), (Vouch::Voter, true));
    assert_eq!(hello.terms, greater.terms);
}

#[test]
fn a_request_carries_the_guard_of_the_record_that_was_read_here() {
    let mut world = World::voting();
    let guard = |world: &mut World| match world.effects.pop_back() {
        Some(Effect::Send(0, _, guard)) => guard.as_str().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(world.acquire(1), Ok(()));
    assert_eq!(guard(&mut world), "2 3 word 30000 5000 id");
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
    world.pass(Duration::from_secs(6));
    let other = BootRecord {
        id: "other".into(),
        ..record(RUN, 40_000)
    };
    world.read(RUN, Stored::Record(other));
    assert_eq!(world.acquire(2), Ok(()));
    assert_eq!(guard(&mut world), "2 3 word 30000 5000 other");
}

#[test]
fn a_voter_on_less_than_the_fleets_terms_is_met_again_before_it_counts() {
    let mut world = World::voting();
    let mut greater = record("bbbb/00000000/-1", 90_000);
    greater.terms.max_ttl = Duration::from_secs(60);
    world.see_neighbour(Some(&greater));
    assert_eq!(world.state(), NodeState::Connecting);
    assert!(world.acquire(1).is_err());
    // What was asked before the terms were known is asked again at once.
    world.step(|session, step| session.meet_again(step));
    let mut greatest = greater.clone();
    greatest.terms.margin = Duration::from_secs(6);
    world.see_neighbour(Some(&greatest));
    world.sent();
    world.meet(RUN, 40_000);
    assert_eq!(world.hello().terms, greatest.terms);
    let learned = BootRecord {
        terms: greatest.terms,
        ..record(RUN, 90_000)
    };
    world.read(RUN, Stored::Record(learned));
    assert_eq!(world.state(), NodeState::Voting);
}

#[test]
fn a_foreign_voter_stops_every_node_and_is_asked_again_every_second() {
    let mut world = World::voting();
    let foreign = BootRecord {
        masters: 5,
        ..record("bbbb/00000000/-1", 90_000)
    };
    world.see_neighbour(Some(&foreign));
    assert!(matches!(world.state(), NodeState::Refused(why) if why.contains("b:1")));
    assert!(world.acquire(1).is_err());
    world.release(2);
    assert_eq!(kinds(&world.sent()), ["release"], "it is obeyed by anybody");
    world.step(|session, step| session.meet_again(step));
    let hello = world.hello();
    assert_eq!((hello.vouch, hello.known), (Vouch::Stranger, None));
    world.answer(Ok(Reply::Mutex(mutex::Reply::Released(true))));
    world.meet(RUN, 40_000);
    world.pass(Duration::from_millis(1100));
    assert_eq!(kinds(&world.sent()), ["hello"]);
    world.see_neighbour(None);
    assert_eq!(world.state(), NodeState::Voting);
}

#[test]
fn what_is_not_of_this_fleet_is_refused_with_both_sides_and_a_way_out() {
    let of = |witnessed| {
        Stored::Record(BootRecord {
            list: "theirs".into(),
            ..record(RUN, witnessed)
        })
    };
    for (stored, texts) in [
        (
            of(40_000),
            [
                "\"theirs\"",
                "\"word\"",
                "QUORATE_FLEET",
                "DEL quorate:boot",
            ],
        ),
        (
            of(0),
            [
                "\"theirs\"",
                "\"word\"",
                "it is replaced",
                "DEL quorate:boot",
            ],
        ),
        (
            Stored::Other("1".into()),
            ["format 1", "format 2", "one version", "DEL quorate:boot"],
        ),
        (Stored::Nothing, ["no record", "", "", ""]),
    ] {
        let mut world = World::new();
        world.dial(7);
        world.read(RUN, stored);
        let NodeState::Refused(why) = world.state() else {
            panic!("{:?}", world.state())
        };
        assert!(texts.iter().all(|text| why.contains(text)), "{why}");
        world.sent();
        world.pass(Duration::from_millis(1100));
        assert_eq!(kinds(&world.sent()), ["hello"], "every second");
    }
}

#[test]
fn a_damaged_counter_is_taken_from_no_reply() {
    let max = FencingToken::MAX;
    let holder = Some(("x".to_owned(), None));
    let held = |counter| {
        Reply::Mutex(mutex::Reply::Held {
            remaining: None,
            counter,
            holder: Some("x".into()),
        })
    };
    let inspected = |counter| {
        Reply::Mutex(mutex::Reply::Inspected {
            holder: holder.clone(),
            counter,
        })
    };
    for reply in [
        Reply::Mutex(mutex::Reply::Granted(max)),
        Reply::Mutex(mutex::Reply::Raised(max)),
        held(max),
        inspected(max),
        Reply::Mutex(mutex::Reply::Extended),
    ] {
        assert_eq!(reply.clone().credible(), Ok(reply));
    }
    for damaged in [max + 1, u64::MAX] {
        for reply in [
            Reply::Mutex(mutex::Reply::Granted(damaged)),
            Reply::Mutex(mutex::Reply::Raised(damaged)),
        ] {
            match reply.credible() {
                Err(Fault::Error(why)) => assert!(why.contains("damaged"), "{why}"),
                other => panic!("{other:?}"),
            }
        }
        // Who holds is still told.
        assert_eq!(held(damaged).credible(), Ok(held(0)));
        assert_eq!(inspected(damaged).credible(), Ok(inspected(0)));
    }
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(max + 1))));
    let heard = world.heard.pop_front().unwrap();
    assert!(matches!(heard.answer, Err(Silence::Failed(why)) if why.contains("damaged")));
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn nobody_is_stalled_before_time_was_looked_at() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    // The process stood still, and what arrived meanwhile is unread.
    world.now = world.now.plus(10_000 * MS);
    assert_eq!(world.state(), NodeState::Voting);
    assert_eq!(world.acquire(2), Ok(()));
    let seen = world.now.minus(9_501 * MS);
    world.step(|session, step| session.tick(step, seen));
    assert_eq!(world.state(), NodeState::Voting, "seen until 499 ms only");
    world.step(|session, step| session.tick(step, seen.plus(MS)));
    assert!(matches!(world.state(), NodeState::Stalled(_)));
}

#[test]
fn a_node_that_answers_ever_later_is_stalled_until_nothing_is_overdue() {
    let mut world = World::voting();
    for (ticket, wait) in [(1, 0), (2, 100), (3, 10)] {
        world.pass(wait * MS);
        assert_eq!(world.acquire(ticket), Ok(()));
    }
    world.pass(390 * MS);
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
    world.pass(99 * MS);
    assert_eq!(world.state(), NodeState::Voting, "the second is 499 ms old");
    world.pass(MS);
    assert_eq!(
        world.state(),
        NodeState::Stalled(500 * MS),
        "though it answered 100 ms ago"
    );
    world.pass(10 * MS);
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(2))));
    assert!(
        matches!(world.state(), NodeState::Stalled(_)),
        "the third is 500 ms old"
    );
    assert_eq!(world.acquire(4), Err(Silence::Stalled));
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(3))));
    assert_eq!(world.state(), NodeState::Voting);

    assert_eq!(world.acquire(5), Ok(()));
    world.pass(2 * MS);
    assert_eq!(world.acquire(6), Ok(()));
    world.pass(499 * MS);
    assert!(matches!(world.state(), NodeState::Stalled(_)));
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(5))));
    assert_eq!(world.state(), NodeState::Voting, "the last is 499 ms old");
}

#[test]
fn only_total_silence_closes_a_connection() {
    let mut world = World::voting();
    for ticket in 0..10 {
        assert_eq!(world.acquire(ticket), Ok(()));
    }
    for _ in 0..9 {
        world.pass(1_999 * MS);
        world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
    }
    assert!(matches!(world.state(), NodeState::Stalled(_)));
    assert!(!world.effects.iter().any(|e| matches!(e, Effect::Close(0))));
    world.pass(1_999 * MS);
    assert!(!world.effects.iter().any(|e| matches!(e, Effect::Close(0))));
    world.pass(MS);
    assert!(world.effects.iter().any(|e| matches!(e, Effect::Close(0))));
}

#[test]
fn the_time_that_a_node_may_take_begins_when_the_request_left() {
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.now = world.now.plus(3_000 * MS);
    assert!(world.session.has_unleft());
    world.left();
    assert!(!world.session.has_unleft());
    assert_eq!(world.acquire(2), Ok(()));
    world.pass(MS);
    world.left();
    world.pass(498 * MS);
    assert_eq!(world.state(), NodeState::Voting);
    world.pass(MS);
    assert!(matches!(world.state(), NodeState::Stalled(_)));
    // The second one is taken back; the first had left.
    world.step(|session, step| session.withdrawn(step, 1, 0));
    assert!(!world.session.has_unleft());
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
    assert_eq!(world.acquire(3), Ok(()));
    assert!(world.session.has_unleft());
}

/// As many as may be unanswered, and three more.
fn full() -> World {
    let mut world = World::voting();
    for ticket in 1..=MOST_IN_FLIGHT as u64 + 3 {
        assert_eq!(world.acquire(ticket), Ok(()));
    }
    world
}

const LAST: u64 = MOST_IN_FLIGHT as u64 + 3;

#[test]
fn what_is_too_much_waits_in_order() {
    let mut world = full();
    assert_eq!(world.sent().len(), MOST_IN_FLIGHT);
    world.release(LAST);
    world.release(1);
    world.step(|session, step| session.meet_again(step));
    assert_eq!(
        kinds(&world.sent()),
        ["hello"],
        "a handshake waits for nothing"
    );
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
    assert_eq!(world.sent().len(), 0, "the handshake has its place");
    for expected in ["acquire", "acquire", "acquire", "release", "release"] {
        world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
        assert_eq!(kinds(&world.sent()), [expected]);
    }
    world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
    assert_eq!(world.sent().len(), 0);
    assert_eq!(world.acquire(LAST + 1), Ok(()));
    assert_eq!(kinds(&world.sent()), ["acquire"], "there is room");
}

#[test]
fn what_waits_is_taken_back_from_a_node_that_stalls() {
    let mut world = full();
    world.release(LAST);
    world.release(1);
    world.pass(500 * MS);
    let stalled = |ticket| (ticket, Err(Silence::Stalled));
    let expected = [LAST - 2, LAST - 1, LAST, LAST].map(stalled);
    assert_eq!(
        world.told(),
        expected,
        "the ACQUIREs, and the RELEASE of one"
    );
    assert!(!world.session.is_idle(), "the first one left");
    world.sent();
    for ticket in 1..=MOST_IN_FLIGHT {
        assert!(matches!(world.state(), NodeState::Stalled(_)), "{ticket}");
        world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
    }
    assert_eq!(world.state(), NodeState::Voting);
    world.pass(Duration::ZERO);
    assert_eq!(kinds(&world.sent()), ["release"]);
}

#[test]
fn what_waits_when_the_connection_is_lost_was_never_asked() {
    let mut world = full();
    world.release(LAST);
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    let told = world.told();
    let (lost, unsent) = told.split_at(MOST_IN_FLIGHT);
    assert!(
        lost.iter()
            .all(|(_, said)| *said == Err(Silence::ConnectionLost))
    );
    assert_eq!(unsent.len(), 4);
    for (_, said) in unsent {
        assert_eq!(*said, Err(Silence::Unreachable("reset".into())));
    }
    assert!(world.session.is_idle(), "there is nothing to free");
}

#[test]
fn what_is_under_way_is_not_sent_twice_and_not_forgotten() {
    let mut world = World::voting();
    for ticket in 1..=6 {
        assert_eq!(world.acquire(ticket), Ok(()));
    }
    world.sent();
    world.answer(Err(Fault::NotAdmitted));
    world.answer(Err(Fault::NotAdmitted));
    world.answer(Err(Fault::NoScript));
    world.answer(Err(Fault::NoScript));
    assert_eq!(kinds(&world.sent()), ["hello", "load"]);
    // Neither had left.
    world.step(|session, step| session.withdrawn(step, 2, 0));
    world.answer(Err(Fault::NotAdmitted));
    world.answer(Err(Fault::NoScript));
    assert_eq!(kinds(&world.sent()), ["hello", "load"]);
    world.meet(RUN, 40_000);
    world.answer(Ok(Reply::Server(server::Reply::Loaded)));
    for answer in [Fault::NotAdmitted, Fault::NoScript] {
        assert_eq!(world.acquire(7), Ok(()));
        world.sent();
        world.answer(Err(answer));
        assert_eq!(world.sent().len(), 1);
        world.meet(RUN, 40_000);
    }
    assert_eq!(world.acquire(8), Ok(()));
    world.answer(Err(Fault::NotAdmitted));
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    world.effects.clear();
    world.dial(8);
    assert_eq!(kinds(&world.sent()), ["hello"]);
}

#[test]
fn releases_end_at_little_cost() {
    const MANY: u64 = 50_000;
    let mut world = World::new();
    for ticket in 0..MANY {
        // Later ones end earlier.
        let until = world.now.plus(u32::try_from(MANY - ticket).unwrap() * MS);
        world.step(|session, step| {
            session.release(step, &release_of(ticket), until, None);
        });
    }
    let start = cpu_time();
    for _ in 1..MANY {
        world.now = world.now.plus(MS);
        let seen = world.now;
        world.step(|session, step| session.tick(step, seen));
    }
    assert!(!world.session.is_idle(), "one is left");
    // A little late, so that not each that ends is a look at all.
    world.now = world.now.plus(50 * MS);
    let seen = world.now;
    world.step(|session, step| session.tick(step, seen));
    assert!(world.session.is_idle());
    let took = cpu_time() - start;
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn a_server_that_is_no_master_any_more_is_met_anew() {
    for text in [
        "READONLY You can't write against a read only replica.",
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down",
    ] {
        let mut world = World::voting();
        assert_eq!(world.acquire(1), Ok(()));
        assert_eq!(world.acquire(2), Ok(()));
        world.release(2);
        world.sent();
        world.answer(Err(Fault::Error(text.into())));
        let told = [
            (1, Err(Silence::Failed(text.into()))),
            (2, Err(Silence::ConnectionLost)),
        ];
        assert_eq!(world.told(), told);
        assert!(matches!(world.effects.front(), Some(Effect::Close(0))));
        assert!(matches!(world.state(), NodeState::Unreachable(..)));
        // What the shell still read of the old connection, and its end, are nothing.
        world.answer(Ok(Reply::Mutex(mutex::Reply::Granted(1))));
        world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
        world.effects.clear();
        world.dial(8);
        world.meet(RUN, 40_000);
        assert_eq!(kinds(&world.sent()), ["hello", "kill 7", "release"]);
    }
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.answer(Err(Fault::Error("READONLYISH".into())));
    assert_eq!(world.state(), NodeState::Voting, "another word");
}

#[test]
fn a_server_that_withholds_what_locks_need_is_dialled_anew() {
    let withheld = || Err(Fault::Withheld("NOPERM no".into()));
    let mut world = World::voting();
    assert_eq!(world.acquire(1), Ok(()));
    world.answer(withheld());
    let told = [(1, Err(Silence::Failed("NOPERM no".into())))];
    assert_eq!(world.told(), told);
    assert!(matches!(world.state(), NodeState::Unreachable(..)));

    let mut world = World::voting();
    world.pass(Duration::from_secs(6));
    assert_eq!(kinds(&world.sent()), ["hello"]);
    world.answer(withheld());
    assert!(matches!(world.state(), NodeState::Unreachable(..)));

    let mut world = World::voting();
    let survey = Operation::new(admission::Command::Survey);
    assert!(world.step(|session, step| session.ask_unvoting(step, tag(1), &survey)));
    world.answer(withheld());
    assert_eq!(world.told().len(), 1);
    assert_eq!(world.state(), NodeState::Voting, "only a bootstrap asks");
}

#[test]
fn a_note_is_that_of_the_connection() {
    let mut world = World::new();
    world.pass(MS);
    world.step(|session, step| session.connected(step, 7, Some("no EXISTS")));
    assert_eq!(world.session.note(), Some("no EXISTS"));
    world.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    assert_eq!(world.session.note(), Some("no EXISTS"));
    world.dial(8);
    assert_eq!(world.session.note(), None);
}

#[test]
fn a_server_that_denies_its_role_again_and_again_is_dialled_ever_less_often() {
    let mut world = World::new();
    let start = world.now;
    let mut dials = 0;
    while world.now.since(start) < Duration::from_secs(60) {
        while !world.effects.iter().any(|e| matches!(e, Effect::Dial(0))) {
            world.pass(MS);
        }
        dials += 1;
        world.effects.clear();
        world.step(|session, step| session.connected(step, dials, None));
        world.meet(RUN, 40_000);
        assert_eq!(world.acquire(dials), Ok(()));
        world.answer(Err(Fault::Error("READONLY".into())));
    }
    assert!((12..40).contains(&dials), "{dials} in a minute");
}

#[test]
fn a_release_is_waited_for_if_it_was_sent_at_once() {
    let mut world = World::voting();
    let patience = |world: &World, id| world.session.patience(Some(id), &world.settings);
    let id = world.release(1);
    assert_eq!(patience(&world, id), Some(world.now.plus(500 * MS)));
    world.answer(Err(Fault::Error("BUSY".into())));
    assert_eq!(world.acquire(2), Ok(()));
    assert_eq!(patience(&world, id), None, "it is sent again, some time");
    world.pass(200 * MS);
    assert_eq!(patience(&world, id), None);
    let mut world = World::new();
    world.dial(7);
    let id = world.release(1);
    world.meet(RUN, 40_000);
    assert_eq!(patience(&world, id), None, "it was late already");
}

// ---- the end ----------------------------------------------------------------------------------

/// Met, with 10 s of its quarantine left, and a majority in sight for 700 ms.
fn watched() -> World {
    let mut world = World::new();
    world.see_neighbour(Some(&record("bbbb/00000000/-1", 0)));
    world.dial(7);
    world.meet(RUN, Z - 10_000);
    world.sent();
    world.pass(Duration::from_millis(700));
    world.sent();
    world
}

#[test]
fn the_last_handshake_brings_what_was_counted() {
    let mut world = watched();
    world.step(|session, step| session.part(step));
    let hello = world.hello();
    assert_eq!(hello.witnessed, Z - 10_000 + 700);
    assert_eq!(hello.known, Some((RUN.into(), "id".into())));
    assert!(world.session.is_parting());
    world.meet(RUN, Z - 9_300);
    assert!(!world.session.is_parting(), "it was answered");
}

#[test]
fn the_last_handshake_is_that_which_is_under_way() {
    let mut world = watched();
    world.step(|session, step| session.meet_again(step));
    world.step(|session, step| session.part(step));
    assert_eq!(kinds(&world.sent()), ["hello"]);
    assert!(world.session.is_parting());
}

#[test]
fn a_last_handshake_is_waited_for_while_it_may_be_answered() {
    let mut stalled = watched();
    stalled.step(|session, step| session.part(step));
    stalled.pass(Duration::from_millis(499));
    assert!(stalled.session.is_parting());
    stalled.pass(Duration::from_millis(1));
    assert!(!stalled.session.is_parting(), "it is stalled");
    stalled.sent();
    stalled.step(|session, step| session.part(step));
    assert!(stalled.sent().is_empty(), "and asked for nothing more");

    let mut cut = watched();
    cut.step(|session, step| session.part(step));
    cut.step(|session, step| session.disconnected(step, &Disconnected("reset".into())));
    assert!(!cut.session.is_parting(), "its connection is gone");

    let mut refused = watched();
    refused.step(|session, step| session.part(step));
    refused.answer(Err(Fault::Error("OOM".into())));
    assert!(!refused.session.is_parting(), "an error is an answer");
}

#[test]
fn no_last_handshake_where_nothing_is_to_be_counted() {
    let mut voting = World::voting();
    voting.pass(Duration::from_millis(700));
    voting.step(|session, step| session.part(step));
    assert!(voting.sent().is_empty());

    let mut unmet = World::new();
    unmet.dial(7);
    unmet.sent();
    unmet.step(|session, step| session.part(step));
    assert!(unmet.sent().is_empty());
    assert!(!unmet.session.is_parting());
}
