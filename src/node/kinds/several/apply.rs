//! What an in-process node does with the commands about several locks: the executable meaning of the Lua in this
//! folder. The locks are those of [`mutex`].

use std::time::Duration;

use super::Command;
use crate::{
    base::{name::Name, owner::Entry, rules::Rule},
    node::{
        answer::Answer,
        fault::Fault,
        kinds::{
            counters::{Counted, Counters, MAX_TOKEN, Mint, exhausted, larger},
            moment::Moment,
            mutex,
        },
    },
};

/// Obeys one command.
pub(crate) fn apply(
    command: &Command,
    locks: &mut mutex::Memory,
    counters: &mut Counters,
    at: Moment,
) -> Result<Answer, Fault> {
    match command {
        Command::Acquire {
            names,
            entry,
            ttl,
            floor,
        } => {
            let mint = &mut Mint::new(*floor, counters, at);
            if let Some(held) = refusal(locks, names, mint, at) {
                if !at.rules.hold(Rule::AllOrNone) {
                    take_what_is_free(locks, names, entry, *ttl, at);
                }
                return Ok(held);
            }
            let token = next_token(names, mint, at)?;
            // SET is the first write.
            at.may_write()?;
            mint.counters.begin(at);
            for name in names.iter() {
                locks.put(name, entry, *ttl, at);
                mint.counters.write(&counted(name), token, at);
            }
            Ok(Answer::Granted(token))
        }
        Command::Raise {
            names,
            entry,
            token,
        } => {
            if !all_ours(locks, names, entry, at) {
                return Ok(Answer::Lost);
            }
            let mut least = u64::MAX;
            for name in names.iter() {
                least = least.min(counters.raise(&counted(name), *token, at)?);
            }
            Ok(Answer::Raised(least))
        }
        Command::Extend { names, entry, ttl } => {
            if !all_ours(locks, names, entry, at) {
                return Ok(Answer::Lost);
            }
            for name in names.iter() {
                locks.extend(name, entry, *ttl, at)?;
            }
            Ok(Answer::Extended)
        }
        Command::Repair {
            names,
            entry,
            ttl,
            token,
        } => {
            let mine = |locks: &mutex::Memory, name| locks.is_held_by(name, entry, 0, at.time);
            for name in names.iter() {
                if locks.is_evicted(name, at) || locks.is_held(name, at) && !mine(locks, name) {
                    return Ok(Answer::Repaired(false));
                }
            }
            for name in names.iter() {
                counters.bring_to(&counted(name), *token, at)?;
            }
            // PEXPIRE is allowed to a full server, and SET behind it: so it comes last.
            let (ours, missing): (Vec<&Name>, Vec<&Name>) =
                names.iter().partition(|name| mine(locks, name));
            for name in missing {
                at.may_write()?;
                locks.put(name, entry, *ttl, at);
            }
            for name in ours {
                at.may_delete()?;
                locks.prolong(name, *ttl, at.time);
            }
            Ok(Answer::Repaired(true))
        }
        Command::Release {
            names,
            entry,
            floor,
        } => {
            let mut freed = false;
            for name in names.iter() {
                freed |= locks.free(name, entry, at)?;
            }
            let mint = &mut Mint::new(*floor, counters, at);
            for name in names.iter() {
                locks.leave(name, entry, mint, at)?;
            }
            Ok(match at.admitted {
                true => Answer::Released(freed),
                false => Answer::ReleasedUnadmitted,
            })
        }
    }
}

/// Who has one of them, or waits for it: who has it for longest, of several the first. A line is served where its lock
/// is free.
fn refusal(
    locks: &mut mutex::Memory,
    names: &[Name],
    mint: &mut Mint<'_>,
    at: Moment,
) -> Option<Answer> {
    let mut longest = None;
    for name in names {
        let behind = locks.behind(name, mint, at);
        let held = behind.or_else(|| locks.refusal(name, mint.counters, at));
        if let Some(Answer::Held {
            remaining, holder, ..
        }) = held
            && longest
                .as_ref()
                .is_none_or(|(_, most, _)| remaining > *most)
        {
            longest = Some((name, remaining, holder));
        }
    }
    let (which, remaining, holder) = longest?;
    Some(Answer::Held {
        which: Some(which.clone()),
        remaining,
        counter: greatest(names, mint.counters, at),
        holder,
        ticket: 0,
    })
}

/// Name by name, as they come: what is not had of it is waited for while the rest is kept.
fn take_what_is_free(
    locks: &mut mutex::Memory,
    names: &[Name],
    entry: &Entry,
    ttl: Duration,
    at: Moment,
) {
    let free = names.iter().filter(|name| !locks.is_held(name, at));
    let free: Vec<&Name> = free.collect();
    for name in free {
        locks.put(name, entry, ttl, at);
    }
}

/// The greatest of what an ACQUIRE of each would be granted.
fn next_token(names: &[Name], mint: &Mint<'_>, at: Moment) -> Result<u64, Fault> {
    let all = match at.rules.hold(Rule::TokenOfAll) {
        true => names,
        false => names.get(..1).unwrap_or(names),
    };
    let counter = greatest(all, mint.counters, at);
    match larger(counter.saturating_add(1), mint.floor, at.rules) {
        token if token > MAX_TOKEN => exhausted(),
        token => Ok(token),
    }
}

fn greatest(names: &[Name], counters: &Counters, at: Moment) -> u64 {
    let all = names.iter().map(|name| counters.read(&counted(name), at));
    all.fold(0, |a, b| larger(a, b, at.rules))
}

fn all_ours(locks: &mutex::Memory, names: &[Name], entry: &Entry, at: Moment) -> bool {
    let mut names = names.iter();
    names.all(|name| locks.is_held_by(name, entry, 0, at.time))
}

fn counted(name: &Name) -> Counted {
    Counted::Mutex(name.clone())
}
