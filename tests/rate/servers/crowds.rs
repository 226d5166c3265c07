//! The memory of a process that checks the limits of many keys.

use futures::{StreamExt, stream};
use tokio::time::sleep;

use super::*;

/// The resident memory in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let words = line.unwrap().split_ascii_whitespace();
    words.rev().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Uses a unit of each of these keys.
async fn use_keys(all: &RateLimiter, keys: std::ops::Range<usize>) {
    let checks = keys.map(|key| all.keyed(format!("customer-{key}")).check());
    let mut checks = stream::iter(checks).buffer_unordered(256);
    while let Some(decision) = checks.next().await {
        assert!(decision.unwrap().is_allowed());
    }
}

#[tokio::test]
async fn a_crowd_of_keys_costs_little_memory_and_is_forgotten() {
    costs_at_most::<25_000>(60, 400).await;
}

/// A process remembers the units of a small limit that it has used, because no master tells it with each unit.
#[tokio::test]
async fn a_crowd_of_keys_of_a_small_limit_costs_little_memory_and_is_forgotten() {
    costs_at_most::<10_000>(5, 1_300).await;
}

async fn costs_at_most<const KEYS: usize>(limit: u32, most: usize) {
    const INTERVAL: Duration = Duration::from_secs(6);
    let (_fleet, quorum) = fleet(3).await;
    let all = quorum.rate_limiter(NAME, Quota::new(limit, INTERVAL));
    // The buffers are as large as they will be.
    use_keys(&all, 0..1_000).await;
    let before = resident();
    use_keys(&all, KEYS..2 * KEYS).await;
    let first = resident();
    let of_each = first.saturating_sub(before) / KEYS;
    println!("{of_each} bytes for each of {KEYS} keys");
    assert!(of_each <= most, "{of_each}");
    // They are forgotten within two intervals, so as many others need no more. The allocator takes up to five crowds
    // until it asks the system for nothing. If no key were forgotten, each crowd would cost as much as the first.
    let mut last = first;
    let mut growth = Vec::new();
    for crowd in 2..9 {
        sleep(2 * INTERVAL + Duration::from_secs(1)).await;
        use_keys(&all, crowd * KEYS..(crowd + 1) * KEYS).await;
        let now = resident();
        growth.push(now.saturating_sub(last) / KEYS);
        last = now;
        if growth.last().is_some_and(|grown| *grown <= 100) {
            return;
        }
    }
    panic!("{growth:?} bytes more for each key of a later crowd, {of_each} for each of the first");
}
