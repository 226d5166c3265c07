//! A supplier allows 2,000 calls a minute. Twelve processes call it as fast as they may. Together they keep to the
//! limit in any minute, wherever it begins.
//!
//!     cargo run --example supplier
//!     QUORATE_NODES=redis://.. cargo run --example supplier
//!
//! The minute lasts 3 s here, so that the example ends soon. With servers there are twelve processes: the program
//! starts itself again. Without servers each is a task with a `Quorum` of its own, and the masters live in this
//! process.
//!
//! Every call has a time stamp. At the end the program merges them and looks for the busiest interval.

use std::{
    error::Error,
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use quorate::{MemoryNode, Quorum, Quota};
use tokio::time::{Instant, timeout_at};

const LIMIT: u32 = 2_000;
const MINUTE: Duration = Duration::from_secs(3);
const PROCESSES: usize = 12;
/// How long each process makes calls.
const CALLING: Duration = Duration::from_secs(7);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    if std::env::args().nth(1).as_deref() == Some("calls") {
        return one_of_twelve().await;
    }
    println!(
        "{PROCESSES} call the supplier for {CALLING:?}. It allows {LIMIT} calls in {MINUTE:?}"
    );
    let calls = match std::env::var_os("QUORATE_NODES") {
        Some(_) => of_processes()?,
        None => of_tasks().await?,
    };
    tell(&calls);
    Ok(())
}

/// Makes calls as fast as the limit permits. Returns the time of each call since 1970, because clocks of one machine
/// can be compared.
async fn call(quorum: &Quorum) -> Result<Vec<Duration>, Failure> {
    let supplier = quorum.rate_limiter("supplier", Quota::new(LIMIT, MINUTE));
    let end = Instant::now() + CALLING;
    let mut calls = Vec::new();
    while let Ok(ready) = timeout_at(end, supplier.until_ready()).await {
        ready?;
        calls.push(SystemTime::now().duration_since(UNIX_EPOCH)?); // this stands for the call
    }
    Ok(calls)
}

fn tell(calls: &[Vec<Duration>]) {
    for (i, calls) in calls.iter().enumerate() {
        println!("number {} made {} calls", i + 1, calls.len());
    }
    let mut all = calls.concat();
    all.sort_unstable();
    let busiest = busiest(&all);
    println!(
        "{} calls in all, {busiest} of them in the busiest interval of {MINUTE:?}",
        all.len()
    );
    match busiest <= LIMIT as usize {
        true => println!("That is not above {LIMIT}: the supplier has nothing to complain of"),
        false => println!("unexpected: that is above {LIMIT}"),
    }
}

/// The greatest number of calls in one interval. `calls` must be sorted.
fn busiest(calls: &[Duration]) -> usize {
    let counts = calls.iter().enumerate().map(|(i, first)| {
        let after = calls.partition_point(|call| *call < *first + MINUTE);
        after - i
    });
    counts.max().unwrap_or(0)
}

// ---- twelve processes -----------------------------------------------------------------------

/// One of the twelve processes: it prints the time of each call, in microseconds.
async fn one_of_twelve() -> Result<(), Failure> {
    let quorum = Quorum::from_env().await?;
    let calls = call(&quorum).await;
    quorum.shutdown().await;
    for at in calls? {
        println!("{}", at.as_micros());
    }
    Ok(())
}

fn of_processes() -> Result<Vec<Vec<Duration>>, Failure> {
    let start = |_| {
        let mut again = Command::new(std::env::current_exe()?);
        again.arg("calls").stdout(Stdio::piped()).spawn()
    };
    let started: Vec<Child> = (0..PROCESSES).map(start).collect::<Result<_, _>>()?;
    // Each process prints only at its end, so none of them waits until its lines are read.
    started.into_iter().map(calls_of).collect()
}

fn calls_of(process: Child) -> Result<Vec<Duration>, Failure> {
    let done = process.wait_with_output()?;
    if !done.status.success() {
        return Err(format!("one of them ended with {}", done.status).into());
    }
    let said = String::from_utf8(done.stdout)?;
    let calls = said
        .lines()
        .map(|line| Ok(Duration::from_micros(line.parse()?)));
    calls.collect()
}

// ---- twelve tasks ---------------------------------------------------------------------------

async fn of_tasks() -> Result<Vec<Vec<Duration>>, Failure> {
    let masters: Vec<MemoryNode> = (0..3).map(|_| MemoryNode::new()).collect();
    let mut tasks = Vec::new();
    for _ in 0..PROCESSES {
        let quorum = Quorum::builder().nodes(&masters).connect().await?;
        tasks.push(tokio::spawn(async move {
            let calls = call(&quorum).await;
            quorum.shutdown().await;
            calls
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await??);
    }
    Ok(all)
}
