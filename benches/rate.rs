//! Rate limits on real servers. One decision is compared with the same script sent by the redis crate. There are also
//! decisions within a block, and many keys compared with governor (which counts only in this process) and with a script
//! on a single master.
//!
//! One machine runs everything, so only the ratios count. Each figure is followed by its target.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{
    future::Future,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use governor::RateLimiter as Local;
use quorate::{Quorum, Quota, RateLimiter};
use redis::{
    AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo, Value, aio::MultiplexedConnection,
};
use support::{Fleet, Kind, Proxy, Server};
use tokio::runtime::Builder;

const PERIOD: Duration = Duration::from_secs(10);
/// No request is denied, because the bench measures the cost of the decision.
const PLENTY: u32 = 1_000_000_000;
const ROUNDS: usize = 8;
const KEYS: usize = 1_000;
const TASKS: usize = 64;

/// The same script that the library sends.
fn spend() -> String {
    let pieces = [
        (
            "-- insert shared/guard.lua\n",
            include_str!("../src/node/kinds/shared/guard.lua"),
        ),
        (
            "-- insert rate/ledger.lua\n",
            include_str!("../src/node/kinds/rate/ledger.lua"),
        ),
    ];
    let file = include_str!("../src/node/kinds/rate/spend.lua").to_owned();
    pieces
        .iter()
        .fold(file, |text, (line, piece)| text.replace(line, piece))
}

/// The usual limit on one master: it stores the time at which the next unit is due (GCRA).
const SINGLE: &str = "local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local due = tonumber(redis.call('GET', KEYS[1]) or now)
if due - now > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', math.max(due, now) + ARGV[2]), 'PX', ARGV[3])
return 1";

fn main() {
    let fleet = Fleet::start(3, Kind::Redis);
    println!("N = 3, servers on the same machine; (target)");
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let quorum = Quorum::connect(fleet.urls()).await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        quorum.voting(PERIOD).await.unwrap();
        let limiter = quorum.rate_limiter("bench", Quota::new(PLENTY, PERIOD));
        assert!(limiter.check().await.unwrap().is_allowed());
        one_decision(&fleet, &limiter).await;
        blocks(&quorum).await;
        many_keys(&fleet, &quorum).await;
        few_or_many(&fleet, &quorum).await;
    });
    drop(fleet);
    for (round_trips, stopped) in [
        (&[1, 40, 90][..], 0),
        (&[1, 40, 90], 1),
        (&[1, 1, 40, 40, 90], 0),
        (&[1, 1, 40, 40, 90], 2),
    ] {
        runtime.block_on(regions(round_trips, stopped));
    }
}

async fn connect(url: &str, script: &str) -> (MultiplexedConnection, String) {
    let info: ConnectionInfo = url.into_connection_info().unwrap();
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = redis::Client::open(info.set_tcp_settings(tcp)).unwrap();
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let node = client.get_multiplexed_async_connection_with_config(&config);
    let mut node = node.await.unwrap();
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(script).clone();
    let sha = load.query_async(&mut node).await.unwrap();
    (node, sha)
}

/// The library and the same script on one node, in turns.
async fn one_decision(fleet: &Fleet, limiter: &RateLimiter) {
    let (node, sha) = connect(&fleet[0].url(), &spend()).await;
    let guard: String = redis::cmd("GET")
        .arg("quorate:open")
        .query_async(&mut node.clone())
        .await
        .unwrap();
    let mut call = redis::cmd("EVALSHA");
    call.arg(&sha)
        .arg(2)
        .arg("quorate:@rate:bench:script")
        .arg("quorate:open");
    call.arg(1)
        .arg(500)
        .arg(PLENTY / 3)
        .arg(10_102)
        .arg(1_000)
        .arg(383)
        .arg(&guard);
    let (mut ours, mut script) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(
            median(2_000, async || {
                assert!(limiter.check().await.unwrap().is_allowed());
            })
            .await,
        );
        script.push(
            median(2_000, async || {
                let said: Value = call.query_async(&mut node.clone()).await.unwrap();
                assert!(matches!(said, Value::Array(_)), "{said:?}");
            })
            .await,
        );
    }
    let (ours, script) = (middle(&mut ours), middle(&mut script));
    println!(
        "one decision: {ours:.0?}, the same script by the redis crate {script:.0?}: {:.2} x (1.2)",
        ours.as_secs_f64() / script.as_secs_f64()
    );
}

async fn blocks(quorum: &Quorum) {
    let limiter = quorum
        .rate_limiter("blocks", Quota::new(PLENTY, PERIOD))
        .block(2_000_000);
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        assert!(limiter.check().await.unwrap().is_allowed());
        let began = Instant::now();
        for _ in 0..1_000_000 {
            assert!(limiter.check().await.unwrap().is_allowed());
        }
        rates.push(began.elapsed());
    }
    let each = middle(&mut rates) / 1_000_000;
    println!(
        "a decision of a block: {each:?}, {:.1} million/s on one core (5)",
        1e-6 / each.as_secs_f64()
    );
}

async fn many_keys(fleet: &Fleet, quorum: &Quorum) {
    let names: Arc<Vec<String>> = Arc::new((0..KEYS).map(|n| format!("key-{n}")).collect());
    let ours = quorum.rate_limiter("many", Quota::new(PLENTY, PERIOD));
    let in_blocks = quorum
        .rate_limiter("many blocks", Quota::new(PLENTY, PERIOD))
        .block(100);
    let quota = governor::Quota::per_second(NonZeroU32::new(PLENTY).unwrap());
    let local = Arc::new(Local::keyed(quota));
    let (node, sha) = connect(&fleet[0].url(), SINGLE).await;
    let sha: Arc<str> = sha.into();
    let mut all: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let keyed = |limiter: &RateLimiter| {
            let limiter = limiter.clone();
            move |name: String| {
                let check = limiter.keyed(name).check();
                async move { assert!(check.await.unwrap().is_allowed()) }
            }
        };
        all[0].push(rate(&names, 40_000, keyed(&ours)).await);
        all[1].push(rate(&names, 200_000, keyed(&in_blocks)).await);
        let (node, sha) = (node.clone(), Arc::clone(&sha));
        let single = move |name: String| {
            let (mut node, sha) = (node.clone(), Arc::clone(&sha));
            async move {
                let mut call = redis::cmd("EVALSHA");
                call.arg(&*sha)
                    .arg(1)
                    .arg(name)
                    .arg(1_000_000)
                    .arg(0)
                    .arg(60_000);
                let said: i64 = call.query_async(&mut node).await.unwrap();
                assert_eq!(said, 1);
            }
        };
        all[2].push(rate(&names, 40_000, single).await);
        let local = Arc::clone(&local);
        let governed = move |name: String| {
            let local = Arc::clone(&local);
            async move { local.check_key(&name).unwrap() }
        };
        all[3].push(rate(&names, 400_000, governed).await);
    }
    println!("{KEYS} keys, {TASKS} tasks, decisions a second:");
    let names = [
        "quorate",
        "quorate, blocks of 100",
        "one master, GCRA script",
        "governor (local)",
    ];
    for (name, rates) in names.iter().zip(&mut all) {
        rates.sort_by(f64::total_cmp);
        println!("  {name:24} {:>10.0}", rates[rates.len() / 2]);
    }
}

/// 16 units are slots on a majority, and 17 units are shares of single masters.
async fn few_or_many(fleet: &Fleet, quorum: &Quorum) {
    let cpu = || -> f64 {
        let part =
            |server: &Server, what: &str| -> f64 { server.info(what).unwrap().parse().unwrap() };
        let all = fleet.iter();
        let all = all.map(|s| part(s, "used_cpu_user") + part(s, "used_cpu_sys"));
        all.sum()
    };
    println!("a key for each customer, all units taken one after the other:");
    let mut all: [(Vec<Duration>, f64); 2] = Default::default();
    for round in 0..ROUNDS {
        for (limit, (times, spent)) in [16, 17].into_iter().zip(&mut all) {
            let limiter = quorum.rate_limiter(format!("few {round}"), Quota::new(limit, PERIOD));
            let before = cpu();
            for key in 0..50 {
                let of_one = limiter.keyed(key.to_string());
                for _ in 0..limit {
                    let began = Instant::now();
                    assert!(of_one.check().await.unwrap().is_allowed());
                    times.push(began.elapsed());
                }
            }
            *spent += (cpu() - before) / f64::from(50 * limit * ROUNDS as u32);
        }
    }
    for (limit, (times, spent)) in [16, 17].iter().zip(&mut all) {
        println!(
            "  {limit} units: {:.0?}, {:.0} µs of the servers",
            middle(times),
            *spent * 1e6
        );
    }
}

/// Three regions, with some masters stopped. Measures how much of a limit 32 tasks get that wait for units all the
/// time, and how long one decision takes while there are units.
async fn regions(round_trips: &[u64], stopped: usize) {
    let fleet = Fleet::start(round_trips.len(), Kind::Redis);
    let near = Quorum::connect(fleet.urls()).await.unwrap();
    near.bootstrap_forced().await.unwrap();
    near.voting(PERIOD).await.unwrap();
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    for (proxy, ms) in proxies.iter().zip(round_trips) {
        proxy.delay(Duration::from_micros(ms * 500));
    }
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let far = Quorum::builder().nodes(urls).fleet(near.fleet());
    let far = far.connect().await.unwrap();
    while far.health().voting < fleet.len() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fleet.iter().take(stopped).for_each(Server::sigstop);
    // The client notices it after a node timeout.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for limit in [5, 16, 17, 100] {
        let limiter = far.rate_limiter(format!("{limit} a second"), Quota::per_second(limit));
        let one = limiter.keyed("alone");
        let mut times = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            assert!(one.check().await.unwrap().is_allowed());
            times.push(began.elapsed());
            tokio::time::sleep(Duration::from_millis(450)).await;
        }
        let began = Instant::now();
        let (first, last) = (Duration::from_secs(1), Duration::from_secs(9));
        let tasks = (0..32).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let (mut used, mut errors) = (0, 0);
                while began.elapsed() < last {
                    match limiter.until_ready().await {
                        Ok(()) => used += u32::from((first..last).contains(&began.elapsed())),
                        Err(_) => errors += 1,
                    }
                }
                (used, errors)
            })
        });
        let (mut used, mut errors) = (0, 0);
        for task in tasks.collect::<Vec<_>>() {
            let (some, failed) = task.await.unwrap();
            (used, errors) = (used + some, errors + failed);
        }
        println!(
            "{round_trips:?} ms, {stopped} stopped, {limit:3} a second: {:.2} of the limit, a decision {:.1?}, {errors} errors",
            f64::from(used) / f64::from(limit) / (last - first).as_secs_f64(),
            middle(&mut times)
        );
    }
    fleet.iter().take(stopped).for_each(Server::sigcont);
}

/// Decisions per second of all tasks together, each on a random key.
async fn rate<F, D>(names: &Arc<Vec<String>>, total: usize, decide: F) -> f64
where
    F: Fn(String) -> D + Clone + Send + 'static,
    D: Future<Output = ()> + Send + 'static,
{
    let began = Instant::now();
    let tasks = (0..TASKS).map(|_| {
        let (names, decide) = (Arc::clone(names), decide.clone());
        tokio::spawn(async move {
            for _ in 0..total / TASKS {
                let name = names[rand::random_range(0..KEYS)].clone();
                decide(name).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    total as f64 / began.elapsed().as_secs_f64()
}

async fn median(times: usize, mut act: impl AsyncFnMut()) -> Duration {
    let mut all = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        act().await;
        all.push(began.elapsed());
    }
    middle(&mut all)
}

fn middle(all: &mut [Duration]) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}
