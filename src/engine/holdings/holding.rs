//! One lease, as the engine keeps it.

use std::{sync::Arc, time::Duration};

use super::lacks::Lacks;
use crate::{
    Error, FencingToken, Lease, LossReason,
    base::{clock::Tick, logs, owner::Entry},
    engine::{grant::Grant, net::Net, rollback::stop_waiting, round},
    lease::{keeper::no_readers, response::Responder, shared::Shared, upkeep::Upkeep},
    node::{
        answer::Answer,
        request::{Side, Target, Verb},
    },
    protocol::ballot::answers::Answers,
};

/// One lease.
pub(super) struct Holding {
    pub(super) shared: Arc<Shared>,
    pub(super) upkeep: Upkeep,
    pub(super) target: Target,
    pub(super) entry: Entry,
    /// Who waited for it, if the nodes may know that.
    pub(super) waited: Option<Entry>,
    pub(super) lock_delay: Duration,
    /// Where it was asked for: where it has to be released.
    pub(super) asked: Vec<usize>,
    /// Where it was granted.
    pub(super) held_on: Vec<usize>,
    pub(super) lacks: Lacks,
    /// For how long something of it may stand on a node that was asked.
    pub(super) stands_for: Duration,
    /// Who gets the lease once it is confirmed.
    pub(super) pending: Option<(Responder<Option<Lease>>, Lease)>,
    /// When the wait for it is over.
    pub(super) answer_by: Option<Tick>,
    /// Its loss was logged.
    pub(super) told: bool,
}

impl Holding {
    /// What was won.
    pub(super) fn new(net: &mut Net, grant: &Grant) -> Self {
        let Grant { wish, good, .. } = grant;
        let jitter = jitter(net, wish.ttl);
        let upkeep = Upkeep::new(wish.ttl, grant.since, *good, wish.renewal, jitter);
        let shared = Shared::new(
            wish.name().clone(),
            FencingToken::from_counter(grant.token),
            Arc::clone(&net.clock),
            grant.since,
            good.notice,
            upkeep.valid_until(),
        )
        .of_slot(grant.target.slot());
        let mut lacks = Lacks::new(grant.token);
        for (node, counter) in &grant.held {
            lacks.granted(*node, *counter);
        }
        // Its counter may be too small, until a late answer says that it is not.
        for node in &grant.raising {
            lacks.granted(*node, 0);
        }
        Self {
            shared: Arc::new(shared),
            upkeep,
            target: grant.target.clone(),
            held_on: grant.held.iter().map(|(node, _)| *node).collect(),
            entry: grant.entry.clone(),
            waited: grant.waited.clone(),
            lock_delay: wish.lock_delay,
            asked: grant.asked.clone(),
            lacks,
            stands_for: grant.stands_for,
            pending: None,
            answer_by: wish.end(),
            told: false,
        }
    }

    /// From now on it is a reader's, and other readers may come in: also where nodes know that it waited to write.
    ///
    /// # Errors
    /// `Invalid`: what it is of has no readers.
    pub(super) fn downgrade(&mut self, net: &mut Net) -> Result<(), Error> {
        match &mut self.target {
            Target::Rwlock(_, side) => *side = Side::Reader,
            Target::Mutex(_) | Target::Slot(..) => return Err(no_readers()),
        }
        if let Some(waited) = self.waited.take() {
            stop_waiting(net, &self.target, &waited, self.asked.iter().copied());
        }
        Ok(())
    }

    /// An extension found it there. Where it was not known to stand its counter is not known either: it is repaired.
    pub(super) fn found_on(&mut self, node: usize) {
        if !self.held_on.contains(&node) {
            self.lacks.granted(node, 0);
            self.held_on.push(node);
        }
    }

    /// It stands there.
    pub(super) fn held_on(&mut self, node: usize) {
        if !self.held_on.contains(&node) {
            self.held_on.push(node);
        }
    }

    /// Of a semaphore: what else of it a node may have is given back.
    pub(super) fn leave_but_for_this(&self, net: &mut Net, node: usize) {
        if let Some(slot) = self.target.slot() {
            let until = net.now.plus(self.stands_for);
            let operation = self.target.ask(&self.entry, Verb::leave_all_but(slot));
            round::release(net, None, &operation, [node], until);
        }
    }

    pub(super) fn node_ttl(&self) -> Duration {
        self.upkeep.ttl() + self.lock_delay
    }

    /// Who waits for its confirmation waits until then at most.
    pub(super) fn wait_ends(&self) -> Option<Tick> {
        self.answer_by.filter(|_| self.pending.is_some())
    }

    /// It is over. What it holds on the nodes is left to expire until it is dropped.
    pub(super) fn lose(&mut self, reason: LossReason) {
        self.shared.lose(reason);
        match self.pending.is_some() {
            // Nobody has seen it.
            true => self.told = true,
            false => self.log_loss(),
        }
    }

    /// Tells who waits for its confirmation that none came in time, if somebody does. The lease is dropped, and so
    /// released.
    pub(super) fn give_up(&mut self, net: &Net) {
        if let Some((reply, _)) = self.pending.take_if(|_| self.shared.validity().is_zero()) {
            let answers = Answers::<Answer>::new(net.total());
            let (name, nodes) = (self.shared.name.as_str(), &net.settings.nodes);
            let again = Some(net.try_again(net.needed));
            let report = answers.report(name, net.needed, nodes, again);
            let _ = reply.send(Err(Error::TooSlow(report)));
        }
    }

    /// It is confirmed: who waits for that gets it. A caller that is gone drops it here, which releases it.
    pub(super) fn confirmed(&mut self) {
        if let Some((reply, lease)) = self.pending.take() {
            drop(reply.send(Ok(Some(lease))));
        }
    }

    /// Once, if it was lost and not given up.
    pub(super) fn log_loss(&mut self) {
        let Some(lost) = self.shared.lost_now() else {
            return;
        };
        let told = std::mem::replace(&mut self.told, true);
        if lost.reason != LossReason::Released && !told && !self.shared.name.is_own() {
            logs::warn!(
                name = self.shared.name.as_str(),
                reason = lost.reason.to_string(),
                held_for_ms = logs::ms(self.shared.held_for()),
                "a lease is lost"
            );
        }
    }
}

pub(super) fn reason_of(shared: &Shared) -> LossReason {
    let lost = shared.lost_now();
    lost.map_or(LossReason::Expired, |lost| lost.reason)
}

/// Renewals are spread, so that many leases are not renewed in one burst.
pub(super) fn jitter(net: &mut Net, ttl: Duration) -> Duration {
    let most = u64::try_from((ttl / 20).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(net.chance.up_to(most))
}
