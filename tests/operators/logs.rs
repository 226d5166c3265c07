//! The log: `src/docs/logs.md` lists every event, the lines about an outage are bounded, and no text from outside
//! begins a line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::support::{Kind, Server, ServerOptions};
use futures::future::join_all;
use quorate::{Error, Lease, LossReason, MemoryNode, NodeState, Quorum};
use tracing::{Event, Level, Metadata, Subscriber, field, span, subscriber::DefaultGuard};
use tracing_subscriber::{
    layer::{Context, Layer, SubscriberExt as _},
    registry::LookupSpan,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn s(s: u64) -> Duration {
    ms(s * 1000)
}

// ---- the collected log ----------------------------------------------------------------------

/// An event or a span. The message of a span is its name.
#[derive(Clone, Debug)]
struct Line {
    target: String,
    level: Level,
    message: String,
    fields: BTreeMap<String, String>,
    is_span: bool,
    at: tokio::time::Instant,
}

impl Line {
    fn new(metadata: &Metadata<'_>, is_span: bool) -> Self {
        Self {
            target: metadata.target().to_owned(),
            level: *metadata.level(),
            message: metadata.name().to_owned(),
            fields: BTreeMap::new(),
            is_span,
            at: tokio::time::Instant::now(),
        }
    }

    fn get(&self, field: &str) -> &str {
        match self.fields.get(field) {
            Some(value) => value,
            None => panic!("no {field} in {self:?}"),
        }
    }

    fn number(&self, field: &str) -> u64 {
        self.get(field).parse().unwrap()
    }
}

impl field::Visit for Line {
    fn record_str(&mut self, field: &field::Field, value: &str) {
        self.fields.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &field::Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => drop(self.fields.insert(name.into(), format!("{value:?}"))),
        }
    }
}

/// Everything that is logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Line>>>);

impl Log {
    fn start() -> (Self, DefaultGuard) {
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        let guard = tracing::subscriber::set_default(subscriber);
        (log, guard)
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The levels that a service reads: INFO, WARN and ERROR.
    fn read(&self) -> Vec<Line> {
        let read = |line: &&Line| line.level <= Level::INFO && !line.is_span;
        self.lines().iter().filter(read).cloned().collect()
    }

    fn of(&self, message: &str) -> Vec<Line> {
        let same = |line: &&Line| line.message == message;
        self.lines().iter().filter(same).cloned().collect()
    }

    /// The state and the level of every line about this node, at the levels that a service reads.
    fn states(&self, node: &str) -> Vec<(Level, String)> {
        let read = self.read();
        let ours = read
            .iter()
            .filter(|line| line.fields.get("node").is_some_and(|it| it == node));
        ours.map(|line| (line.level, line.get("state").to_owned()))
            .collect()
    }

    fn clear(&self) {
        self.lines().clear();
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::new(event.metadata(), false);
        event.record(&mut line);
        self.keep(line);
    }

    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        let mut line = Line::new(attributes.metadata(), true);
        attributes.record(&mut line);
        self.keep(line);
    }
}

impl Log {
    fn keep(&self, line: Line) {
        self.lines().push(line);
    }
}

// ---- faults and their lines -----------------------------------------------------------------

/// Masters in this process that vote.
async fn voting(n: usize) -> (Vec<MemoryNode>, Quorum) {
    let nodes: Vec<MemoryNode> = (0..n).map(|_| MemoryNode::new()).collect();
    let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum.voting(s(5)).await.unwrap();
    while quorum.health().voting < n {
        tokio::time::sleep(ms(1)).await;
    }
    (nodes, quorum)
}

async fn take(quorum: &Quorum, n: usize) -> Vec<Lease> {
    let mutexes = (0..n).map(|i| quorum.mutex(format!("job:{i}")).lock());
    join_all(mutexes)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

fn names(lines: &[Line]) -> BTreeSet<String> {
    lines
        .iter()
        .map(|line| line.get("name").to_owned())
        .collect()
}

fn address(quorum: &Quorum, node: usize) -> String {
    quorum.nodes()[node].node.to_string()
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_12_seconds_over_100_leases_is_under_150_lines() {
    let (log, _guard) = Log::start();
    let (nodes, quorum) = voting(5).await;
    let leases = take(&quorum, 100).await;
    log.clear();
    nodes[..3].iter().for_each(MemoryNode::stop);
    tokio::time::sleep(s(12)).await;
    nodes[..3].iter().for_each(MemoryNode::start);
    tokio::time::sleep(s(20)).await;

    let read = log.read();
    assert!(read.len() < 150, "{}: {read:#?}", read.len());
    // Each lease is lost, and has a line of its own.
    let lost = log.of("a lease is lost");
    assert_eq!((lost.len(), names(&lost).len()), (100, 100));
    for line in &lost {
        assert_eq!(line.level, Level::WARN);
        assert_eq!(line.get("reason"), LossReason::NodesLost.to_string());
        // A ttl of 10 s, which was renewed at most a third of it earlier. The loss is announced before the nodes are
        // back.
        assert!(
            (6_000..12_000).contains(&line.number("held_for_ms")),
            "{line:?}"
        );
    }
    assert!(leases.iter().all(|lease| !lease.is_valid()));
    // Ten names have a line each, and one line is for the others, which are named at DEBUG.
    let warned = log.of("a renewal failed, it is tried again");
    assert_eq!((warned.len(), names(&warned).len()), (10, 10));
    for line in &warned {
        assert_eq!(line.level, Level::WARN);
        // A ttl of 10 s is renewed after a third of it.
        assert!((1_000..8_000).contains(&line.number("left_ms")), "{line:?}");
        assert!(line.get("reason").contains("no majority"), "{line:?}");
        assert!(line.get("nodes").contains(&address(&quorum, 0)), "{line:?}");
    }
    let more = log.of("more renewals fail");
    assert_eq!((more.len(), more[0].level), (1, Level::WARN));
    assert_eq!(more[0].number("leases"), 100);
    let tried = log.of("a renewal failed");
    assert!(tried.len() > 1000, "{}", tried.len());
    assert!(tried.iter().all(|line| line.level == Level::DEBUG));
    assert_eq!(names(&tried).len(), 100);
    for node in 0..5 {
        let states = log.states(&address(&quorum, node));
        let states: Vec<&str> = states.iter().map(|(_, state)| state.as_str()).collect();
        let expected: &[&str] = match node {
            0..3 => &["unreachable", "connecting", "voting"],
            _ => &[],
        };
        assert_eq!(states, expected);
    }
    assert!(log.lines().iter().all(|line| line.target == "quorate"));
}

#[tokio::test(start_paused = true)]
async fn a_failing_renewal_is_warned_about_once_an_outage() {
    let (log, _guard) = Log::start();
    let (nodes, quorum) = voting(3).await;
    let mutexes = (0..3).map(|i| quorum.mutex(format!("job:{i}")).ttl(s(20)).lock());
    let leases: Vec<Lease> = join_all(mutexes)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    for outage in 1..=2 {
        log.clear();
        // They are renewed after 6.7 s, and then again every 0.8 s.
        tokio::time::sleep(s(5)).await;
        nodes[..2].iter().for_each(MemoryNode::stop);
        tokio::time::sleep(s(5)).await;
        nodes[..2].iter().for_each(MemoryNode::start);
        while leases.iter().any(|lease| lease.validity() < s(18)) {
            assert!(leases.iter().all(Lease::is_valid), "{outage}");
            tokio::time::sleep(ms(10)).await;
        }
        let warned = log.of("a renewal failed, it is tried again");
        assert_eq!((warned.len(), names(&warned).len()), (3, 3), "{outage}");
        assert!(log.of("a renewal failed").len() > 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_is_told_once_a_change() {
    let (log, _guard) = Log::start();
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    nodes.iter().for_each(MemoryNode::restart_empty);
    let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    for node in 0..3 {
        assert_eq!(
            log.states(&address(&quorum, node)),
            [(Level::WARN, "quarantined".to_owned())]
        );
    }
    let young = &log.of("a node does not vote")[0];
    // A quarantine of 35.3 s that has just begun.
    assert!((20_000..=60_000).contains(&young.number("votes_in_ms")));
    assert!(young.get("reason").contains("restarted"), "{young:?}");

    log.clear();
    quorum.bootstrap_forced().await.unwrap();
    quorum.voting(s(5)).await.unwrap();
    tokio::time::sleep(s(60)).await;
    let votes = log.of("a node votes");
    assert_eq!(log.read().len(), 3, "{:#?}", log.read());
    let counts: Vec<_> = votes
        .iter()
        .map(|line| (line.level, line.number("voting"), line.number("needed")))
        .collect();
    assert_eq!(
        counts,
        [
            (Level::INFO, 1, 2),
            (Level::INFO, 2, 2),
            (Level::INFO, 3, 2)
        ]
    );

    log.clear();
    let first = address(&quorum, 0);
    nodes[0].stop();
    // The node is dialled many times meanwhile.
    tokio::time::sleep(s(120)).await;
    assert_eq!(
        log.states(&first),
        [(Level::WARN, "unreachable".to_owned())]
    );
    let down = &log.of("a node does not vote")[0];
    assert!(down.get("reason").contains("stopped"), "{down:?}");
    assert_eq!((down.number("voting"), down.number("needed")), (2, 2));
    log.clear();
    nodes[0].start();
    tokio::time::sleep(s(60)).await;
    let back = ["connecting", "voting"].map(|state| (Level::INFO, state.to_owned()));
    assert_eq!(log.states(&first), back);
    assert_eq!(log.read().len(), 2, "of the others nothing");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_flaps_does_not_flood() {
    let (log, _guard) = Log::start();
    let (nodes, quorum) = voting(3).await;
    let flapping = address(&quorum, 2);
    tokio::time::sleep(s(60)).await;
    log.clear();
    let began = tokio::time::Instant::now();
    while began.elapsed() < s(280) {
        nodes[2].stop();
        tokio::time::sleep(s(1)).await;
        nodes[2].start();
        while quorum.health().voting < 3 {
            tokio::time::sleep(ms(10)).await;
        }
    }
    let read = log.read();
    assert_eq!(read.len(), 7 + 4, "six, and one a minute: {read:#?}");
    let minute = |line: &&Line| line.at - began < s(60);
    assert_eq!(read.iter().filter(minute).count(), 7);
    let sums = log.of("a node flaps");
    assert!(sums.iter().all(|line| line.level == Level::WARN));
    assert_eq!((sums.len(), sums[0].number("changes")), (5, 7));
    let changes: Vec<u64> = sums[1..]
        .iter()
        .map(|line| line.number("changes"))
        .collect();
    assert!(changes.iter().all(|n| *n >= 20), "{changes:?}");
    assert!(sums.iter().all(|line| line.get("node") == flapping));
    let minor = log.of("a node that flaps changed");
    assert!(minor.len() > 100 && minor.iter().all(|line| line.level == Level::DEBUG));

    // The node is steady again. One line says for how long it was not, and one line says its state.
    log.clear();
    tokio::time::sleep(s(300)).await;
    let told = [(Level::WARN, "voting"), (Level::INFO, "voting")];
    let told = told.map(|(level, state)| (level, state.to_owned()));
    assert_eq!(log.states(&flapping), told);
    log.clear();
    nodes[2].stop();
    tokio::time::sleep(s(1)).await;
    assert_eq!(
        log.states(&flapping),
        [(Level::WARN, "unreachable".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_too_far_away_for_a_rate_limit_is_said_once_and_the_others_serve() {
    let (log, _guard) = Log::start();
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    quorum.bootstrap().await.unwrap();
    quorum.voting(Duration::from_secs(60)).await.unwrap();
    nodes[2].delay(Duration::from_millis(150));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let limiter = quorum.rate_limiter("a", quorate::Quota::per_second(30));
    for _ in 0..3 {
        assert!(limiter.check_n(20).await.unwrap().is_allowed());
        assert!(!limiter.check().await.unwrap().is_allowed());
        let error = limiter.check_n(21).await.unwrap_err();
        assert!(matches!(error, quorate::Error::TooSlow(_)), "{error}");
        assert!(error.to_string().contains("answer too slowly"), "{error}");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let told = log.of("a node is too far away for a rate limit");
    assert_eq!((told.len(), told[0].level), (1, Level::WARN));
    assert_eq!(told[0].number("grace_ms"), 100);
    assert!(told[0].number("round_trip_ms") >= 100, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn ten_waits_for_a_quarantine_a_minute_are_warned_about() {
    let (log, _guard) = Log::start();
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    nodes.iter().for_each(MemoryNode::restart_empty);
    let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    let leases = take(&quorum, 15).await;
    assert_eq!(leases.len(), 15, "each waited until it was over");
    let warned = log.of("waiting for a quarantine to end");
    assert_eq!((warned.len(), names(&warned).len()), (10, 10));
    for line in &warned {
        assert_eq!(line.level, Level::WARN);
        // A quarantine of 35.3 s that has just begun.
        assert!((20_000..=60_000).contains(&line.number("votes_in_ms")));
        assert!(line.get("reason").contains("bootstrap --new"), "{line:?}");
        assert!(line.get("nodes").contains("quarantined"), "{line:?}");
    }
    let others = log.of("one more waits for a quarantine to end");
    assert_eq!((others.len(), others[0].level), (5, Level::DEBUG));
    assert!(names(&others).is_disjoint(&names(&warned)));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_held_for_long_is_told_once() {
    let (log, _guard) = Log::start();
    let (_nodes, quorum) = voting(3).await;
    let lease = quorum.mutex("a").ttl(s(1)).lock().await.unwrap();
    tokio::time::sleep(s(200)).await;
    let told = log.of("a lease has been held for 60 ttl");
    assert_eq!((told.len(), told[0].level), (1, Level::WARN));
    assert_eq!(told[0].get("name"), "a");
    // The line comes at the first renewal after 60 ttls.
    assert!((60_000..62_000).contains(&told[0].number("held_for_ms")));
    assert!(lease.is_valid());
}

const OWN: &str = "a call waits for a lock that this process itself holds";

#[tokio::test(start_paused = true)]
async fn a_ttl_above_max_ttl_is_told_once_before_a_lock_is_asked_for() {
    let (_nodes, quorum) = voting(3).await;
    let (log, _guard) = Log::start();
    let fine = quorum.mutex("a").ttl(s(30));
    assert!(log.read().is_empty());
    let mutex = quorum.mutex("a").ttl(s(60));
    let _ = quorum.semaphore("b", 2).ttl(s(90));
    let told = log.of("a ttl is above max_ttl: every lock with it is Invalid");
    assert_eq!(told.len(), 1, "once in a process: {told:?}");
    assert_eq!(
        (told[0].number("ttl_ms"), told[0].number("max_ttl_ms")),
        (60_000, 30_000)
    );
    assert!(matches!(mutex.validate(), Err(Error::Invalid(_))));
    assert!(matches!(mutex.try_lock().await, Err(Error::Invalid(_))));
    assert!(fine.try_lock().await.unwrap().is_some());
    assert_eq!(log.read().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asks_again_for_what_it_holds_is_warned_about_once() {
    let (log, _guard) = Log::start();
    let (nodes, quorum) = voting(3).await;
    let other = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    other.voting(s(60)).await.unwrap();
    let mutex = quorum.mutex("mutex");
    let (twice, rwlock) = (mutex.clone().label("again"), quorum.rwlock("rwlock"));
    let one = quorum.semaphore("semaphore", 1);
    let nested = quorum.rwlock("nested");
    let first = (
        mutex.label("first").lock().await.unwrap(),
        rwlock.read().await.unwrap(),
        one.acquire().await.unwrap(),
        nested.read().await.unwrap(),
    );
    // A writer elsewhere waits for the first read, and the second one waits for the writer.
    let writer = tokio::spawn(other.rwlock("nested").write());
    tokio::time::sleep(s(1)).await;
    let again = async {
        tokio::join!(
            twice.lock(),
            rwlock.write(),
            one.acquire(),
            nested.read(),
            twice.lock(),
        )
    };
    // The default ttl is 10 s.
    assert!(tokio::time::timeout(s(60), again).await.is_err());
    let told = log.of(OWN);
    let all = ["mutex", "nested", "rwlock", "semaphore"];
    assert_eq!(told.len(), all.len(), "{told:#?}");
    assert_eq!(names(&told), all.map(str::to_owned).into());
    for line in &told {
        assert_eq!(line.level, Level::WARN);
        assert!(
            (10_000..13_000).contains(&line.number("held_for_ms")),
            "{line:?}"
        );
    }
    let mutex = told
        .iter()
        .find(|line| line.get("name") == "mutex")
        .unwrap();
    assert_eq!(
        (mutex.get("holder"), mutex.get("waiter")),
        ("first", "again")
    );
    writer.abort();
    drop(first);
}

/// Tasks of one process that contend in turns are no reason for a warning, however long they wait.
#[tokio::test(start_paused = true)]
async fn tasks_that_take_turns_are_not_warned_about() {
    let (log, _guard) = Log::start();
    let (_nodes, quorum) = voting(3).await;
    let turns = (0..12).map(|_| {
        let mutex = quorum.mutex("turns");
        async move {
            let lease = mutex.lock().await.unwrap();
            tokio::time::sleep(s(8)).await;
            lease.release().await.unwrap();
        }
    });
    join_all(turns).await;
    // A wait that has an end within a ttl, while another task holds it for longer.
    let _held = quorum.mutex("held").lock().await.unwrap();
    let soon = quorum.mutex("held").wait_timeout(s(9)).lock().await;
    assert!(soon.is_err());
    tokio::time::sleep(s(30)).await;
    assert_eq!(log.of(OWN).len(), 0, "{:#?}", log.of(OWN));
}

/// Work of one task may take longer than a ttl. That is what renewal is for.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_long_for_another_one_is_not_warned_about() {
    let (log, _guard) = Log::start();
    let (_nodes, quorum) = voting(3).await;
    let work = || {
        let mutex = quorum.mutex("long");
        tokio::spawn(async move {
            let lease = mutex.lock().await.unwrap();
            tokio::time::sleep(s(45)).await;
            lease.release().await.unwrap();
        })
    };
    let first = work();
    tokio::time::sleep(s(1)).await;
    let second = work();
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!(log.of(OWN).len(), 0, "{:#?}", log.of(OWN));
}

/// A process was paused, so its holders see the end of their time before the engine does.
#[tokio::test]
async fn a_loss_that_its_holder_sees_first_is_told_too() {
    let (log, _guard) = Log::start();
    let (_nodes, quorum) = voting(3).await;
    let ttl = ms(500);
    let work = |_| async {
        loop {
            tokio::time::sleep(ms(2)).await;
        }
    };
    let run = |i| tokio::spawn(quorum.mutex(format!("{i}")).ttl(ttl).run::<_, _, ()>(work));
    let runs: Vec<_> = (0..20).map(run).collect();
    tokio::time::sleep(ms(100)).await;
    std::thread::sleep(ttl + ms(500));
    for run in join_all(runs).await {
        assert!(matches!(run.unwrap(), Err(quorate::Error::Lost(_))));
    }
    let told = log.of("a lease is lost");
    assert_eq!((told.len(), names(&told).len()), (20, 20), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_shutdown_gives_up_is_told() {
    let (log, _guard) = Log::start();
    let (_nodes, quorum) = voting(3).await;
    let lease = quorum.mutex("a").lock().await.unwrap();
    assert_eq!(quorum.shutdown().await, ["a"]);
    assert_eq!(lease.lost().await, LossReason::NodesLost);
    assert_eq!(names(&log.of("a lease is lost")), ["a".to_owned()].into());
    drop(lease);
    assert_eq!(log.of("a lease is lost").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_tells_that_its_release_was_not_confirmed() {
    let (log, _guard) = Log::start();
    let (nodes, quorum) = voting(3).await;
    let done = quorum.mutex("a").run(async move |_| {
        nodes.iter().for_each(MemoryNode::stop);
        7
    });
    assert_eq!(done.await.unwrap(), 7);
    let told = log.of("a release was not confirmed");
    assert_eq!((told.len(), told[0].level), (1, Level::WARN));
    assert_eq!(told[0].get("name"), "a");
    assert!(told[0].get("nodes").contains("memory:"), "{told:?}");
}

/// These states need real servers, because a master in this process cannot have them.
#[tokio::test]
async fn stalled_and_refused_nodes_are_warned_about() {
    let (log, _guard) = Log::start();
    let [slow, well] = std::array::from_fn(|_| Server::start(Kind::Redis));
    let closed = ServerOptions::new(Kind::Redis).password("secret-7").start();
    let quorum = Quorum::builder()
        .nodes([slow.url(), well.url()])
        .node(closed.url_with("default", "wrong-9"))
        .max_ttl(s(1))
        .node_timeout(ms(100))
        .connect()
        .await
        .unwrap();
    let until = async |node: usize, is_so: fn(&NodeState) -> bool| {
        let mut left = 4_000;
        while !is_so(&quorum.nodes()[node].state) {
            left -= 1;
            assert!(left > 0, "{quorum:?}");
            tokio::time::sleep(ms(5)).await;
        }
    };
    until(2, |state| matches!(state, NodeState::Refused(_))).await;
    until(0, |state| matches!(state, NodeState::Quarantined(_))).await;
    let refused = log.states(&address(&quorum, 2));
    assert_eq!(refused, [(Level::WARN, "refused".to_owned())]);
    let line = log.of("a node does not vote");
    let line = line.iter().find(|line| line.get("state") == "refused");
    assert!(line.unwrap().get("reason").contains("password"), "{line:?}");

    slow.sigstop();
    until(0, |state| matches!(state, NodeState::Unreachable(..))).await;
    slow.sigcont();
    let states = log.states(&address(&quorum, 0));
    let expected = ["quarantined", "stalled", "unreachable"];
    assert_eq!(
        states,
        expected.map(|state| (Level::WARN, state.to_owned()))
    );
}

#[tokio::test(start_paused = true)]
async fn every_operation_is_a_span() {
    let (log, _guard) = Log::start();
    let quorum = Quorum::in_memory(3);
    let lease = quorum.mutex("a").wait_timeout(s(3)).lock().await.unwrap();
    lease.extend().await.unwrap();
    lease.release().await.unwrap();
    quorum.inspect("a").await.unwrap();
    quorum.evict("a").await.unwrap();
    let limiter = quorum.rate_limiter("a", quorate::Quota::per_second(3));
    assert!(limiter.check().await.unwrap().is_allowed());
    quorum.bootstrap().await.unwrap();
    let lines = log.lines();
    let spans: Vec<&Line> = lines.iter().filter(|line| line.is_span).collect();
    let names: Vec<&str> = spans.iter().map(|line| line.message.as_str()).collect();
    let expected = [
        "acquire",
        "extend",
        "release",
        "inspect",
        "evict",
        "spend",
        "bootstrap",
    ];
    assert_eq!(names, expected);
    for span in &spans {
        assert_eq!(
            (span.target.as_str(), span.level),
            ("quorate", Level::DEBUG)
        );
        match span.message.as_str() {
            "bootstrap" => assert_eq!(span.get("mode"), "New"),
            _ => assert_eq!(span.get("name"), "a"),
        }
    }
    assert_eq!(spans[0].number("wait_ms"), 3000);
}

/// A name may come from somebody else's request.
#[tokio::test(start_paused = true)]
async fn a_line_break_in_a_name_starts_no_log_line() {
    #[derive(Clone, Default)]
    struct Text(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Text {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let text = Text::default();
    let writer = text.clone();
    let log = tracing_subscriber::fmt()
        .with_max_level(Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(log);
    let (nodes, quorum) = voting(3).await;
    let name = "a\nWARN quorate: all is lost\x1b[2J";
    let lease = quorum.mutex(name).lock().await.unwrap();
    nodes.iter().for_each(MemoryNode::stop);
    assert_eq!(lease.lost().await, LossReason::NodesLost);
    tokio::time::sleep(s(1)).await;
    assert!(lease.release().await.is_err());
    let text = String::from_utf8(text.0.lock().unwrap().clone()).unwrap();
    for event in [
        "acquired",
        "a renewal failed",
        "a lease is lost",
        "released",
    ] {
        assert!(text.contains(event), "{event}: {text}");
    }
    assert!(text.contains(r"all is lost\u{1b}[2J"), "{text}");
    assert!(!text.contains('\x1b') && !text.contains("\nWARN"), "{text}");
}

// ---- the page -------------------------------------------------------------------------------

/// An event: its level, message and fields.
type Entry = (String, String, BTreeSet<String>);

#[test]
fn the_page_lists_every_event_and_span_as_the_code_has_it() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut code = BTreeSet::new();
    for file in rust_files(&root) {
        let inside = file.strip_prefix(&root).unwrap();
        if inside == Path::new("base/logs.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for foreign in [
            "tracing::debug",
            "tracing::info",
            "tracing::warn",
            "tracing::error",
            "tracing::trace",
            "tracing::event",
            "tracing::span",
            "#[instrument",
            "tracing::instrument",
        ] {
            assert!(
                !text.contains(foreign),
                "{}: {foreign} has another target",
                file.display()
            );
        }
        for imported in text.split("use tracing::").skip(1) {
            // The trait, and the type that it makes. Neither has a target.
            let harmless = [
                "Instrument;",
                "{Instrument as _, instrument::Instrumented};",
            ];
            let is_harmless = harmless.iter().any(|text| imported.starts_with(text));
            assert!(is_harmless, "{}", file.display());
        }
        code.extend(logged(&text));
    }
    let macros = fs::read_to_string(root.join("base/logs.rs")).unwrap();
    let all = macros.matches("::tracing::").count();
    let ours = macros
        .matches("!(target: $crate::base::logs::TARGET, ")
        .count();
    assert_eq!((all, ours), (4, 4));
    let page = fs::read_to_string(root.join("docs/logs.md")).unwrap();
    let page = listed(&page);
    assert!(code.len() > 15, "{code:#?}");
    let missing: Vec<_> = code.difference(&page).collect();
    let untrue: Vec<_> = page.difference(&code).collect();
    assert!(missing.is_empty(), "not in the page: {missing:#?}");
    assert!(untrue.is_empty(), "not in the code: {untrue:#?}");
}

#[test]
fn the_test_reads_code_and_page() {
    let code = "logs::warn!(\n    name = logs::f(a, \"x, y\"),\n    %node, ?mode,\n    reason,\n    \"it fails, again\"\n);";
    let fields = ["name", "node", "mode", "reason"].map(str::to_owned);
    let entry = (
        "WARN".to_owned(),
        "it fails, again".to_owned(),
        BTreeSet::from(fields),
    );
    assert_eq!(logged(code), std::slice::from_ref(&entry));
    let page = "| level | message | fields | when |\n| --- | --- | --- | --- |\n| WARN | it fails, again | `name`, `node`, `mode`, `reason` | `x` |\n";
    assert_eq!(listed(page), BTreeSet::from([entry]));
    assert_eq!(logged("logs::span!(\"evict\", name = n)")[0].0, "span");
}

/// The events of all `logs::…!(…)` calls in this text.
fn logged(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (at, prefix) in text.match_indices("logs::") {
        let Some((word, rest)) = text[at + prefix.len()..].split_once("!(") else {
            continue;
        };
        let level = match word {
            "error" | "warn" | "info" | "debug" => word.to_uppercase(),
            "span" => word.to_owned(),
            _ => continue,
        };
        let (mut message, mut fields) = (String::new(), BTreeSet::new());
        for argument in arguments(rest) {
            match argument.strip_prefix('"') {
                Some(text) => message = text.trim_end_matches('"').to_owned(),
                None => {
                    let name = argument.split('=').next().unwrap().trim();
                    fields.insert(name.trim_start_matches(['%', '?']).to_owned());
                }
            }
        }
        entries.push((level, message, fields));
    }
    entries
}

/// The texts between the commas, up to the closing bracket.
fn arguments(text: &str) -> Vec<String> {
    let (mut depth, mut in_text, mut found) = (0, false, vec![String::new()]);
    for c in text.chars() {
        match c {
            '"' => in_text = !in_text,
            '(' | '[' | '{' if !in_text => depth += 1,
            ')' if !in_text && depth == 0 => break,
            ')' | ']' | '}' if !in_text => depth -= 1,
            ',' if !in_text && depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        found.last_mut().unwrap().push(c);
    }
    let found = found.iter().map(|argument| argument.trim().to_owned());
    found.filter(|argument| !argument.is_empty()).collect()
}

/// The rows of the page's tables: level, message, fields, and a text for people.
fn listed(page: &str) -> BTreeSet<Entry> {
    let mut entries = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        if !matches!(cells[0], "ERROR" | "WARN" | "INFO" | "DEBUG" | "span") {
            continue;
        }
        let fields = cells[2]
            .split(',')
            .map(|field| field.trim().trim_matches('`'));
        let fields = fields.filter(|field| !field.is_empty()).map(str::to_owned);
        let message = cells[1].trim_matches('`').to_owned();
        entries.insert((cells[0].to_owned(), message, fields.collect()));
    }
    entries
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files
}
