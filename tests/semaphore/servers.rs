//! A semaphore between processes on real servers while these die, stop and restart, and while holders are killed: an
//! outside witness counts who holds what (protocol §6).
//!
//! Every permit is two lines of a file, written at once: when it begins and when it ends, by the clock of the machine. A
//! process that was killed has ended all of its permits by then.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::support::{Fleet, Kind, again};
use quorate::{Builder, Error, Quorum, Semaphore};

const TTL: Duration = Duration::from_secs(2);
const RESTART_MARGIN: Duration = Duration::from_millis(100);
/// Far more than a lease and a quarantine last.
const PATIENCE: Duration = Duration::from_secs(20);
const NAME: &str = "the pool";
const PROCESSES: usize = 8;
const EACH: usize = 25;

fn builder(urls: &[String]) -> Builder {
    Quorum::builder()
        .nodes(urls)
        .max_ttl(TTL)
        .restart_margin(RESTART_MARGIN)
        .node_timeout(Duration::from_millis(200))
}

// ---- the workers: this very program, started again -----------------------------------------

const LIMIT: &str = "QUORATE_TEST_LIMIT";
const URLS: &str = "QUORATE_TEST_URLS";
const DIR: &str = "QUORATE_TEST_DIR";

/// Whether this process is a worker; then its work is done when this returns.
fn worked() -> bool {
    let Some(limit) = std::env::var_os(LIMIT) else {
        return false;
    };
    let limit: u32 = limit.to_str().unwrap().parse().unwrap();
    let var = |name| std::env::var(name).unwrap_or_default();
    let urls: Vec<String> = var(URLS).split(',').map(str::to_owned).collect();
    let dir = PathBuf::from(var(DIR));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let quorum = builder(&urls).connect().await.expect("a majority answers");
        let semaphore = quorum.semaphore(NAME, limit).ttl(TTL);
        let tasks = (0..EACH).map(|_| tokio::spawn(work(semaphore.clone(), dir.clone())));
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert!(quorum.shutdown().await.is_empty());
    });
    true
}

async fn work(semaphore: Semaphore, dir: PathBuf) {
    while !dir.join("stop").exists() {
        if rand::random_range(0..8) == 0 {
            // Somebody who loses patience.
            let _ = tokio::time::timeout(millis(0, 100), semaphore.acquire()).await;
        }
        match semaphore.acquire().await {
            Ok(lease) => {
                let id: u64 = rand::random();
                let (slot, token) = (lease.slot().unwrap(), lease.token());
                note(&dir, &format!("B {id} {slot} {token}"));
                let _ = lease.guard(tokio::time::sleep(millis(5, 60))).await;
                note(&dir, &format!("E {id}"));
                drop(lease);
            }
            Err(error) if error.is_retryable() => tokio::time::sleep(millis(5, 30)).await,
            Err(Error::Lost(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// One line, at once, with the time and the process.
fn note(dir: &Path, what: &str) {
    let line = format!("{} {} {what}\n", now_us(), std::process::id());
    let mut log = File::options().append(true).open(dir.join("log")).unwrap();
    log.write_all(line.as_bytes()).unwrap();
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

fn millis(from: u64, to: u64) -> Duration {
    Duration::from_millis(rand::random_range(from..to))
}

// ---- the witness ------------------------------------------------------------------------------

/// One permit, in µs.
struct Permit {
    slot: u32,
    token: u64,
    begun: u64,
    ended: u64,
}

/// Processes at work; dropping it kills them.
struct Workers {
    dir: tempfile::TempDir,
    urls: String,
    limit: u32,
    test: &'static str,
    children: Vec<Child>,
    /// By process: when it was killed.
    killed: HashMap<u32, u64>,
}

impl Workers {
    fn start(test: &'static str, limit: u32, urls: &[String]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("log")).unwrap();
        let mut workers = Self {
            dir,
            urls: urls.join(","),
            limit,
            test,
            children: Vec::new(),
            killed: HashMap::new(),
        };
        for _ in 0..PROCESSES {
            workers.hire();
        }
        workers
    }

    fn hire(&mut self) {
        let child = again(module_path!(), self.test)
            .env(LIMIT, self.limit.to_string())
            .env(URLS, &self.urls)
            .env(DIR, self.dir.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("setpriv (Debian: util-linux)");
        self.children.push(child);
    }

    /// As a power cut would, with permits in its hands: it is one that holds.
    fn kill_a_holder(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "nobody holds");
            let holding = self.holding();
            let holds = |child: &Child| holding.contains(&child.id());
            if let Some(place) = self.children.iter().position(holds) {
                let mut child = self.children.remove(place);
                child.kill().unwrap();
                child.wait().unwrap();
                self.killed.insert(child.id(), now_us());
                return self.hire();
            }
        }
    }

    /// The processes that hold a permit now.
    fn holding(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap();
        let mut open = BTreeMap::new();
        for words in text.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
            match (words.get(2), words.get(3)) {
                (Some(&"B"), Some(id)) => {
                    open.insert(id.to_string(), words[1].parse().unwrap());
                }
                (Some(&"E"), Some(id)) => {
                    open.remove(*id);
                }
                _ => {}
            }
        }
        open.into_values().collect()
    }

    fn permits(&self) -> Vec<Permit> {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap();
        let mut open: HashMap<String, (u32, Permit)> = HashMap::new();
        let mut all = Vec::new();
        for words in text.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
            let (time, process): (u64, u32) =
                (words[0].parse().unwrap(), words[1].parse().unwrap());
            if words[2] == "B" {
                let permit = Permit {
                    slot: words[4].parse().unwrap(),
                    token: words[5].parse().unwrap(),
                    begun: time,
                    ended: u64::MAX,
                };
                open.insert(words[3].to_owned(), (process, permit));
            } else if let Some((_, mut permit)) = open.remove(words[3]) {
                permit.ended = time;
                all.push(permit);
            }
        }
        for (process, mut permit) in open.into_values() {
            permit.ended = self.killed.get(&process).copied().unwrap_or(u64::MAX);
            all.push(permit);
        }
        all.sort_by_key(|permit| permit.begun);
        all
    }

    /// Permits are taken: it is no test if nobody gets one.
    fn progress(&self, after: &str) {
        let so_far = self.permits().len();
        let deadline = Instant::now() + PATIENCE;
        while self.permits().len() < so_far + 20 {
            assert!(Instant::now() < deadline, "no progress after: {after}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// All end of themselves, and what they did is looked at. Returns for how long a slot was nobody's at most: until
    /// then, and on the whole.
    fn end(mut self, until: u64) -> [Duration; 2] {
        File::create(self.dir.path().join("stop")).unwrap();
        for mut child in std::mem::take(&mut self.children) {
            let status = child.wait().unwrap();
            assert!(status.success(), "a worker failed: {status}");
        }
        let permits = self.permits();
        println!("{} permits", permits.len());
        judge(&permits, self.limit);
        let mut idle = [0, 0];
        for slot in 0..self.limit {
            let of: Vec<&Permit> = permits.iter().filter(|p| p.slot == slot).collect();
            assert!(!of.is_empty(), "slot {slot} was never used");
            for two in of.windows(2) {
                let gap = two[1].begun.saturating_sub(two[0].ended);
                idle[1] = gap.max(idle[1]);
                if two[1].begun < until {
                    idle[0] = gap.max(idle[0]);
                }
            }
        }
        idle.map(Duration::from_micros)
    }
}

/// Never more than the limit, one at a time in a slot, and tokens of a slot that only grow.
fn judge(permits: &[Permit], limit: u32) {
    let mut ends: Vec<(u64, i32)> = Vec::new();
    let mut last: HashMap<u32, &Permit> = HashMap::new();
    for permit in permits {
        assert!(permit.slot < limit, "slot {}", permit.slot);
        ends.extend([(permit.begun, 1), (permit.ended, -1)]);
        if let Some(before) = last.insert(permit.slot, permit) {
            assert!(
                before.ended <= permit.begun,
                "two in slot {}: until {} and from {} on",
                permit.slot,
                before.ended,
                permit.begun
            );
            assert!(
                before.token < permit.token,
                "slot {}: a token from the past",
                permit.slot
            );
        }
    }
    // Who ends and who begins in the same µs do not meet.
    ends.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in ends {
        now += change;
        most = most.max(now);
    }
    assert!(most <= i32::try_from(limit).unwrap(), "{most} at once");
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

// ---- what befalls them ------------------------------------------------------------------------

fn faults(test: &'static str, limit: u32) {
    if worked() {
        return;
    }
    let fleet = Fleet::start(5, Kind::Redis);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let quorum = builder(&fleet.urls()).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
    });
    let mut workers = Workers::start(test, limit, &fleet.urls());
    workers.progress("the start");
    for _ in 0..3 {
        workers.kill_a_holder();
        workers.progress("a holder was killed");
        std::thread::sleep(TTL);
    }
    let with_all_nodes = now_us();
    fleet[0].kill9();
    workers.progress("a node died");
    fleet[1].sigstop();
    std::thread::sleep(Duration::from_millis(1_000));
    workers.kill_a_holder();
    workers.progress("a node stopped, beside a dead one");
    fleet[1].sigcont();
    fleet[0].start_again();
    std::thread::sleep(TTL.mul_f64(1.01) + RESTART_MARGIN + Duration::from_millis(500));
    workers.progress("both are back");
    fleet[2].cmd(&["FLUSHALL"]);
    workers.progress("a node was emptied");
    let [idle, through_all] = workers.end(with_all_nodes);
    println!(
        "no slot was nobody's for longer than {idle:?}, {through_all:?} while nodes were away"
    );
    // What a killed holder had is free after its ttl; then it is found out by who waits, and handed on.
    assert!(idle < TTL + Duration::from_millis(1_500), "{idle:?}");
    // Where all nodes that are left are needed, what another that was killed had on one of them comes on top.
    assert!(through_all < TTL * 3, "{through_all:?}");
    // Leases of killed processes end with their ttl, and the keys of a semaphore four ttls later at the latest.
    let left = fleet.leftover_locks_after(TTL * 5, "quorate");
    assert_eq!(left, [""; 0]);
}

#[test]
fn two_hundred_share_three_slots_through_faults() {
    faults("two_hundred_share_three_slots_through_faults", 3);
}

#[test]
fn two_hundred_share_ten_slots_through_faults() {
    faults("two_hundred_share_ten_slots_through_faults", 10);
}

#[test]
fn the_witness_sees_what_is_wrong() {
    let permit = |slot, token, begun, ended| Permit {
        slot,
        token,
        begun,
        ended,
    };
    judge(
        &[permit(0, 1, 0, 9), permit(1, 1, 5, 9), permit(0, 2, 9, 12)],
        2,
    );
    for (wrong, limit) in [
        (vec![permit(0, 1, 0, 9), permit(0, 2, 8, 12)], 2),
        (vec![permit(0, 2, 0, 9), permit(0, 2, 9, 12)], 2),
        (vec![permit(0, 1, 0, 9), permit(1, 1, 5, 12)], 1),
        (vec![permit(2, 1, 0, 9)], 2),
    ] {
        let judged = std::panic::catch_unwind(|| judge(&wrong, limit));
        assert!(judged.is_err());
    }
}
