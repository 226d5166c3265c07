mod batches;
mod logins;
mod pushes;

use std::future::poll_fn;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};

use super::*;
use crate::node::answer::Answer;
use crate::node::redis::outbox::CHUNK;
use crate::node::{Fault, admission, mutex, server};

/// The channel to which the connections are subscribed.
const CHANNEL: &str = "quorate:wake:1";

fn fake(capacity: usize) -> (RedisConnection<DuplexStream>, DuplexStream) {
    let (ours, theirs) = duplex(capacity);
    (connection(ours), theirs)
}

fn connection<S>(stream: S) -> RedisConnection<S> {
    let (keys, channel) = (Arc::new(Keys::new("quorate")), Some(CHANNEL.into()));
    let secret = Secret::new("sesame");
    RedisConnection::new(stream, 7, channel, keys, secret, Inbox::new())
}

/// Operations with one reply each.
fn kills(operations: usize) -> Vec<Arc<Operation>> {
    let kill = || Operation::new(server::Command::Disconnect { client: 1 });
    std::iter::repeat_with(kill).take(operations).collect()
}

fn send<S: Stream>(c: &mut RedisConnection<S>, operations: &[Arc<Operation>]) {
    for operation in operations {
        c.send(Arc::clone(operation), guard());
    }
}

fn guard() -> Arc<Guard> {
    Guard::new("30000 3 3 word 5000 id".into())
}

fn bytes(operations: &[Arc<Operation>]) -> Vec<u8> {
    let keys = Keys::new("quorate");
    let bytes = operations.iter().flat_map(|operation| {
        let wire = encode::wire(operation.command(), &keys);
        let guard = wire.has_guard.then(|| encode::guard(guard().as_str()));
        [wire.bytes, guard.unwrap_or_default()].concat()
    });
    bytes.collect()
}

async fn flushed<S: Stream>(c: &mut RedisConnection<S>) {
    poll_fn(|cx| c.poll_flush(cx)).await.unwrap();
}

async fn incoming<S: Stream>(c: &mut RedisConnection<S>) -> Result<Incoming, Disconnected> {
    poll_fn(|cx| c.poll_incoming(cx)).await
}

/// The next input, which must not be a push.
async fn answer<S: Stream>(c: &mut RedisConnection<S>) -> Result<Answered, Disconnected> {
    loop {
        match incoming(c).await? {
            Incoming::Nothing => {}
            other => return Ok(answered(other)),
        }
    }
}

fn answered(incoming: Incoming) -> Answered {
    match incoming {
        Incoming::Answer(answer) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

/// An error reply with this number. The number shows to which request it was given.
fn fault(number: usize) -> Answered {
    Err(Fault::Error(format!("ERR {number}")))
}

fn is_pending<T>(poll: Poll<T>) -> bool {
    poll.is_pending()
}

#[tokio::test]
async fn answers_come_in_order_wherever_the_bytes_are_cut() {
    let replies = b"-ERR 0\r\n>2\r\n+message\r\n:1\r\n-ERR 1\r\n-ERR 2\r\n>1\r\n+x\r\n-ERR 3\r\n";
    for cut in 0..=replies.len() {
        let (mut c, mut server) = fake(4096);
        for batch in [1, 2, 1] {
            send(&mut c, &kills(batch));
        }
        flushed(&mut c).await;
        let (one, two) = replies.split_at(cut);
        server.write_all(one).await.unwrap();
        let mut answers = Vec::new();
        poll_fn(|cx| {
            while let Poll::Ready(incoming) = c.poll_incoming(cx) {
                match incoming.unwrap() {
                    Incoming::Nothing => {}
                    incoming => answers.push(answered(incoming)),
                }
            }
            Poll::Ready(())
        })
        .await;
        server.write_all(two).await.unwrap();
        while answers.len() < 4 {
            answers.push(answer(&mut c).await.unwrap());
        }
        assert_eq!(answers, [0, 1, 2, 3].map(fault), "cut at {cut}");
        assert!(poll_fn(|cx| Poll::Ready(is_pending(c.poll_incoming(cx)))).await);
    }
}

#[tokio::test]
async fn an_operation_leaves_with_the_guard_of_each_node() {
    let operations = [
        Operation::new(mutex::cases::inspect("a")),
        Operation::new(server::Command::Disconnect { client: 1 }),
    ];
    let (mut c, mut server) = fake(4096);
    for guard in ["one", "another", "one"] {
        for operation in &operations {
            c.send(Arc::clone(operation), Guard::new(guard.into()));
        }
    }
    flushed(&mut c).await;
    drop(c);
    let mut read = String::new();
    server.read_to_string(&mut read).await.unwrap();
    let order: Vec<&str> = read
        .split("\r\n")
        .filter(|line| matches!(*line, "one" | "another" | "KILL"))
        .collect();
    let before = |guard| [guard, "KILL"];
    assert_eq!(order, ["one", "another", "one"].map(before).concat());
}

#[tokio::test]
async fn a_waiting_task_is_woken_by_an_answer_and_by_room() {
    let (mut c, mut server) = fake(4);
    let batch = kills(3);
    let expected = bytes(&batch);
    send(&mut c, &batch);
    // One task polls both, as the engine does.
    let client = tokio::spawn(async move {
        let mut answers = Vec::new();
        poll_fn(|cx| {
            let _ = c.poll_flush(cx);
            while let Poll::Ready(incoming) = c.poll_incoming(cx) {
                answers.push(answered(incoming.unwrap()));
            }
            if answers.len() == 3 {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        answers
    });
    let mut read = vec![0; expected.len()];
    server.read_exact(&mut read).await.unwrap();
    assert_eq!(read, expected);
    for number in 0..3 {
        tokio::task::yield_now().await;
        server
            .write_all(format!("-ERR {number}\r\n").as_bytes())
            .await
            .unwrap();
    }
    assert_eq!(client.await.unwrap(), [0, 1, 2].map(fault));
}

#[tokio::test]
async fn scripts_are_loaded_when_all_of_them_are() {
    let load = Operation::new(server::Command::LoadScripts);
    let scripts = load.command().replies();
    let sha = format!("$40\r\n{}\r\n", "a".repeat(40));
    for broken in 0..=scripts {
        let (mut c, mut server) = fake(1 << 20);
        send(&mut c, &[Arc::clone(&load)]);
        send(&mut c, &kills(1));
        flushed(&mut c).await;
        for script in 0..scripts {
            let reply = if script == broken { "-ERR 1\r\n" } else { &sha };
            server.write_all(reply.as_bytes()).await.unwrap();
        }
        server.write_all(b"-ERR 2\r\n").await.unwrap();
        let loaded = answer(&mut c).await.unwrap();
        match broken == scripts {
            true => assert_eq!(loaded, Ok(Answer::Server(server::Reply::Loaded))),
            false => assert_eq!(loaded, fault(1)),
        }
        assert_eq!(answer(&mut c).await, Ok(fault(2)));
    }
}

/// A server answers each script as it reads it, while later scripts may still be on their way.
#[tokio::test]
async fn the_first_of_several_replies_may_come_before_the_last_byte_has_left() {
    let load = Operation::new(server::Command::LoadScripts);
    let scripts = load.command().replies();
    let sha = format!("$40\r\n{}\r\n", "a".repeat(40));
    let bytes = bytes(&[Arc::clone(&load)]);
    let (mut c, mut server) = fake(64);
    send(&mut c, &[load]);
    assert!(poll_fn(|cx| Poll::Ready(is_pending(c.poll_flush(cx)))).await);
    server.write_all(b"$40\r\n").await.unwrap();
    server.write_all(&[b'a'; 40]).await.unwrap();
    server.write_all(b"\r\n").await.unwrap();
    assert!(poll_fn(|cx| Poll::Ready(is_pending(c.poll_incoming(cx)))).await);
    let server = tokio::spawn(async move {
        let mut read = vec![0; bytes.len()];
        server.read_exact(&mut read).await.unwrap();
        for _ in 1..scripts {
            server.write_all(sha.as_bytes()).await.unwrap();
        }
        (read == bytes, server)
    });
    flushed(&mut c).await;
    let loaded = Ok(Answer::Server(server::Reply::Loaded));
    assert_eq!(answer(&mut c).await, Ok(loaded));
    assert!(server.await.unwrap().0);
}

/// Each command takes its own replies, including errors.
#[tokio::test]
async fn a_survey_takes_three_replies() {
    let (mut c, mut server) = fake(4096);
    let survey = Operation::new(admission::Command::Survey);
    send(&mut c, &vec![survey; 3]);
    send(&mut c, &kills(1));
    flushed(&mut c).await;
    let named = "*2\r\n$1\r\n_\r\n$8\r\n@mutex:a\r\n";
    let replies = [
        ":1\r\n",
        named,
        "*0\r\n", // of the first survey
        ":2\r\n",
        "-ERR 0\r\n",
        "-ERR 0\r\n", // of the second survey
        "-ERR 1\r\n",
        named,
        named, // of the third survey
        "-ERR 2\r\n",
    ];
    server.write_all(replies.concat().as_bytes()).await.unwrap();
    let surveyed = |lock: Option<&str>| {
        let lock = lock.map(|name| crate::base::name::Name::new(name).unwrap());
        Ok(Ok(Answer::Admission(admission::Reply::Surveyed {
            used: true,
            lock,
        })))
    };
    assert_eq!(answer(&mut c).await, surveyed(Some("a")));
    assert_eq!(answer(&mut c).await, surveyed(None));
    assert_eq!(answer(&mut c).await, Ok(fault(1)));
    assert_eq!(answer(&mut c).await, Ok(fault(2)));
}

#[tokio::test]
async fn only_operations_that_have_not_begun_to_leave_are_withdrawn() {
    let (mut c, mut server) = fake(4);
    let (first, second) = (kills(2), kills(1));
    send(&mut c, &first);
    assert_eq!(c.withdraw(), 2, "nothing has left");
    send(&mut c, &second);
    send(&mut c, &first);
    send(&mut c, &kills(3));
    assert!(
        poll_fn(|cx| Poll::Ready(is_pending(c.poll_flush(cx)))).await,
        "the socket is full"
    );
    assert_eq!(c.withdraw(), 5, "of the first, some bytes have left");
    assert_eq!(c.withdraw(), 0);
    send(&mut c, &first);

    let expected = [bytes(&second), bytes(&first)].concat();
    let mut read = vec![0; expected.len()];
    let server = tokio::spawn(async move {
        server.read_exact(&mut read).await.unwrap();
        server
            .write_all(b"-ERR 0\r\n-ERR 1\r\n-ERR 2\r\n")
            .await
            .unwrap();
        (read, server)
    });
    flushed(&mut c).await;
    assert_eq!(c.withdraw(), 0, "all has left");
    for number in 0..3 {
        assert_eq!(answer(&mut c).await, Ok(fault(number)));
    }
    assert_eq!(server.await.unwrap().0, expected);
}

#[tokio::test]
async fn a_connection_that_has_ended_stays_ended() {
    for (said, reason) in [
        ("", "the server closed the connection"),
        ("-ERR", "the server closed the connection"),
        ("-ERR 0\r\n*2\r\n:1\r\n", "the server closed the connection"),
        (
            "-ERR 0\r\nSSH-2.0",
            "the server does not speak RESP: it says \"SSH-2.0\"",
        ),
        (
            "$2000000\r\n",
            "the server sends an answer of more than 1024 KiB",
        ),
        (
            "-ERR 0\r\n-ERR 1\r\n:3\r\n",
            "the server sent an answer without a request",
        ),
        (
            "-ERR 0\r\n-ERR 1\r\n-ERR bye\x1b[2J\r\n",
            r"the server says: ERR bye\u{1b}[2J",
        ),
    ] {
        let (mut c, mut server) = fake(4096);
        send(&mut c, &kills(2));
        flushed(&mut c).await;
        server.write_all(said.as_bytes()).await.unwrap();
        drop(server);
        let mut number = 0;
        let over = loop {
            match answer(&mut c).await {
                Ok(reply) => assert_eq!(reply, fault(number)),
                Err(over) => break over,
            }
            number += 1;
        };
        assert_eq!(over, Disconnected(reason.into()), "{said:?}");
        assert_eq!(
            number,
            said.matches("ERR ").count().min(2),
            "what came before counts"
        );
        assert_eq!(answer(&mut c).await, Err(over.clone()));
        assert_eq!(poll_fn(|cx| c.poll_flush(cx)).await, Err(over.clone()));
        send(&mut c, &kills(1));
        assert_eq!(c.withdraw(), 1);
        assert_eq!(answer(&mut c).await, Err(over));
    }
}

#[tokio::test]
async fn nothing_is_answered_before_it_was_asked() {
    let (mut c, mut server) = fake(4);
    send(&mut c, &kills(1));
    server.write_all(b":1\r\n").await.unwrap();
    assert!(answer(&mut c).await.is_err(), "not a byte has left");

    let one = bytes(&kills(1)).len();
    let (mut c, mut server) = fake(one + 4);
    send(&mut c, &kills(2));
    assert!(poll_fn(|cx| Poll::Ready(is_pending(c.poll_flush(cx)))).await);
    tokio::spawn(async move { server.write_all(b"-ERR 0\r\n:1\r\n").await });
    assert_eq!(answer(&mut c).await, Ok(fault(0)), "the first has left");
    let over = answer(&mut c).await;
    assert!(over.is_err(), "of the second a few bytes have");
}

#[tokio::test]
async fn a_broken_pipe_ends_it() {
    let (mut c, server) = fake(4096);
    drop(server);
    send(&mut c, &kills(1));
    let over = poll_fn(|cx| c.poll_flush(cx))
        .await
        .expect_err("nobody reads");
    assert_eq!(over, Disconnected("writing failed: broken pipe".into()));
    assert_eq!(answer(&mut c).await, Err(over));
}

/// A stream that takes at most `width` bytes per call.
struct Narrow {
    width: usize,
    calls: usize,
    taken: Vec<u8>,
}

impl AsyncRead for Narrow {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Narrow {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let some = bytes.len().min(self.width);
        self.taken.extend_from_slice(&bytes[..some]);
        self.calls += 1;
        Poll::Ready(Ok(some))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn many_operations_leave_in_one_call_and_in_order() {
    let batches: Vec<_> = (1..=16).map(kills).collect();
    let expected: Vec<u8> = batches.iter().flat_map(|batch| bytes(batch)).collect();
    assert!(expected.len() < CHUNK);
    for width in [usize::MAX, 1, 7, 64, 1000] {
        let mut c = connection(Narrow {
            width,
            calls: 0,
            taken: Vec::new(),
        });
        for batch in &batches {
            send(&mut c, batch);
        }
        flushed(&mut c).await;
        assert!(c.stream.taken == expected, "{width} at a time");
        assert_eq!(c.stream.calls, expected.len().div_ceil(width));
    }
}
