//! The context in which an in-process node executes a command: its TIME, the writes that it takes, and its listeners.

use std::{cell::Cell, time::Duration};

use super::air::Air;
use crate::{base::rules::Rules, node::fault::Fault};

/// The context of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'s> {
    /// The node's TIME, in µs.
    pub(crate) time: u64,
    pub(crate) rules: Rules,
    /// The guard that the client sent.
    pub(crate) guard: &'s str,
    /// True if the guard is right.
    pub(crate) admitted: bool,
    pub(crate) writes: Writes,
    /// True if the script has written something. A full server checks only the first write of a script.
    pub(crate) wrote: &'s Cell<bool>,
    /// The channels to publish on.
    pub(crate) air: &'s Air,
}

/// The writes that a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    All,
    /// The server is full. It refuses a write that may need memory, and takes DEL and PEXPIRE.
    Small,
    /// The server is a replica.
    None,
    /// The user has lost the right to this command.
    #[cfg_attr(not(any(test, feature = "test-util")), allow(dead_code))]
    Without(Command),
}

/// A command that the user may lose the right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(any(test, feature = "test-util")), allow(dead_code))]
pub(crate) enum Command {
    /// It writes a lock.
    Set,
    /// It puts a waiter into a queue.
    Zadd,
}

impl Moment<'_> {
    /// The fleet's longest ttl, as a right guard names it. Zero if the guard is another text.
    pub(crate) fn max_ttl(&self) -> Duration {
        let word = self.guard.split(' ').next();
        Duration::from_millis(word.and_then(|word| word.parse().ok()).unwrap_or(0))
    }

    /// TIME in ms, by which keys expire.
    pub(crate) fn ms(&self) -> u64 {
        self.time / 1000
    }

    /// A write that needs no memory. Only a replica refuses it.
    pub(crate) fn may_delete(&self) -> Result<(), Fault> {
        if self.writes == Writes::None {
            return refused("READONLY You can't write against a read only replica.");
        }
        self.wrote.set(true);
        Ok(())
    }

    /// A write that may need memory. A full server refuses it, and so does a replica.
    pub(crate) fn may_write(&self) -> Result<(), Fault> {
        if self.writes == Writes::Small && !self.wrote.get() {
            return refused("OOM command not allowed when used memory > 'maxmemory'.");
        }
        self.may_delete()
    }

    /// A write by this command. Without the right to it, it is refused even behind other writes.
    pub(crate) fn may_run(&self, command: Command) -> Result<(), Fault> {
        if self.writes == Writes::Without(command) {
            return refused("NOPERM this user has no permissions to run the command");
        }
        self.may_write()
    }
}

fn refused(text: &str) -> Result<(), Fault> {
    Err(Fault::Error(text.into()))
}
