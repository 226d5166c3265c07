//! One request, made once: the same object for every node, encoded once.

use std::sync::{Arc, OnceLock};

use super::kinds::Command;

/// A command on its way to any number of nodes. Its bytes are made by the first node that needs them,
/// and are the same for all but for the guard.
#[derive(Debug)]
pub struct Operation {
    command: Command,
    wire: OnceLock<Wire>,
}

/// The bytes of an operation.
#[derive(Debug)]
pub(crate) struct Wire {
    pub(crate) bytes: Vec<u8>,
    /// Each node's own guard follows them.
    pub(crate) has_guard: bool,
    /// How many replies of a server belong to it.
    pub(crate) replies: usize,
}

impl Operation {
    pub(crate) fn new(command: impl Into<Command>) -> Arc<Self> {
        Arc::new(Self {
            command: command.into(),
            wire: OnceLock::new(),
        })
    }

    /// What is asked.
    pub fn command(&self) -> &Command {
        &self.command
    }

    /// The encoding, made by `encode` the first time.
    pub(crate) fn wire(&self, encode: impl FnOnce(&Command) -> Wire) -> &Wire {
        self.wire.get_or_init(|| encode(&self.command))
    }
}

/// What `<prefix>:open` says on one node while it votes.
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

    /// As it stands on the node.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The encoding, made by `encode` the first time.
    pub(crate) fn wire(&self, encode: impl FnOnce(&str) -> Vec<u8>) -> &[u8] {
        self.wire.get_or_init(|| encode(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::server;

    #[test]
    fn it_is_encoded_once() {
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
