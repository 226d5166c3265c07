//! Leases: renewal, extension, loss, release (protocol §3, client steps 6 to 8).

use std::{sync::Arc, time::Duration};

use super::{
    Reply as Answer,
    core::{CLOSED, Core, Outstanding, Task},
    timers::Key,
};
use crate::{
    Error, LossReason, Lost, Silence,
    ballot::{answers::Said, extend, release},
    claim::{self, Claim},
    clock::Tick,
    lease::{
        hold::{Due, Hold},
        shared::Shared,
    },
    logs,
    node::{
        Reply, mutex,
        session::{DutyId, RoundId, Tag},
    },
    owner::Entry,
    rules::Rule,
};

/// One lease.
pub(super) struct Holding {
    pub(super) shared: Arc<Shared>,
    pub(super) hold: Hold,
    pub(super) entry: Entry,
    pub(super) lock_delay: Duration,
    /// Where the lock was asked for: where it has to be released.
    pub(super) asked: Vec<usize>,
    /// Where it was granted.
    pub(super) held_on: Vec<usize>,
    /// Where an extension found it gone: there it stays gone, as no extension re-creates.
    pub(super) gone: Vec<usize>,
    /// Its loss was logged.
    pub(super) told: bool,
}

impl Holding {
    fn node_ttl(&self) -> Duration {
        self.hold.ttl() + self.lock_delay
    }

    /// Once, if it was lost and not given up.
    fn log_loss(&mut self) {
        let Some(lost) = self.shared.lost_now() else {
            return;
        };
        let told = std::mem::replace(&mut self.told, true);
        if lost.reason != LossReason::Released && !told {
            logs::warn!(
                name = self.shared.name.as_str(),
                reason = lost.reason.to_string(),
                held_for_ms = logs::ms(self.shared.held_for()),
                "a lease is lost"
            );
        }
    }
}

/// One extension under way; a renewal has nobody waiting.
pub(super) struct Extending {
    lease: u64,
    ballot: extend::Ballot,
    sent_at: Tick,
    reply: Option<Answer<()>>,
}

impl Extending {
    pub(super) fn vote(&mut self, node: usize, answer: Result<Reply, Silence>) {
        self.ballot.vote(node, answer.map(claim::said));
    }

    pub(super) fn outstanding(&self) -> Vec<Outstanding> {
        let nodes = self.ballot.answers().outstanding();
        nodes.map(|node| (node, None)).collect()
    }
}

/// One release whose answers somebody waits for.
pub(super) struct Releasing {
    name: String,
    /// Where it was asked for, and the numbers of the RELEASEs.
    sent: Vec<(usize, DutyId)>,
    ballot: release::Ballot,
    reply: Answer<()>,
}

impl Releasing {
    pub(super) fn vote(&mut self, node: usize, answer: Result<Reply, Silence>) {
        self.ballot.vote(node, answer.map(claim::said));
    }

    pub(super) fn outstanding(&self) -> Vec<Outstanding> {
        let number = |node| {
            let sent = self.sent.iter().find(|(to, _)| *to == node);
            (node, sent.map(|(_, number)| *number))
        };
        self.ballot.answers().outstanding().map(number).collect()
    }
}

impl Core {
    /// Ticks are spread, so that many leases are not renewed in one burst.
    pub(super) fn renewal_jitter(&mut self, ttl: Duration) -> Duration {
        let most = u64::try_from((ttl / 20).as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.chance.up_to(most))
    }

    /// Looks whether a lease is to be renewed, or is over.
    pub(super) fn lease_due(&mut self, now: Tick, id: u64) {
        let Some(holding) = self.leases.get_mut(&id) else {
            return;
        };
        let shared = &holding.shared;
        if holding.hold.warn_once(now) {
            logs::warn!(
                name = shared.name.as_str(),
                held_for_ms = logs::ms(shared.held_for()),
                "a lease has been held for 60 ttl"
            );
        }
        shared.set_reason_at_end(holding.hold.reason_at_end());
        if shared.validity().is_zero() {
            let reason = holding_reason(shared);
            return self.lost(id, reason);
        }
        match holding.hold.due(now, shared.beat_at()) {
            Due::Lose(reason) => self.lost(id, reason),
            Due::Wait(at) => self.timers.at(Key::Lease(id), at),
            Due::Renew => {
                holding.hold.renewal_sent(now);
                shared.set_reason_at_end(holding.hold.reason_at_end());
                self.send_extension(now, id, None);
                self.lease_due(now, id);
            }
        }
    }

    /// A lease is over. What it holds on the nodes is left to expire until it is dropped.
    pub(super) fn lost(&mut self, id: u64, reason: LossReason) {
        if let Some(holding) = self.leases.get_mut(&id) {
            holding.shared.lose(reason);
            holding.log_loss();
        }
    }

    pub(super) fn extend(&mut self, now: Tick, lease: u64, reply: Answer<()>) {
        match self.leases.get(&lease) {
            None => drop(reply.send(Err(CLOSED))),
            Some(holding) => match holding.shared.lost_now() {
                Some(lost) => drop(reply.send(Err(lost.into()))),
                None => self.send_extension(now, lease, Some(reply)),
            },
        }
    }

    fn send_extension(&mut self, now: Tick, lease: u64, reply: Option<Answer<()>>) {
        let Some(holding) = self.leases.get(&lease) else {
            return;
        };
        let claim = Claim::Mutex(holding.shared.name.clone());
        let operation = claim.extend(&holding.entry, holding.node_ttl());
        let gone = holding.gone.clone();
        let total = self.settings.total();
        let mut ballot = extend::Ballot::new(total, self.needed);
        let ticket = self.new_ticket();
        let tag = Tag {
            round: RoundId(ticket),
            request: 0,
        };
        for node in 0..total {
            if gone.contains(&node) {
                ballot.vote(node, Ok(Said::Lost));
                continue;
            }
            let asked = self.session(now, node, |session, step| {
                session.ask(step, tag, &operation)
            });
            if let Some(Err(silence)) = asked {
                ballot.vote(node, Err(silence));
            }
        }
        self.put(
            ticket,
            Task::Extending(Extending {
                lease,
                ballot,
                sent_at: now,
                reply,
            }),
        );
        self.timers
            .at(Key::Task(ticket), now.plus(self.settings.node_timeout));
        self.extension_heard(now, ticket);
    }

    pub(super) fn extension_heard(&mut self, now: Tick, ticket: u64) {
        let verdict = match self.task(ticket) {
            Some(Task::Extending(extending)) => extending.ballot.verdict(),
            _ => return,
        };
        if verdict == extend::Verdict::Open {
            return;
        }
        let Some(Task::Extending(extending)) = self.take(ticket) else {
            return;
        };
        let Extending {
            lease,
            ballot,
            sent_at,
            reply,
        } = extending;
        let in_time = self.settings.rules.hold(Rule::ExtendInTime);
        let automatic = reply.is_none();
        let ttl = self
            .leases
            .get(&lease)
            .map_or(Duration::ZERO, |h| h.hold.ttl());
        let jitter = self.renewal_jitter(ttl);
        let again = match verdict {
            extend::Verdict::Failed => Some(self.try_again(now, self.needed)),
            _ => None,
        };
        let held = self.leases.len();
        let Some(holding) = self.leases.get_mut(&lease) else {
            if let Some(reply) = reply {
                let _ = reply.send(Err(Lost {
                    reason: LossReason::Released,
                }
                .into()));
            }
            return;
        };
        holding.gone.extend(ballot.gone());
        holding.gone.sort_unstable();
        holding.gone.dedup();
        let mut answer = Ok(());
        match verdict {
            extend::Verdict::Extended => {
                // The old validity has to last still: a lease whose time is over stays lost.
                holding.hold.extended(sent_at, now, automatic, jitter);
                if !holding.shared.prolong(holding.hold.valid_until(), in_time) {
                    answer = Err(Lost {
                        reason: holding_reason(&holding.shared),
                    }
                    .into());
                }
            }
            extend::Verdict::Evicted => {
                self.lost(lease, LossReason::Evicted);
                answer = Err(Lost {
                    reason: LossReason::Evicted,
                }
                .into());
            }
            extend::Verdict::Failed | extend::Verdict::Open => {
                let name = holding.shared.name.as_str();
                let report =
                    ballot
                        .answers()
                        .report(name, self.needed, &self.settings.nodes, again);
                let error = Error::NoQuorum(report);
                if automatic {
                    // It is tried some 15 times before the lease is lost.
                    let first = holding.hold.renewal_failed(now);
                    let lease = (&holding.shared.name, holding.shared.validity());
                    self.journal.renewal_failed(now, lease, first, &error, held);
                }
                answer = Err(error);
            }
        }
        if let Some(reply) = reply {
            let _ = reply.send(answer);
        }
        self.lease_due(now, lease);
    }

    pub(super) fn release(&mut self, now: Tick, lease: u64, reply: Option<Answer<()>>) {
        let Some(mut holding) = self.take_lease(lease) else {
            if let Some(reply) = reply {
                let _ = reply.send(Err(CLOSED));
            }
            return;
        };
        // Its holder may have seen the end of its time before we did.
        holding.log_loss();
        logs::debug!(name = holding.shared.name.as_str(), "released");
        let ticket = self.new_ticket();
        let tag = Tag {
            round: RoundId(ticket),
            request: 0,
        };
        let wanted = reply.is_some().then_some(tag);
        let operation = Claim::Mutex(holding.shared.name.clone()).release(&holding.entry);
        let until = now.plus(holding.node_ttl());
        let mut sent = Vec::with_capacity(holding.asked.len());
        for &node in &holding.asked {
            let number = self.session(now, node, |session, step| {
                session.release(step, &operation, until, wanted)
            });
            sent.extend(number.map(|number| (node, number)));
        }
        let Some(reply) = reply else { return };
        let states = self.states(now);
        let mut ballot = release::Ballot::new(states.len(), self.needed, holding.held_on);
        for (node, state) in states.iter().enumerate() {
            if !holding.asked.contains(&node) {
                ballot.vote(
                    node,
                    Err(state.silence().unwrap_or(Silence::ConnectionLost)),
                );
            }
        }
        let name = holding.shared.name.as_str().to_owned();
        self.put(
            ticket,
            Task::Releasing(Releasing {
                name,
                sent,
                ballot,
                reply,
            }),
        );
        self.timers
            .at(Key::Task(ticket), now.plus(self.settings.node_timeout));
        self.release_heard(now, ticket);
    }

    pub(super) fn release_heard(&mut self, now: Tick, ticket: u64) {
        let verdict = match self.task(ticket) {
            Some(Task::Releasing(releasing)) => releasing.ballot.verdict(),
            _ => return,
        };
        if verdict == release::Verdict::Open {
            return;
        }
        let Some(Task::Releasing(Releasing {
            name,
            ballot,
            reply,
            ..
        })) = self.take(ticket)
        else {
            return;
        };
        let _ = reply.send(match verdict {
            release::Verdict::Gone => Err(Lost {
                reason: LossReason::Evicted,
            }
            .into()),
            release::Verdict::NoQuorum => {
                let again = self.try_again(now, self.needed);
                let report =
                    ballot
                        .answers()
                        .report(name, self.needed, &self.settings.nodes, Some(again));
                Err(Error::NoQuorum(report))
            }
            release::Verdict::Released | release::Verdict::Open => Ok(()),
        });
    }

    /// A grant that arrives after the win is kept: the lease survives one more node's death.
    pub(super) fn late_grant(&mut self, ticket: u64, node: usize, answer: &Result<Reply, Silence>) {
        let Some(holding) = self.leases.get_mut(&ticket) else {
            return;
        };
        let granted = matches!(
            answer,
            Ok(Reply::Mutex(mutex::Reply::Granted(_)) | Reply::Mutex(mutex::Reply::Raised(_)))
        );
        if granted && !holding.held_on.contains(&node) {
            holding.held_on.push(node);
        }
    }
}

fn holding_reason(shared: &Shared) -> LossReason {
    shared
        .lost_now()
        .map_or(LossReason::Expired, |lost| lost.reason)
}
