//! A limit that is changed while others use it.

use quorate::{Error, consul::Consul};
use serde_json::Value;

use super::{slow::Slow, *};

const SESSIONS: &str = "PUT /v1/session/create";
const LOOKS: &str = "GET /v1/kv/";
const WRITES: &str = "PUT /v1/txn";

/// The number of permits that the record allows, and the number that is held.
fn record(agent: &Agent) -> Option<(u64, usize)> {
    let record = agent.pairs("pool/.lock").pop()?;
    let value: Value = serde_json::from_str(&record.value).unwrap();
    let holders = value["Holders"].as_object().unwrap().len();
    Some((value["Limit"].as_u64().unwrap(), holders))
}

#[tokio::test]
async fn a_limit_that_is_lowered_while_sessions_are_made_is_not_exceeded() {
    let agent = Agent::start();
    let slow = Slow::start(&agent).await;
    let consul = Consul::connect(slow.url()).await.unwrap();
    let pool = consul.semaphore("pool", 5);
    slow.delay(SESSIONS, ms(1_000));
    let many = tokio::spawn(pool.acquire_many(3));
    slow.begun().await;
    pool.resize(1).await.unwrap();
    assert!(
        !many.is_finished(),
        "the change is done while sessions are made"
    );
    let many = many.await.unwrap();
    assert!(matches!(many, Err(Error::Invalid(_))), "{many:?}");
    assert_eq!(record(&agent), None);
    slow.heal();
    let one = pool.acquire().await.unwrap();
    assert_eq!(record(&agent), Some((1, 1)));
    one.release().await.unwrap();
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

/// The change finds no record that it could write to.
#[tokio::test]
async fn a_grant_during_a_limit_change_gets_the_new_limit() {
    let agent = Agent::start();
    let slow = Slow::start(&agent).await;
    let consul = Consul::connect(slow.url()).await.unwrap();
    let pool = consul.semaphore("pool", 5);
    slow.delay(WRITES, ms(1_000));
    let many = tokio::spawn(pool.acquire_many(3));
    slow.begun().await;
    slow.heal();
    pool.resize(1).await.unwrap();
    let many = many.await.unwrap().unwrap();
    assert_eq!(record(&agent), Some((1, 3)));
    assert!(many.is_valid(), "nothing is taken away");
    assert!(pool.try_acquire().await.unwrap().is_none());
    many.release().await.unwrap();
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn two_changes_at_once_leave_the_handle_with_the_limit_of_the_record() {
    let agent = Agent::start();
    let slow = Slow::start(&agent).await;
    let consul = Consul::connect(slow.url()).await.unwrap();
    let pool = consul.semaphore("pool", 1);
    let held = pool.acquire().await.unwrap();
    slow.delay(WRITES, ms(500));
    let first = tokio::spawn(pool.resize(2));
    // The change has been written, and its answer is under way.
    let written = async || record(&agent) == Some((2, 1));
    until("the first change", SOON, written).await;
    slow.heal();
    pool.resize(3).await.unwrap();
    first.await.unwrap().unwrap();
    assert_eq!(record(&agent), Some((3, 1)));
    let next = pool.try_acquire().await.unwrap().unwrap();
    next.release().await.unwrap();
    held.release().await.unwrap();
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn a_record_read_before_a_limit_change_is_not_a_conflict() {
    let agent = Agent::start();
    let slow = Slow::start(&agent).await;
    let consul = Consul::connect(slow.url()).await.unwrap();
    let pool = consul.semaphore("pool", 2);
    let held = pool.acquire().await.unwrap();
    // The holder's own looks have begun by now.
    tokio::time::sleep(ms(300)).await;
    slow.delay(LOOKS, ms(1_500));
    let next = tokio::spawn(pool.acquire());
    // Then the record has been read, and the answer is under way.
    slow.answered().await;
    slow.heal();
    pool.resize(3).await.unwrap();
    assert!(!next.is_finished(), "the change was faster than the answer");
    let next = next.await.unwrap().unwrap();
    assert_eq!(record(&agent), Some((3, 2)));
    next.release().await.unwrap();
    held.release().await.unwrap();
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}
