use std::task::{Context, Waker};

use tokio::time::{Instant, sleep, timeout};

mod pushes;

use super::*;
use crate::{
    Error, NodeState, Quorum,
    node::{Disconnected, Incoming, Operation, server},
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three nodes that vote.
async fn three() -> ([MemoryNode; 3], Quorum) {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    (nodes, quorum)
}

/// How long one attempt takes, and its result. The clock is paused, so only delays take time, and the rounding of
/// timers: at most 10 ms, and 5 ms without a delay.
async fn attempt(quorum: &Quorum) -> (Duration, Result<(), Error>) {
    let start = Instant::now();
    let lease = quorum.mutex("a").try_lock().await;
    let took = start.elapsed();
    let got = match lease {
        Ok(lease) => lease.expect("nobody holds it").release().await,
        Err(error) => Err(error),
    };
    (took, got)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_restarts_empty_votes_after_its_quarantine() {
    let (nodes, quorum) = three().await;
    let lease = quorum.mutex("a").lock().await.unwrap();
    nodes[0].stop();
    nodes[0].restart_empty();
    sleep(ms(1000)).await;
    let state = &quorum.nodes()[0].state;
    let NodeState::Quarantined(left) = state else {
        panic!("{state}")
    };
    assert!(*left > ms(30_000) && *left < ms(35_300), "{left:?}");
    assert!(lease.is_valid(), "two of three are enough");
    sleep(*left + ms(6000)).await;
    assert_eq!(quorum.health().voting, 3);
    // It has forgotten the lock, and a renewal has put it back.
    let seen = quorum.inspect("a").await.unwrap();
    let holders = seen.nodes.iter().filter(|node| node.holder.is_some());
    assert_eq!(holders.count(), 3, "{seen}");
    // Without a majority that remembers, no node votes.
    nodes[1].restart_empty();
    nodes[2].restart_empty();
    lease.lost().await;
    let lost = quorum.mutex("b").try_lock().await;
    assert!(matches!(lost, Err(Error::Quarantined(_))), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn delayed_answers_follow_tokios_clock() {
    let (nodes, quorum) = three().await;
    let (took, got) = attempt(&quorum).await;
    assert!(took < ms(5) && got.is_ok(), "{took:?} {got:?}");
    nodes[0].delay(ms(300));
    let (took, got) = attempt(&quorum).await;
    assert!(
        took < ms(5) && got.is_ok(),
        "a majority is there: {took:?} {got:?}"
    );
    nodes[1].delay(ms(200));
    let (took, got) = attempt(&quorum).await;
    assert!(
        took >= ms(200) && took < ms(210) && got.is_ok(),
        "{took:?} {got:?}"
    );
    nodes[1].delay(Duration::MAX);
    nodes[0].delay(ms(700));
    let (took, got) = attempt(&quorum).await;
    assert!(took >= ms(500) && took < ms(510), "{took:?}");
    assert!(matches!(got, Err(Error::NoQuorum(_))), "{got:?}");
    assert!(
        matches!(quorum.nodes()[1].state, NodeState::Stalled(_)),
        "{quorum:?}"
    );
    for node in &nodes {
        node.delay(Duration::ZERO);
    }
    // Answers that were on their way keep their time. The node that would never have answered is dialled again.
    sleep(ms(10_000)).await;
    assert_eq!(quorum.health().voting, 3, "{quorum:?}");
    let (took, got) = attempt(&quorum).await;
    assert!(took < ms(5) && got.is_ok(), "{took:?} {got:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_keep_their_order_and_a_break_is_reported_at_once() {
    use std::future::poll_fn;
    let node = MemoryNode::new();
    let mut connection = node.connect(&"".into()).unwrap();
    assert!(!connection.hears());
    let mut ask = |command, delay| {
        node.delay(delay);
        connection.send(Operation::new(command), Arc::default());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(connection.poll_flush(&mut cx).is_ready());
    };
    let start = Instant::now();
    ask(Command::Admission(admission::Command::Survey), ms(300));
    ask(
        Command::Server(server::Command::LoadScripts),
        Duration::ZERO,
    );
    let mut answers = Vec::new();
    for _ in 0..2 {
        match poll_fn(|cx| connection.poll_incoming(cx)).await {
            Ok(Incoming::Answer(answer)) => answers.push(answer),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        answers,
        [
            Ok(Answer::Admission(admission::Reply::Surveyed {
                used: false,
                lock: None
            })),
            Ok(Answer::Server(server::Reply::Loaded))
        ]
    );
    // The delay of the first answer, on a paused clock.
    assert!(start.elapsed() >= ms(300) && start.elapsed() < ms(310));
    node.delay(ms(60_000));
    connection.send(
        Operation::new(Command::Admission(admission::Command::Survey)),
        Arc::default(),
    );
    poll_fn(|cx| connection.poll_flush(cx)).await.unwrap();
    let waits = tokio::spawn(async move { poll_fn(|cx| connection.poll_incoming(cx)).await });
    sleep(ms(10)).await;
    node.restart_empty();
    let broken = timeout(ms(10), waits).await.expect("at once").unwrap();
    assert!(matches!(broken, Err(Disconnected(_))), "{broken:?}");
}

/// Real time goes on while tokio's stands still, and the other way round.
#[tokio::test(start_paused = true)]
async fn clients_and_nodes_agree_on_time_although_tokios_clock_jumps() {
    let nodes = [MemoryNode::new(), MemoryNode::new(), MemoryNode::new()];
    let connect = || {
        let builder = Quorum::builder().nodes(&nodes);
        builder.max_ttl(Duration::from_millis(200)).connect()
    };
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(300));
        let quorum = connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        assert_eq!(quorum.health().voting, 3, "{quorum:?}");
        tokio::time::advance(Duration::from_secs(10 * 24 * 3600)).await;
        let mutex = quorum.mutex("a").ttl(Duration::from_millis(200));
        mutex.lock().await.unwrap().release().await.unwrap();
    }
}
