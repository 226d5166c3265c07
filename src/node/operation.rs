//! One request as one object for all nodes. It is encoded once.

use std::{
    borrow::Cow,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    kinds::Command,
    request::{Request, Target, Verb},
};
use crate::base::owner::Entry;

/// A command on its way to any number of nodes. The first node that needs its bytes makes them. They are the same for
/// all nodes, except for the guard.
#[derive(Debug)]
pub struct Operation {
    /// No other operation of this process has this id.
    id: u64,
    command: Command,
    wire: OnceLock<Wire>,
    batch: OnceLock<Batch>,
}

/// The bytes of a batch that begins with this operation.
#[derive(Debug)]
struct Batch {
    /// The ids of the other operations.
    rest: Vec<u64>,
    bytes: Vec<u8>,
}

/// The bytes of an operation.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) bytes: Vec<u8>,
    /// The guard of each node follows the bytes.
    pub(crate) has_guard: bool,
    /// The number of the server's replies that belong to it.
    pub(crate) replies: usize,
}

impl Operation {
    pub(crate) fn new(command: impl Into<Command>) -> Arc<Self> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            id: LAST.fetch_add(1, Relaxed),
            command: command.into(),
            wire: OnceLock::new(),
            batch: OnceLock::new(),
        })
    }

    /// The command.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// The encoding. `encode` makes it the first time.
    pub(crate) fn wire(&self, encode: impl FnOnce(&Command) -> Wire) -> &Wire {
        self.wire.get_or_init(|| encode(&self.command))
    }

    /// The bytes of this operation and the `rest` as one batch. `encode` makes them for the first node. The other nodes
    /// usually need the same batch. A node that needs another one makes its own.
    pub(crate) fn batch<'o>(
        &self,
        rest: impl Iterator<Item = &'o Self> + Clone,
        encode: impl Fn() -> Vec<u8>,
    ) -> Cow<'_, [u8]> {
        let ids = rest.map(|operation| operation.id);
        let batch = self.batch.get_or_init(|| Batch {
            rest: ids.clone().collect(),
            bytes: encode(),
        });
        match ids.eq(batch.rest.iter().copied()) {
            true => Cow::Borrowed(&batch.bytes),
            false => Cow::Owned(encode()),
        }
    }
}

impl Target {
    /// The operation that puts this verb to the target.
    pub(crate) fn operation(&self, entry: &Entry, verb: Verb) -> Arc<Operation> {
        Operation::new(Request {
            target: self.clone(),
            entry: entry.clone(),
            verb,
        })
    }
}

/// The text of `<prefix>:open` on one node while it votes.
#[derive(Debug, Default)]
pub struct Guard {
    text: String,
    wire: OnceLock<Vec<u8>>,
}

impl Guard {
    pub(crate) fn new(text: String) -> Arc<Self> {
        let wire = OnceLock::new();
        Arc::new(Self { text, wire })
    }

    /// The text as it stands on the node.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The encoding. `encode` makes it the first time.
    pub(crate) fn wire(&self, encode: impl FnOnce(&str) -> Vec<u8>) -> &[u8] {
        self.wire.get_or_init(|| encode(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::server;

    #[test]
    fn an_operation_is_encoded_once() {
        let operation = Operation::new(server::Command::LoadScripts);
        let mut times = 0;
        for _node in 0..5 {
            let wire = operation.wire(|_| {
                times += 1;
                Wire {
                    bytes: vec![7],
                    has_guard: false,
                    replies: 1,
                }
            });
            assert_eq!(wire.bytes, [7]);
        }
        assert_eq!(times, 1);
    }
}
