//! A connection that logs in again.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    time::Duration,
};

use super::*;
use crate::node::redis::credentials::{BoxError, Credentials, Logins, Provider};

/// A provider whose n-th answer is this one.
fn logins(
    answer: impl Fn(usize) -> Result<Credentials, BoxError> + Send + Sync + 'static,
) -> NextLogin {
    let asked = AtomicUsize::new(0);
    let provider = Provider::new(move |_| {
        let answer = answer(asked.fetch_add(1, Relaxed));
        async move { answer }
    });
    let limit = Duration::from_secs(3);
    let logins = Arc::new(Logins::new(provider, "h:1", None, limit));
    Box::new(move || Box::pin(Arc::clone(&logins).ask_again()))
}

/// Credentials that last for a minute.
fn minute(password: &str) -> Credentials {
    Credentials::new("app", password).expires_in(Duration::from_secs(60))
}

/// The bytes of AUTH with this password.
fn auth(password: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode::words(&mut bytes, &["AUTH", "app", password]);
    bytes
}

/// Polls the connection until it has sent exactly these bytes.
async fn sends(c: &mut RedisConnection<DuplexStream>, server: &mut DuplexStream, wanted: &[u8]) {
    let mut sent = vec![0; wanted.len()];
    let read = server.read_exact(&mut sent);
    tokio::pin!(read);
    poll_fn(|cx| {
        assert!(is_pending(c.poll_incoming(cx)));
        let _ = c.poll_flush(cx);
        read.as_mut().poll(cx)
    })
    .await
    .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&sent),
        String::from_utf8_lossy(wanted)
    );
}

#[tokio::test]
async fn a_login_goes_behind_what_was_sent_and_its_reply_is_no_answer() {
    let (mut c, mut server) = fake(4096);
    c.set_login(logins(|_| Ok(minute("second"))), None);
    let (before, after) = (kills(2), kills(1));
    send(&mut c, &before);
    flushed(&mut c).await;
    c.log_in();
    sends(
        &mut c,
        &mut server,
        &[bytes(&before), auth("second")].concat(),
    )
    .await;
    send(&mut c, &after);
    flushed(&mut c).await;
    server
        .write_all(b"-ERR 0\r\n-ERR 1\r\n+OK\r\n-ERR 2\r\n")
        .await
        .unwrap();
    assert_eq!(answer(&mut c).await.unwrap(), fault(0));
    assert_eq!(answer(&mut c).await.unwrap(), fault(1));
    match incoming(&mut c).await.unwrap() {
        Incoming::LoggedIn(Ok(Some(lasts))) => {
            assert!(lasts > Duration::from_secs(50) && lasts <= Duration::from_secs(60));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(answer(&mut c).await.unwrap(), fault(2));
}

#[tokio::test]
async fn a_refused_login_is_told_by_its_code_and_hides_every_password() {
    let (mut c, mut server) = fake(4096);
    c.set_login(logins(|n| Ok(minute(["second", "third"][n]))), None);
    for password in ["second", "third"] {
        c.log_in();
        sends(&mut c, &mut server, &auth(password)).await;
        let refused = format!("-WRONGPASS {password} is not right\r\n");
        server.write_all(refused.as_bytes()).await.unwrap();
        match incoming(&mut c).await.unwrap() {
            Incoming::LoggedIn(Err(why)) => {
                assert!(
                    why.contains("WRONGPASS") && !why.contains(password),
                    "{why}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
    // The one in use, and both that were refused.
    for password in ["sesame", "second", "THIRD"] {
        send(&mut c, &kills(1));
        flushed(&mut c).await;
        let repeats = format!("-ERR it was {password}\r\n");
        server.write_all(repeats.as_bytes()).await.unwrap();
        let answer = answer(&mut c).await.unwrap();
        assert_eq!(answer, Err(Fault::Error("ERR".into())), "{password}");
    }
}

#[tokio::test]
async fn an_error_of_the_provider_is_told_and_nothing_is_sent() {
    let (mut c, mut server) = fake(4096);
    let answer = |n| match n {
        0 => Err("the vault is sealed".into()),
        1 => panic!("a fault of the user's"),
        _ => Ok(Credentials::new("app", "")),
    };
    c.set_login(logins(answer), None);
    for says in ["the vault is sealed", "it panicked", "an empty password"] {
        c.log_in();
        match incoming(&mut c).await.unwrap() {
            Incoming::LoggedIn(Err(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    flushed(&mut c).await;
    drop(c);
    let mut sent = Vec::new();
    server.read_to_end(&mut sent).await.unwrap();
    assert_eq!(sent, b"");
}

#[tokio::test]
async fn a_login_that_has_not_left_survives_a_withdrawal() {
    let (mut c, mut server) = fake(4096);
    c.set_login(logins(|_| Ok(minute("second"))), None);
    c.log_in();
    // The provider answers, and nothing is flushed.
    while !matches!(c.new_login, Some(NewLogin::Sent(_))) {
        assert!(poll_fn(|cx| Poll::Ready(is_pending(c.poll_incoming(cx)))).await);
        tokio::task::yield_now().await;
    }
    send(&mut c, &kills(2));
    assert_eq!(c.withdraw(), 2);
    assert_eq!(c.withdraw(), 0);
    sends(&mut c, &mut server, &auth("second")).await;
    server.write_all(b"+OK\r\n").await.unwrap();
    assert!(matches!(
        incoming(&mut c).await,
        Ok(Incoming::LoggedIn(Ok(Some(_))))
    ));
}

#[tokio::test]
async fn the_first_input_tells_how_long_the_login_of_the_greeting_lasts() {
    let (mut c, _server) = fake(4096);
    let ends = Instant::now() + Duration::from_secs(60);
    c.set_login(logins(|_| Ok(minute("second"))), Some(ends));
    match incoming(&mut c).await.unwrap() {
        Incoming::LoggedIn(Ok(Some(lasts))) => assert!(lasts > Duration::from_secs(50)),
        other => panic!("{other:?}"),
    }
    let (mut c, _server) = fake(4096);
    c.set_login(logins(|_| Ok(minute("second"))), None);
    assert!(poll_fn(|cx| Poll::Ready(is_pending(c.poll_incoming(cx)))).await);
}
