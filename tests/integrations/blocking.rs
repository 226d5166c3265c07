//! Every primitive without async: from many threads, in async code, at the end of a program, and when a lease is lost.
//! The tests use real servers where many threads or a kill matter, and otherwise masters in this process.

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

/// The limit for things that must happen, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);
/// This ttl is longer than the patience. So a lock that is free within the patience was released, and its ttl was not
/// over.
const TTL: Duration = Duration::from_secs(60);
/// This ttl is short, but long enough to be renewed in time on a busy machine. A loss is announced 150 ms before its
/// end.
const SHORT: Duration = Duration::from_secs(3);
const PREFIX: &str = "quorate";
/// The interval of a quota. It is short, because the masters of a test have no history of an hour.
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

    /// Checks that nobody holds the name, at the latest at the end of the patience.
    #[track_caller]
    fn is_freed(&self, name: &str) {
        let client = self.client();
        let mutex = client.mutex(name).wait_timeout(PATIENCE);
        mutex.lock().unwrap().release().unwrap();
        client.shutdown().unwrap();
    }

    /// Checks that no client ever asked for the name.
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

// ---- a process of its own ------------------------------------------------------------------------

const GIVEN: &str = "QUORATE_TEST_GIVEN";

/// The argument that this program gets when it is started again as the process of a test.
fn given() -> Option<String> {
    std::env::var(GIVEN).ok()
}

/// Starts this program again as a process that runs only this test. Returns its output.
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

/// Runs the test in a process of its own, where it counts no threads of other tests.
#[track_caller]
fn alone(test: &str, run: impl FnOnce()) {
    match given() {
        Some(_) => run(),
        None => {
            let said = in_a_process(test, "yes");
            assert!(said.contains("1 passed"), "no such test: {said}");
            // A panic in the background does not end a test.
            assert!(!said.contains("panicked"), "{said}");
        }
    }
}
