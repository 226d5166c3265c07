//! Recognises errors that say that a right is missing, or that a command does not exist.

/// The thing that a server's ACL does not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node::redis) enum Denial {
    Command,
    /// A key. It may be this one only: an ACL may permit some names of locks and not others.
    Key,
    /// A channel of a process. No request fails because of it.
    Channel,
}

/// The right that is missing according to this error, if any. In a script the error has the code `ERR`, and is
/// recognised by its words: Redis 7.0 has special words there, and later versions and Valkey have those of NOPERM.
pub(in crate::node::redis) fn denial(error: &str) -> Option<Denial> {
    let has = |words| error.contains(words);
    if has("access a channel")
        || has("access one of the channels")
        || has("can't publish to the channel")
    {
        Some(Denial::Channel)
    } else if has("can't access at least one of the keys") || has("ermissions to access") {
        Some(Denial::Key)
    } else if error.starts_with("NOPERM")
        || has("can't run this command or subcommand")
        || has("permissions to run")
    {
        Some(Denial::Command)
    } else {
        None
    }
}

/// Returns true if the error says that the command does not exist.
pub(super) fn is_unknown(error: &str) -> bool {
    let start = "ERR unknown command";
    let said = error.get(..start.len());
    said.is_some_and(|said| said.eq_ignore_ascii_case(start))
}
