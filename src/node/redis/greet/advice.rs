//! Texts for operators: why a server did not accept the greeting, and what to do.

use std::io;

use super::words::Word;
use crate::{
    base::printable::printable,
    node::{
        DialError,
        redis::{
            address::{Address, Endpoint},
            frame::Garbage,
            secret,
        },
    },
};
use DialError::{Refused, Unreachable};

/// Replaces words that may repeat a login.
const HIDDEN: &str = "its message is hidden, because it may repeat the password";

/// The reason why a reply did not come.
pub(super) enum Silence {
    Closed,
    Failed(io::Error),
    Garbage(Garbage),
}

/// The error for a reply that did not come. An error of the write tells more than a closed connection.
pub(super) fn no_reply(
    silence: Silence,
    write_error: Option<io::Error>,
    address: &Address,
) -> DialError {
    let error = match (silence, write_error) {
        (Silence::Garbage(garbage), _) => {
            let text = garbage.text(|words| address.secret().hidden_in_garbage(words).to_owned());
            return Refused(format!("it {text}"));
        }
        (Silence::Failed(error), _) | (Silence::Closed, Some(error)) => Some(error),
        (Silence::Closed, None) => None,
    };
    #[cfg(feature = "tls-rustls")]
    if let Some(advice) = error
        .as_ref()
        .and_then(|error| crate::node::redis::tls::advice(error, None))
    {
        return Refused(advice);
    }
    let why = error
        .map(|error| format!(" ({})", printable(error)))
        .unwrap_or_default();
    let hint = match address.endpoint {
        Endpoint::Tcp { .. } => "; if this is a TLS port, use rediss://",
        _ => "",
    };
    Unreachable(format!(
        "it closes the connection without an answer{why}{hint}"
    ))
}

/// The meaning of an error reply to the greeting, and what to do.
pub(super) fn refusal(word: Word, error: &str, address: &Address) -> DialError {
    let user = address.user();
    let secret = address.secret();
    let words = match (word, secret::code(error)) {
        // The answer to a login may repeat it in a form that is not recognised.
        (Word::Hello, "") if address.login.is_some() => HIDDEN.into(),
        (Word::Hello, code) if address.login.is_some() => format!("{code} ({HIDDEN})"),
        _ => printable(secret.hidden_in_error(error)),
    };
    let refused = |why: &str| Refused(why.to_owned());
    let unreachable = |why: &str| Unreachable(why.to_owned());
    match error.split_ascii_whitespace().next().unwrap_or_default() {
        "WRONGPASS" if address.has_provider() => Refused(format!(
            "it does not know {user} with the password of the credentials provider: \
             correct what that gives, or the server's ACL"
        )),
        "WRONGPASS" if address.has_password() => Refused(format!(
            "it does not know {user} with this password: \
             correct the node's URL, or the server's ACL"
        )),
        "WRONGPASS" => refused(
            "it does not know this user without a password: \
             correct the node's URL (redis://:password@host, with a colon before the password), \
             or the server's ACL",
        ),
        "NOAUTH" => refused(
            "it asks for a password: put it into the node's URL, as in redis://user:password@host",
        ),
        "NOPERM" => Refused(format!(
            "{user} lacks permissions that quorate needs, grant them with ACL SETUSER: {words}"
        )),
        "DENIED" => refused(
            "it is in protected mode and serves its own host only: \
             give it a password, or set `protected-mode no`",
        ),
        "NOPROTO" => refused("it does not speak RESP3: it is older than Redis 7.0, or a proxy"),
        "LOADING" => unreachable("it is loading its data"),
        "MASTERDOWN" => unreachable("it is a replica that waits for its master"),
        "BUSY" => unreachable("it is busy with a script that does not end"),
        "ERR" if error.contains("max number of clients") => {
            unreachable("it accepts no more clients (maxclients)")
        }
        // The server's words repeat what was sent, with the password.
        "ERR" if word == Word::Hello && error.contains("unknown command") => {
            refused("it does not know HELLO: it is older than Redis 7.0, or a proxy")
        }
        _ => match word {
            Word::Hello | Word::SetInfo => Refused(format!("it refuses this client: {words}")),
            Word::Select => Refused(format!(
                "it does not let this client use database {}: {words}",
                address.db
            )),
            Word::LoadScript | Word::Try(_) => {
                Refused(format!("it does not accept quorate's scripts: {words}"))
            }
            Word::Subscribe => Refused(format!("it does not accept SSUBSCRIBE: {words}")),
        },
    }
}
