//! The examples work as they say: each one by itself, and the pool of workers on real servers, where workers are
//! killed.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use crate::support::{Agent, Fleet, HANG, Kind, Server};
use rustix::process::{Pid, Signal, kill_process};

/// The limit for things that must happen, on a busy machine too.
const PATIENCE: Duration = HANG;

/// Builds the example, because a test that is run alone may find an old build or none.
fn example(name: &str) -> Command {
    let ours = std::env::current_exe().unwrap();
    let profile = ours.parent().and_then(Path::parent).unwrap();
    let mut cargo = without(
        Command::new(env!("CARGO")),
        // These variables of the test would cause half of the dependencies to be built again.
        &["CARGO_MANIFEST_", "CARGO_PKG_"],
    );
    // Built with the whole workspace, the dependencies have the features that the tests were built with.
    cargo.args(["build", "--quiet", "--workspace", "--all-features"]);
    cargo.args(["--example", name]);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(built.unwrap().success(), "{name} does not build");
    let example = Command::new(profile.join("examples").join(name));
    without(example, &["CONSUL_", "QUORATE_"])
}

/// Removes the variables that begin with one of these.
fn without(mut command: Command, prefixes: &[&str]) -> Command {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if prefixes.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn says(name: &str, variable: &str, value: &str) -> String {
    let done = example(name).env(variable, value).output().unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}: {said}{errors}");
    assert!(!said.contains("unexpected"), "{name}: {said}{errors}");
    said
}

/// Checks that all parts are printed in this order.
#[track_caller]
fn tells(said: &str, parts: &[&str]) {
    let mut rest = said;
    for part in parts {
        let (_, behind) = rest
            .split_once(part)
            .unwrap_or_else(|| panic!("{part:?} is not said, or too early:\n{said}"));
        rest = behind;
    }
}

const PRICES: &[&str] = &[
    "edition 1 is built, with token ",
    "  and checked under a read lock: ",
    "edition 3 is built, with token ",
    "8 readers have read ",
    " times, and never half of a list",
    "edition 2 was read in epochs ",
    "edition 3 was read in epochs ",
];
const ACCOUNTS: &[&str] = &[
    "4 clerks make transfers between 6 accounts",
    "all 100 are done: nobody waits for ever",
    "the accounts hold 600 together, as at first",
    "a clerk has \"account:1, account:4\", reads, and sleeps",
    "the bank refuses: token ",
    "the accounts hold 600 together, as at first",
];

#[test]
fn every_example_is_in_the_list_and_tells_its_story() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let list = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let stories: BTreeMap<&str, &[&str]> = BTreeMap::from([
        (
            "quickstart",
            &["I hold invoice:42", "The paused one is too late"][..],
        ),
        (
            "line",
            &[
                "4 wait in the queue",
                "bob gives up",
                "ann prints",
                "joe prints",
            ],
        ),
        ("reentrant", &[]),
        (
            "leader",
            &[
                "ann leads, with token ",
                "ann leads no more: the lease is lost: no heartbeat came in time",
                "bob leads, with token ",
                "bob hands over, because the program ends",
                "and 0 locks are left to their ttl",
            ],
        ),
        (
            "axum_service",
            &[
                "of 30 requests of ann to both, 20 were served",
                "10 got 429, Retry-After: ",
                "bob has a limit of his own: 200 OK",
                "of 8 exports on both, 8 were done, never more than 2 at a time",
                ": 204 No Content",
                ": 412 Precondition Failed",
                "both have stopped",
            ],
        ),
        (
            "reqwest_client",
            &[
                "4 clients call for 5s",
                "number 4 got ",
                "in the busiest interval of 2s",
                "The supplier has nothing to complain of",
            ],
        ),
        (
            "blocking",
            &[
                "bob does not wait for the report: it is held",
                "ann's report has to stop: it was held for max_hold",
                "bob's report has the newer token",
                "ann did ",
                "bob did ",
                "40 jobs, 2 converted at once, ",
                "Each job was done once, and no limit was exceeded",
            ],
        ),
        (
            "consul",
            &[
                "the nightly job runs here, with token ",
                "another one gives up: ",
                "the store takes token ",
                " exports, with token ",
                "2 of 2 permits are free",
            ],
        ),
        ("fencing", &["takes whatever comes", "checks tokens"]),
        ("rwlock", PRICES),
        ("transfer", ACCOUNTS),
        (
            "supplier",
            &[
                "12 call the supplier",
                "number 12 made ",
                "in the busiest interval of 3s",
                "That is not above 2000",
            ],
        ),
        (
            "worker_pool",
            &[
                "ann has slot ",
                "3 of 3 slots are taken; 1 waits in the queue",
                "ann is dead",
                "joe has slot ",
                "and the store refuses: token ",
                "all 3 slots are free",
            ],
        ),
    ]);
    let agent = Agent::start();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // This lists examples as cargo does. A folder without a `main.rs` belongs to the example beside it.
        let is_one = path.extension().is_some_and(|kind| kind == "rs");
        if is_one || path.join("main.rs").exists() {
            assert!(list.contains(&format!("| [{name}")), "{name} is not listed");
            found.push(name);
        }
    }
    found.sort();
    let told: Vec<&str> = stories.keys().copied().collect();
    assert_eq!(found, told, "each one has a story");
    for (name, parts) in stories {
        tells(&says(name, "CONSUL_HTTP_ADDR", &agent.url()), parts);
    }
}

/// Real masters, and their addresses for `QUORATE_NODES`.
fn admitted() -> (Fleet, String) {
    let nodes = Fleet::start(3, Kind::Redis);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let quorum = quorate::Quorum::connect(nodes.urls()).await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        quorum.shutdown().await;
    });
    let urls = nodes.urls().join(",");
    (nodes, urls)
}

/// Reads the number in "285 calls in all, ..".
#[track_caller]
fn calls_in_all(said: &str) -> u32 {
    let (before, _) = said.split_once(" calls in all, ").unwrap();
    before.lines().last().unwrap().parse().unwrap()
}

#[test]
fn twelve_processes_keep_to_the_suppliers_limit() {
    let (_nodes, urls) = admitted();
    let said = says("supplier", "QUORATE_NODES", &urls);
    tells(&said, &["number 12 made ", "That is not above 2000"]);
    // In 7 s the limit has room for 4,000 calls and more. A far smaller number would show that a client was kept from
    // calling.
    assert!(calls_in_all(&said) > 2000, "{said}");
}

#[test]
fn prices_and_accounts_are_whole_on_real_servers() {
    let (_nodes, urls) = admitted();
    tells(&says("rwlock", "QUORATE_NODES", &urls), PRICES);
    tells(&says("transfer", "QUORATE_NODES", &urls), ACCOUNTS);
}

#[test]
fn services_and_clients_keep_to_one_limit_on_real_servers() {
    let (_nodes, urls) = admitted();
    let said = says("axum_service", "QUORATE_NODES", &urls);
    tells(
        &said,
        &["20 were served", "10 got 429", "both have stopped"],
    );
    let said = says("reqwest_client", "QUORATE_NODES", &urls);
    tells(&said, &["number 4 got ", "nothing to complain of"]);
    // In 5 s there is room for 190 calls and more.
    assert!(calls_in_all(&said) > 150, "{said}");
}

// ---- the pool of workers --------------------------------------------------------------------

/// One process of the pool, which is killed at the end of the test.
struct Worker {
    name: String,
    child: Child,
}

/// "ann has slot 1, with token 17, and goes on with item 28": the worker, slot, token and item.
type Took = (String, u64, u64, u64);

struct Pool {
    nodes: Fleet,
    store: Server,
    lines: (Sender<String>, Receiver<String>),
}

impl Pool {
    fn start(&self, name: &str) -> Worker {
        let mut command = example("worker_pool");
        command.env("QUORATE_NODES", self.nodes.urls().join(","));
        command.env("STORE", self.store.url()).arg(name);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let lines = self.lines.0.clone();
        thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let _ = lines.send(line);
            }
        });
        let name = name.to_owned();
        Worker { name, child }
    }

    /// The next worker that has got a slot.
    #[track_caller]
    fn took(&self) -> Took {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.1.recv_timeout(left).expect("a slot is taken");
            if let Some((who, rest)) = line.split_once(" has slot ") {
                let numbers = rest.split(|c: char| !c.is_ascii_digit());
                let numbers: Vec<u64> = numbers.filter_map(|word| word.parse().ok()).collect();
                return (who.to_owned(), numbers[0], numbers[1], numbers[2]);
            }
        }
    }
}

impl Worker {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("our own child");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_killed_workers_slot_is_taken_over_where_it_stopped() {
    let nodes = Fleet::start(3, Kind::Redis);
    let boss = tokio::runtime::Runtime::new().unwrap();
    let quorum = boss.block_on(async {
        let quorum = quorate::Quorum::connect(nodes.urls()).await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        quorum
    });
    let (store, lines) = (Server::start(Kind::Redis), channel());
    let pool = Pool {
        nodes,
        store,
        lines,
    };
    let mut workers: Vec<Worker> = ["a", "b", "c"].map(|name| pool.start(name)).into();
    let mut first: Vec<Took> = (0..3).map(|_| pool.took()).collect();
    first.sort_by_key(|took| took.1);
    let slots: Vec<(u64, u64)> = first.iter().map(|took| (took.1, took.3)).collect();
    assert_eq!(
        slots,
        [(0, 0), (1, 1), (2, 2)],
        "each its own, from its first item"
    );

    workers.push(pool.start("d"));
    let end = Instant::now() + PATIENCE;
    let inspect = || boss.block_on(quorum.inspect("worker-pool")).unwrap();
    while inspect().waiting_for_slots() == 0 {
        assert!(Instant::now() < end, "d waits");
    }
    thread::sleep(Duration::from_millis(300));

    let (dead, slot, token, _) = &first[1];
    let dead = workers
        .iter()
        .position(|worker| worker.name == *dead)
        .unwrap();
    workers.remove(dead).signal(Signal::KILL);
    let killed = Instant::now();
    let (who, taken, newer, item) = pool.took();
    // The last renewal was at most a third of the ttl earlier.
    assert!(
        killed.elapsed() > Duration::from_millis(500),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!((who.as_str(), taken), ("d", *slot));
    assert!(newer > *token, "{newer} after {token}");
    assert!(
        item > 1 && item % 3 == 1,
        "it goes on where the dead one stopped: {item}"
    );

    // Ctrl-C releases a slot at once.
    for mut worker in workers {
        worker.signal(Signal::INT);
        assert!(worker.child.wait().unwrap().success());
    }
    let free = boss.block_on(quorum.semaphore("worker-pool", 3).available());
    assert_eq!(free.unwrap(), 3);
}
