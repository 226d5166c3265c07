//! A semaphore between processes on real servers. The servers die, stop and restart, and holders are killed. An outside
//! witness counts who holds what (protocol §6).
//!
//! Every permit is two lines of a file, when it begins and when it ends, by the clock of the machine. Each line is one
//! write. The permits of a killed process end at its death at the latest.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    process::Child,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use crate::{
    support::{Fleet, Kind},
    workers::{self, Job, millis, write_line},
};
use quorate::{Builder, Error, Quorum, Semaphore};

const TTL: Duration = Duration::from_secs(2);
const RESTART_MARGIN: Duration = Duration::from_millis(100);
/// Far longer than a lease and a quarantine.
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

// ---- the workers ------------------------------------------------------------------------------

/// Returns true if this process is a worker, and has done its work.
fn worked() -> bool {
    let Some(job) = Job::of_this_process() else {
        return false;
    };
    let (limit, urls, dir): (u32, _, _) = (job.work.parse().unwrap(), job.urls, job.dir);
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
            // This caller loses patience.
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

/// Writes one line in one write, with the time and the process.
fn note(dir: &Path, what: &str) {
    let line = format!("{} {} {what}", now_us(), std::process::id());
    write_line(&dir.join("log"), &line);
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_micros()).unwrap()
}

// ---- the witness ------------------------------------------------------------------------------

/// One permit, with its times in µs.
struct Permit {
    slot: u32,
    token: u64,
    begun: u64,
    ended: u64,
}

struct Workers {
    all: workers::Workers,
    limit: u32,
    /// For each process, when it was killed.
    killed: HashMap<u32, u64>,
}

impl Workers {
    fn start(test: &str, limit: u32, urls: &[String]) -> Self {
        let (work, test) = ((PROCESSES, &*limit.to_string()), (module_path!(), test));
        Self {
            all: workers::Workers::start(work, test, urls, ""),
            limit,
            killed: HashMap::new(),
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.all.dir.path().join("log")).unwrap_or_default()
    }

    /// Kills a process as a power cut would, while it holds permits.
    fn kill_a_holder(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "nobody holds");
            let holding = self.holding();
            let holds = |child: &Child| holding.contains(&child.id());
            if let Some(place) = self.all.children.iter().position(holds) {
                let mut child = self.all.children.remove(place);
                child.kill().unwrap();
                child.wait().unwrap();
                self.killed.insert(child.id(), now_us());
                return self.all.hire(&self.limit.to_string());
            }
        }
    }

    /// The processes that hold a permit now.
    fn holding(&self) -> Vec<u32> {
        let text = self.log();
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
        let text = self.log();
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

    /// Waits until permits are taken. The test would show nothing if nobody got one.
    fn progress(&self, after: &str) {
        let so_far = self.permits().len();
        let deadline = Instant::now() + PATIENCE;
        while self.permits().len() < so_far + 20 {
            assert!(Instant::now() < deadline, "no progress after: {after}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends the workers in order, and checks their work. Returns the longest time for which a slot had no holder:
    /// before `until`, and in the whole run.
    fn end(mut self, until: u64) -> [Duration; 2] {
        self.all.stop();
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

/// Checks that there are never more holders than the limit, that a slot has one holder at a time, and that the tokens
/// of a slot only grow.
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
    // A permit that ends and one that begins in the same µs do not overlap.
    ends.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, change) in ends {
        now += change;
        most = most.max(now);
    }
    assert!(most <= i32::try_from(limit).unwrap(), "{most} at once");
}

// ---- the faults --------------------------------------------------------------------------------

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
    // The slot of a killed holder is free after its ttl. Then a waiter notices it and takes the slot.
    assert!(idle < TTL + Duration::from_millis(1_500), "{idle:?}");
    // If all other nodes are needed, the slot of another killed holder on one of them adds its time.
    assert!(through_all < TTL * 3, "{through_all:?}");
    // Leases of killed processes end with their ttl, and the keys of a semaphore at most four ttls later.
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
fn the_judge_finds_wrong_permits() {
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
