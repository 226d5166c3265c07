//! Pushes: they reach all connections that are subscribed to a channel, in order with the answers.

use std::task::Poll;

use super::*;
use crate::node::answer::Answered;
use crate::{
    base::owner::{Entry, Label},
    node::{
        Guard, Push, Says,
        mutex::cases::{acquire, entry, release, request, secs},
        request::{Place, Verb, Waiting},
    },
};

fn push(number: u64) -> Push {
    Push {
        entry: Entry::new(uuid::Uuid::from_u128(1), &Label::new("test").unwrap()),
        says: Says::Next { after: ms(number) },
    }
}

/// Publishes a push as another client's command would. Returns true if the channel has a subscriber.
fn publish(node: &MemoryNode, channel: &str, number: u64) -> bool {
    node.with_store(|store, _| store.publish(&channel.into(), push(number)))
}

fn listener(node: &MemoryNode, channel: &str) -> Box<dyn Connection> {
    node.connect(&channel.into()).unwrap()
}

/// The input that has come by now.
fn heard(connection: &mut dyn Connection) -> Vec<Incoming> {
    let mut cx = Context::from_waker(Waker::noop());
    let mut heard = Vec::new();
    while let Poll::Ready(Ok(incoming)) = connection.poll_incoming(&mut cx) {
        heard.push(incoming);
    }
    heard
}

fn ask(connection: &mut dyn Connection) {
    let load = Operation::new(server::Command::LoadScripts);
    connection.send(load, Arc::default());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(connection.poll_flush(&mut cx).is_ready());
}

fn loaded() -> Incoming {
    let loaded: Answered = Ok(Answer::Server(server::Reply::Loaded));
    Incoming::Answer(loaded)
}

fn pushed(number: u64) -> Incoming {
    Incoming::Push(push(number))
}

#[tokio::test(start_paused = true)]
async fn a_push_reaches_every_listener_of_its_channel_only() {
    let (node, other) = (MemoryNode::new(), MemoryNode::new());
    assert!(!publish(&node, "a", 1), "nobody is there");
    let (mut first, mut second) = (listener(&node, "a"), listener(&node, "a"));
    let (mut third, mut deaf) = (listener(&node, "b"), listener(&node, ""));
    let mut elsewhere = listener(&other, "a");
    assert!(first.hears() && third.hears() && !deaf.hears());
    assert!(publish(&node, "a", 2) && publish(&node, "b", 3) && publish(&node, "a", 4));
    assert!(!publish(&node, "c", 5) && !publish(&node, "", 6));
    for connection in [&mut first, &mut second] {
        assert_eq!(heard(&mut **connection), [pushed(2), pushed(4)]);
    }
    assert_eq!(heard(&mut *third), [pushed(3)]);
    assert_eq!(heard(&mut *deaf), []);
    assert_eq!(heard(&mut *elsewhere), []);

    drop(first);
    assert!(publish(&node, "a", 7), "one is left");
    assert_eq!(heard(&mut *second), [pushed(7)]);
    drop(second);
    assert!(!publish(&node, "a", 8));
    assert!(publish(&node, "b", 9));
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_listens_no_more() {
    let node = MemoryNode::new();
    for restart in [MemoryNode::stop, MemoryNode::restart_empty] {
        let mut before = listener(&node, "a");
        assert!(publish(&node, "a", 1));
        restart(&node);
        assert!(!publish(&node, "a", 2), "no receivers");
        assert_eq!(
            heard(&mut *before),
            [],
            "what was under way is lost with it"
        );
        node.start();
        assert!(!publish(&node, "a", 3));
        let mut after = listener(&node, "a");
        // The end of the old connection takes nothing from the new one.
        drop(before);
        assert!(publish(&node, "a", 4));
        assert_eq!(heard(&mut *after), [pushed(4)]);
    }
}

#[tokio::test(start_paused = true)]
async fn pushes_keep_their_order_among_answers_and_come_as_late() {
    let node = MemoryNode::new();
    let mut connection = listener(&node, "a");
    publish(&node, "a", 1);
    ask(&mut *connection);
    publish(&node, "a", 2);
    assert_eq!(heard(&mut *connection), [pushed(1), loaded(), pushed(2)]);

    let start = Instant::now();
    node.delay(ms(300));
    ask(&mut *connection);
    publish(&node, "a", 3);
    node.delay(Duration::ZERO);
    publish(&node, "a", 4);
    ask(&mut *connection);
    assert_eq!(heard(&mut *connection), [], "nothing overtakes the first");
    let mut came = Vec::new();
    while came.len() < 4 {
        let incoming = std::future::poll_fn(|cx| connection.poll_incoming(cx)).await;
        came.push(incoming.unwrap());
    }
    assert_eq!(came, [loaded(), pushed(3), pushed(4), loaded()]);
    // The delay of the first, on a paused clock.
    assert!(start.elapsed() >= ms(300) && start.elapsed() < ms(310));
}

#[tokio::test(start_paused = true)]
async fn a_pending_connection_is_woken_by_a_push() {
    let node = MemoryNode::new();
    let mut connection = listener(&node, "a");
    let waits =
        tokio::spawn(async move { std::future::poll_fn(|cx| connection.poll_incoming(cx)).await });
    sleep(ms(10)).await;
    assert!(publish(&node, "a", 1));
    let woken = timeout(ms(10), waits).await.expect("at once").unwrap();
    assert_eq!(woken, Ok(pushed(1)));
}

/// A lock is handed over to a waiter on another connection. The waiter's push is there before the RELEASE is answered.
#[tokio::test(start_paused = true)]
async fn a_hand_over_reaches_the_waiters_connection() {
    let node = MemoryNode::new();
    let terms = Terms {
        max_ttl: secs(30),
        margin: secs(5),
    };
    node.admit(1, "word", terms);
    let guard = node.with_store(|store, _| store.admission_mut().open().map(str::to_owned));
    let guard = Guard::new(guard.unwrap());
    let (mut holder, mut waiter) = (listener(&node, ""), listener(&node, "a"));
    let ask = |connection: &mut dyn Connection, command: Command| {
        connection.send(Operation::new(command), Arc::clone(&guard));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(connection.poll_flush(&mut cx).is_ready());
        heard(connection)
    };
    ask(&mut *holder, acquire("a", 1, secs(10), 0).into());
    let place = Place {
        seq: 7,
        ticket: 1,
        only_last: false,
        term: secs(1),
        lock_delay: Duration::ZERO,
        life: secs(10),
        claim: ms(50),
        channel: "a".into(),
    };
    let join = Verb::Acquire {
        ttl: secs(10),
        floor: 0,
        wait: Waiting::Queue(place),
    };
    let stands = ask(&mut *waiter, request("a", 2, join).into());
    let in_line = |said: &Incoming| matches!(said, Incoming::Answer(Ok(Answer::InLine { .. })));
    assert!(matches!(&stands[..], [said] if in_line(said)), "{stands:?}");
    let waits =
        tokio::spawn(async move { std::future::poll_fn(|cx| waiter.poll_incoming(cx)).await });
    sleep(ms(10)).await;
    let released = ask(&mut *holder, release("a", 1).into());
    let wanted = Incoming::Answer(Ok(Answer::Released(true)));
    assert_eq!(released, [wanted], "who has no channel hears nothing");
    let pushed = timeout(ms(10), waits).await.expect("at once").unwrap();
    let Ok(Incoming::Push(Push { entry: to, says })) = pushed else {
        panic!("{pushed:?}")
    };
    assert_eq!(to, entry(2));
    assert!(matches!(says, Says::Granted { seq: 7, .. }), "{says:?}");
}
