//! Several mutexes at once on an in-process node: the executable meaning of the Lua in this folder.

use std::time::Duration;

use crate::{
    base::{name::Name, owner::Entry, rules::Rule},
    node::{
        answer::Answer,
        fault::Fault,
        kinds::{
            counters::{Counted, Counters, MAX_TOKEN, Mint, exhausted, larger},
            moment::{Command, Moment},
            mutex::Memory,
        },
        request::{Request, Verb},
    },
};

/// Executes a request for all these mutexes.
pub(crate) fn apply(
    names: &[Name],
    request: &Request,
    locks: &mut Memory,
    counters: &mut Counters,
    at: Moment,
) -> Result<Answer, Fault> {
    let entry = &request.entry;
    match &request.verb {
        Verb::Acquire { ttl, floor, .. } => {
            let mint = &mut Mint::new(*floor, counters, at);
            if let Some(held) = refusal(locks, names, mint, at) {
                if !at.rules.hold(Rule::AllOrNone) {
                    take_what_is_free(locks, names, entry, *ttl, at);
                }
                return Ok(held);
            }
            let token = next_token(names, mint, at)?;
            // SET is the first write.
            at.may_run(Command::Set)?;
            mint.counters.begin(at);
            for name in names {
                locks.put(name, entry, *ttl, at);
                mint.counters.write(&counted(name), token, at);
            }
            Ok(Answer::Granted(token))
        }
        Verb::Raise { token, .. } => {
            if !all_ours(locks, names, entry, at) {
                return Ok(Answer::Lost);
            }
            let mut least = u64::MAX;
            for name in names {
                least = least.min(counters.raise(&counted(name), *token, at)?);
            }
            Ok(Answer::Raised(least))
        }
        Verb::Extend { ttl, .. } => {
            if !all_ours(locks, names, entry, at) {
                return Ok(Answer::Lost);
            }
            for name in names {
                locks.extend(name, entry, *ttl, at)?;
            }
            Ok(Answer::Extended)
        }
        Verb::Repair { ttl, token } => {
            let mine = |locks: &Memory, name| locks.is_held_by(name, entry, 0, at.time);
            for name in names {
                if locks.is_evicted(name, at) || locks.is_held(name, at) && !mine(locks, name) {
                    return Ok(Answer::Repaired(false));
                }
            }
            for name in names {
                counters.bring_to(&counted(name), *token, at)?;
            }
            // A full server permits PEXPIRE, and would then permit the SET behind it. So PEXPIRE comes last.
            let (ours, missing): (Vec<&Name>, Vec<&Name>) =
                names.iter().partition(|name| mine(locks, name));
            for name in missing {
                at.may_run(Command::Set)?;
                locks.put(name, entry, *ttl, at);
            }
            for name in ours {
                at.may_delete()?;
                locks.prolong(name, *ttl, at.time);
            }
            Ok(Answer::Repaired(true))
        }
        Verb::Yield { floor, .. } => {
            let mint = &mut Mint::new(*floor, counters, at);
            release(names, entry, locks, mint, at)
        }
        Verb::Release(its) => {
            let mint = &mut Mint::new(its.floor, counters, at);
            release(names, entry, locks, mint, at)
        }
    }
}

fn release(
    names: &[Name],
    entry: &Entry,
    locks: &mut Memory,
    mint: &mut Mint<'_>,
    at: Moment,
) -> Result<Answer, Fault> {
    let mut freed = false;
    for name in names {
        freed |= locks.free(name, entry, at)?;
    }
    for name in names {
        locks.leave(name, entry, mint, at)?;
    }
    Ok(match at.admitted {
        true => Answer::Released(freed),
        false => Answer::ReleasedUnadmitted,
    })
}

/// The refusal, if one of them is held or has waiters. It names the lock that stays so for longest, and the first of
/// equals. The queue of a free lock is served.
fn refusal(locks: &mut Memory, names: &[Name], mint: &mut Mint<'_>, at: Moment) -> Option<Answer> {
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

/// Takes each free lock by itself. The rest is then waited for while these are kept.
fn take_what_is_free(locks: &mut Memory, names: &[Name], entry: &Entry, ttl: Duration, at: Moment) {
    let free = names.iter().filter(|name| !locks.is_held(name, at));
    let free: Vec<&Name> = free.collect();
    for name in free {
        locks.put(name, entry, ttl, at);
    }
}

/// The greatest of the tokens that an ACQUIRE of each would get.
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

fn all_ours(locks: &Memory, names: &[Name], entry: &Entry, at: Moment) -> bool {
    let mut names = names.iter();
    names.all(|name| locks.is_held_by(name, entry, 0, at.time))
}

fn counted(name: &Name) -> Counted {
    Counted::Mutex(name.clone())
}
