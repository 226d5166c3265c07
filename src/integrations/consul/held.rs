//! The errors of a caller that got nothing: the holders, or another obstacle.

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
/// At most this many holders are named.
const NAMED: usize = 5;
/// How long to ask Consul for the names of holders.
const ASKED: Duration = Duration::from_secs(1);

/// The error for a wait that ran out while others held it.
pub(super) async fn held(agent: &Agent, name: &Name, form: Form, limit: u32, view: &View) -> Error {
    let (named, others) = view.holders().split_at(view.holders().len().min(NAMED));
    let names = join_all(named.iter().map(|one| who(agent, one))).await;
    let mut names = names.join(", ");
    if !others.is_empty() {
        names.push_str(&format!(" and {} more", others.len()));
    }
    // If a permit is free, other waiters are in front, or a lock-delay lasts.
    let is_full = view.free(limit) == 0;
    let holder = is_full.then(|| names.into());
    let report = report(agent, name, Vote::Held(None), holder);
    Error::Held(match form {
        Form::Semaphore if is_full => report.of_slots(view.limit().unwrap_or(limit)),
        _ => report,
    })
}

/// Names a holder, as in `web-1:77 (session 5c0b…)`. A stranger is named by its session.
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

/// The error for a grant that came too late to be of use.
pub(super) fn too_slow(agent: &Agent, name: &Name) -> Error {
    Error::TooSlow(report(agent, name, Vote::Confirmed, None))
}

/// The error for a record with another limit.
pub(super) fn conflict(agent: &Agent, name: &Name, asked: u32, found: u32) -> Error {
    Error::LimitConflict(LimitConflict {
        asked,
        found,
        report: report(agent, name, Vote::Confirmed, None),
    })
}

/// The error for a number of permits that can never be had at once.
pub(super) fn too_many(count: u32, limit: u32) -> Error {
    Error::Invalid(format!(
        "cannot acquire {count} permits at once: ask for 1 to {}; the limit is {limit}",
        limit.min(MOST_AT_ONCE)
    ))
}

/// The error for a name that something else uses.
pub(super) fn foreign(name: &Name, foreign: &Foreign) -> Error {
    Error::Invalid(format!(
        "the entry in Consul under {:?} {foreign}. It was left unchanged: use another name or prefix",
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
