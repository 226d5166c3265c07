//! Many operations as one script call.

use std::time::Duration;

use super::*;
use crate::node::answer::Answer;
use crate::node::{Command, mutex::cases};

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// ACQUIRE, RAISE, EXTEND, RELEASE.
fn four() -> Vec<Arc<Operation>> {
    let four: [Command; 4] = [
        cases::acquire("a", 1, secs(9), 5).into(),
        cases::raise("a", 1, 6).into(),
        cases::extend("a", 1, secs(9)).into(),
        cases::release("a", 1).into(),
    ];
    four.map(Operation::new).to_vec()
}

fn said(reply: Answer) -> Answered {
    Ok(reply)
}

/// The answers to these four operations if the server sends this reply.
async fn four_answered(reply: &str) -> Vec<Answered> {
    let (mut c, mut server) = fake(4096);
    send(&mut c, &four());
    flushed(&mut c).await;
    server.write_all(reply.as_bytes()).await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..4 {
        answers.push(answer(&mut c).await.unwrap());
    }
    assert!(poll_fn(|cx| Poll::Ready(is_pending(c.poll_incoming(cx)))).await);
    answers
}

#[tokio::test]
async fn a_number_confirms_the_whole_batch() {
    let wanted = [
        Answer::Granted(5),
        Answer::Raised(6),
        Answer::Extended,
        Answer::Released(true),
    ];
    assert_eq!(four_answered(":4\r\n").await, wanted.map(said));
}

#[tokio::test]
async fn an_array_answers_each_operation() {
    let reply = "*4\r\n*3\r\n:70\r\n:9\r\n_\r\n:-1\r\n$12\r\nNOT_ADMITTED\r\n:0\r\n";
    let wanted = [
        said(Answer::Held {
            which: None,
            remaining: Some(Duration::from_millis(70)),
            counter: 9,
            holder: None,
            ticket: 0,
        }),
        said(Answer::Lost),
        Err(Fault::NotAdmitted),
        said(Answer::Released(false)),
    ];
    assert_eq!(four_answered(reply).await, wanted);
}

#[tokio::test]
async fn an_error_reply_fails_every_operation() {
    let reply = "-NOSCRIPT No matching script.\r\n";
    assert_eq!(
        four_answered(reply).await,
        [(); 4].map(|()| Err(Fault::NoScript))
    );
}

/// A server checks all keys of a call before it runs any of it.
#[tokio::test]
async fn after_an_acl_denies_a_key_operations_are_sent_alone() {
    let (mut c, mut server) = fake(4096);
    let calls = async |c: &mut RedisConnection<DuplexStream>, server: &mut DuplexStream| {
        send(c, &four());
        flushed(c).await;
        let mut bytes = vec![0; 4096];
        let read = server.read(&mut bytes).await.unwrap();
        String::from_utf8_lossy(&bytes[..read])
            .matches("EVALSHA")
            .count()
    };
    assert_eq!(calls(&mut c, &mut server).await, 1);
    let denied = b"-NOPERM No permissions to access a key\r\n";
    server.write_all(denied).await.unwrap();
    for _ in 0..4 {
        assert!(matches!(answer(&mut c).await, Ok(Err(Fault::Error(_)))));
    }
    assert_eq!(calls(&mut c, &mut server).await, 4);
    server
        .write_all(b"*1\r\n:5\r\n*1\r\n:6\r\n:1\r\n:1\r\n")
        .await
        .unwrap();
    assert_eq!(answer(&mut c).await, Ok(said(Answer::Granted(5))));
}

#[tokio::test]
async fn a_malformed_reply_is_an_error_for_each_operation() {
    for reply in [":3\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n", "+OK\r\n", "_\r\n"] {
        for answer in four_answered(reply).await {
            let text = match answer {
                Err(Fault::Error(text)) => text,
                other => panic!("{reply:?}: {other:?}"),
            };
            assert!(text.starts_with("not an answer to "), "{text}");
        }
    }
    // One bad answer among good ones does not spoil the others.
    let answers = four_answered("*4\r\n:7\r\n_\r\n:1\r\n:1\r\n").await;
    assert_eq!(answers[0], said(Answer::Granted(7)));
    assert!(matches!(&answers[1], Err(Fault::Error(text)) if text.contains("RAISE")));
    assert_eq!(answers[3], said(Answer::Released(true)));
}

#[tokio::test]
async fn a_batch_is_withdrawn_whole_unless_some_of_it_has_left() {
    // Nothing fits into the stream: the call is made, and undone.
    let full = |width| async move {
        let (mut c, server) = fake(width);
        send(&mut c, &kills(1));
        flushed(&mut c).await;
        (c, server)
    };
    let one = bytes(&kills(1)).len();
    let (mut c, mut server) = full(one).await;
    send(&mut c, &four());
    assert!(poll_fn(|cx| Poll::Ready(is_pending(c.poll_flush(cx)))).await);
    send(&mut c, &kills(1));
    assert_eq!(c.withdraw(), 5);
    // The operation that is sent afterwards leaves in their place.
    send(&mut c, &kills(1));
    let mut read = vec![0; one];
    server.read_exact(&mut read).await.unwrap();
    flushed(&mut c).await;
    server.read_exact(&mut read).await.unwrap();
    assert_eq!(read, bytes(&kills(1)));
    server.write_all(b"-ERR 0\r\n-ERR 1\r\n").await.unwrap();
    assert_eq!(answer(&mut c).await, Ok(fault(0)));
    assert_eq!(answer(&mut c).await, Ok(fault(1)));

    // Some bytes fit, so the whole batch may be carried out. None of it is taken back.
    let (mut c, mut server) = full(one + 10).await;
    send(&mut c, &four());
    assert!(poll_fn(|cx| Poll::Ready(is_pending(c.poll_flush(cx)))).await);
    send(&mut c, &four());
    assert_eq!(c.withdraw(), 4, "those behind it");
    server.write_all(b"-ERR 0\r\n:4\r\n").await.unwrap();
    assert_eq!(answer(&mut c).await, Ok(fault(0)));
    assert!(answer(&mut c).await.is_err(), "it has not left yet");
}

/// The nodes of a quorum are usually sent the same operations. A node that was sent fewer has another batch.
#[tokio::test]
async fn a_node_that_gets_fewer_operations_has_another_batch() {
    let four = four();
    let mut taken = Vec::new();
    for sent in [&four[..], &four[..], &four[..2], &four[1..], &four[..1]] {
        let (mut c, mut server) = fake(4096);
        send(&mut c, sent);
        flushed(&mut c).await;
        drop(c);
        let mut read = String::new();
        server.read_to_string(&mut read).await.unwrap();
        let letters = read
            .split("\r\n")
            .find(|word| !word.is_empty() && word.bytes().all(|letter| b"ATER".contains(&letter)));
        taken.push((letters.map(str::to_owned), read));
    }
    let letters: Vec<_> = taken
        .iter()
        .map(|(letters, _)| letters.as_deref())
        .collect();
    assert_eq!(
        letters,
        [
            Some("ATER"),
            Some("ATER"),
            Some("AT"),
            Some("TER"),
            Some("A")
        ]
    );
    assert_eq!(taken[0].1, taken[1].1);
}
