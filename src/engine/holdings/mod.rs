//! Leases: from the grant to the end (protocol §3, client steps 6 to 9).

mod extension;
mod holding;
mod lacks;
mod release;
mod repair;

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use self::{
    extension::Extension,
    holding::{Holding, reason_of},
    release::Release,
};
use super::{grant::Grant, net::Net, timers::Key};
use crate::{
    Error, Lease, LossReason, Silence,
    base::{ids::ById, logs},
    lease::{
        keeper::{Keeper, LeaseId},
        response::Responder,
        upkeep::Due,
    },
    node::{
        answer::Answer,
        session::{Purpose, RoundId},
    },
};

/// All leases, and what is asked for them.
pub(super) struct Holdings {
    /// What the leases are given: the way back into this engine.
    keeper: Weak<dyn Keeper>,
    leases: BTreeMap<LeaseId, Holding>,
    extensions: ById<RoundId, Extension>,
    releases: ById<RoundId, Release>,
}

impl Holdings {
    pub(super) fn new(keeper: Weak<dyn Keeper>) -> Self {
        Self {
            keeper,
            leases: BTreeMap::new(),
            extensions: ById::default(),
            releases: ById::default(),
        }
    }

    /// A wish was granted: its caller gets the lease.
    pub(super) fn begin(&mut self, net: &mut Net, grant: Grant) {
        let Some(keeper) = self.keeper.upgrade() else {
            return grant.take_back(net);
        };
        // Its id is the round by which it was won: that is how late grants find it.
        let id = lease_of(grant.round);
        let mut holding = Holding::new(net, &grant);
        let Grant {
            wish,
            token,
            lacking,
            ..
        } = grant;
        logs::debug!(name = wish.name().as_str(), token, "acquired");
        repair::complete(net, id, &mut holding, lacking.into_iter());
        let lease = Lease::new(Arc::clone(&holding.shared), keeper, id);
        // Where nothing else would renew it, its caller gets it when it is good for its ttl.
        let waits = holding.upkeep.is_provisional() && !wish.renewal.auto;
        if waits {
            holding.pending = Some((wish.reply, lease));
            self.leases.insert(id, holding);
            return self.lease_due(net, id);
        }
        self.leases.insert(id, holding);
        self.lease_due(net, id);
        // A caller that is gone drops the lease here, which releases it.
        drop(wish.reply.send(Ok(Some(lease))));
    }

    /// A grant that arrives after the win is kept: the lease survives one more node's death.
    pub(super) fn late_grant(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: &Result<Answer, Silence>,
    ) {
        let Some(holding) = self.leases.get_mut(&lease_of(round)) else {
            return;
        };
        let counter = match (answer, holding.target.slot()) {
            (Ok(Answer::Granted(counter) | Answer::Raised(counter)), None) => *counter,
            (Ok(Answer::Slots { mine, .. }), Some(slot)) => match mine {
                Some((mine, counter)) if *mine == slot => *counter,
                _ => return repair::instead(net, lease_of(round), holding, node),
            },
            // Of whichever slot: a repair says it of this one.
            (Ok(Answer::Raised(_)), Some(_)) => return,
            // It may have another slot of ours, or our place in line.
            (_, Some(_)) => return repair::instead(net, lease_of(round), holding, node),
            (_, None) => return,
        };
        holding.lacks.granted(node, counter);
        holding.held_on(node);
    }

    /// Looks whether a lease is to be renewed, or is over.
    pub(super) fn lease_due(&mut self, net: &mut Net, id: LeaseId) {
        loop {
            let Some(holding) = self.leases.get_mut(&id) else {
                return;
            };
            let shared = &holding.shared;
            if holding.upkeep.warn_once(net.now) && !shared.name.is_own() {
                logs::warn!(
                    name = shared.name.as_str(),
                    held_for_ms = logs::ms(shared.held_for()),
                    "a lease has been held for 60 ttl"
                );
            }
            shared.set_reason_at_end(holding.upkeep.reason_at_end());
            if shared.validity().is_zero() {
                let reason = reason_of(shared);
                holding.lose(reason);
                return holding.give_up(net);
            }
            let wait_ends = holding.wait_ends();
            if wait_ends.is_some_and(|at| at <= net.now) {
                holding.lose(LossReason::Expired);
                return holding.give_up(net);
            }
            match holding.upkeep.due(net.now, shared.beat_at()) {
                Due::Lose(reason) => {
                    holding.lose(reason);
                    return holding.give_up(net);
                }
                Due::Wait(at) => {
                    let at = wait_ends.map_or(at, |end| at.min(end));
                    return net.timers.at(Key::Lease(id), at);
                }
                Due::Renew => {
                    holding.upkeep.renewal_sent(net.now);
                    shared.set_reason_at_end(holding.upkeep.reason_at_end());
                    self.send_extension(net, id, None);
                }
            }
        }
    }

    pub(super) fn extend(&mut self, net: &mut Net, id: LeaseId, reply: Responder<()>) {
        match self.leases.get(&id) {
            None => drop(reply.send(Err(Error::Closed))),
            Some(holding) => match holding.shared.lost_now() {
                Some(lost) => drop(reply.send(Err(lost.into()))),
                None => self.send_extension(net, id, Some(reply)),
            },
        }
    }

    /// A writer becomes a reader, with the next extension.
    pub(super) fn downgrade(&mut self, net: &mut Net, id: LeaseId, reply: Responder<()>) {
        let holding = self.leases.get_mut(&id);
        match holding.map(|holding| holding.downgrade(net)) {
            Some(Err(error)) => drop(reply.send(Err(error))),
            Some(Ok(())) | None => self.extend(net, id, reply),
        }
    }

    pub(super) fn extension_heard(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        if let Some(extension) = self.extensions.get_mut(&round) {
            let holding = self.leases.get_mut(&extension.lease());
            extension.heard(net, holding, node, answer);
            self.look_at_extension(net, round);
        }
    }

    /// A node's answer to a repair.
    pub(super) fn repair_heard(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        said: Option<&Answer>,
    ) {
        if let Some(holding) = self.leases.get_mut(&lease_of(round)) {
            repair::heard(net, lease_of(round), holding, node, said);
        }
    }

    /// Frees what is held. Where nobody waits for the answer, `reply` is none.
    pub(super) fn release(&mut self, net: &mut Net, id: LeaseId, reply: Option<Responder<()>>) {
        let Some(mut holding) = self.take(net, id) else {
            if let Some(reply) = reply {
                let _ = reply.send(Err(Error::Closed));
            }
            return;
        };
        // Its holder may have seen the end of its time before we did.
        holding.log_loss();
        logs::debug!(name = holding.shared.name.as_str(), "released");
        if let Some((round, release)) = Release::begin(net, holding, reply) {
            self.releases.insert(round, release);
            self.look_at_release(net, round);
        }
    }

    pub(super) fn release_heard(
        &mut self,
        net: &mut Net,
        round: RoundId,
        node: usize,
        answer: Result<Answer, Silence>,
    ) {
        if let Some(release) = self.releases.get_mut(&round) {
            release.heard(node, answer);
            self.look_at_release(net, round);
        }
    }

    /// Leaves it to its ttl.
    pub(super) fn abandon(&mut self, net: &mut Net, id: LeaseId) {
        self.take(net, id);
    }

    /// Answers to an extension are due.
    pub(super) fn extension_due(&mut self, net: &mut Net, round: RoundId) {
        if let Some(extension) = self.extensions.get_mut(&round) {
            extension.due(net, round);
            self.look_at_extension(net, round);
        }
    }

    /// Answers to a release are due.
    pub(super) fn release_due(&mut self, net: &mut Net, round: RoundId) {
        if let Some(release) = self.releases.get_mut(&round) {
            release.due(net, round);
            self.look_at_release(net, round);
        }
    }

    // ---- the end of the engine --------------------------------------------------------------

    /// Whether there are leases that were not dropped yet.
    pub(super) fn is_any_held(&self) -> bool {
        !self.leases.is_empty()
    }

    /// Whether nothing is held, and nobody waits for a release.
    pub(super) fn is_clean(&self) -> bool {
        self.leases.is_empty() && self.releases.is_empty()
    }

    /// The names that users hold.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.leases.values().map(|holding| &holding.shared.name);
        let names = names.filter(|name| !name.is_own());
        names.map(|name| name.as_str().to_owned()).collect()
    }

    /// Nobody renews any more: all are lost.
    pub(super) fn lose_all(&mut self) {
        for holding in self.leases.values_mut() {
            holding.lose(LossReason::NodesLost);
        }
    }

    /// The engine ends. What is lost with it is no news, and nobody waits for an answer.
    pub(super) fn end(&mut self) {
        for holding in self.leases.values_mut() {
            holding.told = true;
            holding.shared.lose(LossReason::NodesLost);
        }
        self.extensions.clear();
        self.releases.clear();
    }

    /// How many extensions and releases are under way.
    pub(super) fn under_way(&self) -> usize {
        self.extensions.len() + self.releases.len()
    }

    /// What is kept: leases, and rounds under way.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn len(&self) -> [usize; 2] {
        [self.leases.len(), self.under_way()]
    }

    #[cfg(test)]
    pub(super) fn first(&self) -> Option<LeaseId> {
        self.leases.keys().next().copied()
    }

    // ---- inside -----------------------------------------------------------------------------

    fn take(&mut self, net: &mut Net, id: LeaseId) -> Option<Holding> {
        net.timers.cancel(Key::Lease(id));
        self.leases.remove(&id)
    }

    fn send_extension(&mut self, net: &mut Net, id: LeaseId, reply: Option<Responder<()>>) {
        let Some(holding) = self.leases.get(&id) else {
            return;
        };
        let (round, extension) = Extension::begin(net, id, holding, reply);
        self.extensions.insert(round, extension);
        self.look_at_extension(net, round);
    }

    fn look_at_extension(&mut self, net: &mut Net, round: RoundId) {
        let Some(extension) = self.extensions.get_mut(&round) else {
            return;
        };
        let (id, held) = (extension.lease(), self.leases.len());
        let decided = extension.decide(net, self.leases.get_mut(&id), held);
        if extension.is_over() {
            net.timers.cancel(Key::of(Purpose::Extend.of(round)));
            self.extensions.remove(&round);
        }
        if decided {
            self.lease_due(net, id);
        }
    }

    fn look_at_release(&mut self, net: &mut Net, round: RoundId) {
        if !self.releases.get(&round).is_some_and(Release::is_decided) {
            return;
        }
        net.timers.cancel(Key::of(Purpose::Release.of(round)));
        if let Some(release) = self.releases.remove(&round) {
            release.end(net);
        }
    }
}

fn lease_of(round: RoundId) -> LeaseId {
    LeaseId(round.0)
}
