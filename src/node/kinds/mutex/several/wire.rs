//! Encodes requests for several mutexes for a server, and decodes its answers. Each verb is a script.

use redis_protocol::resp3::types::OwnedFrame;

use crate::{
    base::name::Name,
    node::{
        answer::Answer,
        kinds::mutex::our_holder,
        request::{Request, Verb},
        wire::{
            Arg::{self, Number, Text},
            Keys, Script, Writer, ms,
            read::{count, items, ttl},
        },
    },
};

static ACQUIRE: Script = Script::new(include_str!("acquire.lua"));
static RAISE: Script = Script::new(include_str!("raise.lua"));
static EXTEND: Script = Script::new(include_str!("extend.lua"));
static REPAIR: Script = Script::new(include_str!("repair.lua"));
static RELEASE: Script = Script::new(include_str!("release.lua"));

pub(crate) static SCRIPTS: &[&Script] = &[&ACQUIRE, &RAISE, &EXTEND, &REPAIR, &RELEASE];

/// Writes a request for all these mutexes.
pub(crate) fn encode(names: &[Name], request: &Request, writer: &mut Writer, keys: &Keys) {
    let (open, entry) = (keys.open(), Text(request.entry.as_str()));
    let counters = [keys.current(), keys.previous()];
    let release = |writer: &mut Writer, floor| {
        writer.call_guarded(
            &RELEASE,
            &with(&[open, keys.waiting()], locks(keys, names), &[]),
            &[entry, Number(floor)],
        );
    };
    match &request.verb {
        Verb::Acquire { ttl, floor, .. } => writer.call_guarded(
            &ACQUIRE,
            &with(
                &[open, keys.time(), keys.waiting()],
                locks(keys, names),
                &counters,
            ),
            &[entry, Number(ms(*ttl)), Number(*floor)],
        ),
        Verb::Raise { token, .. } => writer.call_guarded(
            &RAISE,
            &with(&[open], locks(keys, names), &counters),
            &[entry, Number(*token)],
        ),
        Verb::Extend { ttl, .. } => writer.call_guarded(
            &EXTEND,
            &with(&[open], locks(keys, names), &[]),
            &[entry, Number(ms(*ttl))],
        ),
        Verb::Repair { ttl, token } => {
            let evicted = names.iter().map(|name| keys.evicted(name));
            writer.call_guarded(
                &REPAIR,
                &with(&[open], locks(keys, names).chain(evicted), &counters),
                &[entry, Number(ms(*ttl)), Number(*token)],
            );
        }
        Verb::Yield { floor, .. } => release(writer, *floor),
        Verb::Release(its) => release(writer, its.floor),
    }
}

/// The answer to an ACQUIRE of these names.
pub(crate) fn acquired(names: &[Name], frame: &OwnedFrame) -> Option<Answer> {
    Some(match items(frame) {
        None => Answer::Granted(count(frame)?),
        Some([which, left, counter, holder]) => Answer::Held {
            which: Some(names.get(usize::try_from(count(which)?).ok()?)?.clone()),
            remaining: ttl(left)?,
            counter: count(counter)?,
            holder: our_holder(holder).0,
            ticket: 0,
        },
        Some(_) => return None,
    })
}

fn locks<'a>(keys: &'a Keys, names: &'a [Name]) -> impl Iterator<Item = Arg<'a>> {
    names.iter().map(|name| keys.lock(name))
}

/// All these keys in one list.
fn with<'a>(
    begin: &[Arg<'a>],
    each: impl Iterator<Item = Arg<'a>>,
    end: &[Arg<'a>],
) -> Vec<Arg<'a>> {
    let begin = begin.iter().copied();
    begin.chain(each).chain(end.iter().copied()).collect()
}
