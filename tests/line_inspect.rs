//! Operators see who waits in line, for how long and on which nodes, and an eviction goes on to the first of them: on
//! masters in this process, on Redis and on Valkey, and by the command.

use std::time::Duration;

use crate::command::{Running, STAY, Wire, fleet, quorate, run};
use crate::support::{Fleet, Kind};
use quorate::{Error, Inspection, Lease, MemoryNode, Quorum};
use serde_json::Value;
use tokio::{task::JoinHandle, time};

const NAME: &str = "nightly";
const PATIENCE: Duration = Duration::from_secs(20);

type Waiting = JoinHandle<Result<Lease, Error>>;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Three clients of one fleet: ann, bob and eve.
async fn clients(connect: impl AsyncFn(&str) -> Quorum) -> [Quorum; 3] {
    [
        connect("ann").await,
        connect("bob").await,
        connect("eve").await,
    ]
}

async fn in_memory() -> [Quorum; 3] {
    let nodes: [MemoryNode; 3] = std::array::from_fn(|_| MemoryNode::new());
    let clients = clients(async |who| {
        let quorum = Quorum::builder().nodes(nodes.clone()).label(who);
        quorum.connect().await.unwrap()
    });
    let clients = clients.await;
    all_vote(&clients).await;
    clients
}

async fn on_servers(fleet: &Fleet) -> [Quorum; 3] {
    let clients = clients(async |who| {
        let quorum = Quorum::builder().nodes(fleet.urls()).label(who);
        quorum.connect().await.unwrap()
    });
    let clients = clients.await;
    all_vote(&clients).await;
    clients
}

async fn all_vote(clients: &[Quorum; 3]) {
    clients[0].bootstrap_forced().await.unwrap();
    for quorum in clients {
        while quorum.health().voting < 3 {
            time::sleep(ms(10)).await;
        }
    }
}

/// What is seen as soon as it is as wished for.
async fn seen(quorum: &Quorum, what: &str, wanted: impl Fn(&Inspection) -> bool) -> Inspection {
    let looked = async {
        loop {
            let seen = quorum.inspect(NAME).await.unwrap();
            if wanted(&seen) {
                return seen;
            }
            time::sleep(ms(5)).await;
        }
    };
    let looked = time::timeout(PATIENCE, looked).await;
    looked.unwrap_or_else(|_| panic!("never seen: {what}"))
}

/// Who stands in line, if all stand on all nodes.
fn labels(seen: &Inspection) -> Vec<String> {
    let line = seen.line();
    let everywhere = line.iter().filter(|waiter| waiter.nodes.len() == 3);
    everywhere.map(|waiter| waiter.label.clone()).collect()
}

/// Asks, and returns when every node knows it.
async fn waits(quorum: &Quorum, line: &[&str]) -> Waiting {
    let waiting = tokio::spawn(quorum.mutex(NAME).lock());
    seen(quorum, &format!("{line:?}"), |seen| labels(seen) == line).await;
    waiting
}

async fn granted(waiting: Waiting) -> Lease {
    let lease = time::timeout(PATIENCE, waiting).await;
    lease.expect("it is served").unwrap().unwrap()
}

// ---- what every kind of node tells ----------------------------------------------------------

async fn the_line_is_seen_and_served([ann, bob, eve]: [Quorum; 3]) {
    let held = ann.mutex(NAME).lock().await.unwrap();
    let bobs = waits(&bob, &["bob"]).await;
    let eves = waits(&eve, &["bob", "eve"]).await;
    let seen_now = ann.inspect(NAME).await.unwrap();
    assert_eq!(seen_now.holder().unwrap().label, "ann");
    assert_eq!(seen_now.waiting(), 2);
    let line = seen_now.line();
    assert!(line[0].waited >= line[1].waited && line[0].waited < PATIENCE * 2);
    assert_eq!(line[0].owner().unwrap().len(), 36);
    for node in &seen_now.nodes {
        let there: Vec<_> = node.line.iter().map(|waiter| &*waiter.label).collect();
        assert_eq!((there, node.waiting), (vec!["bob", "eve"], 2), "{seen_now}");
        assert_eq!(node.line[0].nodes, std::slice::from_ref(&node.node));
    }
    let text = seen_now.to_string();
    assert!(text.contains("; 2 wait in line\n"), "{text}");
    assert!(text.contains("\nIN LINE  WAITED"), "{text}");

    assert!(ann.evict(NAME).await.unwrap(), "it was held");
    let bobs = granted(bobs).await;
    assert!(bobs.token() > held.token());
    let after = seen(&ann, "bob holds", |seen| {
        seen.holder().is_some_and(|holder| holder.label == "bob") && labels(seen) == ["eve"]
    });
    let after = after.await;
    assert_eq!(after.waiting(), 1, "{after}");
    assert_eq!(
        after.holder().unwrap().owner(),
        line[0].owner(),
        "who held is who waited"
    );
    assert!(
        ann.mutex(NAME).try_lock().await.unwrap().is_none(),
        "it is held"
    );

    eves.abort();
    seen(&ann, "nobody waits", |seen| {
        seen.waiting() == 0 && seen.line().is_empty()
    })
    .await;
    bobs.release().await.unwrap();
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn in_this_process() {
    the_line_is_seen_and_served(in_memory().await).await;
}

#[tokio::test]
async fn on_redis() {
    let fleet = Fleet::start(3, Kind::Redis);
    the_line_is_seen_and_served(on_servers(&fleet).await).await;
}

#[tokio::test]
async fn on_valkey() {
    let fleet = Fleet::start(3, Kind::Valkey);
    the_line_is_seen_and_served(on_servers(&fleet).await).await;
}

/// The head of a line asks by itself four times a second: an eviction that served nobody would take until then.
#[tokio::test(start_paused = true)]
async fn an_eviction_serves_the_line_at_once() {
    let [ann, bob, eve] = in_memory().await;
    for round in 0..6_u32 {
        let held = ann.mutex(NAME).lock().await.unwrap();
        let bobs = waits(&bob, &["bob"]).await;
        time::sleep(ms(37) * round).await;
        let evicted = time::Instant::now();
        assert!(eve.evict(NAME).await.unwrap());
        granted(bobs).await.release().await.unwrap();
        assert!(evicted.elapsed() < ms(10), "{:?}", evicted.elapsed());
        drop(held);
        seen(&eve, "free", |seen| seen.holder().is_none()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_line_is_counted_and_its_first_are_named() {
    let [ann, bob, eve] = in_memory().await;
    let held = ann.mutex(NAME).lock().await.unwrap();
    let all: Vec<Waiting> = (0..130)
        .map(|_| tokio::spawn(bob.mutex(NAME).lock()))
        .collect();
    let long = seen(&eve, "130 wait", |seen| {
        seen.nodes.iter().all(|node| node.waiting == 130)
    });
    let long = long.await;
    assert_eq!((long.line().len(), long.waiting()), (100, 130));
    let text = long.to_string();
    assert!(text.ends_with("\nand 110 more"), "{text}");
    all.into_iter().for_each(|one| one.abort());
    seen(&eve, "nobody waits", |seen| seen.waiting() == 0).await;
    drop(held);
}

// ---- the command ----------------------------------------------------------------------------

fn inspected(urls: &[String], wanted: u64) -> Value {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let seen = run(urls, &["inspect", NAME, "--json"]).is(0).json();
        let everywhere = |node: &Value| node["waiting"] == wanted;
        if seen["nodes"].as_array().unwrap().iter().all(everywhere) {
            return seen;
        }
        assert!(std::time::Instant::now() < end, "{seen}");
    }
}

#[test]
fn the_command_shows_the_line_and_evicts_for_it() {
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
        .prints("; 1 waits in line\n")
        .prints("\nbob      ");

    run(&urls, &["evict", NAME])
        .is(64)
        .says("go to the first in line");
    run(&urls, &["evict", NAME, "--yes"])
        .is(0)
        .prints("\"nightly\" goes to the first in line now; it was held by ann");
    next.done().is(0).prints("served");
    holder.done().is(79);
}
