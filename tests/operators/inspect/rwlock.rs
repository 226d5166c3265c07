//! Operators see the readers, the writer and the waiting writers of a read-write lock, and free it: on masters in this
//! process, on Redis and on Valkey. For several names at once they see each name.

use std::time::Duration;

use super::{NAME, PATIENCE, in_memory, ms, on_servers, seen};
use crate::support::{Fleet, Kind};
use quorate::{Error, Inspection, Lease, LossReason, Quorum};
use tokio::{task::JoinHandle, time};

/// The ttl is short, so that a holder soon learns of a loss.
const TTL: Duration = Duration::from_secs(2);

type Waiting = JoinHandle<Result<Lease, Error>>;

/// Returns true if every node has a writer (or none), this many readers, and this many waiting writers.
fn everywhere(seen: &Inspection, writes: bool, reading: u64, waiting: u64) -> bool {
    seen.nodes.iter().all(|node| {
        let known = node.rwlock.as_ref();
        known.is_some_and(|known| {
            (known.writer.is_some(), known.reading, known.waiting) == (writes, reading, waiting)
        })
    })
}

async fn reader(quorum: &Quorum) -> Lease {
    quorum.rwlock(NAME).ttl(TTL).read().await.unwrap()
}

async fn granted(waiting: Waiting) -> Lease {
    let lease = time::timeout(PATIENCE, waiting).await;
    lease.expect("in time").unwrap().unwrap()
}

async fn is_evicted(lease: &Lease) {
    let reason = time::timeout(PATIENCE, lease.lost()).await;
    assert_eq!(reason.expect("in time"), LossReason::Evicted);
    assert!(lease.held_for() < PATIENCE);
}

// ---- all kinds of nodes ---------------------------------------------------------------------

async fn readers_writers_and_who_waits_are_seen([ann, bob, eve]: [Quorum; 3]) {
    let nothing = ann.inspect(NAME).await.unwrap();
    assert!(nothing.nodes.iter().all(|node| node.rwlock.is_none()));
    assert_eq!((nothing.writer(), nothing.reading()), (None, 0));
    assert!(nothing.to_string().starts_with("\"nightly\" is free\n"));

    let anns = reader(&ann).await;
    let bobs = reader(&bob).await;
    let read = seen(&eve, "two read", |seen| everywhere(seen, false, 2, 0)).await;
    let mut labels: Vec<String> = Vec::new();
    for reader in read.readers() {
        assert!(reader.is_held && reader.nodes.len() == 3, "{read}");
        let left = reader.holder.remaining.unwrap();
        assert!(left > Duration::ZERO && left <= TTL, "{left:?}");
        assert_eq!(reader.holder.owner().unwrap().len(), 36);
        labels.push(reader.holder.label);
    }
    labels.sort();
    assert_eq!(labels, ["ann", "bob"]);
    assert!(read.newest_rwlock_token() >= Some(anns.token()));
    let text = read.to_string();
    let first = "\"nightly\" is held for reading by 2\n";
    assert!(text.starts_with(first), "{text}");
    // No mutex is shown.
    assert!(read.holder().is_none() && read.newest_token().is_none());
    assert!(!text.contains("HOLDER"), "{text}");

    let eves: Waiting = tokio::spawn(eve.rwlock(NAME).ttl(TTL).write());
    let waits = seen(&ann, "eve waits", |seen| everywhere(seen, false, 2, 1)).await;
    let writers = waits.waiting_writers();
    assert_eq!((writers.len(), waits.waiting_to_write()), (1, 1));
    assert_eq!((&*writers[0].label, writers[0].nodes.len()), ("eve", 3));
    assert!(writers[0].remaining > Duration::ZERO && writers[0].owner().is_some());
    assert!(waits.to_string().contains("; 1 waits to write\n"));

    anns.release().await.unwrap();
    bobs.release().await.unwrap();
    let eves = granted(eves).await;
    // The intent of a writer that has waited ends by itself.
    let writes = seen(&ann, "eve writes", |seen| everywhere(seen, true, 0, 0)).await;
    assert_eq!(writes.writer().unwrap().label, "eve");
    assert!(writes.newest_rwlock_token() >= Some(eves.token()));
    let text = writes.to_string();
    let first = "\"nightly\" is held for writing on 3 of 3 nodes by eve, for ";
    assert!(text.starts_with(first), "{text}");

    eves.downgrade().await.unwrap();
    let read = seen(&ann, "eve reads", |seen| everywhere(seen, false, 1, 0)).await;
    assert_eq!(read.readers()[0].holder.label, "eve");

    // A mutex and a semaphore of that name are independent of it, and all three are shown.
    let locked = bob.mutex(NAME).lock().await.unwrap();
    let permit = bob.semaphore(NAME, 2).acquire().await.unwrap();
    let all = ann.inspect(NAME).await.unwrap().to_string();
    assert!(all.starts_with("\"nightly\" is held on 3 of 3 nodes by bob"));
    assert!(all.contains("\n\n\"nightly\" is held for reading by 1\n"));
    assert!(
        all.contains("\n\n\"nightly\": 1 of 2 slots is taken\n")
            || all.contains("1 of 2 slots are taken")
    );
    drop((locked, permit));
    eves.release().await.unwrap();
    seen(&ann, "nobody", |seen| everywhere(seen, false, 0, 0)).await;
}

async fn an_eviction_reaches_every_holder([ann, bob, eve]: [Quorum; 3]) {
    assert!(!eve.evict(NAME).await.unwrap(), "it was free");
    let readers = [reader(&ann).await, reader(&bob).await];
    assert!(eve.evict(NAME).await.unwrap());
    // It is free at once, no matter who believes to hold a read lock.
    let eves = eve.rwlock(NAME).ttl(TTL).try_write().await.unwrap();
    let eves = eves.expect("it was freed");
    for reader in &readers {
        is_evicted(reader).await;
    }
    drop(readers);
    assert!(eves.is_valid());

    // A waiter is told, and gets the lock.
    let waits: Waiting = tokio::spawn(bob.rwlock(NAME).ttl(TTL).read());
    time::sleep(ms(300)).await;
    assert!(!waits.is_finished());
    let evicted = time::Instant::now();
    assert!(ann.evict(NAME).await.unwrap());
    let bobs = granted(waits).await;
    // This is less than half of the ttl: the waiter gets the lock because it was told, and not because a lease has
    // expired.
    assert!(evicted.elapsed() < TTL / 2, "{:?}", evicted.elapsed());
    is_evicted(&eves).await;
    assert!(bobs.is_valid());

    // This also frees the mutex of the name, both at once.
    let locked = bob.mutex(NAME).ttl(TTL).lock().await.unwrap();
    assert!(ann.evict(NAME).await.unwrap());
    is_evicted(&locked).await;
    is_evicted(&bobs).await;
}

async fn a_set_holds_each_of_its_names([ann, bob, eve]: [Quorum; 3]) {
    let both = ann.mutex_all([NAME, "other"]).ttl(TTL);
    let lease = both.lock().await.unwrap();
    let names = [
        eve.inspect(NAME).await.unwrap(),
        eve.inspect("other").await.unwrap(),
    ];
    for seen in &names {
        assert_eq!(seen.holder().unwrap().label, "ann");
        assert!(seen.newest_token() >= Some(lease.token()));
        assert!(seen.nodes.iter().all(|node| node.holder.is_some()));
    }
    assert_eq!(
        names[0].holder().unwrap().owner(),
        names[1].holder().unwrap().owner()
    );

    assert!(eve.evict("other").await.unwrap());
    is_evicted(&lease).await;
    drop(lease);
    let next = bob.mutex_all(["other", NAME]).lock();
    let next = time::timeout(PATIENCE, next).await;
    drop(next.expect("both are free").unwrap());
}

#[tokio::test(start_paused = true)]
async fn in_this_process() {
    readers_writers_and_who_waits_are_seen(in_memory().await).await;
    an_eviction_reaches_every_holder(in_memory().await).await;
    a_set_holds_each_of_its_names(in_memory().await).await;
}

#[tokio::test]
async fn on_redis() {
    let fleet = Fleet::start(3, Kind::Redis);
    readers_writers_and_who_waits_are_seen(on_servers(&fleet).await).await;
    an_eviction_reaches_every_holder(on_servers(&fleet).await).await;
    a_set_holds_each_of_its_names(on_servers(&fleet).await).await;
}

#[tokio::test]
async fn on_valkey() {
    let fleet = Fleet::start(3, Kind::Valkey);
    readers_writers_and_who_waits_are_seen(on_servers(&fleet).await).await;
    an_eviction_reaches_every_holder(on_servers(&fleet).await).await;
    a_set_holds_each_of_its_names(on_servers(&fleet).await).await;
}

#[tokio::test(start_paused = true)]
async fn many_readers_are_counted_and_the_first_are_named() {
    let [ann, bob, _] = in_memory().await;
    let lock = ann.rwlock(NAME);
    let mut held = Vec::new();
    for _ in 0..120 {
        held.push(lock.read().await.unwrap());
    }
    let many = seen(&bob, "120 read", |seen| everywhere(seen, false, 120, 0)).await;
    assert_eq!((many.readers().len(), many.reading()), (100, 120));
    let text = many.to_string();
    assert!(text.ends_with("\nand 100 more"), "{text}");
    // An eviction names even fewer of them, and frees all.
    assert!(bob.evict(NAME).await.unwrap());
    assert!(bob.rwlock(NAME).try_write().await.unwrap().is_some());
}
