//! The rights that a server's ACL has to grant. Each command is tried once on every connection, in the one write of the
//! greeting. Otherwise a missing right would show only when a script needs it, on a node that votes.
//!
//! The tries change nothing. The commands that could write are tried on the keys of the lock with the empty name. No
//! client can take that lock or wait for it, so these keys never exist, and none of the commands changes anything if
//! its key is absent. SPUBLISH is tried on the channel of a process without a number, which has no subscriber. Some
//! tries cause errors, which `INFO errorstats` counts. The tries are sent as commands and not from a script: in a
//! script, the error for a missing right has no code of its own. A server checks rights first. So if the right is
//! there, a full server or a replica answers with another code, which is ignored here.

mod denial;
mod missing;
#[cfg(test)]
mod tests;

pub(super) use self::{
    denial::{Denial, denial},
    missing::Missing,
};
use super::encode::Keys;

/// A command that a user may or may not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Right {
    /// The name as people know it.
    name: &'static str,
    /// The words of its try. `KEY` stands for a key that is never used, `LINE` and `WAITERS` for those of its queue,
    /// `OPEN`, `TIME`, `C0` and `C1` for four of the others, and `KEYS` for all keys. `CHANNEL` stands for the channel
    /// without subscribers.
    words: &'static str,
    /// The effect on a node without this right. `None` if without it no lock can be taken, kept and freed there for
    /// long.
    without: Option<&'static str>,
}

const fn needed(name: &'static str, words: &'static str) -> Right {
    let without = None;
    Right {
        name,
        words,
        without,
    }
}

const fn useful(name: &'static str, words: &'static str, without: &'static str) -> Right {
    let without = Some(without);
    Right {
        name,
        words,
        without,
    }
}

/// The effect if a node cannot notify waiters that a lock is free.
const NOT_TOLD: &str = "waiters are not told here when a lock is free, and ask from time to time";

/// It is needed if a URL names a database. The dial itself is the try.
pub(super) static SELECT: Right = needed("SELECT", "");

/// The greeting subscribes to the channel of this process. That is the try.
pub(super) static SUBSCRIBE: Right = useful("SSUBSCRIBE", "", NOT_TOLD);

/// `return` is a whole script. EVALSHA comes after EVAL, which leaves it in the server's cache. Any answer except a
/// missing right will do.
pub(super) static TRIED: &[Right] = &[
    needed("SCRIPT LOAD", "SCRIPT LOAD return"),
    needed("EVAL", "EVAL return 27 KEYS"),
    needed(
        "EVALSHA",
        "EVALSHA 63143b6f8007b98c53ca2149822777b3566f9241 0",
    ),
    needed("INFO", "INFO quorate"),
    needed("TIME", "TIME"),
    needed("GET", "GET KEY"),
    needed("MGET", "MGET OPEN TIME"),
    needed("SET", "SET KEY x XX"),
    needed("DEL", "DEL KEY"),
    needed("UNLINK", "UNLINK KEY"),
    needed("RENAME", "RENAME KEY KEY"),
    // These are tried on the keys for which they are needed. No lock has a counter of this name.
    needed("HGET", "HGET C1 x"),
    needed("HMGET", "HMGET C0 x"),
    // A field without a value is an error, but not a missing right.
    needed("HSET", "HSET C0 x x x"),
    needed("HDEL", "HDEL WAITERS x"),
    // XX changes only a member that exists, and this one never does.
    needed("ZADD", "ZADD LINE XX 1 x"),
    needed("ZREM", "ZREM LINE x"),
    needed("ZRANGE", "ZRANGE LINE 0 0"),
    needed("ZRANK", "ZRANK LINE x"),
    needed("ZSCORE", "ZSCORE LINE x"),
    needed("ZCARD", "ZCARD LINE"),
    needed("PTTL", "PTTL KEY"),
    needed("PEXPIRE", "PEXPIRE KEY 1 GT"),
    useful(
        "EXISTS",
        "EXISTS KEY",
        "bootstrap --new does not work, as it cannot look for tokens here",
    ),
    // No server has ever given a connection this number.
    useful(
        "CLIENT KILL",
        "CLIENT KILL ID 9223372036854775807",
        "after a lost connection a late grant may block a name here for one ttl",
    ),
    useful("SPUBLISH", "SPUBLISH CHANNEL x", NOT_TOLD),
    // ON is the state of the connection anyway.
    useful(
        "CLIENT REPLY",
        "CLIENT REPLY ON",
        "a lease that is dropped as its program ends may stay here for its ttl",
    ),
];

impl Right {
    /// The words that are sent to try it.
    pub(super) fn words<'a>(&'static self, keys: &'a Keys) -> Vec<&'a [u8]> {
        let [_, _, open, time, c0, c1, _, _, line, waiters, ..] = keys.all();
        let mut words = Vec::new();
        for word in self.words.split(' ') {
            match word {
                "KEY" => words.push(keys.nobodys()),
                "KEYS" => words.extend(keys.all()),
                "OPEN" => words.push(open),
                "TIME" if !words.is_empty() => words.push(time),
                "C0" => words.push(c0),
                "C1" => words.push(c1),
                "LINE" => words.push(line),
                "WAITERS" => words.push(waiters),
                "CHANNEL" => words.push(keys.nobodys_channel()),
                word => words.push(word.as_bytes()),
            }
        }
        words
    }

    /// Returns true if it is needed to notify waiters, and for nothing else.
    fn is_of_a_channel(&self) -> bool {
        self.without == Some(NOT_TOLD)
    }

    /// The right as ACL SETUSER grants it: `+script|load`.
    fn grant(&self) -> String {
        format!("+{}", self.name.to_ascii_lowercase().replace(' ', "|"))
    }
}
