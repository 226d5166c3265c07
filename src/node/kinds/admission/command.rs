//! What may be asked of a node about its admission, and what it may answer.

use super::{Admit, Handshake, Meeting};
use crate::name::Name;

/// What may be asked. None has a guard: a node that may not vote is asked too.
#[derive(Clone, Debug)]
pub enum Command {
    /// Meets the node: which memory is this, and may it vote?
    Handshake(Handshake),
    /// Was any token given out, and for which lock? Asked before a bootstrap.
    Survey,
    /// Bootstraps: lets the memory of this run and record vote from now on.
    Admit(Admit),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a handshake.
    Met(Box<Meeting>),
    /// To a survey.
    Surveyed {
        /// Whether counters stand there, as every grant leaves one.
        used: bool,
        /// One of the locks that they count; none where the node does not name one.
        lock: Option<Name>,
    },
    /// To an admission: whether it was still that run and record.
    Admitted(bool),
}
