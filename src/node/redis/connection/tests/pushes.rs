//! Pushes: they come between answers, in their order, and are never answers.

use super::*;
use crate::node::answer::Answer;
use crate::{
    base::owner::{Entry, Label},
    node::{Push, Says},
};

/// A waiter.
fn entry() -> Entry {
    Entry::new(uuid::Uuid::from_u128(7), &Label::new("web-1:77").unwrap())
}

/// A message of this channel.
fn message(channel: &str, text: &str) -> String {
    let word = |word: &str| format!("${}\r\n{word}\r\n", word.len());
    format!(">3\r\n{}{}{}", word("smessage"), word(channel), word(text))
}

/// A push that tells a waiter that it is next. The number shows which push it was.
fn next(number: u64) -> String {
    message(CHANNEL, &format!("N {} {number}", entry().as_str()))
}

fn pushed(number: u64) -> Incoming {
    let says = Says::Next {
        after: std::time::Duration::from_millis(number),
    };
    let entry = entry();
    Incoming::Push(Push { entry, says })
}

/// Everything that has come by now.
async fn all(c: &mut RedisConnection<DuplexStream>) -> Vec<Incoming> {
    // The task's budget must be enough for all of it.
    tokio::task::yield_now().await;
    let mut all = Vec::new();
    poll_fn(|cx| {
        while let Poll::Ready(incoming) = c.poll_incoming(cx) {
            all.push(incoming.unwrap());
        }
        Poll::Ready(())
    })
    .await;
    all
}

#[tokio::test]
async fn pushes_keep_their_order_among_answers_wherever_bytes_are_cut() {
    let said = [
        &*next(1),
        "-ERR 0\r\n",
        &next(2),
        &next(3),
        "-ERR 1\r\n-ERR 2\r\n",
        &next(4),
    ];
    let said = said.concat().into_bytes();
    let wanted = [
        pushed(1),
        Incoming::Answer(fault(0)),
        pushed(2),
        pushed(3),
        Incoming::Answer(fault(1)),
        Incoming::Answer(fault(2)),
        pushed(4),
    ];
    for cut in 0..=said.len() {
        let (mut c, mut server) = fake(4096);
        send(&mut c, &kills(3));
        flushed(&mut c).await;
        let (one, two) = said.split_at(cut);
        server.write_all(one).await.unwrap();
        let mut came = all(&mut c).await;
        server.write_all(two).await.unwrap();
        came.extend(all(&mut c).await);
        assert_eq!(came, wanted, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_push_may_come_before_any_request_and_between_replies_to_one() {
    let (mut c, mut server) = fake(1 << 20);
    server.write_all(next(1).as_bytes()).await.unwrap();
    assert_eq!(all(&mut c).await, [pushed(1)]);

    send(&mut c, &[Operation::new(admission::Command::Survey)]);
    send(&mut c, &kills(1));
    flushed(&mut c).await;
    let said = [
        ":1\r\n",
        &next(2),
        "*0\r\n",
        &message("news", "W"),
        &next(3),
        "*0\r\n-ERR 9\r\n",
    ];
    server.write_all(said.concat().as_bytes()).await.unwrap();
    let surveyed = admission::Reply::Surveyed {
        used: true,
        lock: None,
    };
    let surveyed = Incoming::Answer(Ok(Answer::Admission(surveyed)));
    let last = Incoming::Answer(fault(9));
    let strange = Incoming::Nothing;
    assert_eq!(
        all(&mut c).await,
        [pushed(2), strange, pushed(3), surveyed, last]
    );
}

/// A batch is answered by one array, and nothing is put into that.
#[tokio::test]
async fn a_push_stands_beside_the_answer_to_a_batch() {
    let release = || {
        let release = mutex::cases::release("a", 1);
        Operation::new(release)
    };
    let released = Incoming::Answer(Ok(Answer::Released(true)));
    for (said, wanted) in [
        (
            [next(1), ":2\r\n".into()],
            [pushed(1), released.clone(), released.clone()],
        ),
        (
            [":2\r\n".into(), next(1)],
            [released.clone(), released.clone(), pushed(1)],
        ),
    ] {
        let (mut c, mut server) = fake(4096);
        send(&mut c, &[release(), release()]);
        flushed(&mut c).await;
        server.write_all(said.concat().as_bytes()).await.unwrap();
        assert_eq!(all(&mut c).await, wanted);
    }
}

#[tokio::test]
async fn foreign_messages_are_dropped() {
    let called = format!("W {}", entry().as_str());
    let (mut c, mut server) = fake(1 << 20);
    assert!(c.hears());
    send(&mut c, &kills(2));
    flushed(&mut c).await;
    for strange in [
        message("quorate:wake:2", &called),
        message("quorate:wake:", &called),
        message(CHANNEL, ""),
        message(CHANNEL, "W nobody"),
        message(CHANNEL, &format!("{called} ")),
        message(CHANNEL, &"x".repeat(100_000)),
        message(CHANNEL, &format!("{called}\u{80}")),
        // Messages of another kind or shape.
        message(CHANNEL, &called).replace("smessage", "smossage"),
        ">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$14\r\nquorate:wake:1\r\n$1\r\nW\r\n".into(),
        ">3\r\n$10\r\nssubscribe\r\n$14\r\nquorate:wake:1\r\n:1\r\n".into(),
        ">3\r\n:1\r\n:2\r\n:3\r\n".into(),
        ">3\r\n$7\r\nmessage\r\n$14\r\nquorate:wake:1\r\n*0\r\n".into(),
        ">1\r\n+message\r\n".into(),
        ">2\r\n+invalidate\r\n_\r\n".into(),
    ] {
        server.write_all(strange.as_bytes()).await.unwrap();
        assert_eq!(all(&mut c).await, [Incoming::Nothing], "{strange:?}");
    }
    // This is not UTF-8.
    let broken = message(CHANNEL, "W ~").into_bytes();
    let broken: Vec<u8> = broken
        .into_iter()
        .map(|b| if b == b'~' { 0xff } else { b })
        .collect();
    server.write_all(&broken).await.unwrap();
    assert_eq!(all(&mut c).await, [Incoming::Nothing]);
    let said = [&*message(CHANNEL, &called), "-ERR 0\r\n-ERR 1\r\n"].concat();
    server.write_all(said.as_bytes()).await.unwrap();
    let (entry, says) = (entry(), Says::Called);
    let wanted = [
        Incoming::Push(Push { entry, says }),
        Incoming::Answer(fault(0)),
        Incoming::Answer(fault(1)),
    ];
    assert_eq!(all(&mut c).await, wanted);
    // Pushes end nothing, and excuse nothing: an answer without a request still ends the connection.
    server.write_all(b":1\r\n").await.unwrap();
    assert!(incoming(&mut c).await.is_err());
}

#[tokio::test]
async fn connection_ends_after_a_thousand_messages_that_nobody_asked_for() {
    for (strange, ends) in [(message("news", "x"), true), (message(CHANNEL, "x"), false)] {
        let (mut c, mut server) = fake(1 << 20);
        for _ in 0..10 {
            server
                .write_all(strange.repeat(100).as_bytes())
                .await
                .unwrap();
            assert_eq!(all(&mut c).await, vec![Incoming::Nothing; 100]);
        }
        server.write_all(strange.as_bytes()).await.unwrap();
        let last = incoming(&mut c).await;
        assert_eq!(last.is_err(), ends, "{last:?}");
    }
}
