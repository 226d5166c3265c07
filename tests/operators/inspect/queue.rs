//! Operators see the waiters in the queue, for how long they wait and on which nodes. After an eviction the lock goes
//! to the first of them. The tests use masters in this process, Redis and Valkey.

use super::{NAME, PATIENCE, in_memory, ms, on_servers, seen};
use crate::support::{Fleet, Kind};
use quorate::{Error, Inspection, Lease, Quorum};
use tokio::{task::JoinHandle, time};

type Waiting = JoinHandle<Result<Lease, Error>>;

/// The waiters in the queue, if all of them stand on all nodes.
fn labels(seen: &Inspection) -> Vec<String> {
    let line = seen.line();
    let everywhere = line.iter().filter(|waiter| waiter.nodes.len() == 3);
    everywhere.map(|waiter| waiter.label.clone()).collect()
}

/// Starts a wait, and returns when every node has it in its queue.
async fn waits(quorum: &Quorum, line: &[&str]) -> Waiting {
    let waiting = tokio::spawn(quorum.mutex(NAME).lock());
    seen(quorum, &format!("{line:?}"), |seen| labels(seen) == line).await;
    waiting
}

async fn granted(waiting: Waiting) -> Lease {
    let lease = time::timeout(PATIENCE, waiting).await;
    lease.expect("it is served").unwrap().unwrap()
}

// ---- all kinds of nodes ---------------------------------------------------------------------

async fn the_line_is_seen_and_served([ann, bob, eve]: [Quorum; 3]) {
    let held = ann.mutex(NAME).lock().await.unwrap();
    let bobs = waits(&bob, &["bob"]).await;
    let eves = waits(&eve, &["bob", "eve"]).await;
    let seen_now = ann.inspect(NAME).await.unwrap();
    assert_eq!(seen_now.holder().unwrap().label, "ann");
    assert_eq!(seen_now.waiting(), 2);
    let line = seen_now.line();
    assert!(line[0].waited >= line[1].waited && line[0].waited < PATIENCE * 2);
    assert_eq!(line[0].owner().unwrap().len(), 36);
    for node in &seen_now.nodes {
        let there: Vec<_> = node.line.iter().map(|waiter| &*waiter.label).collect();
        assert_eq!((there, node.waiting), (vec!["bob", "eve"], 2), "{seen_now}");
        assert_eq!(node.line[0].nodes, std::slice::from_ref(&node.node));
    }
    let text = seen_now.to_string();
    assert!(text.contains("; 2 wait in the queue\n"), "{text}");
    assert!(text.contains("\nWAITER  WAITED"), "{text}");

    assert!(ann.evict(NAME).await.unwrap(), "it was held");
    let bobs = granted(bobs).await;
    assert!(bobs.token() > held.token());
    let after = seen(&ann, "bob holds", |seen| {
        seen.holder().is_some_and(|holder| holder.label == "bob") && labels(seen) == ["eve"]
    });
    let after = after.await;
    assert_eq!(after.waiting(), 1, "{after}");
    assert_eq!(
        after.holder().unwrap().owner(),
        line[0].owner(),
        "who held is who waited"
    );
    assert!(
        ann.mutex(NAME).try_lock().await.unwrap().is_none(),
        "it is held"
    );

    eves.abort();
    seen(&ann, "nobody waits", |seen| {
        seen.waiting() == 0 && seen.line().is_empty()
    })
    .await;
    bobs.release().await.unwrap();
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn in_this_process() {
    the_line_is_seen_and_served(in_memory().await).await;
}

#[tokio::test]
async fn on_redis() {
    let fleet = Fleet::start(3, Kind::Redis);
    the_line_is_seen_and_served(on_servers(&fleet).await).await;
}

#[tokio::test]
async fn on_valkey() {
    let fleet = Fleet::start(3, Kind::Valkey);
    the_line_is_seen_and_served(on_servers(&fleet).await).await;
}

/// The head of a queue asks by itself four times a second. If an eviction served nobody, the head would wait until
/// then.
#[tokio::test(start_paused = true)]
async fn an_eviction_serves_the_queue_at_once() {
    let [ann, bob, eve] = in_memory().await;
    for round in 0..6_u32 {
        let held = ann.mutex(NAME).lock().await.unwrap();
        let bobs = waits(&bob, &["bob"]).await;
        time::sleep(ms(37) * round).await;
        let evicted = time::Instant::now();
        assert!(eve.evict(NAME).await.unwrap());
        granted(bobs).await.release().await.unwrap();
        assert!(evicted.elapsed() < ms(10), "{:?}", evicted.elapsed());
        drop(held);
        seen(&eve, "free", |seen| seen.holder().is_none()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_is_counted_and_its_first_are_named() {
    let [ann, bob, eve] = in_memory().await;
    let held = ann.mutex(NAME).lock().await.unwrap();
    let all: Vec<Waiting> = (0..130)
        .map(|_| tokio::spawn(bob.mutex(NAME).lock()))
        .collect();
    let long = seen(&eve, "130 wait", |seen| {
        seen.nodes.iter().all(|node| node.waiting == 130)
    });
    let long = long.await;
    assert_eq!((long.line().len(), long.waiting()), (100, 130));
    let text = long.to_string();
    assert!(text.ends_with("\nand 110 more"), "{text}");
    all.into_iter().for_each(|one| one.abort());
    seen(&eve, "nobody waits", |seen| seen.waiting() == 0).await;
    drop(held);
}
