//! The meaning of a server's error replies, for the server and for the request.

use super::{fleet::Fleet, standing::Standing};
use crate::{
    Silence,
    node::{Command, Fault, answer::Answered},
};

/// The reason why this request has no vote.
pub(super) fn silence(fault: Fault) -> Silence {
    match fault {
        Fault::NotAdmitted => Silence::NotAdmitted,
        Fault::NoScript => Silence::ScriptsFlushed,
        Fault::Withheld(text) | Fault::Error(text) => Silence::Failed(text),
    }
}

/// The server's words, if they say that it is not the master that was met, or that it no longer permits what it did. A
/// new connection will show what it is now.
pub(super) fn disowns<'a>(command: &Command, answer: &'a Answered) -> Option<&'a str> {
    match answer {
        Err(Fault::Error(text)) => {
            let word = text.split(' ').next();
            matches!(word, Some("READONLY" | "LOADING" | "MASTERDOWN")).then_some(text)
        }
        Err(Fault::Withheld(text)) => command.needs_voters_rights().then_some(text),
        _ => None,
    }
}

/// The reason and the advice for a server that refuses writes, if this error says so. The server's own words differ
/// from request to request, so they are left out.
pub(super) fn refused_write(error: &str) -> Option<&'static str> {
    match error.split(' ').next()? {
        "OOM" => Some(
            "OOM: its memory is full; raise its maxmemory, or delete what other programs keep there",
        ),
        "MISCONF" => Some(
            "MISCONF: it could not write to its disk; repair the disk, or let it go on without one (CONFIG SET \
             stop-writes-on-bgsave-error no, CONFIG SET appendonly no)",
        ),
        "NOREPLICAS" => Some(
            "NOREPLICAS: it has fewer replicas than its min-replicas-to-write; bring them back, or CONFIG SET \
             min-replicas-to-write 0, since locks need no replica",
        ),
        _ => None,
    }
}

/// The handshake was answered by an error.
pub(super) fn at_handshake(why: &str, fleet: &Fleet) -> Standing {
    if let Some(why) = refused_write(why) {
        return Standing::RefusesWrites(why);
    }
    // The server's words for what its ACL does not permit, to a script or to any command.
    let acl = [
        "can't run this command",
        "can't access",
        "No permissions",
        "no permissions",
        "NOPERM",
    ];
    // The words of Dragonfly, of Alibaba's clusters, and of Redis' own.
    let outside_keys = ["undeclared", "KEYS array", "non local key"];
    let advice = if acl.iter().any(|words| why.contains(words)) {
        "; its ACL withholds permissions that quorate needs: grant them with ACL SETUSER".into()
    } else if why.starts_with("WRONGTYPE") {
        format!(
            "; somebody else wrote to quorate's keys: {}",
            fleet.forget_hint()
        )
    } else if outside_keys.iter().any(|words| why.contains(words)) {
        "; it lets scripts use only the keys in KEYS, but quorate's scripts for the queue make keys: use Redis or Valkey"
            .into()
    } else {
        String::new()
    };
    Standing::Unfit(format!(
        "it answered the handshake with an error: {why}{advice}"
    ))
}
