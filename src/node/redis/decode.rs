//! Turns replies of a server (RESP3) into answers, and recognises errors and their kinds. The other content of a reply
//! is read in `wire.rs` of the command's kind.

use std::{borrow::Cow, iter, slice};

use redis_protocol::resp3::types::{FrameKind, OwnedFrame, Resp3Frame as _};

use super::{
    rights::{self, Denial},
    secret::Secret,
};
use crate::{
    base::printable::printable,
    node::{
        Command, Fault, Push,
        answer::Answered,
        wire::read::{bytes, integer, items, text},
    },
};

/// The answer in the server's replies, of which there is usually one. Texts for people are returned without the secret.
pub(super) fn answer(command: &Command, replies: &[OwnedFrame], secret: &Secret) -> Answered {
    match replies {
        [reply] if command.rider().is_some() => {
            let mut told = None;
            let tell = |answer| told = Some(answer);
            answers(iter::once(command), 1, reply, secret, tell);
            told.unwrap_or_else(|| Err(misshapen(command, replies)))
        }
        _ => own_answer(command, replies, secret),
    }
}

/// The answer to a command that is not part of a batch.
fn own_answer(command: &Command, replies: &[OwnedFrame], secret: &Secret) -> Answered {
    let decisive = command.decisive(replies);
    if let Some(text) = decisive.iter().find_map(error) {
        return Err(fault(&text, secret));
    }
    let reply = command.decode(replies, &|text| secret.hidden(text));
    reply.ok_or_else(|| misshapen(command, decisive))
}

fn misshapen(command: &Command, replies: &[OwnedFrame]) -> Fault {
    // The content is left out, because it may repeat what was sent.
    let kind = replies.last().map_or(FrameKind::Null, OwnedFrame::kind);
    Fault::Error(format!("not an answer to {}: {kind:?}", command.name()))
}

/// Reads the server's one reply to a batch, and passes on the answer to each of its `count` commands, in their order.
pub(super) fn answers<'c>(
    commands: impl Iterator<Item = &'c Command>,
    count: usize,
    reply: &OwnedFrame,
    secret: &Secret,
    mut tell: impl FnMut(Answered),
) {
    let error = error(reply).map(|text| fault(&text, secret));
    let all_as_asked = integer(reply) == i64::try_from(count).ok();
    let each = items(reply).filter(|each| each.len() == count);
    for (at, command) in commands.enumerate() {
        let own = each.and_then(|each| each.get(at));
        let as_asked = command.rider().filter(|_| all_as_asked);
        tell(match (&error, own, as_asked) {
            (Some(fault), ..) => Err(fault.clone()),
            (None, Some(own), _) => match text(own) {
                Some(error) => Err(fault(&error, secret)),
                None => own_answer(command, slice::from_ref(own), secret),
            },
            (None, None, Some(rider)) => Ok(rider.as_asked),
            (None, None, None) => Err(misshapen(command, slice::from_ref(reply))),
        });
    }
}

/// Returns true if the server's ACL forbids the user one of the keys.
pub(super) fn forbids_a_key(reply: &OwnedFrame) -> bool {
    error(reply).is_some_and(|text| matches!(rights::denial(&text), Some(Denial::Key)))
}

/// Returns true if this push confirms SSUBSCRIBE to the channel.
pub(super) fn confirms(frame: &OwnedFrame, channel: &str) -> bool {
    pushed(frame, "ssubscribe", channel).is_some()
}

/// The message, if this push is one of the channel. (Redis 7.0.0 says "message" for sharded channels too.)
pub(super) fn message<'f>(frame: &'f OwnedFrame, channel: &str) -> Option<&'f OwnedFrame> {
    pushed(frame, "smessage", channel).or_else(|| pushed(frame, "message", channel))
}

/// Reads a message to a waiter. Returns `None` if it cannot be read.
pub(super) fn push(message: &OwnedFrame) -> Option<Push> {
    Push::read(str::from_utf8(bytes(message)?).ok()?)
}

/// The content of a push of this kind and this channel.
fn pushed<'f>(frame: &'f OwnedFrame, kind: &str, channel: &str) -> Option<&'f OwnedFrame> {
    let OwnedFrame::Push { data, .. } = frame else {
        return None;
    };
    let [its_kind, its_channel, what] = &**data else {
        return None;
    };
    let is = |frame: &OwnedFrame, word: &str| frame.as_bytes() == Some(word.as_bytes());
    (is(its_kind, kind) && is(its_channel, channel)).then_some(what)
}

/// The words of an error reply, unchanged. A caller that shows them has to shorten them.
pub(super) fn error(frame: &OwnedFrame) -> Option<Cow<'_, str>> {
    match frame {
        OwnedFrame::SimpleError { data, .. } => Some(data.as_str().into()),
        OwnedFrame::BlobError { data, .. } => Some(String::from_utf8_lossy(data)),
        _ => None,
    }
}

/// The fault in an error reply. Nothing was done if the scripts say so themselves, or if the server does not have the
/// script.
fn fault(text: &str, secret: &Secret) -> Fault {
    // A server puts "ERR " before an error of one word.
    let word = text.strip_prefix("ERR ").unwrap_or(text);
    if word.starts_with("NOT_ADMITTED") {
        Fault::NotAdmitted
    } else if word.starts_with("NOSCRIPT") {
        Fault::NoScript
    } else {
        let said = printable(secret.hidden_in_error(text));
        match rights::denial(text) {
            Some(Denial::Command) => Fault::Withheld(said),
            Some(Denial::Key | Denial::Channel) | None => Fault::Error(said),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis_protocol::resp3::decode::complete::decode;

    use super::*;
    use crate::node::Answer;
    use crate::node::{admission, mutex, server};

    fn decoded(command: &Command, replies: &[&str]) -> Answered {
        let frame = |reply: &&str| decode(reply.as_bytes()).unwrap().unwrap().0;
        let frames: Vec<_> = replies.iter().map(frame).collect();
        answer(command, &frames, &Secret::new("sesame"))
    }

    fn acquire() -> Command {
        mutex::cases::acquire("a", 1, Duration::from_secs(1), 0).into()
    }

    #[test]
    fn an_error_reply_decodes_to_its_fault() {
        let fault = |reply: &str| decoded(&acquire(), &[reply]).unwrap_err();
        for reply in [
            "-NOT_ADMITTED this\r\n",
            "-ERR NOT_ADMITTED\r\n",
            "!15\r\nNOT_ADMITTED or\r\n",
        ] {
            assert_eq!(fault(reply), Fault::NotAdmitted, "{reply}");
        }
        assert_eq!(fault("-NOSCRIPT No matching script.\r\n"), Fault::NoScript);
        assert_eq!(
            fault("-OOM command\r\n"),
            Fault::Error("OOM command".into())
        );
        assert_eq!(fault("-ERR NOT so\r\n"), Fault::Error("ERR NOT so".into()));
        let withheld = "NOPERM User me has no permissions to run the 'evalsha' command";
        assert_eq!(
            fault(&format!("-{withheld}\r\n")),
            Fault::Withheld(withheld.into())
        );
        let key = "NOPERM No permissions to access a key";
        assert_eq!(fault(&format!("-{key}\r\n")), Fault::Error(key.into()));
        assert_eq!(fault("-ERR it is sesame\r\n"), Fault::Error("ERR".into()));
    }

    #[test]
    fn an_answer_of_another_shape_is_an_error_that_names_the_command() {
        for reply in [
            "_\r\n",
            "+OK\r\n",
            ":-1\r\n",
            ":2\r\n",
            "*1\r\n_\r\n",
            "*1\r\n:-1\r\n",
            "*2\r\n:5\r\n:1\r\n",
            "*1\r\n*3\r\n:-2\r\n:1\r\n_\r\n",
            "$1\r\n5\r\n",
        ] {
            match decoded(&acquire(), &[reply]) {
                Err(Fault::Error(text)) => assert!(text.contains("ACQUIRE"), "{text}"),
                other => panic!("{reply:?}: {other:?}"),
            }
        }
        let survey = Command::Admission(admission::Command::Survey);
        assert!(decoded(&survey, &["+OK\r\n"]).is_err());
    }

    #[test]
    fn the_first_error_of_many_replies_counts() {
        let load = Command::Server(server::Command::LoadScripts);
        let (one, two) = ("-ERR one\r\n", "-ERR two\r\n");
        let failed = decoded(&load, &["+sha\r\n", one, two, "+sha\r\n"]);
        assert_eq!(failed, Err(Fault::Error("ERR one".into())));
        let loaded = Answer::Server(server::Reply::Loaded);
        assert_eq!(decoded(&load, &["+sha\r\n", "+sha\r\n"]), Ok(loaded));
    }

    #[test]
    fn a_survey_without_exists_is_an_error_even_if_it_names_a_lock() {
        let survey = Command::Admission(admission::Command::Survey);
        let named = "*2\r\n$1\r\n_\r\n$8\r\n@mutex:a\r\n";
        let withheld = "NOPERM User u has no permissions to run the 'exists' command";
        let denied = decoded(&survey, &[&format!("-{withheld}\r\n"), named, named]);
        assert_eq!(denied, Err(Fault::Withheld(withheld.into())));
        assert!(decoded(&survey, &["+OK\r\n", named, named]).is_err());
        // A survey that cannot name a lock still succeeds.
        let refused = "-NOPERM User u has no permissions to run the 'hrandfield' command\r\n";
        assert_eq!(
            decoded(&survey, &[":1\r\n", refused, refused]),
            Ok(Answer::Admission(admission::Reply::Surveyed {
                used: true,
                lock: None
            }))
        );
    }
}
