//! Locks and semaphores in Consul, on real agents.

mod basics;
mod cluster;
mod contention;
mod dropped;
mod faults;
mod leftovers;
mod limits;
mod paused;
mod refused;
mod slow;
mod trips;
mod turns;
mod ways;

use std::{
    future::Future,
    time::{Duration, Instant},
};

use crate::support::Agent;
use quorate::consul::Consul;

/// Each of these tests waits for a TTL of 10 s, or for two. So they run at the same time, each on its own agent.
#[test]
fn tests_that_wait_for_a_ttl() {
    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(test);
    }
    // A panic in one of them is printed and passed on.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(basics::a_lease_is_renewed_for_longer_than_its_ttl_and_ends_when_it_is_not());
        });
        scope.spawn(|| run(faults::an_agent_that_dies_ends_leases_by_our_own_clock()));
        scope.spawn(|| {
            run(faults::a_holder_that_is_cut_off_is_over_before_its_successor_begins());
        });
        scope.spawn(|| {
            run(paused::a_holder_that_was_paused_beyond_its_ttl_is_refused_by_the_gate());
        });
    });
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

async fn connect(agent: &Agent) -> Consul {
    Consul::connect(agent.url()).await.unwrap()
}

/// The limit for things that happen at once, on a busy machine too. It is half of the default ttl, so nothing has
/// expired by then.
const SOON: Duration = ms(5_000);

/// Waits until the condition holds.
async fn until(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    loop {
        let is_late = start.elapsed() >= within;
        if is_so().await {
            return;
        }
        assert!(!is_late, "{what}: not within {within:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Checks that no key and no session of ours is left, after a moment for background work. A `consul lock` that ends may
/// leave its own session behind, which then lives for its TTL of 15 s.
async fn nothing_is_left(agent: &Agent) {
    nothing_is_left_after(agent, ms(3_000)).await;
}

async fn nothing_is_left_after(agent: &Agent, moment: Duration) {
    let start = Instant::now();
    loop {
        // Decided before the look, because a look on a slow machine may itself take long.
        let is_late = start.elapsed() >= moment;
        let mut sessions = agent.sessions();
        sessions.retain(|session| {
            let name = session["Name"].as_str().unwrap_or_default();
            !name.starts_with("Consul lock for ")
        });
        let left = (agent.pairs(""), sessions);
        if left.0.is_empty() && left.1.is_empty() {
            return;
        }
        assert!(!is_late, "left behind: {left:#?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Checks that the future is still pending after this time.
async fn still_waits<T>(
    waits: &mut (impl Future<Output = T> + Unpin),
    for_so_long: Duration,
) -> bool {
    tokio::time::timeout(for_so_long, waits).await.is_err()
}
