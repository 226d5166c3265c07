//! Encodes handshake, survey and ADMIT for a server, and decodes its replies.

use redis_protocol::resp3::types::OwnedFrame;

use super::{
    Admit, Command, Handshake, Meeting, Mode, Reply, Server,
    record::{FORMAT, Stored},
};
use crate::{
    base::{name::Name, printable::printable},
    node::wire::{
        Arg::{Number, Text},
        Keys, Script, Writer,
        keys::counted,
        ms,
        read::{Hide, bytes, count, items, text, yes},
    },
};

static HANDSHAKE: Script = Script::new(include_str!("handshake.lua"));
static ADMIT: Script = Script::new(include_str!("admit.lua"));

pub(crate) static SCRIPTS: &[&Script] = &[&HANDSHAKE, &ADMIT];

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Handshake(_) => "HANDSHAKE",
            Self::Survey => "SURVEY",
            Self::Admit(_) => "ADMIT",
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer, keys: &Keys) {
        match self {
            Self::Handshake(hello) => handshake(hello, writer, keys),
            Self::Survey => survey(writer, keys),
            Self::Admit(brought) => admit(brought, writer, keys),
        }
    }

    pub(crate) fn replies(&self) -> usize {
        match self {
            Self::Handshake(_) | Self::Admit(_) => 1,
            Self::Survey => 3,
        }
    }

    /// Only the first reply of a survey is decisive. The others serve to name a lock. An error there, for example a
    /// missing right, means that no lock is named.
    pub(crate) fn decisive<'f>(&self, replies: &'f [OwnedFrame]) -> &'f [OwnedFrame] {
        match self {
            Self::Handshake(_) | Self::Admit(_) => replies,
            Self::Survey => replies.get(..1).unwrap_or_default(),
        }
    }

    pub(crate) fn decode(&self, replies: &[OwnedFrame], hide: Hide<'_>) -> Option<Reply> {
        match (self, replies) {
            (Self::Handshake(_), [frame]) => Some(Reply::Met(Box::new(meeting(frame, hide)?))),
            (Self::Survey, [exists, fields @ ..]) => Some(Reply::Surveyed {
                used: count(exists)? > 0,
                lock: fields.iter().find_map(|fields| lock(fields, hide)),
            }),
            (Self::Admit(_), [frame]) => Some(Reply::Admitted(yes(frame)?)),
            _ => None,
        }
    }
}

/// Sent with the source of the script, because nobody knows yet which scripts the server has.
fn handshake(hello: &Handshake, writer: &mut Writer, keys: &Keys) {
    let known = hello.known.as_ref();
    let (run, id) = known.map_or(("", ""), |(run, id)| (run, id));
    writer.eval(
        &HANDSHAKE,
        &[keys.boot(), keys.open(), keys.time()],
        &[
            Number(FORMAT.into()),
            Number(hello.masters),
            Text(&hello.list),
            Number(ms(hello.terms.max_ttl)),
            Number(ms(hello.terms.margin)),
            Number(hello.vouch as u64),
            Number(hello.used.into()),
            Text(run),
            Text(id),
            Number(hello.witnessed),
            Text(&hello.nonce),
        ],
    );
}

fn survey(writer: &mut Writer, keys: &Keys) {
    let (current, previous) = (keys.current(), keys.previous());
    writer.words(&[Text("EXISTS"), current, previous]);
    // Two fields are asked for, because one of them may be `_`. The answer only names a lock to people, so no user
    // needs a right to this command.
    for counters in [current, previous] {
        writer.words(&[Text("HRANDFIELD"), counters, Number(2)]);
    }
}

fn admit(admit: &Admit, writer: &mut Writer, keys: &Keys) {
    writer.call(
        &ADMIT,
        &[keys.boot(), keys.open()],
        &[
            Number(FORMAT.into()),
            Number(admit.masters),
            Text(&admit.list),
            Text(&admit.run),
            Text(&admit.id),
            Number(ms(admit.terms.max_ttl)),
            Number(ms(admit.terms.margin)),
            Number(admit.witnessed),
            Text(match admit.mode {
                Mode::New => "new",
                Mode::Raise => "raise",
                Mode::Forced => "forced",
            }),
        ],
    );
}

fn meeting(frame: &OwnedFrame, hide: Hide<'_>) -> Option<Meeting> {
    let [
        role,
        mode,
        eviction,
        version,
        run,
        record,
        open,
        time,
        write,
    ] = items(frame)?
    else {
        return None;
    };
    let stored = match record {
        OwnedFrame::Null => Stored::Nothing,
        record => Stored::read(&text(record)?),
    };
    // A word that has the wanted value stays as it is, even if it equals the secret, because it decides. Any other word
    // is only shown to people.
    let word = |frame, good: fn(&str) -> bool| {
        let word = text(frame)?;
        Some(if good(&word) {
            word
        } else {
            printable(hide(&word))
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
    let write = match write {
        OwnedFrame::Null => None,
        tried => Some(match &*text(tried)? {
            "" => Ok(()),
            // The first word decides, and the others are not shown.
            error => Err(printable(error.split(' ').next().unwrap_or_default())),
        }),
    };
    Some(Meeting {
        server,
        stored,
        open: yes(open)?,
        time: count(time)?,
        write,
    })
}

/// A lock that has a counter among these fields. A lock whose name may not be shown is left out.
fn lock(fields: &OwnedFrame, hide: Hide<'_>) -> Option<Name> {
    items(fields)?.iter().find_map(|field| {
        let plain = |name: &Name| hide(name.as_str()) == name.as_str();
        counted(bytes(field)?).filter(plain)
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis_protocol::resp3::decode::complete::decode;

    use super::*;
    use crate::node::{
        admission::{Terms, Vouch},
        wire::writer::tests::read_back,
    };

    fn all_words(command: &Command) -> Vec<Vec<String>> {
        let mut writer = Writer::new();
        command.encode(&mut writer, &Keys::new("q"));
        let words = read_back(writer.into_bytes());
        assert_eq!(words.len(), command.replies());
        words
    }

    fn words(command: &Command) -> Vec<String> {
        let [words] = all_words(command).try_into().unwrap();
        words
    }

    #[test]
    fn a_handshake_is_sent_by_its_source_and_has_no_guard() {
        let hello = Handshake {
            masters: 3,
            list: "word".into(),
            terms: Terms::new(Duration::from_micros(30_000_001), Duration::from_secs(5)),
            vouch: Vouch::Majority,
            used: true,
            known: Some(("run/0/-1".into(), "id".into())),
            witnessed: 9,
            nonce: "nonce".into(),
        };
        let unknown = Handshake {
            known: None,
            vouch: Vouch::Stranger,
            used: false,
            ..hello.clone()
        };
        for (hello, brought) in [
            (hello, "3 3 word 30001 5000 2 1 run/0/-1 id 9 nonce"),
            (unknown, "3 3 word 30001 5000 0 0   9 nonce"),
        ] {
            let words = words(&Command::Handshake(hello));
            assert_eq!((&*words[0], &*words[1]), ("EVAL", HANDSHAKE.source()));
            assert_eq!(words[2..6], ["3", "q:boot", "q:open", "q:time"]);
            assert_eq!(words[6..].join(" "), brought);
        }
    }

    #[test]
    fn an_admit_names_the_record_and_has_no_guard() {
        for (mode, word) in [
            (Mode::New, "new"),
            (Mode::Raise, "raise"),
            (Mode::Forced, "forced"),
        ] {
            let admit = Admit {
                masters: 5,
                list: "word".into(),
                run: "run".into(),
                id: "id".into(),
                terms: Terms::new(Duration::from_secs(30), Duration::ZERO),
                witnessed: 30_300,
                mode,
            };
            let words = words(&Command::Admit(admit));
            assert_eq!(
                words[..5],
                ["EVALSHA", ADMIT.sha(), "2", "q:boot", "q:open"]
            );
            let brought = format!("3 5 word run id 30000 0 30300 {word}");
            assert_eq!(words[5..].join(" "), brought);
        }
    }

    #[test]
    fn a_survey_asks_for_counters_and_for_the_name_of_one() {
        assert_eq!(
            all_words(&Command::Survey),
            [
                vec!["EXISTS", "q:c0", "q:c1"],
                vec!["HRANDFIELD", "q:c0", "2"],
                vec!["HRANDFIELD", "q:c1", "2"],
            ]
        );
    }

    /// The result of a survey with these replies, if the password is `sesame`.
    fn surveyed(replies: [&str; 3]) -> Option<Reply> {
        let frames = replies.map(|reply| decode(reply.as_bytes()).unwrap().unwrap().0);
        assert_eq!(Command::Survey.decisive(&frames), &frames[..1]);
        Command::Survey.decode(&frames, &|text| {
            if text.contains("sesame") { "***" } else { text }
        })
    }

    /// The fields as HRANDFIELD returns them.
    fn fields(fields: &[&str]) -> String {
        let bulk = fields.iter().map(|f| format!("${}\r\n{f}\r\n", f.len()));
        format!("*{}\r\n{}", fields.len(), bulk.collect::<String>())
    }

    #[test]
    fn a_survey_counts_the_hashes_of_counters() {
        for (reply, used) in [(":0\r\n", false), (":1\r\n", true), (":2\r\n", true)] {
            let lock = None;
            let replies = [reply, "*0\r\n", "*0\r\n"];
            assert_eq!(surveyed(replies), Some(Reply::Surveyed { used, lock }));
        }
    }

    #[test]
    fn a_survey_names_a_lock_where_the_server_does() {
        let denied = "-NOPERM User u has no permissions to run the 'hrandfield' command\r\n";
        let (one, begun) = (fields(&["_", "@mutex:a"]), fields(&["_"]));
        for (current, previous, name) in [
            (&*one, "*0\r\n", Some("a")),
            (&fields(&["@mutex:a:b", "_"]), "*0\r\n", Some("a:b")),
            // Only the previous counters name a lock.
            (&begun, &one, Some("a")),
            ("*0\r\n", &one, Some("a")),
            ("-WRONGTYPE no hash\r\n", &one, Some("a")),
            (&one, denied, Some("a")),
            // No lock is known, and nothing else is wrong.
            (&begun, &begun, None),
            (denied, denied, None),
            ("-ERR unknown command 'HRANDFIELD'\r\n", denied, None),
            ("+OK\r\n", "_\r\n", None),
            (&fields(&["", "x"]), "*1\r\n:1\r\n", None),
            // This name contains the password; the other one does not.
            (&fields(&["@mutex:sesame", "_"]), "*0\r\n", None),
            (&fields(&["@mutex:sesame", "@mutex:a"]), "*0\r\n", Some("a")),
        ] {
            let lock = name.map(|name| Name::new(name).unwrap());
            let found = Some(Reply::Surveyed { used: true, lock });
            assert_eq!(
                surveyed([":1\r\n", current, previous]),
                found,
                "{current} {previous}"
            );
        }
    }

    #[test]
    fn write_error_keeps_its_code_where_its_words_may_not_be_shown() {
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let words = ["master", "standalone", "noeviction", "7.2.4", "run/0/-1"].map(bulk);
        let write = bulk("MISCONF no sesame");
        let reply = format!("*9\r\n{}_\r\n:0\r\n:5\r\n{write}", words.concat());
        let frame = decode(reply.as_bytes()).unwrap().unwrap().0;
        let met = meeting(&frame, &|text| {
            if text.contains("sesame") { "***" } else { text }
        });
        assert_eq!(met.unwrap().write, Some(Err("MISCONF".into())));
    }

    #[test]
    fn a_survey_without_exists_is_not_an_answer_even_if_it_names_a_lock() {
        let named = fields(&["_", "@mutex:a"]);
        assert_eq!(surveyed(["+OK\r\n", &named, &named]), None);
    }
}
