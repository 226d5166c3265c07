//! All waiters of one client are cut off. Measures how soon the nodes know them again.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quorate::Quorum;
use redis::{Connection, FromRedisValue as _};

use crate::{NODES, show::within, support::Fleet};

/// The order is checked for this many names.
const LOOKED_AT: usize = 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// `waiters` of this client are in the queues of these names.
pub async fn cut_off(fleet: &Fleet, waiting: &Quorum, names: &[String], waiters: usize) {
    let mut nodes: Vec<Connection> = fleet.iter().map(|server| server.conn()).collect();
    let before = order(waiting, names).await;
    let asked: Vec<u64> = nodes.iter_mut().map(registrations).collect();
    let (cut_at, start) = (wall_ms(), Instant::now());
    std::thread::scope(|scope| {
        for node in &mut nodes {
            scope.spawn(|| {
                // Connections that listen have another type than those that do not.
                let mut cut = 0;
                for kind in ["normal", "pubsub"] {
                    let mut kill = redis::cmd("CLIENT");
                    kill.arg("KILL").arg("TYPE").arg(kind);
                    cut += kill.query::<u64>(node).unwrap();
                }
                assert!(cut >= 2, "the holder and the waiters: {cut}");
            });
        }
    });
    // Counting the requests is cheap. After that it is checked that each waiter was among them.
    let took = loop {
        assert!(start.elapsed() < PATIENCE, "they are not registered again");
        let again =
            |(node, asked): (&mut Connection, &u64)| registrations(node) >= asked + waiters as u64;
        let counted = nodes.iter_mut().zip(&asked).all(again);
        let took = start.elapsed();
        if counted
            && nodes
                .iter_mut()
                .all(|node| heard_since(node, names, cut_at) == waiters)
        {
            break took;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    };
    while waiting.health().voting < NODES {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let kept = order(waiting, names).await == before;
    println!(
        "cut off from all nodes at once: registered again after {} s; the order of {LOOKED_AT} lines: {}",
        within(
            &format!("{:.2}", took.as_secs_f64()),
            took.as_secs_f64(),
            1.0
        ),
        if kept { "as before" } else { "CHANGED" }
    );
}

/// How often a place was written. No other command in this bench writes a hash.
fn registrations(node: &mut Connection) -> u64 {
    let stats = redis::cmd("INFO").arg("commandstats").query::<String>(node);
    let stats = stats.unwrap();
    let field = "cmdstat_hset:calls=";
    let line = stats.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|line| line.split(',').next()?.parse().ok())
        .unwrap_or(0)
}

/// The number of waiters that the node has heard of since then.
fn heard_since(node: &mut Connection, names: &[String], ms: u64) -> usize {
    let mut all = redis::pipe();
    for name in names {
        all.cmd("HVALS")
            .arg(format!("quorate:@mutex-waiters:{name}"));
    }
    let values: redis::Value = all.query(node).unwrap();
    let lines = Vec::<Vec<String>>::from_redis_value(values).unwrap();
    let heard_at = |waiter: &String| waiter.split(' ').next().unwrap().parse::<u64>().unwrap();
    let all = lines.iter().flatten();
    all.filter(|waiter| heard_at(waiter) >= ms).count()
}

/// The waiters of some of the names, in order.
async fn order(waiting: &Quorum, names: &[String]) -> Vec<Vec<String>> {
    let mut lines = Vec::new();
    for name in names.iter().step_by(names.len() / LOOKED_AT) {
        let line = waiting.inspect(name).await.unwrap().line();
        lines.push(line.into_iter().map(|waiter| waiter.entry).collect());
    }
    lines
}

fn wall_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    now.as_millis().try_into().unwrap()
}
