//! Error replies of a node.

/// A node's error reply. It counts as no answer, never as a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The guard does not match: this memory is not admitted. Nothing was done.
    NotAdmitted,
    /// The server does not have the script. Nothing was done.
    NoScript,
    /// The server's ACL does not permit a command that this needs. The text is the server's. The operation may have
    /// been done in part.
    Withheld(String),
    /// Any other error. The text is the server's. The operation may have been done in part.
    Error(String),
}
