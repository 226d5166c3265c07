//! Every kind of node passes `quorate::testing::conformance`: the node in this process, and the node that carries the
//! scripts to Redis 7 and to Valkey 9.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::support::{Kind, Server};
use quorate::{
    MemoryNode, Node,
    testing::conformance::{
        self, Change, Doing, Key, Outcome, Power, Subject, alike, limits_alike, rwlocks_alike,
        several_alike, slots_alike,
    },
};

/// A real server that the test has started, so that its settings may be changed too.
struct Real {
    server: Server,
    subject: conformance::Server,
    backdoor: Mutex<redis::Connection>,
    was_replica: AtomicBool,
}

impl Real {
    async fn start(kind: Kind) -> Self {
        let server = Server::start(kind);
        let subject = conformance::Server::connect(&server.url()).await.unwrap();
        let backdoor = Mutex::new(server.conn());
        Self {
            server,
            subject,
            backdoor,
            was_replica: AtomicBool::new(false),
        }
    }

    fn tell(&self, words: &[&str]) {
        let mut command = redis::Cmd::new();
        command.arg(words);
        let told = command.exec(&mut *self.backdoor.lock().unwrap());
        told.unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }
}

impl Subject for Real {
    fn name(&self) -> &str {
        self.subject.name()
    }

    fn node(&self) -> Arc<dyn Node> {
        self.subject.node()
    }

    fn fresh(&self) -> Doing<'_, ()> {
        // A process remembers that it was a replica.
        if self.was_replica.swap(false, Relaxed) {
            self.server.restart_empty();
            *self.backdoor.lock().unwrap() = self.server.conn();
        }
        self.tell(&["CONFIG", "SET", "maxmemory", "0"]);
        self.tell(&["FLUSHALL"]);
        Box::pin(async {})
    }

    fn powers(&self) -> &[Power] {
        &[
            Power::Flush,
            Power::Full,
            Power::Replica,
            Power::Keys,
            Power::Counters,
            Power::Kill,
            Power::Rights,
        ]
    }

    fn change(&self, change: Change) -> Doing<'_, ()> {
        match change {
            Change::Full(true) => self.tell(&["CONFIG", "SET", "maxmemory", "1"]),
            Change::Full(false) => self.tell(&["CONFIG", "SET", "maxmemory", "0"]),
            Change::Replica(true) => {
                self.was_replica.store(true, Relaxed);
                // No master exists at that address, so the server waits as a replica.
                self.tell(&["REPLICAOF", "127.0.0.1", "1"])
            }
            Change::Replica(false) => self.tell(&["REPLICAOF", "NO", "ONE"]),
            Change::NoReplicas(on) => {
                let needed = if on { "1" } else { "0" };
                self.tell(&["CONFIG", "SET", "min-replicas-to-write", needed]);
            }
            Change::Withdraw(None) => self.tell(&["ACL", "SETUSER", "default", "+@all"]),
            Change::Withdraw(Some(command)) => {
                self.tell(&["ACL", "SETUSER", "default", &format!("-{command}")]);
            }
            other => return self.subject.change(other),
        }
        Box::pin(async {})
    }

    fn stands(&self, place: Key) -> Doing<'_, Option<String>> {
        self.subject.stands(place)
    }

    fn lasting(&self) -> Doing<'_, Vec<String>> {
        let mut backdoor = self.backdoor.lock().unwrap();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut backdoor).unwrap();
        let stay = ["boot", "open", "time", "c0", "c1"];
        let mut lasting = Vec::new();
        for key in keys {
            let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut backdoor).unwrap();
            if left == -1 && !stay.contains(&key.rsplit(':').next().unwrap()) {
                lasting.push(key);
            }
        }
        Box::pin(async { lasting })
    }
}

/// The number of cases that were run, and the powers for lack of which others were not.
fn told(outcome: Outcome) -> (usize, String) {
    println!("{outcome}: {:?}", outcome.ran);
    let not_run = outcome.not_run.iter();
    let not_run = not_run.map(|not| format!("{} {:?}", not.case, not.for_want_of));
    (outcome.ran.len(), not_run.collect::<Vec<_>>().join(", "))
}

#[tokio::test]
async fn the_node_in_this_process() {
    let outcome = conformance::all(&MemoryNode::new()).await;
    let not_run = "an_older_connection_can_be_ended [Kill], \
                   a_command_that_fails_leaves_nothing_told_and_nothing_for_ever [Rights]";
    assert_eq!(told(outcome), (148, not_run.to_owned()));
}

#[tokio::test]
async fn redis_7() {
    let outcome = conformance::all(&Real::start(Kind::Redis).await).await;
    assert_eq!(told(outcome), (150, String::new()));
}

#[tokio::test]
async fn valkey_9() {
    let outcome = conformance::all(&Real::start(Kind::Valkey).await).await;
    assert_eq!(told(outcome), (150, String::new()));
}

/// A subject without powers runs only the cases that need none. The others are named.
#[tokio::test]
async fn a_case_that_cannot_be_run_is_named() {
    struct Poor(MemoryNode);
    impl Subject for Poor {
        fn name(&self) -> &str {
            "poor"
        }
        fn node(&self) -> Arc<dyn Node> {
            Arc::new(self.0.clone())
        }
        fn fresh(&self) -> Doing<'_, ()> {
            self.0.fresh()
        }
        fn wall_us(&self) -> Doing<'_, u64> {
            self.0.wall_us()
        }
    }
    let poor = Poor(MemoryNode::new());
    let outcome = conformance::mutex(&poor).await;
    assert_eq!(outcome.ran.len(), 27, "{outcome}");
    let not_run: Vec<_> = outcome.not_run.iter().map(|not| not.case).collect();
    let wanted = [
        "a_repair_finds_the_previous_counters",
        "counters_keep_all_digits",
        "an_exhausted_counter_grants_nothing",
        "counters_rotate_by_age",
        "a_full_server_hands_over",
        "a_release_succeeds_although_the_counter_is_exhausted",
        "a_hand_over_finds_the_previous_counters",
    ];
    assert_eq!(not_run, wanted);
    let missing = alike(&poor, &MemoryNode::new(), 1, 1000).await;
    let wanted = [Power::Flush, Power::Full, Power::Keys, Power::Counters];
    assert_eq!(missing, wanted);
}

/// Both answer the same to any commands in any order, and have the same content afterwards. `QUORATE_SEED` sets the
/// seed.
async fn answered_alike(kind: Kind) {
    let seeds = match std::env::var("QUORATE_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (1..=4).collect(),
    };
    let real = Real::start(kind).await;
    for seed in seeds {
        let missing = alike(&MemoryNode::new(), &real, seed, 4000).await;
        assert_eq!(missing, []);
        let missing = slots_alike(&MemoryNode::new(), &real, seed, 3000).await;
        assert_eq!(missing, []);
        let missing = rwlocks_alike(&MemoryNode::new(), &real, seed, 3000).await;
        assert_eq!(missing, []);
        let missing = several_alike(&MemoryNode::new(), &real, seed, 3000).await;
        assert_eq!(missing, []);
        let missing = limits_alike(&MemoryNode::new(), &real, seed, 1500).await;
        assert_eq!(missing, []);
    }
}

#[tokio::test]
async fn random_sequences_are_answered_alike_by_memory_and_redis_7() {
    answered_alike(Kind::Redis).await;
}

#[tokio::test]
async fn random_sequences_are_answered_alike_by_memory_and_valkey_9() {
    answered_alike(Kind::Valkey).await;
}
