//! Operators see how many slots of a semaphore are taken, who holds each slot, and who waits: on masters in this
//! process, on Redis and on Valkey.

use std::time::Duration;

use super::{NAME, PATIENCE, in_memory, ms, on_servers, seen};
use crate::support::{Fleet, Kind};
use quorate::{Inspection, MemoryNode, Quorum};
use redis::FromRedisValue as _;
use tokio::time;

/// Returns true if every node has exactly the held slots, and this many waiters.
fn everywhere(seen: &Inspection, held: u32, waiting: u64) -> bool {
    seen.nodes.iter().all(|node| {
        let known = node.semaphore.as_ref();
        known.is_some_and(|known| (known.taken, known.waiting) == (held, waiting))
    })
}

// ---- all kinds of nodes ---------------------------------------------------------------------

async fn slots_and_the_line_are_seen([ann, bob, eve]: [Quorum; 3]) {
    let nothing = ann.inspect(NAME).await.unwrap();
    assert!(nothing.nodes.iter().all(|node| node.semaphore.is_none()));
    assert_eq!((nothing.limit(), nothing.taken_slots()), (None, 0));
    assert!(nothing.to_string().starts_with("\"nightly\" is free\n"));

    let anns = ann.semaphore(NAME, 2).acquire().await.unwrap();
    let bobs = bob.semaphore(NAME, 2).acquire().await.unwrap();
    let eves = tokio::spawn(eve.semaphore(NAME, 2).acquire());
    let full = seen(&ann, "eve waits", |seen| everywhere(seen, 2, 1)).await;

    assert_eq!((full.limit(), full.taken_slots()), (Some(2), 2));
    let slots = full.slots();
    assert_eq!(slots.len(), 2, "{full}");
    for lease in [&anns, &bobs] {
        let slot = &slots[lease.slot().unwrap() as usize];
        assert_eq!(Some(slot.number), lease.slot());
        assert!(slot.is_held && slot.nodes.len() == 3, "{full}");
        let left = slot.holder.remaining.unwrap();
        assert!(left > Duration::ZERO && left <= ms(10_000), "{left:?}");
        // A node may have made a token for a caller that asked for the slot and gave it back.
        assert!(slot.token >= Some(lease.token()), "{full}");
    }
    let labels = [&anns, &bobs].map(|lease| {
        let slot = &slots[lease.slot().unwrap() as usize];
        slot.holder.label.as_str()
    });
    assert_eq!(labels, ["ann", "bob"]);
    let line = full.line_for_slots();
    assert_eq!((line.len(), full.waiting_for_slots()), (1, 1));
    assert_eq!((line[0].label.as_str(), line[0].nodes.len()), ("eve", 3));
    assert!(line[0].waited < PATIENCE * 2, "{:?}", line[0].waited);
    let text = full.to_string();
    assert!(
        text.starts_with("\"nightly\": 2 of 2 slots are taken; 1 waits in the queue\n"),
        "{text}"
    );
    // No mutex is shown.
    assert!(full.holder().is_none() && full.line().is_empty());

    let freed = anns.slot();
    anns.release().await.unwrap();
    let eves = time::timeout(PATIENCE, eves).await.unwrap();
    let eves = eves.unwrap().unwrap();
    assert_eq!(eves.slot(), freed);
    let after = seen(&ann, "eve holds", |seen| everywhere(seen, 2, 0)).await;
    let of_eve = &after.slots()[eves.slot().unwrap() as usize];
    assert_eq!(
        (of_eve.holder.label.as_str(), of_eve.holder.owner()),
        ("eve", line[0].owner()),
        "who holds is who waited"
    );

    // A mutex of that name is independent of it. Both are shown, and an eviction frees only the mutex.
    let locked = bob.mutex(NAME).lock().await.unwrap();
    let both = ann.inspect(NAME).await.unwrap();
    assert_eq!(both.holder().unwrap().label, "bob");
    assert!(
        both.to_string()
            .contains("\n\n\"nightly\": 2 of 2 slots are taken\n")
    );
    assert!(ann.evict(NAME).await.unwrap());
    let free = seen(&ann, "no mutex", |seen| seen.holder().is_none()).await;
    assert_eq!(free.taken_slots(), 2, "{free}");
    drop(locked);

    bob.semaphore(NAME, 2).resize(7).await.unwrap();
    let larger = ann.inspect(NAME).await.unwrap();
    assert_eq!(larger.limit(), Some(7));
    bobs.release().await.unwrap();
    eves.release().await.unwrap();
    let empty = seen(&ann, "nobody", |seen| everywhere(seen, 0, 0)).await;
    assert_eq!((empty.taken_slots(), empty.slots()), (0, vec![]));
    assert!(
        empty
            .to_string()
            .starts_with("\"nightly\": 0 of 7 slots are taken\n"),
        "{empty}"
    );
}

#[tokio::test(start_paused = true)]
async fn in_this_process() {
    slots_and_the_line_are_seen(in_memory().await).await;
}

#[tokio::test]
async fn on_redis() {
    let fleet = Fleet::start(3, Kind::Redis);
    slots_and_the_line_are_seen(on_servers(&fleet).await).await;
}

#[tokio::test]
async fn on_valkey() {
    let fleet = Fleet::start(3, Kind::Valkey);
    slots_and_the_line_are_seen(on_servers(&fleet).await).await;
}

#[tokio::test(start_paused = true)]
async fn many_slots_are_counted_and_the_first_are_named() {
    let [ann, bob, _] = in_memory().await;
    let pool = ann.semaphore(NAME, 130);
    let mut held = Vec::new();
    for _ in 0..120 {
        held.push(pool.acquire().await.unwrap());
    }
    let full = seen(&bob, "120 are taken", |seen| everywhere(seen, 120, 0)).await;
    assert_eq!((full.slots().len(), full.taken_slots()), (100, 120));
    let text = full.to_string();
    assert!(text.ends_with("\nand 20 more"), "{text}");
}

/// A node that answers for the mutex but not for the semaphore counts as one that did not answer.
#[tokio::test(start_paused = true)]
async fn slots_of_silent_nodes_are_not_called_free() {
    let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
    let quorum = Quorum::builder().nodes(nodes.clone());
    let quorum = quorum.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let _held = quorum.semaphore(NAME, 2).acquire().await.unwrap();
    nodes[0].stop();
    nodes[1].stop();
    let seen = quorum.inspect(NAME).await.unwrap();
    assert!(
        seen.to_string().starts_with(
            "\"nightly\": the taken slots are unknown, 1 of 3 nodes answered and 2 are needed"
        ),
        "{seen}"
    );
}

/// A node may have the same holder in another slot, which the holder won there. So an eviction frees a slot on each
/// node only from the holder that this node names.
#[tokio::test]
async fn an_eviction_frees_no_other_slot_of_the_same_holder() {
    let fleet = Fleet::mixed(3);
    let [ann, operator, _] = on_servers(&fleet).await;
    let pool = ann.semaphore(NAME, 2).ttl(PATIENCE);
    let lease = pool.acquire().await.unwrap();
    let (slot, other) = match lease.slot().unwrap() {
        0 => ("0", "1"),
        _ => ("1", "0"),
    };
    let of = |key: &str| format!("quorate:@semaphore{key}:{NAME}");
    let (key, ends) = (of(""), of("-ends"));
    let server = fleet.iter().next().unwrap();
    let text = |words: &[&str]| String::from_redis_value(server.cmd(words)).unwrap();
    // Wait until the slot is taken everywhere, before the entry is moved by hand on one node.
    while server.cmd(&["HEXISTS", &key, slot]) != redis::Value::Int(1) {
        time::sleep(ms(5)).await;
    }
    let entry = text(&["HGET", &key, slot]);
    let held = text(&["HGET", &key, &entry]);
    let till = text(&["ZSCORE", &ends, slot]);
    let moved = held.replacen(slot, other, 1);
    let bits: &[u8] = if other == "0" { b"\x80" } else { b"\x40" };
    server.cmd(&["HDEL", &key, slot]);
    server.cmd(&["ZREM", &ends, slot]);
    server.cmd(&["ZADD", &ends, &till, other]);
    server.cmd(&["HSET", &key, other, &entry, &entry, &moved]);
    let mut bit = redis::cmd("HSET");
    bit.arg(&key).arg("bits").arg(bits);
    bit.query::<()>(&mut server.conn()).unwrap();
    assert!(
        operator
            .semaphore(NAME, 2)
            .evict(slot.parse().unwrap())
            .await
            .unwrap()
    );
    for (n, server) in fleet.iter().enumerate() {
        let there = |slot| server.cmd(&["HEXISTS", &key, slot]);
        assert_eq!(there(slot), redis::Value::Int(0), "on {n}");
        let kept = redis::Value::Int(i64::from(n == 0));
        assert_eq!(there(other), kept, "on {n}");
    }
    drop(lease);
}
