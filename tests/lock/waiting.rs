//! Waiting for the nodes: `ready` waits for a majority that answers, `voting` waits for one that votes, and
//! `node_changes` returns every change once. The masters are in this process.

use std::{future::Future, time::Duration};

use crate::exclusive::Exclusive;
use futures::StreamExt;
use quorate::{Builder, Error, MemoryNode, NodeChanges, NodeState, Quorum};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// These masters have restarted, so they are in quarantine at first, as servers are.
fn three() -> ([MemoryNode; 3], Builder) {
    let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
    nodes.iter().for_each(MemoryNode::restart_empty);
    let builder = Quorum::builder().nodes(nodes.clone());
    (nodes, builder)
}

on_both! {
    paused:
        a_plain_loop_neither_spins_in_an_outage_nor_sleeps_through_its_end,
        a_waiter_is_served_by_a_release_after_an_outage;
}

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[tokio::test(start_paused = true)]
async fn voting_waits_out_a_quarantine_or_says_how_long_it_takes() {
    let (nodes, builder) = three();
    let quorum = builder.connect().await.unwrap();
    let error = quorum.voting(seconds(10)).await.unwrap_err();
    assert!(matches!(error, Error::Quarantined(_)), "{error}");
    let left = error.retry_after().unwrap();
    // A quarantine of 1.01 · 30 s + 5 s, of which 10 s have passed.
    assert!((seconds(25)..seconds(26)).contains(&left), "{left:?}");
    quorum.voting(seconds(60)).await.unwrap();
    assert!(quorum.mutex("a").try_lock().await.unwrap().is_some());

    nodes[0].stop();
    nodes[1].stop();
    while quorum.health().voting > 1 {
        tokio::time::sleep(ms(10)).await;
    }
    let error = quorum.voting(seconds(3)).await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    assert_eq!(error.report().unwrap().nodes().len(), 3);
    let (waits, ends) = (quorum.voting(seconds(60)), quorum.shutdown());
    let (waited, _) = tokio::join!(waits, ends);
    assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
    assert!(matches!(quorum.ready().await, Err(Error::Closed)));
}

/// Nobody can have used new masters before. A master that lost its memory, or that joins others in use, is not new.
#[tokio::test(start_paused = true)]
async fn new_masters_in_this_process_vote_at_once() {
    for fleet in [None, Some("ours")] {
        let nodes: [MemoryNode; 3] = Default::default();
        let builder = || match fleet {
            None => Quorum::builder(),
            Some(name) => Quorum::builder().fleet(name).max_ttl(seconds(60)),
        };
        let quorum = builder().nodes(&nodes).connect().await.unwrap();
        let lease = quorum.mutex("a").try_lock().await.unwrap();
        let other = builder().nodes(&nodes).connect().await.unwrap();
        let refused = other.mutex("a").try_lock().await.unwrap();
        assert!(lease.is_some() && refused.is_none(), "one fleet");
    }
    let nodes: [MemoryNode; 3] = Default::default();
    nodes[0].restart_empty();
    let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    let error = quorum.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(error, Error::Quarantined(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn ready_is_when_a_majority_answers() {
    let (nodes, builder) = three();
    nodes[0].stop();
    let quorum = builder.connect_lazy().unwrap();
    quorum.ready().await.unwrap();
    nodes[1].stop();
    let error = loop {
        match quorum.ready().await {
            Ok(()) => tokio::time::sleep(ms(10)).await,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");

    let (nodes, builder) = three();
    let twice = builder.node(nodes[0].clone()).connect_lazy();
    assert!(matches!(twice, Err(Error::Invalid(_))), "{twice:?}");
}

/// The next change of the second node.
async fn second(quorum: &Quorum, changes: &mut NodeChanges) -> NodeState {
    let name = quorum.nodes()[1].node.clone();
    loop {
        let change = changes.next().await.unwrap();
        if change.node == name {
            return change.state;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_change_of_a_node_is_told_once() {
    let (nodes, builder) = three();
    let quorum = builder.connect().await.unwrap();
    let mut changes = quorum.node_changes();
    let first: Vec<_> = changes.by_ref().take(3).collect().await;
    let names = |nodes: &[quorate::NodeStatus]| -> Vec<_> {
        nodes.iter().map(|node| node.node.clone()).collect()
    };
    assert_eq!(names(&first), names(&quorum.nodes()), "in order");
    let young = |node: &quorate::NodeStatus| matches!(node.state, NodeState::Quarantined(_));
    assert!(first.iter().all(young), "{first:?}");

    // The passing of time is not a change, so nothing comes until they vote.
    let began = tokio::time::Instant::now();
    let next = changes.next().await.unwrap();
    assert_eq!(next.state, NodeState::Voting);
    // Most of a quarantine of 35.3 s has passed.
    assert!(began.elapsed() > seconds(30), "{:?}", began.elapsed());

    assert_eq!(second(&quorum, &mut changes).await, NodeState::Voting);
    nodes[1].stop();
    let gone = second(&quorum, &mut changes).await;
    assert!(matches!(gone, NodeState::Unreachable(..)), "{gone}");
    // Many times the longest back-off of a dial, 5 s.
    let again = tokio::time::timeout(seconds(60), second(&quorum, &mut changes)).await;
    assert!(
        again.is_err(),
        "it is dialled in vain all the time: {again:?}"
    );
    nodes[1].start();
    while second(&quorum, &mut changes).await != NodeState::Voting {}

    // A reader that rarely looks sees the present state, not earlier ones.
    nodes[1].stop();
    while matches!(quorum.nodes()[1].state, NodeState::Voting) {
        tokio::time::sleep(ms(10)).await;
    }
    nodes[1].start();
    while !matches!(quorum.nodes()[1].state, NodeState::Voting) {
        tokio::time::sleep(ms(10)).await;
    }
    // The state is the same. A change would have been returned by then.
    let none = tokio::time::timeout(seconds(60), changes.next()).await;
    assert!(none.is_err(), "{none:?}");

    let late = quorum.node_changes();
    quorum.shutdown().await;
    assert!(changes.next().await.is_none());
    assert_eq!(late.count().await, 0);
    assert_eq!(quorum.node_changes().count().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_changes_does_not_keep_the_quorum_alive() {
    let quorum = Quorum::in_memory(3);
    quorum.ready().await.unwrap();
    let mut changes = quorum.node_changes();
    assert_eq!(changes.by_ref().take(3).count().await, 3);
    drop(quorum);
    assert!(changes.next().await.is_none());
    assert!(changes.next().await.is_none(), "it stays at its end");
}

/// How often a plain loop asks within 12 s. Each answer must say when to ask again.
async fn turns<T, F>(mut ask: impl FnMut() -> F) -> usize
where
    F: Future<Output = Result<T, Error>>,
{
    let end = tokio::time::Instant::now() + seconds(12);
    let mut turns = 0;
    while tokio::time::Instant::now() < end {
        turns += 1;
        let answer = ask().await;
        assert!(answer.is_err(), "done, in an outage");
        if let Err(error) = answer {
            let pause = error.retry_after();
            // The shortest pause, and a little more than the longest one: the longest back-off of a dial, 5 s, and 50
            // ms.
            assert!(pause >= Some(ms(50)), "{error}: {pause:?}");
            assert!(pause <= Some(seconds(6)), "{error}: {pause:?}");
            tokio::time::sleep(pause.unwrap_or_default()).await;
        }
    }
    turns
}

async fn a_plain_loop_neither_spins_in_an_outage_nor_sleeps_through_its_end<E: Exclusive>() {
    let (nodes, builder) = three();
    let quorum = builder.connect().await.unwrap();
    quorum.bootstrap().await.unwrap();
    let lease = E::of(&quorum, "held").ttl(seconds(30)).lock();
    let lease = lease.await.unwrap();
    nodes[0].stop();
    nodes[1].stop();
    while quorum.health().voting > 1 {
        tokio::time::sleep(ms(10)).await;
    }
    let mutex = E::of(&quorum, "a");
    let extended = turns(|| lease.extend()).await;
    let released = lease.release().await.unwrap_err();
    assert!(released.retry_after() >= Some(ms(50)), "{released}");
    let all = [
        extended,
        turns(|| mutex.try_lock()).await,
        turns(|| mutex.lock()).await,
        turns(|| quorum.evict("a")).await,
        turns(|| quorum.ready()).await,
        turns(|| quorum.voting(ms(100))).await,
        turns(|| quorum.bootstrap()).await,
        turns(|| quorum.raise_terms()).await,
    ];
    assert!(all.iter().all(|turns| *turns < 60), "{all:?}");

    nodes[0].start();
    let back = tokio::time::Instant::now();
    let lease = loop {
        match mutex.try_lock().await {
            Ok(lease) => break lease,
            Err(error) => tokio::time::sleep(error.retry_after().unwrap()).await,
        }
    };
    assert!(lease.is_some());
    // The back-off of a dial, and its jitter.
    assert!(back.elapsed() < seconds(6), "{:?}", back.elapsed());
}

/// The waiter leaves the queue while no majority votes. It comes back later, also on the nodes that voted all the time.
async fn a_waiter_is_served_by_a_release_after_an_outage<E: Exclusive>() {
    // The outages have lengths around a term and a half, which is when it comes back.
    for outage in 0..40 {
        let nodes: [MemoryNode; 5] = std::array::from_fn(|_| MemoryNode::new());
        let quorum = Quorum::builder().nodes(nodes.clone()).connect();
        let quorum = quorum.await.unwrap();
        quorum.bootstrap().await.unwrap();
        let held = E::of(&quorum, "a").lock().await.unwrap();
        let waiter = tokio::spawn(E::of(&quorum, "a").lock());
        tokio::time::sleep(ms(100)).await;

        nodes[..3].iter().for_each(MemoryNode::stop);
        while quorum.health().voting > 2 {
            tokio::time::sleep(ms(10)).await;
        }
        let began = tokio::time::Instant::now();
        tokio::time::sleep(ms(50 * outage)).await;
        nodes[0].start();
        while quorum.health().voting < 3 {
            tokio::time::sleep(ms(1)).await;
        }
        let took = began.elapsed();
        drop(held);
        // Half of the default ttl: it gets the lock by the release, and not because a lease has expired.
        let lease = tokio::time::timeout(seconds(5), waiter).await;
        let lease = lease.unwrap_or_else(|_| panic!("never, after {took:?}"));
        assert!(lease.unwrap().unwrap().is_valid());
    }
}
