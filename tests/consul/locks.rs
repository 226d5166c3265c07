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

/// Each of these waits for a TTL of 10 s, or two: so they run side by side, each on an agent of its own.
#[test]
fn what_waits_for_a_ttl() {
    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(test);
    }
    // A panic in one of them is told, and passed on.
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

/// For what comes at once, on a busy machine too. Half of the default ttl, so nothing has expired.
const SOON: Duration = ms(5_000);

/// Waits until it is so.
async fn until(what: &str, within: Duration, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < within, "{what}: not within {within:?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Neither a key nor a session of ours is left, after a moment for what goes on in the background. A `consul lock` that
/// ends may leave its own session behind, which then lives for its TTL of 15 s.
async fn nothing_is_left(agent: &Agent) {
    nothing_is_left_after(agent, ms(3_000)).await;
}

async fn nothing_is_left_after(agent: &Agent, moment: Duration) {
    let start = Instant::now();
    loop {
        let mut sessions = agent.sessions();
        sessions.retain(|session| {
            let name = session["Name"].as_str().unwrap_or_default();
            !name.starts_with("Consul lock for ")
        });
        let left = (agent.pairs(""), sessions);
        if left.0.is_empty() && left.1.is_empty() {
            return;
        }
        assert!(start.elapsed() < moment, "left behind: {left:#?}");
        tokio::time::sleep(ms(10)).await;
    }
}

/// Whether it takes its time: at least so long.
async fn still_waits<T>(
    waits: &mut (impl Future<Output = T> + Unpin),
    for_so_long: Duration,
) -> bool {
    tokio::time::timeout(for_so_long, waits).await.is_err()
}
