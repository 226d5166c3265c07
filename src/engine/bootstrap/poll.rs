//! One round of a bootstrap: a survey, or admissions.

use std::sync::Arc;

use super::decide::{SUBJECT, by_themselves, greatest, longest_wait};
use crate::{
    Error, Silence, Vote,
    base::printable::printable,
    engine::{cluster::Cluster, round},
    node::{
        Operation,
        admission::{self, Admit, BootRecord, Mode},
        answer::Answer,
        session::{Purpose, RoundId},
    },
    protocol::ballot::answers::{Answers, Evidence, Heard},
};

/// A round whose answers are looked at as they come.
pub(super) struct Poll {
    pub(super) round: RoundId,
    pub(super) answers: Answers<admission::Reply>,
}

impl Evidence for admission::Reply {
    fn vote(&self) -> Vote {
        match self {
            Self::Admitted(false) => Vote::None(Silence::NotAdmitted),
            _ => Vote::Confirmed,
        }
    }
}

impl Poll {
    pub(super) fn survey(cluster: &mut Cluster) -> Self {
        let operation = Operation::new(admission::Command::Survey);
        Self::begin(cluster, |_| Arc::clone(&operation))
    }

    /// Sends ADMIT to all nodes. With `lifts` every node keeps its terms, and only w is set to what the greatest terms
    /// ask for.
    pub(super) fn admit(cluster: &mut Cluster, mode: Mode, lifts: bool) -> Self {
        let sessions = cluster.sessions().iter();
        let records: Vec<Option<BootRecord>> = sessions
            .map(|session| Some(session.witness()?.record.clone()))
            .collect();
        let greatest = greatest(records.iter().flatten(), cluster.settings.terms);
        // New nodes have no history to wait for.
        let witnessed = match mode {
            Mode::New => greatest.history(),
            Mode::Raise | Mode::Forced => greatest.quarantine(),
        };
        let settings = Arc::clone(&cluster.settings);
        Self::begin(cluster, |node| {
            let (run, id, own) = match records.get(node) {
                Some(Some(record)) => (record.run.clone(), record.id.clone(), record.terms),
                // The node went away meanwhile, so it is not asked.
                _ => Default::default(),
            };
            Operation::new(admission::Command::Admit(Admit {
                masters: settings.total() as u64,
                list: settings.list.clone(),
                run,
                id,
                terms: if lifts { own } else { greatest },
                witnessed,
                mode,
            }))
        })
    }

    fn begin(cluster: &mut Cluster, operation: impl Fn(usize) -> Arc<Operation>) -> Self {
        let round = cluster.new_round();
        round::put_to_all(cluster, Purpose::Bootstrap.of(round), operation);
        let answers = Answers::new(cluster.total());
        Self { round, answers }
    }

    pub(super) fn heard(&mut self, node: usize, answer: Result<Answer, Silence>) {
        let answer = answer.and_then(|reply| match reply {
            Answer::Admission(reply) => Ok(reply),
            // No other reply fits the command.
            _ => Err(Silence::TimedOut),
        });
        self.answers.set(node, answer);
    }

    /// Returns an error if a node has given out tokens, because then it is not new.
    pub(super) fn refuse_used(&self, cluster: &Cluster) -> Result<(), Error> {
        let mut nodes = cluster.settings.nodes.iter().zip(self.answers.iter());
        let used = nodes.find_map(|(node, heard)| match heard {
            Heard::Said(admission::Reply::Surveyed { used: true, lock }) => Some((node, lock)),
            _ => None,
        });
        let Some((node, lock)) = used else {
            return Ok(());
        };
        let witnesses = cluster.sessions().iter().filter_map(|s| s.witness());
        let wait = by_themselves(longest_wait(witnesses.map(|witness| &witness.record)));
        let which = match lock {
            Some(name) => format!("\"{}\" is one of them", printable(name)),
            // The server does not know HRANDFIELD, or its ACL withholds it. Only this text needs it.
            None => format!("HKEYS {}:c0 there names them", cluster.settings.prefix),
        };
        Err(Error::Invalid(format!(
            "{node} holds counters, so it has given out locks ({which}), and these masters are not \
             new: {wait}"
        )))
    }

    /// Returns an error if a node failed to answer. A node that has not answered yet is still waited for.
    pub(super) fn fail_if_silent(&self, cluster: &Cluster) -> Result<(), Error> {
        match self.answers.is_any_silent() {
            true => Err(self.error(cluster)),
            false => Ok(()),
        }
    }

    pub(super) fn error(&self, cluster: &Cluster) -> Error {
        let (total, nodes) = (cluster.total(), &cluster.settings.nodes);
        let again = cluster.try_again(total);
        Error::NoQuorum(self.answers.report(SUBJECT, total, nodes, Some(again)))
    }
}
