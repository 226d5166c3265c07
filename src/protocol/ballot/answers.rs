//! One answer per node, as they come in. All ballots are built on this.

use std::{sync::Arc, time::Duration};

use crate::{
    FencingToken, NodeReport, Report, Silence, Vote,
    base::{name::Name, owner::label_of},
    node::answer::{Answer, Slots},
};

/// How an answer appears in a report.
pub(crate) trait Evidence {
    fn vote(&self) -> Vote;

    /// The holder's entry, if the node told it.
    fn holder(&self) -> Option<&str> {
        None
    }

    /// For several names: the name that is held.
    fn which(&self) -> Option<&Name> {
        None
    }
}

impl Evidence for Answer {
    fn vote(&self) -> Vote {
        match self {
            Self::Granted(counter)
            | Self::Taken { counter, .. }
            | Self::Slots(Slots {
                mine: Some((_, counter)),
                ..
            }) => Vote::Granted(FencingToken::from_counter(*counter)),
            Self::Held { remaining, .. } => Vote::Held(*remaining),
            Self::InLine { ahead, .. } => Vote::Held(ahead.remaining),
            Self::Slots(Slots { next_free, .. }) => Vote::Held(*next_free),
            Self::Lost | Self::Repaired(false) | Self::Released(false) => Vote::NotOurs,
            _ => Vote::Confirmed,
        }
    }

    fn holder(&self) -> Option<&str> {
        match self {
            Self::Held { holder, .. } => holder.as_deref(),
            Self::InLine { ahead, .. } => ahead.holder.as_deref(),
            _ => None,
        }
    }

    fn which(&self) -> Option<&Name> {
        match self {
            Self::Held { which, .. } => which.as_ref(),
            _ => None,
        }
    }
}

/// The state of one node's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard<T> {
    Waiting,
    Said(T),
    Silent(Silence),
}

/// The answers of all nodes to one question.
#[derive(Clone, Debug)]
pub(crate) struct Answers<T>(Vec<Heard<T>>);

impl<T: PartialEq> Answers<T> {
    /// The answers before any node has answered.
    pub(crate) fn new(nodes: usize) -> Self {
        Self((0..nodes).map(|_| Heard::Waiting).collect())
    }

    pub(crate) fn set(&mut self, node: usize, answer: Result<T, Silence>) {
        debug_assert!(node < self.0.len(), "an answer of no node");
        if let Some(heard) = self.0.get_mut(node) {
            *heard = answer.map_or_else(Heard::Silent, Heard::Said);
        }
    }

    pub(crate) fn wait_again(&mut self, node: usize) {
        if let Some(heard) = self.0.get_mut(node) {
            debug_assert!(*heard != Heard::Waiting, "it has not answered yet");
            *heard = Heard::Waiting;
        }
    }

    pub(crate) fn get(&self, node: usize) -> Option<&Heard<T>> {
        self.0.get(node)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Heard<T>> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The same answers, as `read` understands them. An answer that does not fit the question counts as one that came
    /// too late.
    pub(crate) fn read<U>(self, read: impl Fn(T) -> Option<U>) -> Answers<U> {
        let said = |said| read(said).map_or(Heard::Silent(Silence::TimedOut), Heard::Said);
        let nodes = self.0.into_iter().map(|heard| match heard {
            Heard::Waiting => Heard::Waiting,
            Heard::Silent(why) => Heard::Silent(why),
            Heard::Said(answer) => said(answer),
        });
        Answers(nodes.collect())
    }

    /// The number of answers that `f` accepts.
    pub(crate) fn count(&self, f: impl Fn(&T) -> bool) -> usize {
        let said = |heard: &&Heard<T>| matches!(heard, Heard::Said(said) if f(said));
        self.0.iter().filter(said).count()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.0
            .iter()
            .filter(|heard| **heard == Heard::Waiting)
            .count()
    }

    /// The nodes that have not answered yet.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = usize> + '_ {
        let nodes = self.0.iter().enumerate();
        nodes.filter_map(|(node, heard)| (*heard == Heard::Waiting).then_some(node))
    }

    /// The number of nodes that gave no answer because they are in quarantine.
    pub(crate) fn quarantined(&self) -> usize {
        let in_quarantine = |h: &&Heard<T>| matches!(h, Heard::Silent(Silence::Quarantined(_)));
        self.0.iter().filter(in_quarantine).count()
    }

    /// The n-th shortest quarantine, counted from 1.
    pub(crate) fn quarantine_over_for(&self, n: usize) -> Option<Duration> {
        let mut left: Vec<Duration> = self
            .0
            .iter()
            .filter_map(|heard| match heard {
                Heard::Silent(Silence::Quarantined(left)) => Some(*left),
                _ => None,
            })
            .collect();
        left.sort();
        left.get(n.checked_sub(1)?).copied()
    }

    /// Returns true if any node failed to answer.
    pub(crate) fn is_any_silent(&self) -> bool {
        self.0.iter().any(|heard| matches!(heard, Heard::Silent(_)))
    }

    /// The answers as evidence.
    pub(crate) fn report(
        &self,
        subject: impl Into<String>,
        needed: usize,
        names: &[Arc<str>],
        retry_after: Option<Duration>,
    ) -> Report
    where
        T: Evidence,
    {
        debug_assert!(names.len() == self.0.len(), "answers of other nodes");
        let nodes = names.iter().zip(&self.0);
        let nodes = nodes.map(|(node, heard)| {
            let said = match heard {
                Heard::Said(said) => Some(said),
                Heard::Waiting | Heard::Silent(_) => None,
            };
            NodeReport {
                node: Arc::clone(node),
                vote: match heard {
                    Heard::Waiting => Vote::NotWaitedFor,
                    Heard::Silent(silence) => Vote::None(silence.clone()),
                    Heard::Said(said) => said.vote(),
                },
                holder: said.and_then(T::holder).map(label_of).map(Arc::from),
                name: said.and_then(T::which).map(Name::text),
            }
        });
        Report::new(subject, needed, nodes.collect(), retry_after)
    }
}
