//! The commands about a lock as a server reads them, and its replies. Each is a script.

use std::sync::Arc;

use redis_protocol::resp3::types::OwnedFrame;

use super::{Command, Reply, batch::BATCH};
use crate::{
    node::wire::{
        Arg::{Number, Text},
        Keys, Script, Writer,
        keys::counter,
        ms,
        read::{Hide, bytes, count, integer, items, text, ttl, yes},
    },
    owner::is_entry,
    report::said,
};

static ACQUIRE: Script = Script::new(include_str!("acquire.lua"));
static RAISE: Script = Script::new(include_str!("raise.lua"));
static EXTEND: Script = Script::new(include_str!("extend.lua"));
static REPAIR: Script = Script::new(include_str!("repair.lua"));
static RELEASE: Script = Script::new(include_str!("release.lua"));
static INSPECT: Script = Script::new(include_str!("inspect.lua"));
static EVICT: Script = Script::new(include_str!("evict.lua"));

/// All of this kind.
pub(crate) static SCRIPTS: &[&Script] = &[
    &ACQUIRE, &RAISE, &EXTEND, &REPAIR, &RELEASE, &INSPECT, &EVICT, &BATCH,
];

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "ACQUIRE",
            Self::Raise { .. } => "RAISE",
            Self::Extend { .. } => "EXTEND",
            Self::Repair { .. } => "REPAIR",
            Self::Release { .. } => "RELEASE",
            Self::Inspect { .. } => "INSPECT",
            Self::Evict { .. } => "EVICT",
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer, keys: &Keys) {
        let (open, time) = (keys.open(), keys.time());
        let (current, previous) = (keys.current(), keys.previous());
        match self {
            Self::Acquire {
                name,
                entry,
                ttl,
                floor,
                max_ttl,
            } => writer.call_guarded(
                &ACQUIRE,
                &[keys.lock(name), open, time, current, previous],
                &[
                    Number(ms(*max_ttl)),
                    counter(name),
                    Text(entry.as_str()),
                    Number(ms(*ttl)),
                    Number(*floor),
                ],
            ),
            Self::Raise {
                name,
                entry,
                token,
                max_ttl,
            } => writer.call_guarded(
                &RAISE,
                &[keys.lock(name), open, current, previous],
                &[
                    Number(ms(*max_ttl)),
                    counter(name),
                    Text(entry.as_str()),
                    Number(*token),
                ],
            ),
            Self::Extend { name, entry, ttl } => writer.call_guarded(
                &EXTEND,
                &[keys.lock(name), open],
                &[Text(entry.as_str()), Number(ms(*ttl))],
            ),
            Self::Repair {
                name,
                entry,
                ttl,
                token,
                max_ttl,
            } => writer.call_guarded(
                &REPAIR,
                &[keys.lock(name), open, keys.evicted(name), current, previous],
                &[
                    Number(ms(*max_ttl)),
                    counter(name),
                    Text(entry.as_str()),
                    Number(ms(*ttl)),
                    Number(*token),
                ],
            ),
            Self::Release { name, entry } => {
                writer.call_guarded(&RELEASE, &[keys.lock(name), open], &[Text(entry.as_str())])
            }
            Self::Inspect { name } => writer.call_guarded(
                &INSPECT,
                &[keys.lock(name), open, current, previous],
                &[counter(name)],
            ),
            Self::Evict { name, max_ttl } => writer.call_guarded(
                &EVICT,
                &[keys.lock(name), open, keys.evicted(name)],
                &[Number(ms(*max_ttl))],
            ),
        }
    }

    pub(crate) fn decode(&self, replies: &[OwnedFrame], hide: Hide<'_>) -> Option<Reply> {
        let [frame] = replies else { return None };
        Some(match self {
            Self::Acquire { .. } => match items(frame) {
                None => Reply::Granted(count(frame)?),
                Some([left, counter, holder]) => Reply::Held {
                    remaining: ttl(left)?,
                    counter: count(counter)?,
                    holder: our_entry(holder),
                },
                Some(_) => return None,
            },
            Self::Raise { .. } => match integer(frame)? {
                -1 => Reply::Lost,
                _ => Reply::Raised(count(frame)?),
            },
            Self::Extend { .. } => match yes(frame)? {
                true => Reply::Extended,
                false => Reply::Lost,
            },
            Self::Repair { .. } => Reply::Repaired(yes(frame)?),
            Self::Release { .. } => match integer(frame)? {
                -1 => Reply::ReleasedUnadmitted,
                _ => Reply::Released(yes(frame)?),
            },
            Self::Inspect { .. } => inspected(frame, hide)?,
            Self::Evict { .. } => Reply::Evicted(yes(frame)?),
        })
    }
}

fn inspected(frame: &OwnedFrame, hide: Hide<'_>) -> Option<Reply> {
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
                false => said(hide(&entry)),
            };
            Some((entry, ttl(left)?))
        }
    };
    Some(Reply::Inspected {
        holder,
        counter: count(counter)?,
    })
}

/// An entry as clients write it: it is short and plain, and came from a client that knows no node's
/// password. Anything else in a lock's key names nobody.
fn our_entry(frame: &OwnedFrame) -> Option<Arc<str>> {
    let entry = str::from_utf8(bytes(frame)?).ok();
    entry.filter(|text| is_entry(text)).map(Arc::from)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis_protocol::resp3::decode::complete::decode;

    use super::*;
    use crate::{
        name::Name,
        node::wire::writer::tests::read_back,
        owner::{Entry, Label},
    };

    fn acquire() -> Command {
        Command::Acquire {
            name: Name::new("a:b").unwrap(),
            entry: Entry::new(uuid::Uuid::from_u128(1), &Label::new("host:1").unwrap()),
            ttl: Duration::from_micros(10_001),
            floor: 0,
            max_ttl: Duration::from_secs(30),
        }
    }

    fn decoded(command: &Command, reply: &str, hide: Hide<'_>) -> Option<Reply> {
        let (frame, _) = decode(reply.as_bytes()).unwrap().unwrap();
        command.decode(&[frame], hide)
    }

    fn answered(reply: &str) -> Option<Reply> {
        decoded(&acquire(), reply, &str::to_owned)
    }

    #[test]
    fn a_command_is_a_script_with_its_keys() {
        let mut writer = Writer::new();
        let Command::Acquire { entry, .. } = acquire() else {
            unreachable!()
        };
        acquire().encode(&mut writer, &Keys::new("q"));
        let text = String::from_utf8(writer.into_bytes()).unwrap();
        // One more word is announced: the guard.
        let bytes = format!("{text}$5\r\nguard\r\n").into_bytes();
        let wanted = [
            "EVALSHA",
            ACQUIRE.sha(),
            "5",
            "q:@mutex:a:b",
            "q:open",
            "q:time",
            "q:c0",
            "q:c1",
            "30000",
            "@mutex:a:b",
            entry.as_str(),
            "11",
            "0",
            "guard",
        ];
        assert_eq!(read_back(bytes), [wanted]);
    }

    #[test]
    fn one_number_is_a_grant_and_three_answers_are_a_refusal() {
        let held = |remaining, counter| {
            Some(Reply::Held {
                remaining,
                counter,
                holder: None,
            })
        };
        assert_eq!(
            answered(":9007199254740991\r\n"),
            Some(Reply::Granted((1 << 53) - 1))
        );
        let left = Some(Duration::from_millis(5));
        let refused = |left| answered(&format!("*3\r\n:{left}\r\n:7\r\n_\r\n"));
        assert_eq!(refused(5), held(left, 7));
        assert_eq!(refused(0), held(Some(Duration::ZERO), 7));
        assert_eq!(refused(-1), held(None, 7));
    }

    #[test]
    fn a_refusal_names_the_holder_and_nothing_else_that_stands_there() {
        let holder = |entry: &str| {
            let reply = format!("*3\r\n:5\r\n:7\r\n${}\r\n{entry}\r\n", entry.len());
            match answered(&reply) {
                Some(Reply::Held { holder, .. }) => holder,
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
    fn a_holders_entry_stays_as_it_is_and_all_else_is_told_without_the_secret() {
        let inspect = Command::Inspect {
            name: Name::new("a").unwrap(),
        };
        let shown = |entry: &str| {
            let reply = format!("*3\r\n${}\r\n{entry}\r\n:5\r\n:7\r\n", entry.len());
            match decoded(&inspect, &reply, &|text| text.replace("web3.acme", "***")) {
                Some(Reply::Inspected {
                    holder: Some((entry, _)),
                    ..
                }) => entry,
                other => panic!("{other:?}"),
            }
        };
        let ours = Entry::new(uuid::Uuid::from_u128(7), &Label::new("web3.acme").unwrap());
        assert_eq!(shown(ours.as_str()), ours.as_str());
        assert_eq!(shown("@web3.acme"), "@***");
        let longer = shown(&format!("{} and", ours.as_str()));
        assert!(longer.ends_with("@*** and"), "{longer}");
    }
}
