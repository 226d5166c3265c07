//! The recipe of `numbers`, under a lock that expires by itself. A caller that gets no permit, or not the lock, sleeps
//! and asks again.
//!
//! "Redis in Action", 6.3.4:
//! <https://redis.io/ebook/part-2-core-concepts/chapter-6-application-components-in-redis/6-3-counting-semaphores/6-3-4-preventing-race-conditions/>

use super::{numbers, *};

const LOCK: &str = "lock";

fn lock(conn: &mut Connection, id: &str) -> bool {
    let timeout = TIMEOUT.to_string();
    let set: Option<String> = ask(conn, &["SET", LOCK, id, "NX", "PX", &timeout]);
    set.is_some()
}

fn unlock(conn: &mut Connection, id: &str) -> bool {
    const IF_MINE: &str =
        "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";
    ask(conn, &["EVAL", IF_MINE, "1", LOCK, id])
}

/// `None` if it did not get the lock.
fn acquire(conn: &mut Connection, id: &str) -> Option<bool> {
    if !lock(conn, id) {
        return None;
    }
    let acquired = numbers::acquire(conn, id, NOON);
    unlock(conn, id);
    Some(acquired)
}

#[test]
fn a_pause_that_outlasts_the_lock_gives_a_permit_too_many() {
    let server = Server::start(Kind::Redis);
    let mut conn = server.conn();
    assert_eq!(acquire(&mut conn, "a"), Some(true));
    assert_eq!(acquire(&mut conn, "b"), Some(true));

    assert!(lock(&mut conn, "paused"));
    let number = numbers::draw(&mut conn, NOON);
    assert_eq!(acquire(&mut conn, "c"), None, "the lock holds off others");
    // The lock expires while its holder is paused.
    let _: () = ask(&mut conn, &["PEXPIRE", LOCK, "0"]);
    assert_eq!(acquire(&mut conn, "c"), Some(true), "the last permit");
    assert_eq!(acquire(&mut conn, "d"), Some(false), "all are taken");

    assert!(
        numbers::take(&mut conn, "paused", number, NOON),
        "the fourth holder"
    );
    assert!(
        !unlock(&mut conn, "paused"),
        "which could tell it, too late"
    );
}

#[test]
fn a_client_that_sleeps_between_tries_is_overtaken() {
    let server = Server::start(Kind::Redis);
    let mut conn = server.conn();
    for id in ["a", "b", "c"] {
        assert_eq!(acquire(&mut conn, id), Some(true));
    }
    for _ in 0..3 {
        assert_eq!(acquire(&mut conn, "early"), Some(false), "it sleeps now");
        numbers::release(&mut conn, "a");
        assert_eq!(acquire(&mut conn, "late"), Some(true), "it just came");
        assert_eq!(acquire(&mut conn, "early"), Some(false), "too late again");
        numbers::release(&mut conn, "late");
        assert_eq!(acquire(&mut conn, "a"), Some(true));
    }
}

/// There is no lock that a pause could outlast. A paused holder learns of its loss from its own clock, and the store
/// refuses it.
#[tokio::test]
async fn quorate_tells_a_paused_holder_from_the_next_one() {
    let server = Server::start(Kind::Redis);
    let (quorum, store) = (program([server.url()]).await, Gate::new());
    let _held = [
        quorum.acquire().await.unwrap(),
        quorum.acquire().await.unwrap(),
    ];
    let paused = quorum.clone().renewal(Renewal::off());
    let paused = paused.ttl(Duration::from_millis(300)).acquire();
    let paused = paused.await.unwrap();

    let other = program([server.url()]).await;
    let next = timeout(PATIENCE, other.acquire()).await.unwrap().unwrap();
    assert_eq!(next.slot(), paused.slot(), "the third of three");
    assert!(!paused.is_valid());
    let slot = format!("a/{}", next.slot().unwrap());
    store.admit(&slot, next.token()).unwrap();
    assert!(store.admit(&slot, paused.token()).is_err());
}

#[tokio::test]
async fn quorate_calls_the_waiter_and_lets_no_client_overtake() {
    let server = Server::start(Kind::Redis);
    let (early, late) = (program([server.url()]).await, program([server.url()]).await);
    let mut held = all_held(&server).await;
    for _ in 0..3 {
        let waits = tokio::spawn(early.acquire());
        sleep(Duration::from_millis(100)).await; // the waiter is in the queue by then
        held.pop().unwrap().release().await.unwrap();
        assert!(late.try_acquire().await.unwrap().is_none(), "it just came");
        held.push(timeout(PATIENCE, waits).await.unwrap().unwrap().unwrap());
    }
}
