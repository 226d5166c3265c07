//! What a caller is told that did not get it: who holds, and what stands in the way.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use tokio::time::timeout;

use super::{
    agent::Agent,
    record::{Contender, Foreign, Form, View},
};
use crate::{
    Error, LimitConflict, NodeReport, Report, Vote,
    base::{name::Name, printable::printable},
};

/// The most permits at once: a transaction of Consul has 64 steps.
pub(super) const MOST_AT_ONCE: u32 = 63;
/// So many holders are named.
const NAMED: usize = 5;
/// Consul is asked for so long who they are.
const ASKED: Duration = Duration::from_secs(1);

/// Others had it until the wait was over.
pub(super) async fn held(agent: &Agent, name: &Name, form: Form, limit: u32, view: &View) -> Error {
    let (named, others) = view.holders().split_at(view.holders().len().min(NAMED));
    let names = join_all(named.iter().map(|one| who(agent, one))).await;
    let mut names = names.join(", ");
    if !others.is_empty() {
        names.push_str(&format!(" and {} more", others.len()));
    }
    // Where one is free others are in front, or a lock-delay lasts.
    let is_full = view.free(limit) == 0;
    let holder = is_full.then(|| names.into());
    let report = report(agent, name, Vote::Held(None), holder);
    Error::Held(match form {
        Form::Semaphore if is_full => report.of_slots(view.limit().unwrap_or(limit)),
        _ => report,
    })
}

/// `web-1:77 (session 5c0b…)`; of a stranger what its session is called.
async fn who(agent: &Agent, holder: &Contender) -> String {
    let session = &holder.session;
    if let Some(label) = &holder.label {
        return format!("{} (session {session})", printable(label));
    }
    let info = timeout(ASKED, agent.http.session_info(session)).await;
    match info {
        Ok(Ok(Some(info))) => {
            let (name, node) = (printable(info.name), printable(info.node));
            format!("{name:?} (session {session}, node {node})")
        }
        _ => format!("session {session}"),
    }
}

/// It was taken so late that it is of no use.
pub(super) fn too_slow(agent: &Agent, name: &Name) -> Error {
    Error::TooSlow(report(agent, name, Vote::Confirmed, None))
}

/// The record has another limit.
pub(super) fn conflict(agent: &Agent, name: &Name, asked: u32, found: u32) -> Error {
    Error::LimitConflict(LimitConflict {
        asked,
        found,
        report: report(agent, name, Vote::Confirmed, None),
    })
}

/// So many cannot be had at once.
pub(super) fn too_many(count: u32, limit: u32) -> Error {
    Error::Invalid(format!(
        "{count} permits at once cannot be had: 1 to {} can, of a limit of {limit}",
        limit.min(MOST_AT_ONCE)
    ))
}

/// Something else stands there.
pub(super) fn foreign(name: &Name, foreign: &Foreign) -> Error {
    Error::Invalid(format!(
        "what stands in Consul under {:?} {foreign}. It is left as it is: take another name or prefix",
        name.as_str()
    ))
}

fn report(agent: &Agent, name: &Name, vote: Vote, holder: Option<Arc<str>>) -> Report {
    let node = NodeReport {
        node: Arc::clone(&agent.http.node),
        vote,
        holder,
        name: None,
    };
    Report::new(name.as_str(), 1, vec![node], None).of_consul()
}
