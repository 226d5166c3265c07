//! The cost of keeping many leases.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use quorate::Quorum;

use crate::cost::Cost;

const LEASES: usize = 10_000;
/// With this ttl leases are renewed every 10 s.
const TTL: Duration = Duration::from_secs(30);
/// Each lease is renewed twice in this window, a little before 10 and 20 s.
const WINDOW: Duration = Duration::from_secs(20);

pub async fn renewals(quorum: &Quorum, servers: &[u32]) {
    let wishes = (0..LEASES).map(|i| quorum.mutex(format!("bench:kept:{i}")).ttl(TTL).try_lock());
    let leases = stream::iter(wishes).buffer_unordered(64);
    let leases: Vec<_> = leases.map(|lease| lease.unwrap().unwrap()).collect().await;
    let (before, start) = (Cost::now(servers), Instant::now());
    tokio::time::sleep(WINDOW).await;
    let (cost, took) = (Cost::now(servers).since(&before), start.elapsed());
    assert!(leases.iter().all(|lease| lease.is_valid()));
    let share = |cpu: Duration| 100.0 * cpu.as_secs_f64() / took.as_secs_f64();
    let (client, server) = (
        share(cost.client),
        share(cost.servers / servers.len() as u32),
    );
    println!(
        "\n{LEASES} leases of {TTL:?}, renewed every 10 s: client {client:.2} % of a core, each server \
         {server:.2} %"
    );
    stream::iter(leases)
        .for_each_concurrent(64, async |lease| lease.release().await.unwrap())
        .await;
}
