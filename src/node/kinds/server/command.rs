//! Requests to a server about itself, and their answers.

/// A request to the server.
#[derive(Clone, Debug)]
pub enum Command {
    /// Ends an older connection of this client, with everything that still travels on it.
    Disconnect {
        /// Its id on the server.
        client: u64,
    },
    /// Gives the server all scripts again.
    LoadScripts,
}

/// The answer to such a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To a disconnect: true if there was such a connection.
    Disconnected(bool),
    /// All scripts are loaded.
    Loaded,
}
