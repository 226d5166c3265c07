//! What an in-process node finds when it obeys a command: its TIME, whether it takes writes, and who listens.

use std::{cell::Cell, time::Duration};

use super::air::Air;
use crate::{base::rules::Rules, node::fault::Fault};

/// The moment of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'s> {
    /// The node's TIME, in µs.
    pub(crate) time: u64,
    pub(crate) rules: Rules,
    /// The guard that the client sent.
    pub(crate) guard: &'s str,
    /// The guard is right.
    pub(crate) admitted: bool,
    pub(crate) writes: Writes,
    /// The script that runs has written. A full server looks at the first write of a script alone.
    pub(crate) wrote: &'s Cell<bool>,
    /// Where it publishes.
    pub(crate) air: &'s Air,
}

/// Which writes a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    All,
    /// It is full: none that may need memory. DEL and PEXPIRE do not.
    Small,
    /// It is a replica.
    None,
}

impl Moment<'_> {
    /// The fleet's longest ttl, which a right guard says. Zero of another text.
    pub(crate) fn max_ttl(&self) -> Duration {
        let word = self.guard.split(' ').next();
        Duration::from_millis(word.and_then(|word| word.parse().ok()).unwrap_or(0))
    }

    /// TIME in ms, by which keys expire.
    pub(crate) fn ms(&self) -> u64 {
        self.time / 1000
    }

    /// What a replica refuses: any write.
    pub(crate) fn may_delete(&self) -> Result<(), Fault> {
        if self.writes == Writes::None {
            return refused("READONLY You can't write against a read only replica.");
        }
        self.wrote.set(true);
        Ok(())
    }

    /// What a full server refuses too: a write that may need memory.
    pub(crate) fn may_write(&self) -> Result<(), Fault> {
        if self.writes == Writes::Small && !self.wrote.get() {
            return refused("OOM command not allowed when used memory > 'maxmemory'.");
        }
        self.may_delete()
    }
}

fn refused(text: &str) -> Result<(), Fault> {
    Err(Fault::Error(text.into()))
}
