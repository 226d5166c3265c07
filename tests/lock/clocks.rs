//! Wall clocks that differ: no token is smaller than an earlier one. The servers are real, and each has a clock of its
//! own.

use std::time::{Duration, Instant};

use crate::support::{Fleet, Kind, ServerOptions};
use quorate::{Builder, Error, NodeState, Quorum};
use tokio::time::sleep;

const MAX_TTL: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_secs(1);
/// 1.01 max_ttl + margin.
const Z: Duration = Duration::from_millis(3_020);
/// Time for reconnecting and the next handshake, on a busy machine.
const SLACK: Duration = Duration::from_secs(10);
const HOUR: i64 = 3600;
/// The error text of a node that is not counted because of its clock.
const BEHIND: &str = "behind this machine's";

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn builder(fleet: &Fleet) -> Builder {
    Quorum::builder()
        .nodes(fleet.urls())
        .max_ttl(MAX_TTL)
        .restart_margin(MARGIN)
        .node_timeout(ms(300))
}

/// Three servers with clocks of their own, and a client of them.
async fn fleet() -> (Fleet, Quorum) {
    let fleet = Fleet::start_with(3, ServerOptions::new(Kind::Valkey).own_clock());
    let quorum = builder(&fleet).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    (fleet, quorum)
}

async fn until(what: &str, within: Duration, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + within;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {within:?}: {what}");
        sleep(ms(5)).await;
    }
}

/// The number of nodes that are refused because their clock is behind this machine's.
fn behind(quorum: &Quorum) -> usize {
    let nodes = quorum.nodes();
    let behind =
        |state: &NodeState| matches!(state, NodeState::Refused(why) if why.contains(BEHIND));
    nodes.iter().filter(|node| behind(&node.state)).count()
}

fn voting(quorum: &Quorum) -> usize {
    quorum.health().voting
}

async fn token(quorum: &Quorum) -> u64 {
    let lease = quorum.mutex("x").lock().await.unwrap();
    let token = lease.token().as_u64();
    lease.release().await.unwrap();
    token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_majority_with_clocks_set_back_gives_no_smaller_token() {
    let (fleet, quorum) = fleet().await;
    let first = token(&quorum).await;
    for server in &fleet[..2] {
        server.restart_empty();
    }
    until("both were met", SLACK, || voting(&quorum) == 1).await;
    for server in &fleet[..2] {
        server.set_clock(-HOUR);
    }
    until("their clocks are seen", SLACK, || behind(&quorum) == 2).await;
    // The quarantine may end during this time.
    let over = Instant::now() + Z + ms(2_000);
    while Instant::now() < over {
        let error = quorum.mutex("x").try_lock().await.unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains(BEHIND), "{text}");
        sleep(ms(50)).await;
    }
    let error = builder(&fleet).connect().await.unwrap_err();
    let text = format!("{error}");
    assert!(text.contains(BEHIND), "{text}");

    for server in &fleet[..2] {
        server.set_clock(0);
    }
    until("all vote", SLACK, || voting(&quorum) == 3).await;
    let second = token(&quorum).await;
    assert!(second > first, "{second} after {first}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_master_whose_clock_is_behind_is_not_counted_and_the_others_go_on() {
    let (fleet, quorum) = fleet().await;
    fleet[0].set_clock(-10);
    until("it is seen", SLACK, || behind(&quorum) == 1).await;
    let mut last = token(&quorum).await;
    for _ in 0..5 {
        let next = token(&quorum).await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
    fleet[0].set_clock(0);
    until("it counts again", SLACK, || voting(&quorum) == 3).await;
    assert!(token(&quorum).await > last);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_ahead_of_all_masters_locks_nothing_and_keeps_its_leases() {
    let (fleet, quorum) = fleet().await;
    let held = quorum.mutex("held").ttl(MAX_TTL).lock().await.unwrap();
    fleet.iter().for_each(|server| server.set_clock(-60));
    until("all are behind", SLACK, || behind(&quorum) == 3).await;
    sleep(ms(3_000)).await;
    assert!(held.is_valid(), "it is renewed");
    let error = quorum.mutex("x").try_lock().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(BEHIND), "{text}");
    assert!(text.contains("NTP"), "{text}");
    held.release().await.unwrap();
}

/// A clock that is less than max_ttl behind, or ahead, is not a reason for refusing a node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_differ_by_less_than_max_ttl_or_are_ahead_are_counted() {
    let (fleet, quorum) = fleet().await;
    fleet[0].set_clock(-1);
    fleet[1].set_clock(HOUR);
    sleep(ms(6_000)).await;
    assert_eq!(voting(&quorum), 3, "{quorum:?}");
    let first = token(&quorum).await;
    assert!(token(&quorum).await > first);
}
