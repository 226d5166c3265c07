//! The cost of waiting: memory, CPU time while nothing happens, and a broken connection.

use std::time::{Duration, Instant};

use crate::{
    connect,
    cost::{Cost, live_bytes},
    cut::cut_off,
    show::within,
    support::Fleet,
};

const NAMES: usize = 1_000;
const WAITERS: usize = 10_000;
const WINDOW: Duration = Duration::from_secs(20);

pub async fn idle(fleet: &Fleet, servers: &[u32]) {
    let (holder, waiting) = (connect(&fleet.urls()).await, connect(&fleet.urls()).await);
    let names: Vec<String> = (0..NAMES).map(|i| format!("bench:idle:{i}")).collect();
    let name = |i: usize| names[i % NAMES].as_str();
    let mut held = Vec::new();
    for name in &names {
        held.push(holder.mutex(name).lock().await.unwrap());
    }
    let (before, start) = (live_bytes(), Instant::now());
    let tasks: Vec<_> = (0..WAITERS)
        .map(|i| tokio::spawn(waiting.mutex(name(i)).lock()))
        .collect();
    // Wait until all are in the queues.
    loop {
        let seen = waiting.inspect(name(NAMES - 1)).await.unwrap();
        if in_line(&seen) >= WAITERS / NAMES {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let entered = start.elapsed();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bytes = live_bytes().saturating_sub(before) as f64 / WAITERS as f64;
    let (cost, start) = (Cost::now(servers), Instant::now());
    tokio::time::sleep(WINDOW).await;
    let (cost, took) = (
        Cost::now(servers).since(&cost),
        start.elapsed().as_secs_f64(),
    );
    let cores = (cost.client + cost.servers).as_secs_f64() / took;
    println!(
        "\n{WAITERS} waiters on {NAMES} names in one process: in line after {entered:.1?}, {} bytes a waiter, {} of a \
         core while nothing happens (client {:.3}, servers {:.3})",
        within(&format!("{bytes:.0}"), bytes, 2048.0),
        within(&format!("{cores:.3}"), cores, 0.25),
        cost.client.as_secs_f64() / took,
        cost.servers.as_secs_f64() / took,
    );
    cut_off(fleet, &waiting, &names, WAITERS).await;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    drop(held);
}

fn in_line(seen: &quorate::Inspection) -> usize {
    usize::try_from(seen.waiting()).unwrap()
}
