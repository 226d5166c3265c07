//! The number of rounds of requests that a permit takes, at different loads: the script calls on each node for each
//! permit, without its release.

use std::time::Duration;

use crate::{
    NODES, connect, round_trip,
    support::{Fleet, Server},
    work::{Load, run},
};

const HOLD: Duration = Duration::from_millis(200);

pub async fn rounds(fleet: &Fleet, urls: &[String]) {
    let rtt = round_trip(urls).await;
    println!(
        "\nscript calls of each node for each permit, without its release; {HOLD:?} held, RTT {rtt:.1?}"
    );
    println!("   L  clients  load | calls | by the first trip | wait p50, p99 in RTT | occupancy");
    for (limit, clients) in [(10, 50), (10, 200), (100, 200)] {
        for load in [0.5, 0.8, 0.9, 1.0] {
            one(fleet, urls, rtt, (limit, clients), load).await;
        }
    }
}

async fn one(
    fleet: &Fleet,
    urls: &[String],
    rtt: Duration,
    (limit, clients): (u32, usize),
    load: f64,
) {
    // There are a few processes with many callers each, as in a service.
    let mut quorums = Vec::new();
    for _ in 0..10 {
        quorums.push(connect(urls).await);
    }
    let all = (0..clients).map(|i| quorums[i % quorums.len()].clone());
    // Each client holds for such a part of its time that all together hold the wanted number of permits.
    let part = f64::from(limit) * load / clients as f64;
    let cycle = HOLD.as_secs_f64() / part;
    let rest = match load < 1.0 {
        true => cycle - HOLD.as_secs_f64() - 2.0 * rtt.as_secs_f64(),
        false => 0.0,
    };
    let load_of = Load {
        limit,
        hold: HOLD,
        rest: Duration::from_secs_f64(rest.max(0.0)),
        warm: Duration::from_secs(2),
        run: Duration::from_secs(8),
    };
    let name = format!("bench:rounds:{limit}:{clients}:{load}");
    let mut before = 0;
    let done = run(all.collect(), &name, load_of, || before = calls(fleet)).await;
    let after = calls(fleet);
    let permits = done.permits.len() as f64;
    let calls = (after - before) as f64 / NODES as f64 / permits - 1.0;
    let mut waits: Vec<Duration> = done.permits.iter().map(|p| p.begun - p.asked).collect();
    waits.sort();
    let in_rtt = |time: Duration| time.as_secs_f64() / rtt.as_secs_f64();
    let first = waits.iter().filter(|wait| in_rtt(**wait) < 1.5).count();
    println!(
        "{limit:4} {clients:8} {:4.0} % | {calls:.2} | {:3.0} % | {:.2}, {:.1} | {:.3}",
        load * 100.0,
        100.0 * first as f64 / permits,
        in_rtt(waits[waits.len() / 2]),
        in_rtt(waits[waits.len() * 99 / 100]),
        done.occupancy(limit),
    );
}

/// The number of scripts that were called on all nodes so far.
fn calls(fleet: &Fleet) -> u64 {
    fleet.iter().map(calls_of).sum()
}

fn calls_of(server: &Server) -> u64 {
    let mut conn = server.conn();
    let info: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(&mut conn)
        .unwrap();
    let line = info
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"));
    let calls = line.and_then(|line| line.split_once("calls=")?.1.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}
