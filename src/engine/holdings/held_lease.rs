//! A lease that the engine keeps, from its grant until its release is sent.

use std::{sync::Arc, time::Duration};

use super::lacks::Lacks;
use crate::{
    Error, FencingToken, Lease, LossReason,
    base::{clock::Tick, limit::Limit, logs, owner::Entry},
    engine::{
        cluster::Cluster,
        event::{Acquisition, Caller},
        grant::Won,
        rollback::stop_waiting,
        round,
    },
    lease::{keeper::no_readers, response::Responder, shared::Shared, upkeep::Upkeep},
    node::{
        answer::Answer,
        request::{Side, Target, Verb},
    },
    protocol::ballot::answers::Answers,
};

pub(super) struct HeldLease {
    pub(super) shared: Arc<Shared>,
    pub(super) upkeep: Upkeep,
    pub(super) target: Target,
    pub(super) entry: Entry,
    /// The call that won it.
    pub(super) caller: Caller,
    /// The owner under which it waited for a read-write lock, if the nodes may know it.
    pub(super) waited: Option<Entry>,
    pub(super) lock_delay: Duration,
    /// The nodes that were asked for it. It has to be released on all of them.
    pub(super) asked: Vec<usize>,
    /// The nodes that granted it.
    pub(super) held_on: Vec<usize>,
    pub(super) lacks: Lacks,
    /// For a slot: the limit under which it was won.
    pub(super) limit: Option<Limit>,
    /// A slot was put back on a node. The limit has to follow.
    pub(super) owes_limit: bool,
    /// How long a part of it may stand on a node that was asked.
    pub(super) stands_for: Duration,
    /// The caller that gets the lease once it is confirmed, and the lease.
    pub(super) pending: Option<(Responder<Option<Lease>>, Lease)>,
    /// The time by which that caller must have its answer.
    pub(super) answer_by: Option<Tick>,
    /// Its loss was logged.
    pub(super) told: bool,
}

impl HeldLease {
    pub(super) fn new(cluster: &mut Cluster, acquisition: &Acquisition, won: &Won) -> Self {
        let is_asked = |node: &usize| won.asked.contains(node);
        debug_assert!(won.raising.iter().all(is_asked), "raised and not asked");
        let jitter = jitter(cluster, acquisition.request.ttl);
        let upkeep = Upkeep::new(
            acquisition.request.ttl,
            won.since,
            won.good,
            acquisition.request.renewal,
            jitter,
        );
        let shared = Shared::new(
            acquisition.name().clone(),
            FencingToken::from_counter(won.token),
            Arc::clone(&cluster.clock),
            won.since,
            won.good.notice,
            upkeep.valid_until(),
        )
        .of_slot(won.target.slot());
        let mut lacks = Lacks::new(won.token);
        for (node, counter) in &won.held {
            lacks.granted(*node, *counter);
        }
        // Their counters may be too small, until a late answer says that they are not.
        for node in &won.raising {
            lacks.granted(*node, 0);
        }
        Self {
            shared: Arc::new(shared),
            upkeep,
            target: won.target.clone(),
            held_on: won.held.iter().map(|(node, _)| *node).collect(),
            entry: won.entry.clone(),
            caller: acquisition.caller,
            waited: won.waited.clone(),
            lock_delay: acquisition.request.lock_delay,
            asked: won.asked.clone(),
            lacks,
            limit: won.limit,
            owes_limit: false,
            stands_for: won.stands_for,
            pending: None,
            answer_by: acquisition.end(),
            told: false,
        }
    }

    /// From now on it is a reader's lease, and other readers may come in, even where the nodes know that it waited to
    /// write.
    ///
    /// # Errors
    /// `Invalid` if what it holds has no readers.
    pub(super) fn downgrade(&mut self, cluster: &mut Cluster) -> Result<(), Error> {
        match &mut self.target {
            Target::Rwlock(_, side) => *side = Side::Reader,
            Target::Mutex(_) | Target::Slot(..) => return Err(no_readers()),
        }
        if let Some(waited) = self.waited.take() {
            stop_waiting(cluster, &self.target, &waited, self.asked.iter().copied());
        }
        Ok(())
    }

    /// An extension found it on this node. If it was not known to be there, its counter there is not known either, so
    /// the node is repaired.
    pub(super) fn found_on(&mut self, node: usize) {
        if !self.held_on.contains(&node) {
            self.lacks.granted(node, 0);
            self.held_on.push(node);
        }
    }

    /// It stands on this node.
    pub(super) fn add_held(&mut self, node: usize) {
        if !self.held_on.contains(&node) {
            self.held_on.push(node);
        }
    }

    /// For a semaphore: gives back anything else that this node may have of it.
    pub(super) fn leave_but_for_this(&self, cluster: &mut Cluster, node: usize) {
        if let Some(slot) = self.target.slot() {
            let until = cluster.now.plus(self.stands_for);
            let operation = self
                .target
                .operation(&self.entry, Verb::leave_all_but(slot));
            round::release(cluster, None, &operation, [node], until);
        }
    }

    pub(super) fn node_ttl(&self) -> Duration {
        self.upkeep.ttl() + self.lock_delay
    }

    /// The time at which the caller that waits for the confirmation stops waiting.
    pub(super) fn wait_ends(&self) -> Option<Tick> {
        self.answer_by.filter(|_| self.pending.is_some())
    }

    /// The lease is over. Its entries on the nodes stay until they expire or the lease is dropped.
    pub(super) fn lose(&mut self, reason: LossReason) {
        self.shared.lose(reason);
        match self.pending.is_some() {
            // No caller has seen it yet.
            true => self.told = true,
            false => self.log_loss(),
        }
    }

    /// Answers the caller that waits for the confirmation, if there is one: none came in time. The lease is dropped,
    /// and so released.
    pub(super) fn give_up(&mut self, cluster: &Cluster) {
        if let Some((reply, _)) = self.pending.take_if(|_| self.shared.validity().is_zero()) {
            let answers = Answers::<Answer>::new(cluster.total());
            let (name, nodes) = (self.shared.name.as_str(), &cluster.settings.nodes);
            let again = Some(cluster.try_again(cluster.needed));
            let report = answers.report(name, cluster.needed, nodes, again);
            let _ = reply.send(Err(Error::TooSlow(report)));
        }
    }

    /// The lease is confirmed. The caller that waits for that gets it. If the caller is gone, the lease is dropped
    /// here, which releases it.
    pub(super) fn confirmed(&mut self) {
        if let Some((reply, lease)) = self.pending.take() {
            drop(reply.send(Ok(Some(lease))));
        }
    }

    /// Logs once that the lease was lost. Does nothing if it was released.
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

/// A random delay. It spreads renewals, so that many leases are not renewed in one burst.
pub(super) fn jitter(cluster: &mut Cluster, ttl: Duration) -> Duration {
    let most = u64::try_from((ttl / 20).as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(cluster.chance.up_to(most))
}
