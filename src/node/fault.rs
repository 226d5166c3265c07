//! What a node says instead of an answer.

/// A node's error reply. It is no answer: never a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This memory is not admitted. Nothing was done.
    ///
    /// The guard of protocol §2.
    NotAdmitted,
    /// The script is not there. Nothing was done.
    NoScript,
    /// The server's ACL does not permit a command that this needs, in the server's words. It may have
    /// been done in part.
    Withheld(String),
    /// Anything else, in the server's words. It may have been done in part.
    Error(String),
}
