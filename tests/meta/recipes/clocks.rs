//! A sorted set of holders, ordered by the time at which each took its permit, by its own clock. The first L entries
//! hold. One transaction drops expired entries, adds the caller, and returns its rank.
//!
//! "Redis in Action", 6.3.1:
//! <https://redis.io/ebook/part-2-core-concepts/chapter-6-application-components-in-redis/6-3-counting-semaphores/6-3-1-building-a-basic-counting-semaphore/>

use super::*;

const HOLDERS: &str = "holders";

/// Returns true if `id` has a permit now. `now` is the time on its clock.
fn acquire(conn: &mut Connection, id: &str, now: u64) -> bool {
    let (rank,): (usize,) = redis::pipe()
        .atomic()
        .cmd("ZREMRANGEBYSCORE")
        .arg(&[HOLDERS, "-inf", &(now - TIMEOUT).to_string()])
        .ignore()
        .cmd("ZADD")
        .arg(&[HOLDERS, &now.to_string(), id])
        .ignore()
        .cmd("ZRANK")
        .arg(&[HOLDERS, id])
        .query(conn)
        .unwrap();
    if rank >= LIMIT {
        let _: () = ask(conn, &["ZREM", HOLDERS, id]);
    }
    rank < LIMIT
}

/// Some packages do it this way: a caller that finds L holders is refused, no matter what its rank would be.
fn acquire_by_count(conn: &mut Connection, id: &str, now: u64) -> bool {
    let over = (now - TIMEOUT).to_string();
    let _: () = ask(conn, &["ZREMRANGEBYSCORE", HOLDERS, "-inf", &over]);
    let holders: usize = ask(conn, &["ZCARD", HOLDERS]);
    if holders < LIMIT {
        let _: () = ask(conn, &["ZADD", HOLDERS, &now.to_string(), id]);
    }
    holders < LIMIT
}

#[test]
fn a_clock_10_ms_behind_steals_a_permit() {
    let server = Server::start(Kind::Redis);
    let mut conn = server.conn();
    for (id, now) in [("a", NOON), ("b", NOON + 1), ("c", NOON + 2)] {
        assert!(acquire(&mut conn, id, now));
    }
    assert!(!acquire(&mut conn, "d", NOON + 3), "all are taken");

    let later_by_a_clock_behind = NOON + 4 - 10;
    assert!(acquire(&mut conn, "e", later_by_a_clock_behind));
    let holders: Vec<String> = ask(&mut conn, &["ZRANGE", HOLDERS, "0", "-1"]);
    assert_eq!(holders, ["e", "a", "b", "c"], "nobody has told c");
}

#[test]
fn a_clock_10_ms_ahead_ends_a_permit_that_is_still_good() {
    for acquire in [acquire, acquire_by_count] {
        let server = Server::start(Kind::Redis);
        let mut conn = server.conn();
        for id in ["a", "b", "c"] {
            assert!(acquire(&mut conn, id, NOON));
        }
        let before_the_end = NOON + TIMEOUT - 5;
        assert!(!acquire(&mut conn, "d", before_the_end), "all are taken");
        for id in ["e", "f", "g"] {
            assert!(acquire(&mut conn, id, before_the_end + 10), "six hold");
        }
    }
}

/// The master counts the time of each permit with its own clock. Clients send only durations.
#[tokio::test]
async fn quorate_ends_no_permit_that_its_holder_considers_valid() {
    let server = Server::start(Kind::Redis);
    let once = program([server.url()]).await.renewal(Renewal::off());
    let once = once.ttl(Duration::from_millis(700));
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        held.push(once.acquire().await.unwrap());
    }
    let other = program([server.url()]).await;
    assert!(
        other.try_acquire().await.unwrap().is_none(),
        "all are taken"
    );
    for _ in 0..LIMIT {
        let lease = timeout(PATIENCE, other.acquire()).await.unwrap().unwrap();
        let before = held.iter().find(|held| held.slot() == lease.slot());
        assert!(!before.unwrap().is_valid(), "and it knows");
        held.push(lease);
        let good = held.iter().filter(|lease| lease.is_valid());
        assert!(good.count() <= LIMIT);
    }
}
