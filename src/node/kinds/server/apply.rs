//! What an in-process node does with the server's own commands: it has no connections to end, and
//! needs no scripts.

use super::{Command, Reply};

pub(crate) fn apply(command: &Command) -> Reply {
    match command {
        Command::Disconnect { .. } => Reply::Disconnected(false),
        Command::LoadScripts => Reply::Loaded,
    }
}
