//! A list of L tokens. BLPOP takes one, or waits for one. LPUSH gives it back. A client that has taken a token notes
//! it, with the time. So a watchdog can put back tokens that were taken too long ago.
//!
//! The Ruby gem redis-semaphore does this, and its `stale_client_timeout` is the watchdog:
//! <https://github.com/dv/redis-semaphore>

use super::*;

const FREE: &str = "free";
const TAKEN: &str = "taken";

fn create(conn: &mut Connection) {
    for token in 0..LIMIT {
        let _: () = ask(conn, &["RPUSH", FREE, &token.to_string()]);
    }
}

/// `None` if no token came soon enough.
fn pop(conn: &mut Connection) -> Option<String> {
    let popped: Option<(String, String)> = ask(conn, &["BLPOP", FREE, "0.05"]);
    popped.map(|(_, token)| token)
}

fn acquire(conn: &mut Connection, now: u64) -> Option<String> {
    let token = pop(conn)?;
    let _: () = ask(conn, &["HSET", TAKEN, &token, &now.to_string()]);
    Some(token)
}

fn release(conn: &mut Connection, token: &str) {
    let _: () = ask(conn, &["HDEL", TAKEN, token]);
    let _: () = ask(conn, &["LPUSH", FREE, token]);
}

/// Puts back tokens that were taken too long ago, and returns their number.
fn watchdog(conn: &mut Connection, now: u64) -> usize {
    let taken: Vec<(String, u64)> = ask(conn, &["HGETALL", TAKEN]);
    let stale = taken.iter().filter(|(_, since)| since + TIMEOUT < now);
    stale.map(|(token, _)| release(conn, token)).count()
}

#[test]
fn the_token_of_a_crashed_client_is_lost_for_ever() {
    let server = Server::start(Kind::Redis);
    let mut conn = server.conn();
    create(&mut conn);
    for _ in 0..LIMIT {
        let mut crashes = server.conn();
        assert!(pop(&mut crashes).is_some());
    }
    assert_eq!(pop(&mut conn), None);
    assert_eq!(server.keys(), [], "nothing is left that could end");
}

#[test]
fn a_crash_before_the_token_is_written_down_is_unknown_to_the_watchdog() {
    let server = Server::start(Kind::Redis);
    let mut conn = server.conn();
    create(&mut conn);
    for token in [pop(&mut server.conn()), acquire(&mut server.conn(), NOON)] {
        assert!(token.is_some());
    }
    let much_later = NOON + 10 * TIMEOUT;
    assert_eq!(watchdog(&mut conn, much_later), 1, "two have crashed");
    assert_eq!(ask::<usize>(&mut conn, &["LLEN", FREE]), LIMIT - 1);
}

#[test]
fn a_token_that_the_watchdog_put_back_comes_twice_for_ever() {
    let server = Server::start(Kind::Redis);
    let mut conn = server.conn();
    create(&mut conn);
    let slow = acquire(&mut conn, NOON).unwrap();
    assert_eq!(watchdog(&mut conn, NOON + TIMEOUT + 1), 1);
    release(&mut conn, &slow); // the client was slow, not dead

    let tokens: Vec<_> = std::iter::from_fn(|| acquire(&mut conn, NOON)).collect();
    assert_eq!(tokens.len(), LIMIT + 1, "from now on");
    assert_eq!(tokens.iter().filter(|token| **token == slow).count(), 2);
}

#[tokio::test]
async fn quorate_gives_the_permits_of_a_crashed_client_to_the_next() {
    let server = Server::start(Kind::Redis);
    let crashes = program([server.url()])
        .await
        .ttl(Duration::from_millis(500));
    for _ in 0..LIMIT {
        // This is like a kill -9: nobody releases the permit, and nobody renews it.
        crashes.acquire().await.unwrap().abandon();
    }
    let other = program([server.url()]).await;
    assert!(
        other.try_acquire().await.unwrap().is_none(),
        "all are taken"
    );
    for _ in 0..LIMIT {
        let lease = timeout(PATIENCE, other.acquire()).await.unwrap();
        std::mem::forget(lease.unwrap());
    }
    assert!(other.try_acquire().await.unwrap().is_none());
}

#[tokio::test]
async fn quorate_frees_no_permit_when_a_slow_holder_releases_too_late() {
    let server = Server::start(Kind::Redis);
    let semaphore = program([server.url()]).await;
    let mut held = vec![
        semaphore.acquire().await.unwrap(),
        semaphore.acquire().await.unwrap(),
    ];
    let slow = semaphore.clone().renewal(Renewal::off());
    let slow = slow
        .ttl(Duration::from_millis(300))
        .acquire()
        .await
        .unwrap();
    held.push(
        timeout(PATIENCE, semaphore.acquire())
            .await
            .unwrap()
            .unwrap(),
    );

    assert!(slow.release().await.is_err(), "it was slow, not dead");
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert!(held.iter().all(Lease::is_valid));
}
