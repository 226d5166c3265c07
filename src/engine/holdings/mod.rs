//! Leases, from the grant to the end (protocol §3, client steps 6 to 9).

mod extension;
mod held_lease;
mod lacks;
mod limits;
mod release;
mod repair;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use self::{
    extension::Extension,
    held_lease::{HeldLease, reason_of},
    limits::Limits,
    release::Release,
};
use super::{
    cluster::Cluster,
    event::Caller,
    grant::Grant,
    timers::Key,
    wants::{Kind, names_of},
};
use crate::{
    Lease, LossReason, Silence,
    base::{clock::Tick, ids::ById, limit::Limit, logs, name::Name},
    lease::{
        keeper::{Keeper, LeaseId},
        response::Responder,
        upkeep::Due,
    },
    node::{
        answer::{Answer, Slots},
        request::Target,
        session::{Purpose, RoundId},
    },
};

/// A lease that may be waited for.
pub(super) struct OwnLease<'l> {
    pub(super) caller: Caller,
    pub(super) kind: Kind,
    pub(super) names: &'l [Name],
    pub(super) since: Tick,
    /// Its holder's entry.
    pub(super) entry: &'l str,
}

/// All leases, and the extensions and releases that are under way for them.
pub(super) struct Holdings {
    /// The handle that leases use to send events to this engine.
    keeper: Weak<dyn Keeper>,
    leases: BTreeMap<LeaseId, HeldLease>,
    extensions: ById<RoundId, Extension>,
    releases: ById<RoundId, Release>,
    limits: Limits,
}

impl Holdings {
    pub(super) fn new(keeper: Weak<dyn Keeper>) -> Self {
        Self {
            keeper,
            leases: BTreeMap::new(),
            extensions: ById::default(),
            releases: ById::default(),
            limits: Limits::default(),
        }
    }

    /// An acquisition was granted. Its caller gets the lease.
    pub(super) fn begin(&mut self, cluster: &mut Cluster, grant: Grant) {
        let Some(keeper) = self.keeper.upgrade() else {
            return grant.won.take_back(cluster);
        };
        // The lease's id is the round that won it, so that late grants find it.
        let Grant { acquisition, won } = grant;
        let id = lease_of(won.round);
        let mut held = HeldLease::new(cluster, &acquisition, &won);
        logs::debug!(
            name = acquisition.name().as_str(),
            token = won.token,
            "acquired"
        );
        repair::complete(cluster, id, &mut held, won.lacking.into_iter());
        let lease = Lease::new(Arc::clone(&held.shared), keeper, id);
        // If nothing else would renew it, its caller gets the lease only when it is good for its whole ttl.
        let waits = held.upkeep.is_provisional() && !acquisition.request.renewal.auto;
        if waits {
            held.pending = Some((acquisition.reply, lease));
            self.insert(id, held);
            return self.lease_due(cluster, id);
        }
        self.insert(id, held);
        self.lease_due(cluster, id);
        // If the caller is gone, the lease is dropped here, which releases it.
        drop(acquisition.reply.send(Ok(Some(lease))));
    }

    /// A grant that arrives after the win is kept, so that the lease survives the death of one more node.
    pub(super) fn late_grant(
        &mut self,
        cluster: &mut Cluster,
        round: RoundId,
        node: usize,
        answer: &Result<Answer, Silence>,
    ) {
        let Some(held) = self.leases.get_mut(&lease_of(round)) else {
            return;
        };
        let counter = match (answer, held.target.slot()) {
            (Ok(Answer::Granted(counter) | Answer::Raised(counter)), None) => *counter,
            (Ok(Answer::Slots(Slots { mine, .. })), Some(slot)) => match mine {
                Some((mine, counter)) if *mine == slot => *counter,
                _ => return repair::instead(cluster, lease_of(round), held, node),
            },
            // This answer does not say which slot it is about. A repair makes sure that it is this one.
            (Ok(Answer::Raised(_)), Some(_)) => return,
            // The node may hold another slot for this entry, or its place in the queue.
            (_, Some(_)) => return repair::instead(cluster, lease_of(round), held, node),
            (_, None) => return,
        };
        held.lacks.granted(node, counter);
        held.add_held(node);
    }

    /// The leases of these callers.
    pub(super) fn of_callers(
        &self,
        now: Tick,
        is_one: impl Fn(Caller) -> bool,
    ) -> impl Iterator<Item = OwnLease<'_>> {
        let all = self.leases.values().filter(move |held| is_one(held.caller));
        all.map(move |held| {
            let (kind, names) = names_of(&held.target);
            OwnLease {
                caller: held.caller,
                kind,
                names,
                since: now.minus(held.shared.held_for()),
                entry: held.entry.as_str(),
            }
        })
    }

    /// Checks if a lease has to be renewed, or is over.
    pub(super) fn lease_due(&mut self, cluster: &mut Cluster, id: LeaseId) {
        loop {
            let Some(held) = self.leases.get_mut(&id) else {
                return;
            };
            let shared = &held.shared;
            if held.upkeep.warn_once(cluster.now) && !shared.name.is_own() {
                logs::warn!(
                    name = shared.name.as_str(),
                    held_for_ms = logs::ms(shared.held_for()),
                    "a lease has been held for 60 ttl"
                );
            }
            shared.set_reason_at_end(held.upkeep.reason_at_end());
            if shared.validity().is_zero() {
                let reason = reason_of(shared);
                held.lose(reason);
                return held.give_up(cluster);
            }
            let wait_ends = held.wait_ends();
            if wait_ends.is_some_and(|at| at <= cluster.now) {
                held.lose(LossReason::Expired);
                return held.give_up(cluster);
            }
            match held.upkeep.due(cluster.now, shared.beat_at()) {
                Due::Lose(reason) => {
                    held.lose(reason);
                    return held.give_up(cluster);
                }
                Due::Wait(at) => {
                    let at = wait_ends.map_or(at, |end| at.min(end));
                    debug_assert!(at > cluster.now, "the next look is not in the future");
                    return cluster.timers.at(Key::Lease(id), at);
                }
                Due::Renew => {
                    held.upkeep.renewal_sent(cluster.now);
                    shared.set_reason_at_end(held.upkeep.reason_at_end());
                    // If it is decided already, this loop sees it.
                    self.send_extension(cluster, id, None);
                }
            }
        }
    }

    pub(super) fn extend(&mut self, cluster: &mut Cluster, id: LeaseId, reply: Responder<()>) {
        match self.leases.get(&id) {
            None => drop(reply),
            Some(held) => match held.shared.lost_now() {
                Some(lost) => drop(reply.send(Err(lost.into()))),
                None => {
                    let decided = self.send_extension(cluster, id, Some(reply));
                    self.look_at_lease(cluster, decided);
                }
            },
        }
    }

    /// A writer becomes a reader with the next extension.
    pub(super) fn downgrade(&mut self, cluster: &mut Cluster, id: LeaseId, reply: Responder<()>) {
        let held = self.leases.get_mut(&id);
        match held.map(|held| held.downgrade(cluster)) {
            Some(Err(error)) => drop(reply.send(Err(error))),
            Some(Ok(())) | None => self.extend(cluster, id, reply),
        }
    }

    pub(super) fn extension_heard(
        &mut self,
        cluster: &mut Cluster,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        if let Some(extension) = self.extensions.get_mut(&round) {
            let held = self.leases.get_mut(&extension.lease());
            extension.heard(cluster, held, node, answer);
            let decided = self.look_at_extension(cluster, round);
            self.look_at_lease(cluster, decided);
        }
    }

    /// Handles a node's answer to a repair.
    pub(super) fn repair_heard(
        &mut self,
        cluster: &mut Cluster,
        round: RoundId,
        node: usize,
        said: Option<&Answer>,
    ) {
        if let Some(held) = self.leases.get_mut(&lease_of(round)) {
            repair::heard(cluster, lease_of(round), held, node, said);
        }
    }

    /// Handles the limit of a semaphore that stands on a node, told after a repair.
    pub(super) fn limit_heard(&mut self, cluster: &mut Cluster, round: RoundId, limit: Limit) {
        self.limits.heard(cluster, round, limit);
    }

    /// Releases a lease. `reply` is `None` if no caller waits for the answer.
    pub(super) fn release(
        &mut self,
        cluster: &mut Cluster,
        id: LeaseId,
        reply: Option<Responder<()>>,
    ) {
        let Some(mut held) = self.take(cluster, id) else {
            return;
        };
        // The lease's time may have ended before the engine noticed it.
        held.log_loss();
        logs::debug!(name = held.shared.name.as_str(), "released");
        if let Some((round, release)) = Release::begin(cluster, held, reply) {
            let before = self.releases.insert(round, release);
            debug_assert!(before.is_none(), "two releases of one round");
            self.look_at_release(cluster, round);
        }
    }

    pub(super) fn release_heard(
        &mut self,
        cluster: &mut Cluster,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        if let Some(release) = self.releases.get_mut(&round) {
            release.heard(node, answer);
            self.look_at_release(cluster, round);
        }
    }

    /// Leaves the lease to its ttl.
    pub(super) fn abandon(&mut self, cluster: &mut Cluster, id: LeaseId) {
        self.take(cluster, id);
    }

    /// The answers to an extension are due.
    pub(super) fn extension_due(&mut self, cluster: &mut Cluster, round: RoundId) {
        if let Some(extension) = self.extensions.get_mut(&round) {
            extension.due(cluster, round);
            let decided = self.look_at_extension(cluster, round);
            self.look_at_lease(cluster, decided);
        }
    }

    /// The answers to a release are due.
    pub(super) fn release_due(&mut self, cluster: &mut Cluster, round: RoundId) {
        if let Some(release) = self.releases.get_mut(&round) {
            release.due(cluster, round);
            self.look_at_release(cluster, round);
        }
    }

    // ---- the end of the engine --------------------------------------------------------------

    /// Returns true while there are leases that were not dropped yet.
    pub(super) fn is_any_held(&self) -> bool {
        !self.leases.is_empty()
    }

    /// Returns true if no lease is held and no caller waits for a release.
    pub(super) fn is_clean(&self) -> bool {
        self.leases.is_empty() && self.releases.is_empty()
    }

    /// The names that users hold.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.leases.values().map(|held| &held.shared.name);
        let names = names.filter(|name| !name.is_own());
        names.map(|name| name.as_str().to_owned()).collect()
    }

    /// Nothing renews the leases any more, so all of them are lost.
    pub(super) fn lose_all(&mut self) {
        for held in self.leases.values_mut() {
            held.lose(LossReason::NodesLost);
        }
    }

    /// The engine ends. These losses are not logged, and no caller waits for an answer.
    pub(super) fn end(&mut self) {
        for held in self.leases.values_mut() {
            held.told = true;
            held.shared.lose(LossReason::NodesLost);
        }
        self.extensions.clear();
        self.releases.clear();
    }

    /// The number of extensions and releases that are under way.
    pub(super) fn under_way(&self) -> usize {
        self.extensions.len() + self.releases.len()
    }

    /// The number of leases, and of rounds under way.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> [usize; 2] {
        [self.leases.len(), self.under_way()]
    }

    #[cfg(test)]
    pub(super) fn first(&self) -> Option<LeaseId> {
        self.leases.keys().next().copied()
    }

    // ---- inside -----------------------------------------------------------------------------

    fn insert(&mut self, id: LeaseId, held: HeldLease) {
        let before = self.leases.insert(id, held);
        debug_assert!(before.is_none(), "two leases of one round");
    }

    fn take(&mut self, cluster: &mut Cluster, id: LeaseId) -> Option<HeldLease> {
        cluster.timers.cancel(Key::Lease(id));
        self.leases.remove(&id)
    }

    /// Returns the lease if the extension is decided already.
    fn send_extension(
        &mut self,
        cluster: &mut Cluster,
        id: LeaseId,
        reply: Option<Responder<()>>,
    ) -> Option<LeaseId> {
        let held = self.leases.get(&id)?;
        let (round, extension) = Extension::begin(cluster, id, held, reply);
        let before = self.extensions.insert(round, extension);
        debug_assert!(before.is_none(), "two extensions of one round");
        self.look_at_extension(cluster, round)
    }

    /// Returns the lease if the extension was decided now.
    fn look_at_extension(&mut self, cluster: &mut Cluster, round: RoundId) -> Option<LeaseId> {
        let extension = self.extensions.get_mut(&round)?;
        let (id, leases) = (extension.lease(), self.leases.len());
        let decided = extension.decide(cluster, self.leases.get_mut(&id), leases);
        if let Some(held) = self.leases.get_mut(&id)
            && std::mem::take(&mut held.owes_limit)
            && let (Target::Slot(pool, _), Some(limit)) = (&held.target, held.limit)
        {
            self.limits.put_back(cluster, pool, limit);
        }
        if extension.is_over() {
            cluster.timers.cancel(Key::of(Purpose::Extend.of(round)));
            self.extensions.remove(&round);
        }
        decided.then_some(id)
    }

    /// `decided`: the lease whose extension was decided, if any.
    fn look_at_lease(&mut self, cluster: &mut Cluster, decided: Option<LeaseId>) {
        if let Some(id) = decided {
            self.lease_due(cluster, id);
        }
    }

    fn look_at_release(&mut self, cluster: &mut Cluster, round: RoundId) {
        if !self.releases.get(&round).is_some_and(Release::is_decided) {
            return;
        }
        cluster.timers.cancel(Key::of(Purpose::Release.of(round)));
        if let Some(release) = self.releases.remove(&round) {
            release.end(cluster);
        }
    }
}

fn lease_of(round: RoundId) -> LeaseId {
    LeaseId(round.0)
}
