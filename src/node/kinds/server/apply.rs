//! Executes the server's own commands on an in-process node, which has no connections to end and needs no scripts.

use super::{Command, Reply};

pub(crate) fn apply(command: &Command) -> Reply {
    match command {
        Command::Disconnect { .. } => Reply::Disconnected(false),
        Command::LoadScripts => Reply::Loaded,
    }
}
