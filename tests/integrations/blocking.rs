//! Every primitive without async: from many threads, in async code, at the end, when a lease is lost. On real servers
//! where many threads or a kill matter, else on masters in this process.

mod asynchronous;
mod closed;
mod consul;
mod ending;
mod lost;
mod places;
mod running;
mod threads;

use std::{
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use crate::support::{Fleet, again, most_within};
use quorate::{
    MemoryNode,
    blocking::{Builder, Quorum},
};

/// For what must come, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than that: what comes within the patience came by a release, and not because a ttl was over.
const TTL: Duration = Duration::from_secs(60);
/// Short, and renewed in time on a busy machine too. A loss is announced 150 ms before it.
const SHORT: Duration = Duration::from_secs(3);
const PREFIX: &str = "quorate";
/// Of a quota. The masters of a test have no history that is long enough for an hour.
const LONG: Duration = Duration::from_secs(30);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn builder() -> Builder {
    Quorum::builder()
        .node_timeout(Duration::from_secs(3))
        .max_ttl(TTL)
}

/// Three servers that vote, and a client of them.
fn servers() -> (Fleet, Quorum) {
    let fleet = Fleet::mixed(3);
    let quorum = builder().nodes(fleet.urls()).connect().unwrap();
    quorum.bootstrap_forced().unwrap();
    quorum.voting(PATIENCE).unwrap();
    (fleet, quorum)
}

/// Three masters in this process that vote.
struct Masters([MemoryNode; 3]);

impl Masters {
    fn new() -> Self {
        let masters = Self(Default::default());
        masters.client().bootstrap_forced().unwrap();
        masters
    }

    /// Another client of them.
    fn client(&self) -> Quorum {
        builder().nodes(&self.0).connect().unwrap()
    }

    /// Nobody holds it, or will within the patience.
    #[track_caller]
    fn is_freed(&self, name: &str) {
        let client = self.client();
        let mutex = client.mutex(name).wait_timeout(PATIENCE);
        mutex.lock().unwrap().release().unwrap();
        client.shutdown().unwrap();
    }

    /// No client ever asked for it.
    #[track_caller]
    fn is_untouched(&self, name: &str) {
        let seen = self.client().inspect(name).unwrap();
        assert!(seen.newest_token().is_none(), "{seen}");
        assert!(seen.nodes.iter().all(|node| node.holder.is_none()));
    }
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < PATIENCE,
            "not within the patience: {what}"
        );
        thread::sleep(ms(5));
    }
}

/// The threads of this process with this name.
fn threads_called(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name_of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    let names = tasks.filter_map(|task| name_of(task.ok()?));
    names.filter(|comm| comm.trim_end() == name).count()
}

// ---- a process of one's own ---------------------------------------------------------------------

const GIVEN: &str = "QUORATE_TEST_GIVEN";

/// What this program is given when it is started again as the process of a test.
fn given() -> Option<String> {
    std::env::var(GIVEN).ok()
}

/// Starts this program again, as a process with this test and nothing else; what it said.
#[track_caller]
fn in_a_process(test: &str, given: &str) -> String {
    let done = again(module_path!(), test)
        .env(GIVEN, given)
        .stdin(Stdio::null())
        .output()
        .expect("setpriv (Debian: util-linux)");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{test}: {said}{errors}");
    said + &errors
}

/// Runs it in a process of its own, where it counts no threads of other tests.
#[track_caller]
fn alone(test: &str, run: impl FnOnce()) {
    match given() {
        Some(_) => run(),
        None => {
            let said = in_a_process(test, "yes");
            assert!(said.contains("1 passed"), "no such test: {said}");
            // In the background a panic ends no test.
            assert!(!said.contains("panicked"), "{said}");
        }
    }
}
