//! N independent masters.

use std::ops::Deref;
use std::time::{Duration, Instant};

use super::{Kind, Server, ServerOptions};

/// Several servers; used as a slice of them (`fleet[0].kill9()`, `fleet.iter()`).
pub struct Fleet(Vec<Server>);

impl Fleet {
    pub fn start(n: usize, kind: Kind) -> Fleet {
        Fleet::start_with(n, ServerOptions::new(kind))
    }

    pub fn start_with(n: usize, options: ServerOptions) -> Fleet {
        Fleet((0..n).map(|_| options.clone().start()).collect())
    }

    /// Redis and Valkey in turn.
    pub fn mixed(n: usize) -> Fleet {
        let kinds = Kind::ALL.into_iter().cycle();
        Fleet(kinds.take(n).map(Server::start).collect())
    }

    pub fn urls(&self) -> Vec<String> {
        self.iter().map(Server::url).collect()
    }

    /// What a lock or a semaphore left behind, on any node: every key under the prefix that has a TTL, and where that
    /// is a semaphore's, every slot that is taken and everybody who waits; of a read-write lock every reader, and every writer that waits. (Keys that stay forever, as token counters,
    /// are no lock. The mark of an eviction is none either, nor is `waiting`, which says of a node that somebody may
    /// wait there, nor is the limit of a semaphore, nor what else stands of a read-write lock; these end by themselves.) Nodes which are down are skipped; one that
    /// is stopped ends the test, for nobody knows what it holds.
    pub fn leftover_locks(&self, prefix: &str) -> Vec<String> {
        let mut found = Vec::new();
        for server in self.iter().filter(|server| server.is_up()) {
            for (key, pttl) in server.keys() {
                // No prefix holds an `@`, and no name stands in a key without one.
                let sort = match key.split_once('@') {
                    Some((_, rest)) => rest.split(':').next().unwrap_or_default(),
                    None if key.ends_with(":waiting") => "waiting",
                    None => "",
                };
                let left = match sort {
                    "mutex-evicted" | "waiting" | "semaphore" | "many" => continue,
                    "rwlock-evicted" | "rwlock-window" | "rwlock-refused" | "rwlock-wakes" => {
                        continue;
                    }
                    "semaphore-ends" | "many-ends" | "rwlock-readers" | "rwlock-writers" => {
                        server.scored(&key, server.wall_ms())
                    }
                    "semaphore-line" | "many-line" => server.scored(&key, 0),
                    _ => vec![format!("for another {pttl} ms")],
                };
                if pttl >= 0 && key.starts_with(prefix) {
                    found.extend(left.iter().map(|left| format!("{server}: {key} {left}")));
                }
            }
        }
        found
    }

    /// The same after giving the background work (rollbacks, dropped leases) up to `patience` to
    /// clean up.
    pub fn leftover_locks_after(&self, patience: Duration, prefix: &str) -> Vec<String> {
        let deadline = Instant::now() + patience;
        loop {
            let found = self.leftover_locks(prefix);
            if found.is_empty() || Instant::now() > deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Deref for Fleet {
    type Target = [Server];

    fn deref(&self) -> &[Server] {
        &self.0
    }
}
