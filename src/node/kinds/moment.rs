//! What an in-process node finds when it obeys a command: its TIME, and whether it takes writes.

use crate::{node::fault::Fault, rules::Rules};

/// The moment of one command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The node's TIME, in µs.
    pub(crate) time: u64,
    pub(crate) rules: Rules,
    /// The guard is right.
    pub(crate) admitted: bool,
    pub(crate) writes: Writes,
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

impl Moment {
    /// What a replica refuses: any write.
    pub(crate) fn may_delete(&self) -> Result<(), Fault> {
        match self.writes {
            Writes::All | Writes::Small => Ok(()),
            Writes::None => refused("READONLY You can't write against a read only replica."),
        }
    }

    /// What a full server refuses too: a write that may need memory.
    pub(crate) fn may_write(&self) -> Result<(), Fault> {
        self.may_delete()?;
        match self.writes {
            Writes::Small => refused("OOM command not allowed when used memory > 'maxmemory'."),
            Writes::All | Writes::None => Ok(()),
        }
    }
}

fn refused(text: &str) -> Result<(), Fault> {
    Err(Fault::Error(text.into()))
}
