//! A worker that uses threads, without async. It used locks of one process. Now two processes run it.
//!
//!     cargo run --example blocking --features blocking
//!     QUORATE_NODES=redis://.. cargo run --example blocking --features blocking
//!
//! Before, there was one process, and its threads shared this:
//!
//! ```text
//! static JOBS: Mutex<()> = Mutex::new(());                   // one thread at a time reads the job list
//! fn work() {
//!     loop {
//!         let taken = { let _lock = JOBS.lock().unwrap(); take_job() };
//!         let Some(job) = taken else { return };
//!         CONVERTERS.acquire(); convert(&job); CONVERTERS.release(); // two threads at a time
//!         LIMITER.wait(); call_supplier(&job);                       // 20 calls in 2 s, for each process
//!     }
//! }
//! ```
//!
//! Now `worker` below has the same shape. The lock has a name, so other processes respect it too, and 20 calls is the
//! limit for all processes together. Each "machine" is a client of its own with three threads.

use std::{
    collections::BTreeMap,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use quorate::{MemoryNode, Quota, Renewal, blocking::Quorum};

const MACHINES: [&str; 2] = ["ann", "bob"];
const THREADS: usize = 3;
const JOBS: usize = 40;
const CONVERTERS: u32 = 2;
/// The supplier allows this many calls in any [`PERIOD`].
const CALLS: u32 = 20;
const PERIOD: Duration = Duration::from_secs(2);

type Failure = Box<dyn Error + Send + Sync>;

/// Counts what the jobs have done, for the check at the end.
#[derive(Default)]
struct Witness {
    done: Mutex<BTreeMap<usize, &'static str>>,
    twice: AtomicBool,
    converting: AtomicUsize,
    most_converting: AtomicUsize,
    calls: Mutex<Vec<Instant>>,
}

fn main() -> Result<(), Failure> {
    let machines = machines()?;
    let dir = tempfile::tempdir()?;
    let list = dir.path().join("jobs"); // in production this is a table, or a queue with several readers
    fs::write(&list, JOBS.to_string())?;
    let witness = Arc::new(Witness::default());
    let mut threads = Vec::new();
    for (name, quorum) in MACHINES.into_iter().zip(&machines) {
        for _ in 0..THREADS {
            let (quorum, list, witness) = (quorum.clone(), list.clone(), Arc::clone(&witness));
            threads.push(thread::spawn(move || worker(name, &quorum, list, &witness)));
        }
    }
    for thread in threads {
        thread.join().map_err(|_| "a worker panicked")??;
    }
    report(&machines)?;
    for quorum in machines {
        // This is the last line of a program. It waits for the releases, for 5 s at most.
        for name in quorum.shutdown()? {
            println!("unexpected: {name} is still held");
        }
    }
    tell(&witness)
}

/// The work of one thread.
fn worker(
    machine: &'static str,
    quorum: &Quorum,
    list: PathBuf,
    witness: &Witness,
) -> Result<(), Failure> {
    // A thread that waits cannot be cancelled. So give the wait an end, or call `shutdown` from another thread.
    let jobs = quorum
        .mutex("example: jobs")
        .wait_timeout(Duration::from_secs(30));
    let converters = quorum.semaphore("example: converters", CONVERTERS);
    let supplier = quorum
        .rate_limiter("example: supplier", Quota::new(CALLS, PERIOD))
        .grace(PERIOD / 10); // units may be used this late, because the threads of a busy machine are slow
    // `run` locks, works on this thread, releases the lock, and waits until the release is done.
    while let Some(job) = jobs.run(|_| take_job(&list))?? {
        converters.run(|_| convert(witness))?;
        supplier.run(|| call(witness))?;
        let before = lock(&witness.done).insert(job, machine);
        witness.twice.fetch_or(before.is_some(), SeqCst);
    }
    Ok(())
}

/// Reads and writes the list. Two threads that did this at the same time would take the same job.
fn take_job(list: &Path) -> io::Result<Option<usize>> {
    let left = fs::read_to_string(list)?.parse().unwrap_or(0);
    thread::sleep(Duration::from_millis(1));
    match left {
        0 => Ok(None),
        job => fs::write(list, (job - 1).to_string()).map(|()| Some(job)),
    }
}

fn convert(witness: &Witness) {
    let now = witness.converting.fetch_add(1, SeqCst) + 1;
    witness.most_converting.fetch_max(now, SeqCst);
    thread::sleep(Duration::from_millis(20));
    witness.converting.fetch_sub(1, SeqCst);
}

fn call(witness: &Witness) {
    lock(&witness.calls).push(Instant::now());
}

/// Work that takes long. It must stop when it loses its lock, and other processes do not wait for it for ever.
fn report(machines: &[Quorum]) -> Result<(), Failure> {
    let [ann, bob] = machines else {
        return Err("two machines".into());
    };
    let report = ann.mutex("example: report").ttl(Duration::from_secs(2));
    // `max_hold` ends the lease here. An operator's `evict`, or servers that are away, would end it in the same way.
    let report = report.renewal(Renewal::auto().max_hold(Duration::from_secs(1)));
    let lease = report.lock()?;
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    // This runs on a thread of its own, so it may block.
    lease.on_lost(move |reason| {
        println!("ann's report has to stop: {reason}");
        told.store(true, SeqCst);
    });
    let other = bob.mutex("example: report");
    match other
        .clone()
        .wait_timeout(Duration::from_millis(100))
        .lock()
    {
        Err(quorate::Error::Held(_)) => println!("bob does not wait for the report: it is held"),
        other => println!("unexpected: {other:?}"),
    }
    while !stop.load(SeqCst) {
        thread::sleep(Duration::from_millis(5)); // writes a page, with lease.token()
    }
    // The next holder has a greater token. So a store that checks tokens refuses what ann still writes.
    let newer = other.run(|watch| watch.token())?;
    match newer > lease.token() {
        true => println!("bob's report has the newer token"),
        false => println!("unexpected: token {newer} after {}", lease.token()),
    }
    Ok(())
}

fn tell(witness: &Witness) -> Result<(), Failure> {
    let (done, mut calls) = (lock(&witness.done), lock(&witness.calls));
    for machine in MACHINES {
        let count = done.values().filter(|by| **by == machine).count();
        println!("{machine} did {count} jobs");
    }
    calls.sort_unstable();
    let after = |(i, first): (usize, &Instant)| {
        calls.partition_point(|at| *at < *first + PERIOD) - i // the calls in the period that begins with this call
    };
    let busiest = calls.iter().enumerate().map(after).max().unwrap_or(0);
    let converting = witness.most_converting.load(SeqCst);
    println!(
        "{} jobs, {converting} converted at once, {busiest} calls in the busiest {PERIOD:?}",
        done.len()
    );
    let each_once = done.len() == JOBS && !witness.twice.load(SeqCst);
    match each_once && converting <= CONVERTERS as usize && busiest <= CALLS as usize {
        true => println!("Each job was done once, and no limit was exceeded"),
        false => println!("unexpected: a job was lost or done twice, or a limit was exceeded"),
    }
    Ok(())
}

/// Connects one client for each machine, as if they ran on different machines.
fn machines() -> Result<Vec<Quorum>, Failure> {
    if std::env::var_os("QUORATE_NODES").is_some() {
        let connect = |_| Quorum::from_env();
        return Ok(MACHINES.iter().map(connect).collect::<Result<_, _>>()?);
    }
    let masters: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
    let connect = |_| Quorum::connect(&masters);
    let machines: Vec<Quorum> = MACHINES.iter().map(connect).collect::<Result<_, _>>()?;
    for quorum in &machines {
        quorum.voting(Duration::from_secs(10))?;
    }
    Ok(machines)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
