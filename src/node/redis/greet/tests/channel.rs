//! The last command of the greeting: the subscription to the channel of this process.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, duplex};
use tokio::time::timeout;

use super::*;
use crate::node::{Incoming, Push, Says, redis::support::HANG};

const ENTRY: &str = "000000000000000000000000000000ab@web-1:77";
const CONFIRMED: &str = ">3\r\n$10\r\nssubscribe\r\n$14\r\nquorate:wake:1\r\n:1\r\n";
const NOT_TOLD: &str = "waiters are not told here when a lock is free, and ask from time to time";

/// A push of three texts.
fn push(kind: &str, channel: &str, text: &str) -> String {
    let word = |word: &str| format!("${}\r\n{word}\r\n", word.len());
    format!(">3\r\n{}{}{}", word(kind), word(channel), word(text))
}

/// The replies of a server that permits everything, up to the reply to SSUBSCRIBE. `publish` is its reply to the try of
/// SPUBLISH.
fn before(publish: &str) -> Vec<String> {
    let (words, _) = greeting(&address(), &Keys::new("quorate"), "");
    let said = |word: Word| match word {
        Word::Hello => "%2\r\n+id\r\n:3\r\n+mode\r\n+standalone\r\n".to_owned(),
        Word::Try(right) if right.words(&Keys::new("q"))[0] == b"SPUBLISH" => publish.to_owned(),
        _ => "+OK\r\n".to_owned(),
    };
    words.into_iter().map(said).collect()
}

/// The result of a greeting if the server says this and nothing else.
async fn said(said: &str) -> Dialled {
    let (ours, mut theirs) = duplex(1 << 20);
    theirs.write_all(said.as_bytes()).await.unwrap();
    let greeted = greeted_on(ours, CHANNEL);
    let greeted = timeout(HANG, greeted).await;
    greeted.expect("all was said")
}

async fn greeted(words: &str) -> Box<dyn Connection> {
    let dialled = said(words).await;
    dialled.unwrap_or_else(|why| panic!("{words:?}: {why:?}"))
}

fn next(connection: &mut dyn Connection) -> Option<Incoming> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match connection.poll_incoming(&mut cx) {
        Poll::Ready(Ok(incoming)) => Some(incoming),
        Poll::Ready(Err(_)) | Poll::Pending => None,
    }
}

#[tokio::test]
async fn only_its_own_push_confirms_the_subscription() {
    let all = before(":0\r\n").concat();
    let connection = greeted(&format!("{all}{CONFIRMED}")).await;
    assert!(connection.hears());
    assert_eq!((connection.note(), connection.client_id()), (None, 3));

    let called = format!("W {ENTRY}");
    for other in [
        push("ssubscribe", "quorate:wake:2", "1"),
        push("sunsubscribe", CHANNEL, "1"),
        push("smessage", CHANNEL, &called),
        push("smessage", "news", "1"),
        ">2\r\n+invalidate\r\n_\r\n".into(),
    ] {
        // The push comes before the reply to SSUBSCRIBE, and before each of the others.
        let mut all = before(":0\r\n");
        for said in &mut all {
            said.insert_str(0, &other);
        }
        let connection = greeted(&format!("{}{other}{CONFIRMED}", all.concat())).await;
        assert!(connection.hears(), "{other:?}");
        // Without that reply the greeting goes on waiting.
        let (ours, mut theirs) = duplex(1 << 20);
        let mut greeted = Box::pin(greeted_on(ours, CHANNEL));
        let all = [all.concat(), other].concat();
        theirs.write_all(all.as_bytes()).await.unwrap();
        let soon = timeout(Duration::from_millis(5), &mut greeted).await;
        assert!(soon.is_err());
        theirs.write_all(CONFIRMED.as_bytes()).await.unwrap();
        let connection = timeout(HANG, greeted).await.unwrap();
        assert!(connection.unwrap().hears());
    }
}

#[tokio::test]
async fn a_push_right_after_the_subscription_is_heard() {
    let called = push("smessage", CHANNEL, &format!("W {ENTRY}"));
    let all = [&*before(":0\r\n").concat(), CONFIRMED, &called].concat();
    let mut connection = greeted(&all).await;
    let heard = next(&mut *connection);
    let says = Says::Called;
    assert!(matches!(heard, Some(Incoming::Push(Push { says: what, .. })) if what == says));
    assert_eq!(next(&mut *connection), None);
}

/// The words of Redis 7.0 and of Valkey.
#[tokio::test]
async fn a_server_that_refuses_the_subscription_is_polled_and_noted() {
    let (command, channel) = (
        format!("its ACL withholds SSUBSCRIBE: {NOT_TOLD}"),
        format!("its ACL withholds channels of quorate (&quorate:wake:*): {NOT_TOLD}"),
    );
    for (refused, note) in [
        (
            "-NOPERM this user has no permissions to run the 'ssubscribe' command\r\n",
            &command,
        ),
        (
            "-NOPERM User a has no permissions to run the 'ssubscribe' command\r\n",
            &command,
        ),
        (
            "-NOPERM this user has no permissions to access one of the channels used as \
             arguments\r\n",
            &channel,
        ),
        ("-NOPERM No permissions to access a channel\r\n", &channel),
        (
            "-ERR unknown command 'SSUBSCRIBE', with args beginning with: 'x'\r\n",
            &format!("it does not know SSUBSCRIBE: {NOT_TOLD}"),
        ),
    ] {
        let all = [&*before(":0\r\n").concat(), refused].concat();
        let connection = greeted(&all).await;
        assert!(!connection.hears(), "{refused}");
        assert_eq!(connection.note(), Some(&**note));
    }
    let publish = format!("its ACL withholds SPUBLISH: {NOT_TOLD}");
    for (refused, note) in [
        (
            "-NOPERM User a has no permissions to run the 'spublish' command\r\n",
            &publish,
        ),
        ("-NOPERM No permissions to access a channel\r\n", &channel),
    ] {
        let message = push("smessage", CHANNEL, &format!("W {ENTRY}"));
        let all = [&*before(refused).concat(), CONFIRMED, &message].concat();
        let mut connection = greeted(&all).await;
        assert!(!connection.hears(), "{refused}");
        assert_eq!(connection.note(), Some(&**note));
        assert_eq!(
            next(&mut *connection),
            Some(Incoming::Nothing),
            "a muted connection hears nothing"
        );
    }
}

#[tokio::test]
async fn a_wrong_answer_to_the_subscription_fails_the_greeting() {
    let all = before(":0\r\n").concat();
    for (reply, why) in [
        (
            "+OK\r\n",
            Refused(
                "it does not answer SSUBSCRIBE as Redis and Valkey do: \
                 quorate needs the server itself, no proxy"
                    .into(),
            ),
        ),
        (
            "-ERR not today\r\n",
            Refused("it does not accept SSUBSCRIBE: ERR not today".into()),
        ),
        (
            "-BUSY x\r\n",
            Unreachable("it is busy with a script that does not end".into()),
        ),
    ] {
        assert_eq!(said(&format!("{all}{reply}")).await.err(), Some(why));
    }
}

#[tokio::test]
async fn without_a_channel_nothing_is_subscribed() {
    for (channel, subscribes) in [("", false), (CHANNEL, true)] {
        let (ours, mut theirs) = duplex(1 << 20);
        let all = [&*before(":0\r\n").concat(), CONFIRMED].concat();
        theirs.write_all(all.as_bytes()).await.unwrap();
        let connection = greeted_on(ours, channel).await.unwrap();
        assert_eq!((connection.hears(), connection.note()), (subscribes, None));
        drop(connection);
        let mut asked = Vec::new();
        theirs.read_to_end(&mut asked).await.unwrap();
        let asked = String::from_utf8_lossy(&asked);
        let last = format!("*2\r\n$10\r\nSSUBSCRIBE\r\n$14\r\n{CHANNEL}\r\n");
        assert_eq!(asked.ends_with(&last), subscribes);
        assert_eq!(asked.contains("SSUBSCRIBE"), subscribes);
    }
}
