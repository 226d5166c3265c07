//! Eviction: a name is freed from any holder.

use super::inspection::is_withheld;
use crate::{
    Error, Silence, Vote,
    base::{name::Name, owner::Entry, rules::Rule},
    engine::{cluster::Cluster, round},
    node::{
        answer::Answer,
        request::{Side, Target},
    },
    protocol::ballot::answers::{Answers, Evidence, Heard},
};

/// The answer of one node to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Evicted {
    /// True if the node has found a holder.
    pub(super) held: bool,
    /// The holders that the node has named.
    pub(super) holders: Vec<Entry>,
}

impl Evidence for Evicted {
    fn vote(&self) -> Vote {
        Vote::Confirmed
    }
}

pub(super) fn evicted(answer: Answer) -> Option<Evicted> {
    let Answer::Evicted { held, holders } = answer else {
        return None;
    };
    let holders = holders.iter().filter_map(|text| Entry::read(text));
    Some(Evicted {
        held,
        holders: holders.collect(),
    })
}

/// A release by an owner that holds nothing. If the mutex is free by then, the node hands it to the first in the queue.
/// (For a read-write lock the eviction itself notifies the waiters.)
pub(super) fn hand_over(cluster: &mut Cluster, name: Name) {
    if let Ok(owner) = cluster.chance.owner() {
        let nobody = Entry::new(owner, &cluster.settings.label);
        release(cluster, &Target::mutex(name), &nobody);
    }
}

/// Releases a holder that was found on one node from all nodes. The holder may be in the queue on another node and be
/// handed the mutex again. With a third node that no eviction reached, it would have a majority. A caller that is about
/// to get a read-write lock may be granted it on another node a moment later.
pub(super) fn free_elsewhere(
    cluster: &mut Cluster,
    target: &Target,
    answers: &Answers<Answer>,
    node: usize,
) {
    let holders = |heard: &Heard<Answer>| match heard {
        Heard::Said(answer) => evicted(answer.clone()).map_or(Vec::new(), |it| it.holders),
        _ => Vec::new(),
    };
    for found in answers.get(node).map(holders).unwrap_or_default() {
        let known = answers.iter().map(holders);
        let known = known.filter(|others| others.contains(&found)).count();
        if known == 1 && cluster.rule_holds(Rule::EvictionLasts) {
            release(cluster, target, &found);
        }
    }
}

/// The target of the first or of the second question of an eviction. A release by a writer frees both sides of a
/// read-write lock.
pub(super) fn target(name: Name, question: u8) -> Target {
    match question {
        0 => Target::mutex(name),
        _ => Target::Rwlock(name, Side::Writer),
    }
}

/// Releases an entry on all nodes that answer soon.
fn release(cluster: &mut Cluster, target: &Target, entry: &Entry) {
    let operation = target.operation(entry, cluster.release_verb(0, None));
    let until = cluster.now.plus(cluster.settings.node_timeout);
    round::release(cluster, None, &operation, 0..cluster.total(), until);
}

/// The result of an eviction: true if any node has found a holder.
///
/// # Errors
/// `NoQuorum` if fewer than Q nodes have confirmed it.
pub(super) fn end(
    cluster: &Cluster,
    name: &Name,
    mutex: &Answers<Evicted>,
    rwlock: &Answers<Evicted>,
) -> Result<bool, Error> {
    let mut answers = Answers::new(cluster.total());
    for (node, (mutex, rwlock)) in mutex.iter().zip(rwlock.iter()).enumerate() {
        answers.set(node, merged(mutex, rwlock));
    }
    if answers.count(|_| true) >= cluster.needed {
        return Ok(answers.count(|evicted| evicted.held) > 0);
    }
    let (nodes, again) = (&cluster.settings.nodes, cluster.try_again(cluster.needed));
    let report = answers.report(name.as_str(), cluster.needed, nodes, Some(again));
    Err(Error::NoQuorum(report))
}

/// One node's answer to an eviction. Both the mutex and the read-write lock have to be freed, except one that this
/// client's user has no right to free.
fn merged(mutex: &Heard<Evicted>, rwlock: &Heard<Evicted>) -> Result<Evicted, Silence> {
    match (mutex, rwlock) {
        (Heard::Said(mutex), Heard::Said(rwlock)) => Ok(Evicted {
            held: mutex.held || rwlock.held,
            holders: [&*mutex.holders, &*rwlock.holders].concat(),
        }),
        (Heard::Said(done), Heard::Silent(why)) | (Heard::Silent(why), Heard::Said(done))
            if is_withheld(why) =>
        {
            Ok(done.clone())
        }
        (Heard::Silent(why), _) | (_, Heard::Silent(why)) => Err(why.clone()),
        (Heard::Waiting, _) | (_, Heard::Waiting) => Err(Silence::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn withheld() -> Silence {
        Silence::Failed("NOPERM no key for you".into())
    }

    fn broken() -> Silence {
        Silence::Failed("ERR broken".into())
    }

    #[test]
    fn eviction_is_done_once_everything_the_user_may_free_is_free() {
        let said = |held| {
            Heard::Said(Evicted {
                held,
                holders: Vec::new(),
            })
        };
        for (mutex, rwlock, done) in [
            (said(false), said(false), Ok(false)),
            (said(true), said(false), Ok(true)),
            (said(false), said(true), Ok(true)),
            (said(true), Heard::Silent(withheld()), Ok(true)),
            (Heard::Silent(withheld()), said(true), Ok(true)),
            (said(true), Heard::Silent(broken()), Err(broken())),
            (Heard::Silent(broken()), said(true), Err(broken())),
            (
                Heard::Silent(withheld()),
                Heard::Silent(withheld()),
                Err(withheld()),
            ),
            (said(true), Heard::Waiting, Err(Silence::TimedOut)),
        ] {
            let found = merged(&mutex, &rwlock).map(|evicted| evicted.held);
            assert_eq!(found, done, "{mutex:?} {rwlock:?}");
        }
    }
}
