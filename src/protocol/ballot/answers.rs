//! One answer per node, as they come in: the base of every ballot.

use std::{sync::Arc, time::Duration};

use crate::{
    FencingToken, NodeReport, Report, Silence, Vote,
    base::{name::Name, owner::label_of},
    node::answer::Answer,
};

/// What an answer says of a node in a report.
pub(crate) trait Evidence {
    fn vote(&self) -> Vote;

    /// The holder's entry, where it was told.
    fn holder(&self) -> Option<&str> {
        None
    }

    /// Which of several is held.
    fn which(&self) -> Option<&Name> {
        None
    }
}

impl Evidence for Answer {
    fn vote(&self) -> Vote {
        match self {
            Self::Granted(counter)
            | Self::Taken { counter, .. }
            | Self::Slots {
                mine: Some((_, counter)),
                ..
            } => Vote::Granted(FencingToken::from_counter(*counter)),
            Self::Held { remaining, .. } => Vote::Held(*remaining),
            Self::InLine { ahead, .. } => Vote::Held(ahead.remaining),
            Self::Slots { next_free, .. } => Vote::Held(*next_free),
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

/// What a node that was asked has said so far.
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
    /// Nobody has been asked.
    pub(crate) fn new(nodes: usize) -> Self {
        Self((0..nodes).map(|_| Heard::Waiting).collect())
    }

    pub(crate) fn set(&mut self, node: usize, answer: Result<T, Silence>) {
        if let Some(heard) = self.0.get_mut(node) {
            *heard = answer.map_or_else(Heard::Silent, Heard::Said);
        }
    }

    pub(crate) fn wait_again(&mut self, node: usize) {
        if let Some(heard) = self.0.get_mut(node) {
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

    /// How many have said what `f` accepts.
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

    /// Who has not answered yet.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = usize> + '_ {
        let nodes = self.0.iter().enumerate();
        nodes.filter_map(|(node, heard)| (*heard == Heard::Waiting).then_some(node))
    }

    /// How many would answer if their quarantine were over.
    pub(crate) fn quarantined(&self) -> usize {
        let in_quarantine = |h: &&Heard<T>| matches!(h, Heard::Silent(Silence::Quarantined(_)));
        self.0.iter().filter(in_quarantine).count()
    }

    /// The n-th shortest quarantine (from 1).
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

    /// Whether any node gave no answer.
    pub(crate) fn is_any_silent(&self) -> bool {
        self.0.iter().any(|heard| matches!(heard, Heard::Silent(_)))
    }

    /// The evidence.
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
