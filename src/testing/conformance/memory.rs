//! The node in this process as a subject.

use std::sync::Arc;

use super::subject::{Change, Doing, Key, Power, Subject};
use crate::{
    MemoryNode,
    node::{Node, kinds::counters::Counted},
};

impl Subject for MemoryNode {
    fn name(&self) -> &str {
        "memory"
    }

    fn node(&self) -> Arc<dyn Node> {
        Arc::new(self.clone())
    }

    fn fresh(&self) -> Doing<'_, ()> {
        self.restart_empty();
        Box::pin(async {})
    }

    /// All powers except [`Power::Kill`]: this node numbers its connections, but does not end one by its number.
    fn powers(&self) -> &[Power] {
        &[
            Power::Flush,
            Power::Full,
            Power::Replica,
            Power::Keys,
            Power::Counters,
        ]
    }

    fn change(&self, change: Change) -> Doing<'_, ()> {
        self.with_store(|store, time| match change {
            Change::Flush => store.flush(),
            Change::Full(on) => store.set_out_of_memory(on),
            Change::Replica(true) => store.server_mut().role = "slave".into(),
            Change::Replica(false) => {
                let server = store.server_mut();
                server.role = "master".into();
                server.replid2 = "a".repeat(40);
                server.second_offset = "1".into();
            }
            Change::Put(Key::Boot, text) => store.admission_mut().set_boot(text),
            Change::Put(Key::Open, text) => store.admission_mut().set_open(text),
            Change::Put(Key::Time, text) => store.admission_mut().set_time(text),
            Change::Age(age) => {
                let age = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
                store.counters_mut().set_begun(time.saturating_sub(age));
            }
            Change::SlotCounter(pool, slot, counter) => {
                store.counters_mut().set(Counted::Slot(pool, slot), counter);
            }
            Change::RwlockCounter(name, counter) => {
                store.counters_mut().set(Counted::Rwlock(name), counter);
            }
            Change::Counter(name, counter) => {
                store.counters_mut().set(Counted::Mutex(name), counter)
            }
            Change::Withdraw(_) | Change::NoReplicas(_) => {
                unreachable!("it has no users and no replicas")
            }
        });
        Box::pin(async {})
    }

    fn stands(&self, key: Key) -> Doing<'_, Option<String>> {
        let text = self.with_store(|store, _| match key {
            Key::Boot => store.admission_mut().boot().map(str::to_owned),
            Key::Open => store.admission_mut().open().map(str::to_owned),
            Key::Time => store.admission_mut().time().map(|time| time.to_string()),
        });
        Box::pin(async { text })
    }

    fn wall_us(&self) -> Doing<'_, u64> {
        let time = self.with_store(|_, time| time);
        Box::pin(async move { time })
    }
}
