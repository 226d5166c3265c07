//! The commands about several locks as a server reads them, and its replies. Each is a script.

use redis_protocol::resp3::types::OwnedFrame;

use super::Command;
use crate::{
    base::name::Name,
    node::{
        answer::Answer,
        kinds::mutex::our_holder,
        wire::{
            Arg::{self, Number, Text},
            Keys, Script, Writer, ms,
            read::{count, integer, items, ttl, yes},
        },
    },
};

static ACQUIRE: Script = Script::new(include_str!("acquire.lua"));
static RAISE: Script = Script::new(include_str!("raise.lua"));
static EXTEND: Script = Script::new(include_str!("extend.lua"));
static REPAIR: Script = Script::new(include_str!("repair.lua"));
static RELEASE: Script = Script::new(include_str!("release.lua"));

/// All of this kind.
pub(crate) static SCRIPTS: &[&Script] = &[&ACQUIRE, &RAISE, &EXTEND, &REPAIR, &RELEASE];

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Acquire { .. } => "ACQUIRE of several",
            Self::Raise { .. } => "RAISE of several",
            Self::Extend { .. } => "EXTEND of several",
            Self::Repair { .. } => "REPAIR of several",
            Self::Release { .. } => "RELEASE of several",
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer, keys: &Keys) {
        let open = keys.open();
        let counters = [keys.current(), keys.previous()];
        match self {
            Self::Acquire {
                names,
                entry,
                ttl,
                floor,
            } => writer.call_guarded(
                &ACQUIRE,
                &with(
                    &[open, keys.time(), keys.waiting()],
                    locks(keys, names),
                    &counters,
                ),
                &[Text(entry.as_str()), Number(ms(*ttl)), Number(*floor)],
            ),
            Self::Raise {
                names,
                entry,
                token,
            } => writer.call_guarded(
                &RAISE,
                &with(&[open], locks(keys, names), &counters),
                &[Text(entry.as_str()), Number(*token)],
            ),
            Self::Extend { names, entry, ttl } => writer.call_guarded(
                &EXTEND,
                &with(&[open], locks(keys, names), &[]),
                &[Text(entry.as_str()), Number(ms(*ttl))],
            ),
            Self::Repair {
                names,
                entry,
                ttl,
                token,
            } => {
                let evicted = names.iter().map(|name| keys.evicted(name));
                writer.call_guarded(
                    &REPAIR,
                    &with(&[open], locks(keys, names).chain(evicted), &counters),
                    &[Text(entry.as_str()), Number(ms(*ttl)), Number(*token)],
                );
            }
            Self::Release {
                names,
                entry,
                floor,
                ..
            } => writer.call_guarded(
                &RELEASE,
                &with(&[open, keys.waiting()], locks(keys, names), &[]),
                &[Text(entry.as_str()), Number(*floor)],
            ),
        }
    }

    pub(crate) fn decode(&self, replies: &[OwnedFrame]) -> Option<Answer> {
        let [frame] = replies else { return None };
        Some(match self {
            Self::Acquire { names, .. } => match items(frame) {
                None => Answer::Granted(count(frame)?),
                Some([which, left, counter, holder]) => Answer::Held {
                    which: Some(names.get(usize::try_from(count(which)?).ok()?)?.clone()),
                    remaining: ttl(left)?,
                    counter: count(counter)?,
                    holder: our_holder(holder).0,
                    ticket: 0,
                },
                Some(_) => return None,
            },
            Self::Raise { .. } => match integer(frame)? {
                -1 => Answer::Lost,
                _ => Answer::Raised(count(frame)?),
            },
            Self::Extend { .. } => match yes(frame)? {
                true => Answer::Extended,
                false => Answer::Lost,
            },
            Self::Repair { .. } => Answer::Repaired(yes(frame)?),
            Self::Release { .. } => match integer(frame)? {
                -1 => Answer::ReleasedUnadmitted,
                _ => Answer::Released(yes(frame)?),
            },
        })
    }
}

fn locks<'a>(keys: &'a Keys, names: &'a [Name]) -> impl Iterator<Item = Arg<'a>> {
    names.iter().map(|name| keys.lock(name))
}

/// These keys, one behind the other.
fn with<'a>(
    begin: &[Arg<'a>],
    each: impl Iterator<Item = Arg<'a>>,
    end: &[Arg<'a>],
) -> Vec<Arg<'a>> {
    let begin = begin.iter().copied();
    begin.chain(each).chain(end.iter().copied()).collect()
}
