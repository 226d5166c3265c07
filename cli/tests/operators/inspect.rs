//! `quorate inspect` and `quorate evict`, on real servers.

use std::time::{Duration, Instant};

use quorate::{Inspection, Lease, LossReason, NodeInspection, Quorum};
use serde_json::Value;
use tokio::time;

use crate::{
    command::{PATIENCE, Running, STAY, Wire, fleet, ms, quorate, run},
    support::Fleet,
};

const NAME: &str = "nightly";
const TTL: Duration = Duration::from_secs(2);

/// Clients with the labels ann, bob and eve. All nodes vote.
async fn clients(fleet: &Fleet) -> [Quorum; 3] {
    let connect = async |label| {
        let quorum = Quorum::builder().nodes(fleet.urls()).label(label);
        quorum.connect().await.unwrap()
    };
    let clients = [
        connect("ann").await,
        connect("bob").await,
        connect("eve").await,
    ];
    for quorum in &clients {
        while quorum.health().voting < 3 {
            time::sleep(ms(10)).await;
        }
    }
    clients
}

/// Waits until the answer of every node fits.
async fn seen(quorum: &Quorum, wanted: impl Fn(&NodeInspection) -> bool) {
    let fits = |seen: &Inspection| seen.nodes.iter().all(&wanted);
    let looked = async {
        while !fits(&quorum.inspect(NAME).await.unwrap()) {
            time::sleep(ms(5)).await;
        }
    };
    time::timeout(PATIENCE, looked).await.expect("seen in time");
}

async fn reader(quorum: &Quorum) -> Lease {
    quorum.rwlock(NAME).ttl(TTL).read().await.unwrap()
}

async fn is_evicted(lease: &Lease) {
    let reason = time::timeout(PATIENCE, lease.lost()).await;
    assert_eq!(reason.expect("in time"), LossReason::Evicted);
}

fn inspected(urls: &[String], wanted: u64) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = run(urls, &["inspect", NAME, "--json"]).is(0).json();
        let everywhere = |node: &Value| node["waiting"] == wanted;
        if seen["nodes"].as_array().unwrap().iter().all(everywhere) {
            return seen;
        }
        assert!(Instant::now() < deadline, "{seen}");
    }
}

#[test]
fn the_queue_of_a_mutex_is_shown_and_an_eviction_serves_it() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    assert_eq!(inspected(&urls, 0)["line"], Value::Array(Vec::new()));
    let wire = Wire::new();
    let holder = wire.lock(&urls, &[NAME, "--label", "ann"], STAY);
    wire.expect("up");
    let next = ["lock", NAME, "--label", "bob", "--", "echo", "served"];
    let next = Running::start(quorate(&urls, &next));

    let seen = inspected(&urls, 1);
    assert_eq!((&seen["waiting"], &seen["held"]), (&1.into(), &true.into()));
    let bob = &seen["line"][0];
    assert_eq!(bob["label"], "bob");
    assert_eq!(bob["nodes"].as_array().unwrap().len(), 3);
    assert!(bob["waited_ms"].as_u64().unwrap() < 40_000, "{bob}");
    let owner = bob["owner"].as_str().unwrap().replace('-', "");
    assert_eq!(bob["entry"], format!("{owner}@bob"));
    run(&urls, &["inspect", NAME])
        .is(0)
        .prints("; 1 waits in the queue\n")
        .prints("\nbob     ");

    run(&urls, &["evict", NAME])
        .is(64)
        .says("go to the first waiter");
    run(&urls, &["evict", NAME, "--yes"])
        .is(0)
        .prints("\"nightly\" goes to the first waiter now; it was held by ann");
    next.done().is(0).prints("served");
    holder.done().is(79);
}

#[tokio::test]
async fn readers_and_writers_are_shown_and_evicted() {
    let fleet = tokio::task::spawn_blocking(|| fleet(3)).await.unwrap();
    let [ann, bob, eve] = clients(&fleet).await;
    let readers = [reader(&ann).await, reader(&bob).await];
    let eves = tokio::spawn(eve.rwlock(NAME).ttl(TTL).write());
    seen(&ann, |node| {
        let known = node.rwlock.as_ref();
        known.is_some_and(|known| (known.reading, known.waiting) == (2, 1))
    })
    .await;

    let urls = fleet.urls();
    let (json, text, refused) = tokio::task::spawn_blocking(move || {
        let json = run(&urls, &["inspect", NAME, "--json"]).is(0).json();
        let text = run(&urls, &["inspect", NAME]).is(0);
        (json, text, run(&urls, &["evict", NAME]).is(64))
    })
    .await
    .unwrap();
    text.prints("\"nightly\" is held for reading by 2; 1 waits to write\n")
        .prints("\n\nREADER  REMAINING  ON\n")
        .prints("\n\nWAITS TO WRITE  ON\neve             3 of 3 nodes\n");
    let refused = refused.prints("is held for reading by 2");
    refused
        .says("\"nightly\" is held for reading by ")
        .says("Its holders would learn of it at their next renewal");
    let rwlock = &json["rwlock"];
    assert_eq!(
        (&json["held"], &json["holder"]),
        (&false.into(), &().into())
    );
    assert_eq!(
        (&rwlock["writer"], &rwlock["reading"]),
        (&().into(), &2.into())
    );
    assert_eq!(rwlock["waiting"], 1);
    assert!(rwlock["newest_token"].as_u64() >= Some(readers[0].token().as_u64()));
    for reader in rwlock["readers"].as_array().unwrap() {
        assert_eq!(reader["held"], true);
        assert!(reader["holder"]["remaining_ms"].as_u64().unwrap() <= 2_000);
        assert_eq!(reader["nodes"].as_array().unwrap().len(), 3);
    }
    let writer = &rwlock["waiting_writers"][0];
    assert_eq!(writer["label"], "eve");
    assert!(writer["remaining_ms"].as_u64().unwrap() > 0, "{writer}");
    for node in json["nodes"].as_array().unwrap() {
        let known = &node["rwlock"];
        assert_eq!(
            (&known["reading"], &known["waiting"]),
            (&2.into(), &1.into())
        );
        assert!(known["writer"].is_null());
    }

    // The waiting writer gets in. Then it is evicted too.
    let urls = fleet.urls();
    let evict = move |words: &'static [&'static str]| run(&urls, words).is(0);
    let evicted = evict.clone();
    let evicted = tokio::task::spawn_blocking(move || evicted(&["evict", NAME, "--yes", "--json"]));
    let evicted = evicted.await.unwrap().json();
    assert_eq!(
        (&evicted["evicted"], &evicted["reading"]),
        (&true.into(), &2.into())
    );
    let mut labels: Vec<&str> = evicted["readers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reader| reader["label"].as_str().unwrap())
        .collect();
    labels.sort_unstable();
    assert_eq!(
        (labels, &evicted["holder"]),
        (vec!["ann", "bob"], &().into())
    );
    let eves = time::timeout(PATIENCE, eves).await.expect("in time");
    let eves = eves.unwrap().unwrap();
    for reader in &readers {
        is_evicted(reader).await;
    }
    let told = tokio::task::spawn_blocking(move || {
        let told = evict(&["evict", NAME, "--yes"]);
        (told, evict(&["evict", NAME, "--yes"]))
    });
    let (told, again) = told.await.unwrap();
    told.prints(
        "\"nightly\" is free now; it was held for writing by eve. The holder learns of it at its next renewal and may write until then\n",
    );
    again.prints("\"nightly\" was free already\n");
    is_evicted(&eves).await;
}

#[tokio::test]
async fn slots_and_their_queue_are_shown() {
    let fleet = tokio::task::spawn_blocking(|| fleet(3)).await.unwrap();
    let [ann, bob, _] = clients(&fleet).await;
    let anns = ann.semaphore(NAME, 1).acquire().await.unwrap();
    let bobs = tokio::spawn(bob.semaphore(NAME, 1).acquire());
    seen(&ann, |node| {
        let known = node.semaphore.as_ref();
        known.is_some_and(|known| (known.taken, known.waiting) == (1, 1))
    })
    .await;

    let urls = fleet.urls();
    let (json, text, evict) = tokio::task::spawn_blocking(move || {
        let json = run(&urls, &["inspect", NAME, "--json"]).is(0).json();
        let text = run(&urls, &["inspect", NAME]).is(0);
        (json, text, run(&urls, &["evict", NAME, "--yes"]).is(64))
    })
    .await
    .unwrap();
    text.prints("\"nightly\": 1 of 1 slot is taken; 1 waits in the queue\n")
        .prints("\n\nSLOT  HOLDER")
        .prints("\n0     ann ")
        .prints("\nbob     ");
    evict.says(
        "quorate: nothing was done. \"nightly\" is a semaphore, and 1 slot is taken: slot 0 by ann. Name the slots to free, as in \
         `quorate evict NAME --slot 0 --yes`\n",
    );

    let semaphore = &json["semaphore"];
    assert_eq!(semaphore["limit"], 1);
    assert_eq!(
        (&semaphore["taken"], &semaphore["waiting"]),
        (&1.into(), &1.into())
    );
    let slot = &semaphore["slots"][0];
    assert_eq!((&slot["slot"], &slot["held"]), (&0.into(), &true.into()));
    assert_eq!(slot["holder"]["label"], "ann");
    assert!(slot["token"].as_u64() >= Some(anns.token().as_u64()));
    assert_eq!(slot["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(semaphore["line"][0]["label"], "bob");
    for node in json["nodes"].as_array().unwrap() {
        let known = &node["semaphore"];
        assert_eq!((&known["limit"], &known["taken"]), (&1.into(), &1.into()));
        assert_eq!(known["waiting"], 1);
    }
    assert_eq!(
        (&json["held"], &json["line"]),
        (&false.into(), &Vec::<u8>::new().into())
    );
    bobs.abort();
}
