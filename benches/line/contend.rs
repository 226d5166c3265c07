//! Clients that contend for one name: hand-offs, sections per second, fairness and cost.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::{
    NODES, connect,
    cost::Cost,
    lockers::{InLine, Locker, Polling, Rslock},
    median, passes,
    show::{reaches, within},
    support::{Fleet, Proxy},
};

const CLIENTS: usize = 16;
const HOLD: Duration = Duration::from_millis(1);
const RUN: Duration = Duration::from_secs(8);
/// The two contestants take turns this many times. In single runs on a shared machine their ratio varies from 1 to 1.5.
const TURNS: usize = 5;
/// The first seconds do not count, while connections warm up.
const WARM: Duration = Duration::from_secs(2);

/// One section.
struct Section {
    client: usize,
    asked: Instant,
    begun: Instant,
    ended: Instant,
}

/// The result of a run.
struct Run {
    sections: Vec<Section>,
    cost: Cost,
    took: Duration,
}

pub async fn far(fleet: &Fleet) {
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    for proxy in &proxies {
        proxy.delay(Duration::from_millis(5));
    }
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let rtt = round_trip(&urls).await;
    println!(
        "\n{CLIENTS} clients on one name, {HOLD:?} held, RTT {rtt:.1?} (delay proxies of 10 ms)"
    );
    head();
    let line = in_line(&urls, &[]).await;
    show("in line", &line, Some(rtt));
    let poll = ms(10)..ms(20);
    show("polling, fair", &polling(&urls, &[], poll).await, None);
    show("rslock", &rslock(&urls, &[], ms(20)).await, None);
}

pub async fn near(fleet: &Fleet, servers: &[u32]) {
    let urls = fleet.urls();
    println!("\n{CLIENTS} clients on one name, {HOLD:?} held, loopback");
    head();
    let rest = Duration::from_micros(500)..Duration::from_micros(1500);
    let (mut faster, mut cheaper) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let line = in_line(&urls, servers).await;
        show("in line", &line, None);
        let fair = polling(&urls, servers, rest.clone()).await;
        show("polling, fair", &fair, None);
        faster.push(rate(&line) / rate(&fair));
        cheaper.push(cpu(&line) / cpu(&fair));
    }
    let rslock = rslock(&urls, servers, ms(2)).await;
    show("rslock", &rslock, None);
    let (faster, cheaper) = (median(faster), median(cheaper));
    println!(
        "in line / fair polling, medians of {TURNS}: sections/s {}, servers' CPU per section {}",
        reaches(&format!("{faster:.2}"), faster, 1.35),
        within(&format!("{cheaper:.2}"), cheaper, 0.5)
    );
}

async fn in_line(urls: &[String], servers: &[u32]) -> Run {
    let mut lockers = Vec::new();
    for _ in 0..CLIENTS {
        lockers.push(InLine(connect(urls).await));
    }
    run(lockers, servers).await
}

async fn polling(urls: &[String], servers: &[u32], rest: Range<Duration>) -> Run {
    let mut lockers = Vec::new();
    for id in 0..CLIENTS {
        lockers.push(Polling::connect(urls, id as u64, rest.clone()).await);
    }
    run(lockers, servers).await
}

async fn rslock(urls: &[String], servers: &[u32], delay: Duration) -> Run {
    let lockers = (0..CLIENTS).map(|_| Rslock::new(urls, delay));
    run(lockers.collect(), servers).await
}

/// Each client takes the name, holds it, releases it, and asks again at once.
async fn run<L: Locker>(lockers: Vec<L>, servers: &[u32]) -> Run {
    static RUNS: Mutex<u32> = Mutex::new(0);
    let name = {
        let mut runs = RUNS.lock().unwrap();
        *runs += 1;
        format!("bench:line:{runs}")
    };
    let sections = Arc::new(Mutex::new(Vec::new()));
    let stop = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = lockers
        .into_iter()
        .enumerate()
        .map(|(client, mut locker)| {
            let (name, sections, stop) = (name.clone(), sections.clone(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(Relaxed) {
                    let asked = Instant::now();
                    let held = locker.lock(&name).await;
                    let begun = Instant::now();
                    passes(HOLD).await;
                    let ended = Instant::now();
                    let section = Section {
                        client,
                        asked,
                        begun,
                        ended,
                    };
                    sections.lock().unwrap().push(section);
                    locker.free(held).await;
                }
            })
        })
        .collect();
    tokio::time::sleep(WARM).await;
    let (before, start) = (Cost::now(servers), Instant::now());
    sections.lock().unwrap().clear();
    tokio::time::sleep(RUN).await;
    let (cost, took) = (Cost::now(servers).since(&before), start.elapsed());
    let measured = std::mem::take(&mut *sections.lock().unwrap());
    stop.store(true, Relaxed);
    for task in tasks {
        task.await.unwrap();
    }
    Run {
        sections: measured,
        cost,
        took,
    }
}

/// The time of an uncontended lock: one round trip with this machine and its timers.
async fn round_trip(urls: &[String]) -> Duration {
    let quorum = connect(urls).await;
    let mut took = Vec::new();
    for i in 0..50 {
        let start = Instant::now();
        let lease = quorum.mutex(format!("bench:rtt:{i}")).lock().await.unwrap();
        took.push(start.elapsed());
        lease.release().await.unwrap();
    }
    median(took)
}

fn head() {
    println!(
        "               sections/s | held ms | hand-off p50, p99 ms | Jain  longest wait | retaken | CPU ms per section: \
         clients, servers"
    );
}

fn show(what: &str, run: &Run, rtt: Option<Duration>) {
    let (p50, p99) = hand_offs(run);
    let cycle = run.took.as_secs_f64() / run.sections.len() as f64;
    let longest = longest_wait(run);
    let client = run.cost.client.as_secs_f64() * 1e3 / run.sections.len() as f64;
    let retaken = retaken(run);
    let jain = jain(run);
    println!(
        "{what:14} {:10.0} | {:7.2} | {:6.2} {:6.2} | {jain:.4} {:6.2} s | {retaken:4.2} | {client:.3} {:.3}",
        rate(run),
        held(run).as_secs_f64() * 1e3,
        p50.as_secs_f64() * 1e3,
        p99.as_secs_f64() * 1e3,
        longest.as_secs_f64(),
        cpu(run) * 1e3,
    );
    let Some(rtt) = rtt else { return };
    let best = 1.0 / (held(run) + rtt).as_secs_f64();
    let in_rtt = |time: Duration| time.as_secs_f64() / rtt.as_secs_f64();
    let wait = longest.as_secs_f64() / (CLIENTS as f64 * cycle);
    let share = rate(run) / best;
    println!(
        "               hand-off p50 {}, p99 {} RTT; {} of 1/(hold + RTT); Jain {}; longest wait {} × clients × cycle; \
         retaken {}",
        within(&format!("{:.2}", in_rtt(p50)), in_rtt(p50), 1.15),
        within(&format!("{:.2}", in_rtt(p99)), in_rtt(p99), 1.5),
        reaches(&format!("{share:.2}"), share, 0.93),
        reaches(&format!("{jain:.4}"), jain, 0.999),
        within(&format!("{wait:.2}"), wait, 1.3),
        within(&format!("{retaken:.2}"), retaken, 0.0),
    );
}

fn rate(run: &Run) -> f64 {
    run.sections.len() as f64 / run.took.as_secs_f64()
}

/// The average time for which it was held.
fn held(run: &Run) -> Duration {
    let all: Duration = run.sections.iter().map(|s| s.ended - s.begun).sum();
    all / run.sections.len() as u32
}

/// The servers' CPU seconds per section.
fn cpu(run: &Run) -> f64 {
    run.cost.servers.as_secs_f64() / run.sections.len() as f64
}

/// The times from the end of a section to the beginning of another client's section.
fn hand_offs(run: &Run) -> (Duration, Duration) {
    let pairs = run.sections.windows(2);
    let others = pairs.filter(|pair| pair[0].client != pair[1].client);
    let mut took: Vec<Duration> = others
        .map(|pair| pair[1].begun.saturating_duration_since(pair[0].ended))
        .collect();
    took.sort();
    match took.len() {
        0 => (Duration::ZERO, Duration::ZERO),
        n => (took[n / 2], took[n * 99 / 100]),
    }
}

/// How often the client that released it took it again although others waited.
fn retaken(run: &Run) -> f64 {
    let pairs = run.sections.windows(2);
    let again = pairs.filter(|pair| pair[0].client == pair[1].client);
    again.count() as f64 / run.sections.len().max(1) as f64
}

fn longest_wait(run: &Run) -> Duration {
    let waits = run.sections.iter().map(|s| s.begun - s.asked);
    waits.max().unwrap_or_default()
}

/// Jain's fairness index. It is 1 if all clients had equally many sections.
fn jain(run: &Run) -> f64 {
    let mut of = [0.0; CLIENTS];
    for section in &run.sections {
        of[section.client] += 1.0;
    }
    let (sum, squares) = of
        .iter()
        .fold((0.0, 0.0), |(sum, squares), n| (sum + n, squares + n * n));
    sum * sum / (CLIENTS as f64 * squares)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const _: () = assert!(NODES == 5);
