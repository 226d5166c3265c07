//! Agents that die or stand still, sessions that end, and clients that are cut off.

use std::time::Duration;

use quorate::{Error, LossReason, consul::Consul};

use super::*;
use crate::support::{Proxy, Slowest, Stalls};

#[tokio::test]
async fn a_session_that_is_destroyed_loses_its_lease_at_once() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let ttl = ms(30_000);
    let held = [
        consul.mutex("m").ttl(ttl).lock().await.unwrap(),
        consul.semaphore("s", 2).ttl(ttl).acquire().await.unwrap(),
    ];
    tokio::time::sleep(ms(300)).await;
    let ended = Instant::now();
    for session in agent.session_ids() {
        agent.destroy(&session);
    }
    for lease in held {
        assert_eq!(lease.lost().await, LossReason::Evicted);
        // A query that waits for changes reported it. A renewal would report it only after a third of 30 s.
        assert!(ended.elapsed() < SOON, "{:?}", ended.elapsed());
        assert!(!lease.is_valid());
        assert!(matches!(lease.release().await, Err(Error::Lost(_))));
    }
    let again = consul.mutex("m").lock().await.unwrap();
    again.release().await.unwrap();
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn keys_that_an_operator_deletes_lose_their_lease_and_let_others_in() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let held = consul.mutex("m").lock().await.unwrap();
    let waits = tokio::spawn(consul.mutex("m").lock());
    tokio::time::sleep(ms(300)).await;
    agent.delete("m/.lock");
    assert_eq!(held.lost().await, LossReason::Evicted);
    let next = waits.await.unwrap().unwrap();
    assert!(next.token() > held.token());
    // A lost lease takes nothing from its successor.
    drop(held);
    tokio::time::sleep(ms(300)).await;
    assert!(next.is_valid() && !agent.keys("m/.lock").is_empty());
    next.release().await.unwrap();
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

/// The session of a waiter ends: an operator destroys it, or the waiter was paused for too long.
#[tokio::test]
async fn a_waiter_whose_session_is_destroyed_gets_another_and_waits_on() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let held = consul.mutex("m").lock().await.unwrap();
    let holder = agent.session_ids();
    let waits = tokio::spawn(consul.mutex("m").lock());
    tokio::time::sleep(ms(300)).await;
    for session in agent.session_ids() {
        if !holder.contains(&session) {
            agent.destroy(&session);
        }
    }
    tokio::time::sleep(ms(300)).await;
    held.release().await.unwrap();
    let next = tokio::time::timeout(SOON, waits)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    next.release().await.unwrap();
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

pub(super) async fn an_agent_that_dies_ends_leases_by_our_own_clock() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let machine = Stalls::watch();
    let asked = Instant::now();
    let held = consul.mutex("m").lock().await.unwrap();
    let taken = asked.elapsed();
    let waits = tokio::spawn(consul.mutex("m").wait_timeout(ms(5_000)).lock());
    tokio::time::sleep(ms(300)).await;
    agent.kill9();
    let error = consul.mutex("other").lock().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let error = waits.await.unwrap().unwrap_err();
    assert!(
        matches!(error, Error::NoQuorum(_)),
        "who waited is told why: {error}"
    );
    assert!(held.is_valid(), "it is good for its ttl");
    assert!(matches!(held.extend().await, Err(Error::NoQuorum(_))));
    assert_eq!(held.lost().await, LossReason::NodesLost);
    let held_for = held.held_for();
    // The ttl of 10 s, less its drift of 0.1 s and the notice of 0.5 s. It began while the lock was asked for.
    assert!(
        held_for + taken >= ms(9_300),
        "{held_for:?} after {taken:?}"
    );
    let at_most = ms(10_000) + machine.longest() * 4;
    assert!(held_for < at_most, "{held_for:?} of {at_most:?}");
    assert!(matches!(held.release().await, Err(Error::Lost(_))));
    consul.shutdown().await;
}

#[tokio::test]
async fn a_restart_within_the_ttl_costs_nothing_and_waiters_wait_on() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    // Nothing is renewed while the agent starts, because that blocks this runtime.
    let ttl = Duration::from_secs(60);
    let (mutex, pool) = (
        consul.mutex("m").ttl(ttl),
        consul.semaphore("s", 1).ttl(ttl),
    );
    let (held, permit) = (mutex.lock().await.unwrap(), pool.acquire().await.unwrap());
    let waits = [tokio::spawn(mutex.lock()), tokio::spawn(pool.acquire())];
    tokio::time::sleep(ms(300)).await;
    for _ in 0..2 {
        agent.kill9();
        tokio::time::sleep(ms(500)).await;
        agent.start_again();
    }
    tokio::time::sleep(ms(1_000)).await;
    assert!(held.is_valid() && permit.is_valid());
    let tokens = [held.token(), permit.token()];
    held.release().await.unwrap();
    permit.release().await.unwrap();
    for (waits, token) in waits.into_iter().zip(tokens) {
        // Three times the longest rest after a query that failed, 5 s.
        let next = tokio::time::timeout(ms(3 * 5_000), waits)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
    }
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

/// The cluster has lost all its memory, and the lock with it. Another client may take the lock as soon as the holder
/// knows.
#[tokio::test]
async fn a_cluster_that_comes_back_empty_has_evicted_its_holders() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    // Nothing is renewed while the agent starts, because that blocks this runtime.
    let mutex = consul.mutex("m").ttl(ms(20_000));
    let held = mutex.lock().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    agent.kill9();
    agent.start_empty();
    // The limit is less than the ttl. At its end the loss would have another reason.
    let lost = tokio::time::timeout(ms(15_000), held.lost()).await.unwrap();
    assert_eq!(lost, LossReason::Evicted);
    drop(held);
    consul
        .mutex("m")
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    consul.shutdown().await;
}

#[tokio::test]
async fn an_agent_that_stands_still_costs_time_only() {
    let agent = Agent::start();
    let consul = Consul::builder()
        .url(agent.url())
        .request_timeout(ms(2_000))
        .connect()
        .await
        .unwrap();
    let held = consul.mutex("m").lock().await.unwrap();
    let waits = tokio::spawn(consul.mutex("m").lock());
    tokio::time::sleep(ms(300)).await;
    agent.pause();
    let machine = Stalls::watch();
    let asked = Instant::now();
    let error = consul.mutex("other").lock().await.unwrap_err();
    // The request timeout, and the rest for a busy machine.
    let (took, at_most) = (asked.elapsed(), ms(2_000 + 800) + machine.longest() * 4);
    assert!(took < at_most, "{took:?} of {at_most:?}");
    assert!(error.to_string().contains("no answer"), "{error}");
    tokio::time::sleep(ms(2_700)).await;
    agent.resume();
    tokio::time::sleep(ms(1_500)).await;
    assert!(held.is_valid() && !waits.is_finished());
    held.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
    consul.shutdown().await;
    // A session whose creation was not answered ends with its ttl of 10 s, which Consul may double.
    nothing_is_left_after(&agent, ms(25_000)).await;
}

/// A holder that is cut off from Consul is over by its own clock before another client can have the lock.
pub(super) async fn a_holder_that_is_cut_off_is_over_before_its_successor_begins() {
    let agent = Agent::start();
    let proxy = Proxy::to_consul(&agent);
    let cut_off = Consul::builder()
        .url(proxy.url())
        .request_timeout(ms(1_000))
        .connect()
        .await
        .unwrap();
    let other = connect(&agent).await;
    let held = cut_off.mutex("m").lock().await.unwrap();
    let watch = held.watch();
    let next = tokio::spawn(other.mutex("m").lock());
    tokio::time::sleep(ms(500)).await;
    proxy.blackhole(true);
    let reason = held.lost().await;
    let lost_at = Instant::now();
    assert_eq!(reason, LossReason::NodesLost);
    assert!(!next.is_finished());
    // Consul keeps a session for one to two ttls of 10 s. 5 s more are for a busy machine.
    let next = tokio::time::timeout(Duration::from_secs(2 * 10 + 5), next)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(!watch.is_valid() && next.token() > held.token());
    println!("the successor came {:?} after the loss", lost_at.elapsed());
    // Requests that the old holder could not send while it was cut off take nothing from its successor.
    drop(held);
    proxy.heal();
    tokio::time::sleep(ms(1_500)).await;
    assert!(next.is_valid());
    next.release().await.unwrap();
    other.shutdown().await;
    cut_off.shutdown().await;
    nothing_is_left(&agent).await;
}

/// The answer to a request is lost. It is not known whether the request was executed, so its possible grant is given
/// up.
#[tokio::test]
async fn a_grant_whose_answer_is_lost_is_not_left_behind() {
    let agent = Agent::start();
    let proxy = Proxy::to_consul(&agent);
    for is_lock in [true, false] {
        let consul = Consul::builder()
            .url(proxy.url())
            .request_timeout(ms(1_000))
            .connect()
            .await
            .unwrap();
        // The client already has a session.
        let take = |wait: Duration| match is_lock {
            true => consul.mutex("m").wait_timeout(wait).lock().boxed_up(),
            false => consul
                .semaphore("s", 1)
                .wait_timeout(wait)
                .acquire()
                .boxed_up(),
        };
        take(ms(2_000)).await.unwrap().release().await.unwrap();
        proxy.hold_replies(true);
        let error = take(ms(3_000)).await.unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error}");
        proxy.heal();
        let again = take(ms(5_000)).await.unwrap();
        again.release().await.unwrap();
        consul.shutdown().await;
        nothing_is_left(&agent).await;
    }
}

type Boxed = std::pin::Pin<Box<dyn Future<Output = Result<quorate::Lease, Error>> + Send>>;

trait BoxedUp {
    fn boxed_up(self) -> Boxed;
}

impl<F: Future<Output = Result<quorate::Lease, Error>> + Send + 'static> BoxedUp for F {
    fn boxed_up(self) -> Boxed {
        Box::pin(self)
    }
}

/// Consul's lock-delay: nobody gets the lock for that time after its holder's session was ended.
#[tokio::test]
async fn a_lock_delay_holds_after_an_eviction_and_not_after_a_release() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let mutex = consul.mutex("m").lock_delay(ms(3_000));
    let asked = Instant::now();
    mutex.lock().await.unwrap().release().await.unwrap();
    let cost = asked.elapsed();
    let held = mutex.lock().await.unwrap();
    // Dropped futures do not cause a lock-delay either.
    for _ in 0..3 {
        drop(tokio::time::timeout(ms(50), mutex.lock()).await);
    }
    tokio::time::sleep(ms(200)).await;
    let record = agent.pairs("m/.lock").remove(0);
    let (machine, answers) = (Stalls::watch(), Slowest::of_agent(&agent));
    let ended = Instant::now();
    agent.destroy(&record.session.unwrap());
    assert!(consul.mutex("m").try_lock().await.unwrap().is_none());
    let next = consul.mutex("m").lock().await.unwrap();
    let took = ended.elapsed();
    // The delay of 3 s, the longest rest between two attempts, 1 s, and the attempts.
    let at_most = ms(4_000) + (2 * cost).max(ms(500)) + answers.answer() + machine.longest() * 2;
    assert!(
        (ms(2_990)..at_most).contains(&took),
        "{took:?} of {at_most:?}"
    );
    drop(held);
    next.release().await.unwrap();
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}
