//! N independent masters.

use std::ops::Deref;
use std::time::{Duration, Instant};

use super::{Kind, Server, ServerOptions};

/// Several servers, used as a slice of them (`fleet[0].kill9()`, `fleet.iter()`).
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

    /// Everything that locks and semaphores left behind, on any node. It has every key under the prefix that has a TTL.
    /// For a semaphore it has every slot that is taken and every waiter. For a read-write lock it has every reader and
    /// every waiting writer.
    ///
    /// Some keys are not leftovers. Keys that stay for ever, such as token counters, are not locks. Others end by
    /// themselves: the mark of an eviction, `waiting` (which says that somebody may wait on that node), the limit of a
    /// semaphore, and the other keys of a read-write lock.
    ///
    /// Nodes that are down are skipped. A stopped node ends the test, because nobody knows what it holds.
    pub fn leftover_locks(&self, prefix: &str) -> Vec<String> {
        let mut found = Vec::new();
        for server in self.iter().filter(|server| server.is_up()) {
            for (key, pttl) in server.keys() {
                // No prefix contains an `@`, and every key with a name has one.
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

    /// The same, after waiting up to `patience` for background work (rollbacks, dropped leases) to clean up.
    pub fn leftover_locks_after(&self, patience: Duration, prefix: &str) -> Vec<String> {
        let deadline = Instant::now() + patience;
        loop {
            // Decided before the look, because a look on a slow machine may itself take long.
            let is_late = Instant::now() > deadline;
            let found = self.leftover_locks(prefix);
            if found.is_empty() || is_late {
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
