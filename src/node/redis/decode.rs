//! Replies of a server (RESP3) as answers.

use std::{borrow::Cow, sync::Arc, time::Duration};

use redis_protocol::resp3::types::{FrameKind, OwnedFrame, Resp3Frame as _};

use super::{
    encode,
    rights::{self, Denial},
    secret::Secret,
};
use crate::{
    name::Name,
    node::{
        Answer, Command, Fault, Reply,
        admission::{self, Meeting, Server, Stored},
        mutex, server,
    },
    owner::is_entry,
    report::said,
};

/// What the server's replies say: mostly one. Whatever of it is text for people is told without the
/// secret.
pub(super) fn answer(command: &Command, replies: &[OwnedFrame], secret: &Secret) -> Answer {
    let decides = match command {
        // The others only name a lock. An error there, as for a missing right, means that none is named.
        Command::Admission(admission::Command::Survey) => replies.first(),
        // Of many, the first error, or else the last.
        _ => {
            let failed = replies.iter().find(|frame| error(frame).is_some());
            failed.or(replies.last())
        }
    };
    if let Some(text) = decides.and_then(error) {
        return Err(fault(&text, secret));
    }
    let reply = decides.and_then(|frame| reply(command, frame, replies, secret));
    reply.ok_or_else(|| {
        // Not what is in it: that may be what was sent.
        let kind = decides.map_or(FrameKind::Null, OwnedFrame::kind);
        Fault::Error(format!("not an answer to {}: {kind:?}", name(command)))
    })
}

/// The words of an error reply, as they came: who passes them on cuts them.
pub(super) fn error(frame: &OwnedFrame) -> Option<Cow<'_, str>> {
    match frame {
        OwnedFrame::SimpleError { data, .. } => Some(data.as_str().into()),
        OwnedFrame::BlobError { data, .. } => Some(String::from_utf8_lossy(data)),
        _ => None,
    }
}

/// Nothing was done: so the scripts' own word, and the server's word for a script it has not.
fn fault(text: &str, secret: &Secret) -> Fault {
    // A server puts "ERR " before an error of one word.
    let word = text.strip_prefix("ERR ").unwrap_or(text);
    if word.starts_with("NOT_ADMITTED") {
        Fault::NotAdmitted
    } else if word.starts_with("NOSCRIPT") {
        Fault::NoScript
    } else {
        let said = said(secret.hidden_in_error(text));
        match rights::denial(text) {
            Some(Denial::Command) => Fault::Withheld(said),
            Some(Denial::Key) | None => Fault::Error(said),
        }
    }
}

/// `frame` is the one of `all` that decides.
fn reply(
    command: &Command,
    frame: &OwnedFrame,
    all: &[OwnedFrame],
    secret: &Secret,
) -> Option<Reply> {
    Some(match command {
        Command::Admission(admission::Command::Handshake(_)) => {
            Reply::Admission(admission::Reply::Met(Box::new(meeting(frame, secret)?)))
        }
        Command::Mutex(mutex::Command::Acquire { .. }) => match items(frame) {
            None => Reply::Mutex(mutex::Reply::Granted(count(frame)?)),
            Some([left, counter, holder]) => Reply::Mutex(mutex::Reply::Held {
                remaining: ttl(left)?,
                counter: count(counter)?,
                holder: our_entry(holder),
            }),
            Some(_) => return None,
        },
        Command::Mutex(mutex::Command::Raise { .. }) => match integer(frame)? {
            -1 => Reply::Mutex(mutex::Reply::Lost),
            _ => Reply::Mutex(mutex::Reply::Raised(count(frame)?)),
        },
        Command::Mutex(mutex::Command::Extend { .. }) => {
            if yes(frame)? {
                Reply::Mutex(mutex::Reply::Extended)
            } else {
                Reply::Mutex(mutex::Reply::Lost)
            }
        }
        Command::Mutex(mutex::Command::Release { .. }) => {
            Reply::Mutex(mutex::Reply::Released(yes(frame)?))
        }
        Command::Mutex(mutex::Command::Inspect { .. }) => {
            let [holder, left, counter] = items(frame)? else {
                return None;
            };
            let holder = match holder {
                OwnedFrame::Null => None,
                // Ours stays as it is: the nodes' answers are compared. It is short and plain, and came
                // from a client that knows no node's password. All else is only to be shown.
                entry => {
                    let entry = text(entry)?;
                    let entry = match is_entry(&entry) {
                        true => entry,
                        false => said(secret.hidden(&entry)),
                    };
                    Some((entry, ttl(left)?))
                }
            };
            Reply::Mutex(mutex::Reply::Inspected {
                holder,
                counter: count(counter)?,
            })
        }
        Command::Mutex(mutex::Command::Evict { .. }) => {
            Reply::Mutex(mutex::Reply::Evicted(yes(frame)?))
        }
        Command::Admission(admission::Command::Survey) => {
            Reply::Admission(admission::Reply::Surveyed {
                used: count(frame)? > 0,
                lock: all.iter().find_map(|fields| counted(fields, secret)),
            })
        }
        Command::Admission(admission::Command::Admit(_)) => {
            Reply::Admission(admission::Reply::Admitted(yes(frame)?))
        }
        Command::Server(server::Command::Disconnect { .. }) => {
            Reply::Server(server::Reply::Disconnected(count(frame)? > 0))
        }
        Command::Server(server::Command::LoadScripts) => {
            text(frame).map(|_| Reply::Server(server::Reply::Loaded))?
        }
    })
}

fn meeting(frame: &OwnedFrame, secret: &Secret) -> Option<Meeting> {
    let [role, mode, eviction, version, run, record, open] = items(frame)? else {
        return None;
    };
    let stored = match record {
        OwnedFrame::Null => Stored::Nothing,
        record => Stored::read(&text(record)?),
    };
    // What is as it should be decides, whatever the secret is. All else is only to be shown.
    let word = |frame, good: fn(&str) -> bool| {
        let word = text(frame)?;
        Some(if good(&word) {
            word
        } else {
            said(secret.hidden(&word))
        })
    };
    let server = Server {
        run: text(run)?,
        role: word(role, |role| role == "master")?,
        mode: word(mode, |mode| mode == "standalone")?,
        eviction: word(eviction, |policy| policy == "noeviction")?,
        version: word(version, |version| {
            version.len() < 16 && version.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        })?,
    };
    Some(Meeting {
        server,
        stored,
        open: yes(open)?,
    })
}

fn items(frame: &OwnedFrame) -> Option<&[OwnedFrame]> {
    match frame {
        OwnedFrame::Array { data, .. } => Some(data),
        _ => None,
    }
}

fn text(frame: &OwnedFrame) -> Option<String> {
    match frame {
        OwnedFrame::BlobString { data, .. } | OwnedFrame::SimpleString { data, .. } => {
            Some(String::from_utf8_lossy(data).into_owned())
        }
        _ => None,
    }
}

/// An entry as clients write it: it is short and plain, and came from a client that knows no node's
/// password. Whatever else stands in a lock's key names nobody.
fn our_entry(frame: &OwnedFrame) -> Option<Arc<str>> {
    let OwnedFrame::BlobString { data, .. } = frame else {
        return None;
    };
    let entry = str::from_utf8(data).ok().filter(|text| is_entry(text));
    entry.map(Arc::from)
}

/// A lock that has a counter among these fields. One whose name tells of the secret is left out: with
/// something hidden in it, it would name another lock.
fn counted(fields: &OwnedFrame, secret: &Secret) -> Option<Name> {
    items(fields)?.iter().find_map(|field| {
        let OwnedFrame::BlobString { data, .. } = field else {
            return None;
        };
        let plain = |name: &Name| secret.hidden(name.as_str()) == name.as_str();
        encode::counted(data).filter(plain)
    })
}

fn integer(frame: &OwnedFrame) -> Option<i64> {
    match frame {
        OwnedFrame::Number { data, .. } => Some(*data),
        _ => None,
    }
}

fn count(frame: &OwnedFrame) -> Option<u64> {
    integer(frame)?.try_into().ok()
}

fn yes(frame: &OwnedFrame) -> Option<bool> {
    match integer(frame)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// PTTL: -1 is a key without an end.
fn ttl(frame: &OwnedFrame) -> Option<Option<Duration>> {
    match integer(frame)? {
        -1 => Some(None),
        _ => Some(Some(Duration::from_millis(count(frame)?))),
    }
}

fn name(command: &Command) -> &'static str {
    match command {
        Command::Admission(admission::Command::Handshake(_)) => "HANDSHAKE",
        Command::Mutex(mutex::Command::Acquire { .. }) => "ACQUIRE",
        Command::Mutex(mutex::Command::Raise { .. }) => "RAISE",
        Command::Mutex(mutex::Command::Extend { .. }) => "EXTEND",
        Command::Mutex(mutex::Command::Release { .. }) => "RELEASE",
        Command::Mutex(mutex::Command::Inspect { .. }) => "INSPECT",
        Command::Mutex(mutex::Command::Evict { .. }) => "EVICT",
        Command::Admission(admission::Command::Survey) => "SURVEY",
        Command::Admission(admission::Command::Admit(_)) => "ADMIT",
        Command::Server(server::Command::Disconnect { .. }) => "CLIENT KILL",
        Command::Server(server::Command::LoadScripts) => "SCRIPT LOAD",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::{Entry, Label};

    fn decoded(command: &Command, reply: &str) -> Answer {
        let (frame, _) = redis_protocol::resp3::decode::complete::decode(reply.as_bytes())
            .unwrap()
            .unwrap();
        answer(command, &[frame], &Secret::new(""))
    }

    fn acquire() -> Command {
        Command::Mutex(mutex::Command::Acquire {
            name: Name::new("a").unwrap(),
            entry: Entry::new(uuid::Uuid::from_u128(1), &Label::new("host:1").unwrap()),
            ttl: Duration::from_secs(1),
            floor: 0,
            max_ttl: Duration::from_secs(30),
        })
    }

    #[test]
    fn a_fault_is_what_its_first_word_says() {
        let fault = |reply: &str| decoded(&acquire(), reply).unwrap_err();
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
    }

    #[test]
    fn one_number_is_a_grant_and_three_answers_are_a_refusal() {
        let granted = |c| Ok(Reply::Mutex(mutex::Reply::Granted(c)));
        let held = |remaining, counter| {
            Ok(Reply::Mutex(mutex::Reply::Held {
                remaining,
                counter,
                holder: None,
            }))
        };
        assert_eq!(
            decoded(&acquire(), ":9007199254740991\r\n"),
            granted((1 << 53) - 1)
        );
        let left = Some(Duration::from_millis(5));
        let refused = |left| decoded(&acquire(), &format!("*3\r\n:{left}\r\n:7\r\n_\r\n"));
        assert_eq!(refused(5), held(left, 7));
        assert_eq!(refused(0), held(Some(Duration::ZERO), 7));
        assert_eq!(refused(-1), held(None, 7));
    }

    #[test]
    fn a_refusal_names_the_holder_and_nothing_else_that_stands_there() {
        let holder = |entry: &str| {
            let reply = format!("*3\r\n:5\r\n:7\r\n${}\r\n{entry}\r\n", entry.len());
            match decoded(&acquire(), &reply) {
                Ok(Reply::Mutex(mutex::Reply::Held { holder, .. })) => holder,
                other => panic!("{other:?}"),
            }
        };
        let ours = Entry::new(uuid::Uuid::from_u128(7), &Label::new("web-3:77").unwrap());
        assert_eq!(holder(ours.as_str()).as_deref(), Some(ours.as_str()));
        let longer = format!("{}\x1b", ours.as_str());
        for other in ["", "rslock's 20 bytes", "@web", &longer] {
            assert_eq!(holder(other), None, "{other:?}");
        }
    }

    #[test]
    fn an_answer_of_another_shape_is_an_error_that_names_the_command() {
        for reply in [
            "_\r\n",
            "+OK\r\n",
            ":-1\r\n",
            "*1\r\n:1\r\n",
            "*2\r\n:5\r\n:1\r\n",
            "*3\r\n:-2\r\n:1\r\n_\r\n",
            "$1\r\n5\r\n",
        ] {
            match decoded(&acquire(), reply) {
                Err(Fault::Error(text)) => assert!(text.contains("ACQUIRE"), "{text}"),
                other => panic!("{reply:?}: {other:?}"),
            }
        }
        assert!(decoded(&Command::Admission(admission::Command::Survey), "+OK\r\n").is_err());
    }

    #[test]
    fn a_holders_entry_stays_as_it_is_and_all_else_is_told_without_the_secret() {
        let inspect = Command::Mutex(mutex::Command::Inspect {
            name: Name::new("a").unwrap(),
        });
        let shown = |entry: &str| {
            let reply = format!("*3\r\n${}\r\n{entry}\r\n:5\r\n:7\r\n", entry.len());
            let (frame, _) = redis_protocol::resp3::decode::complete::decode(reply.as_bytes())
                .unwrap()
                .unwrap();
            match answer(&inspect, &[frame], &Secret::new("acme-web3")) {
                Ok(Reply::Mutex(mutex::Reply::Inspected {
                    holder: Some((entry, _)),
                    ..
                })) => entry,
                other => panic!("{other:?}"),
            }
        };
        let ours = Entry::new(uuid::Uuid::from_u128(7), &Label::new("web3.acme").unwrap());
        assert_eq!(shown(ours.as_str()), ours.as_str());
        assert_eq!(shown("@web3.acme"), "@***.***");
        let longer = shown(&format!("{} and", ours.as_str()));
        assert!(longer.ends_with("@***.*** and"), "{longer}");
    }

    /// What a survey finds by these replies, where the password is `sesame`.
    fn surveyed(replies: [&str; 3]) -> Answer {
        let frames = replies.map(|reply| {
            let decoded = redis_protocol::resp3::decode::complete::decode(reply.as_bytes());
            decoded.unwrap().unwrap().0
        });
        answer(
            &Command::Admission(admission::Command::Survey),
            &frames,
            &Secret::new("sesame"),
        )
    }

    /// As HRANDFIELD names them.
    fn fields(fields: &[&str]) -> String {
        let bulk = fields.iter().map(|f| format!("${}\r\n{f}\r\n", f.len()));
        format!("*{}\r\n{}", fields.len(), bulk.collect::<String>())
    }

    #[test]
    fn a_survey_counts_the_hashes_of_counters() {
        for (reply, used) in [(":0\r\n", false), (":1\r\n", true), (":2\r\n", true)] {
            let lock = None;
            let replies = [reply, "*0\r\n", "*0\r\n"];
            assert_eq!(
                surveyed(replies),
                Ok(Reply::Admission(admission::Reply::Surveyed { used, lock }))
            );
        }
    }

    #[test]
    fn a_survey_names_a_lock_where_the_server_does() {
        let denied = "-NOPERM User u has no permissions to run the 'hrandfield' command\r\n";
        let (one, begun) = (fields(&["_", "@mutex:a"]), fields(&["_"]));
        for (current, previous, name) in [
            (&*one, "*0\r\n", Some("a")),
            (&fields(&["@mutex:a:b", "_"]), "*0\r\n", Some("a:b")),
            // Only the previous ones have a name.
            (&begun, &one, Some("a")),
            ("*0\r\n", &one, Some("a")),
            ("-WRONGTYPE no hash\r\n", &one, Some("a")),
            (&one, denied, Some("a")),
            // None is known, and that is all.
            (&begun, &begun, None),
            (denied, denied, None),
            ("-ERR unknown command 'HRANDFIELD'\r\n", denied, None),
            ("+OK\r\n", "_\r\n", None),
            (&fields(&["", "x"]), "*1\r\n:1\r\n", None),
            // It tells of the password; the other one does not.
            (&fields(&["@mutex:sesame", "_"]), "*0\r\n", None),
            (&fields(&["@mutex:sesame", "@mutex:a"]), "*0\r\n", Some("a")),
        ] {
            let lock = name.map(|name| Name::new(name).unwrap());
            let found = Ok(Reply::Admission(admission::Reply::Surveyed {
                used: true,
                lock,
            }));
            assert_eq!(
                surveyed([":1\r\n", current, previous]),
                found,
                "{current} {previous}"
            );
        }
    }

    #[test]
    fn a_survey_without_exists_is_an_error_whatever_is_named() {
        let named = fields(&["_", "@mutex:a"]);
        let withheld = "NOPERM User u has no permissions to run the 'exists' command";
        let denied = surveyed([&format!("-{withheld}\r\n"), &named, &named]);
        assert_eq!(denied, Err(Fault::Withheld(withheld.into())));
        assert!(surveyed(["+OK\r\n", &named, &named]).is_err());
    }
}
