//! One answer per node, as they come in: the base of every ballot.

use std::{sync::Arc, time::Duration};

use crate::{NodeReport, Report, Silence, Vote, node::Reply, owner::label_of};

/// What a node that was asked has said so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Waiting,
    Said(Reply),
    Silent(Silence),
}

/// The answers of all nodes to one question.
#[derive(Clone, Debug)]
pub(crate) struct Answers(Vec<Heard>);

impl Answers {
    /// Nobody has been asked.
    pub(crate) fn new(nodes: usize) -> Self {
        Self(vec![Heard::Waiting; nodes])
    }

    pub(crate) fn set(&mut self, node: usize, answer: Result<Reply, Silence>) {
        if let Some(heard) = self.0.get_mut(node) {
            *heard = answer.map_or_else(Heard::Silent, Heard::Said);
        }
    }

    pub(crate) fn wait_again(&mut self, node: usize) {
        if let Some(heard) = self.0.get_mut(node) {
            *heard = Heard::Waiting;
        }
    }

    pub(crate) fn get(&self, node: usize) -> Option<&Heard> {
        self.0.get(node)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Heard> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// How many have said what `f` accepts.
    pub(crate) fn count(&self, f: impl Fn(&Reply) -> bool) -> usize {
        let said = |heard: &&Heard| matches!(heard, Heard::Said(reply) if f(reply));
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
        let in_quarantine = |h: &&Heard| matches!(h, Heard::Silent(Silence::Quarantined(_)));
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
    ) -> Report {
        let nodes = names
            .iter()
            .zip(&self.0)
            .map(|(node, heard)| NodeReport {
                node: Arc::clone(node),
                vote: vote(heard),
                holder: holder(heard),
            })
            .collect();
        Report::new(subject, needed, nodes, retry_after)
    }
}

fn holder(heard: &Heard) -> Option<Arc<str>> {
    match heard {
        Heard::Said(Reply::Held { holder, .. }) => holder.as_deref().map(label_of).map(Arc::from),
        _ => None,
    }
}

fn vote(heard: &Heard) -> Vote {
    match heard {
        Heard::Waiting => Vote::NotWaitedFor,
        Heard::Silent(silence) => Vote::None(silence.clone()),
        Heard::Said(Reply::Granted(counter)) => {
            Vote::Granted(crate::FencingToken::from_counter(*counter))
        }
        Heard::Said(Reply::Held { remaining, .. }) => Vote::Held(*remaining),
        Heard::Said(Reply::Lost | Reply::Released(false)) => Vote::NotOurs,
        Heard::Said(Reply::Admitted(false)) => Vote::None(Silence::NotAdmitted),
        Heard::Said(_) => Vote::Confirmed,
    }
}
