//! One round of a bootstrap: a survey, or admissions.

use std::sync::Arc;

use super::decide::{SUBJECT, by_themselves, greatest, longest_wait};
use crate::{
    Error, Silence, Vote,
    base::printable::printable,
    engine::{net::Net, round},
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
    pub(super) fn survey(net: &mut Net) -> Self {
        let operation = Operation::new(admission::Command::Survey);
        Self::begin(net, |_| Arc::clone(&operation))
    }

    /// `lifts`: every node keeps the terms it has, and only w becomes what the greater ones ask for.
    pub(super) fn admit(net: &mut Net, mode: Mode, lifts: bool) -> Self {
        let sessions = net.sessions().iter();
        let records: Vec<Option<BootRecord>> = sessions
            .map(|session| Some(session.witness()?.record.clone()))
            .collect();
        let greatest = greatest(records.iter().flatten(), net.settings.terms);
        // New nodes have no history to wait for.
        let witnessed = match mode {
            Mode::New => greatest.history(),
            Mode::Raise | Mode::Forced => greatest.quarantine(),
        };
        let settings = Arc::clone(&net.settings);
        Self::begin(net, |node| {
            let (run, id, own) = match records.get(node) {
                Some(Some(record)) => (record.run.clone(), record.id.clone(), record.terms),
                // It went away meanwhile: it is not asked.
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

    fn begin(net: &mut Net, operation: impl Fn(usize) -> Arc<Operation>) -> Self {
        let round = net.new_round();
        round::put_to_all(net, Purpose::Bootstrap.of(round), operation);
        let answers = Answers::new(net.total());
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

    /// A node that has given out tokens is not new.
    pub(super) fn refuse_used(&self, net: &Net) -> Result<(), Error> {
        let mut nodes = net.settings.nodes.iter().zip(self.answers.iter());
        let used = nodes.find_map(|(node, heard)| match heard {
            Heard::Said(admission::Reply::Surveyed { used: true, lock }) => Some((node, lock)),
            _ => None,
        });
        let Some((node, lock)) = used else {
            return Ok(());
        };
        let witnesses = net.sessions().iter().filter_map(|s| s.witness());
        let wait = by_themselves(longest_wait(witnesses.map(|witness| &witness.record)));
        let which = match lock {
            Some(name) => format!("\"{}\" is one of them", printable(name)),
            // It does not know HRANDFIELD, or its ACL withholds it: only this text needs it.
            None => format!("HKEYS {}:c0 there names them", net.settings.prefix),
        };
        Err(Error::Invalid(format!(
            "{node} holds counters, so it has given out locks ({which}), and these masters are not \
             new: {wait}"
        )))
    }

    /// A node that failed to answer ends the bootstrap; one that has not answered yet does not.
    pub(super) fn fail_if_silent(&self, net: &Net) -> Result<(), Error> {
        match self.answers.is_any_silent() {
            true => Err(self.error(net)),
            false => Ok(()),
        }
    }

    pub(super) fn error(&self, net: &Net) -> Error {
        let (total, nodes) = (net.total(), &net.settings.nodes);
        let again = net.try_again(total);
        Error::NoQuorum(self.answers.report(SUBJECT, total, nodes, Some(again)))
    }
}
