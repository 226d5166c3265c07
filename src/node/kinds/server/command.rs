//! What may be asked of a server about itself, and what it may answer.

/// What may be asked.
#[derive(Clone, Debug)]
pub enum Command {
    /// Ends an older connection of ours, with whatever still travels on it.
    Disconnect {
        /// Its id on the server.
        client: u64,
    },
    /// Gives the server all scripts again.
    LoadScripts,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a disconnect: whether there was such a connection.
    Disconnected(bool),
    /// All scripts are there.
    Loaded,
}
