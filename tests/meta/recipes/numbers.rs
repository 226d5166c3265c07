//! Two sorted sets. One orders the holders by time, to find expired ones. The other orders them by a number from a
//! counter, and its first L entries hold. One transaction drops expired holders from both sets and draws the number.
//! The next one adds the caller, and returns its rank.
//!
//! "Redis in Action", 6.3.2 and 6.3.3:
//! <https://redis.io/ebook/part-2-core-concepts/chapter-6-application-components-in-redis/6-3-counting-semaphores/6-3-2-fair-semaphores/>

use super::*;

const TIMES: &str = "times";
const OWNERS: &str = "owners";

/// The first transaction, which draws a number.
pub(super) fn draw(conn: &mut Connection, now: u64) -> u64 {
    let (number,) = redis::pipe()
        .atomic()
        .cmd("ZREMRANGEBYSCORE")
        .arg(&[TIMES, "-inf", &(now - TIMEOUT).to_string()])
        .ignore()
        .cmd("ZINTERSTORE")
        .arg(&[OWNERS, "2", OWNERS, TIMES, "WEIGHTS", "1", "0"])
        .ignore()
        .cmd("INCR")
        .arg("counter")
        .query(conn)
        .unwrap();
    number
}

/// The second transaction. Returns true if `id`, which drew that number, has a permit now.
pub(super) fn take(conn: &mut Connection, id: &str, number: u64, now: u64) -> bool {
    let (rank,): (usize,) = redis::pipe()
        .atomic()
        .cmd("ZADD")
        .arg(&[TIMES, &now.to_string(), id])
        .ignore()
        .cmd("ZADD")
        .arg(&[OWNERS, &number.to_string(), id])
        .ignore()
        .cmd("ZRANK")
        .arg(&[OWNERS, id])
        .query(conn)
        .unwrap();
    if rank >= LIMIT {
        release(conn, id);
    }
    rank < LIMIT
}

pub(super) fn acquire(conn: &mut Connection, id: &str, now: u64) -> bool {
    let number = draw(conn, now);
    take(conn, id, number, now)
}

pub(super) fn release(conn: &mut Connection, id: &str) {
    let _: () = ask(conn, &["ZREM", TIMES, id]);
    let _: () = ask(conn, &["ZREM", OWNERS, id]);
}

/// Returns true if it still holds: its time could be renewed.
fn refresh(conn: &mut Connection, id: &str, now: u64) -> bool {
    let added: u64 = ask(conn, &["ZADD", TIMES, &now.to_string(), id]);
    if added > 0 {
        release(conn, id);
    }
    added == 0
}

#[test]
fn a_lower_number_that_comes_late_steals_a_permit() {
    let server = Server::start(Kind::Redis);
    let mut conn = server.conn();
    assert!(acquire(&mut conn, "a", NOON));
    assert!(acquire(&mut conn, "b", NOON));
    let slow = draw(&mut conn, NOON);
    assert!(acquire(&mut conn, "c", NOON), "the last permit");
    assert!(!acquire(&mut conn, "d", NOON), "all are taken");

    assert!(take(&mut conn, "slow", slow, NOON), "the fourth holder");
    for id in ["a", "b", "c", "slow"] {
        assert!(refresh(&mut conn, id, NOON + 1), "and nobody is told");
    }
}

#[test]
fn a_clock_that_is_ahead_by_the_timeout_still_ends_every_permit() {
    let server = Server::start(Kind::Redis);
    let mut conn = server.conn();
    for id in ["a", "b", "c"] {
        assert!(acquire(&mut conn, id, NOON));
    }
    for id in ["d", "e", "f"] {
        assert!(acquire(&mut conn, id, NOON + TIMEOUT), "six hold");
    }
}

#[tokio::test]
async fn quorate_decides_when_the_request_of_a_slow_client_arrives() {
    let server = Server::start(Kind::Redis);
    let proxy = Proxy::start(&server);
    let through = format!("redis://127.0.0.1:{}", proxy.port());
    let (slow, quick) = (program([through]).await, program([server.url()]).await);
    let mut held = vec![
        quick.acquire().await.unwrap(),
        quick.acquire().await.unwrap(),
    ];

    proxy.delay(Duration::from_millis(150));
    let asks = tokio::spawn(slow.try_acquire());
    sleep(Duration::from_millis(20)).await; // its request is under way
    held.push(quick.acquire().await.unwrap());
    assert!(asks.await.unwrap().unwrap().is_none(), "it came too late");
    assert!(held.iter().all(Lease::is_valid));
}
