//! The requests to one node: how each is sent, and what follows when it is answered, taken back or lost. This file
//! keeps the order and the doubts. An ACQUIRE is sent once, and its RELEASE until it is answered. The RELEASE is sent
//! once more if an older connection that may still carry the ACQUIRE was not ended before.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    doubtful::Doubtful,
    duty::{Duties, DutyId},
    fault,
    inflight::{InFlight, Sent, What},
    step::{ClientId, Effect, Heard, Step, Tag},
};
use crate::{
    Silence,
    base::{clock::Tick, rules::Rule},
    node::{
        Fault, Guard, Operation,
        answer::{Answer, Answered},
        request::Request,
        server,
        settings::Settings,
    },
};

pub(super) struct Requests {
    node: usize,
    client: ClientId,
    /// The guard that guarded requests carry to this node.
    guard: Arc<Guard>,
    pub(super) inflight: InFlight,
    pub(super) duties: Duties,
    doubtful: Doubtful,
    /// A handshake has said which run this connection leads to, and what older connections left behind is being cleaned
    /// up. Nothing is released before.
    clean: bool,
}

impl Requests {
    pub(super) fn new(node: usize, now: Tick) -> Self {
        Self {
            node,
            client: ClientId(0),
            guard: Arc::default(),
            inflight: InFlight::new(now),
            duties: Duties::default(),
            doubtful: Doubtful::default(),
            clean: false,
        }
    }

    // ---- what is sent -----------------------------------------------------------------------

    pub(super) fn send(&mut self, step: &mut Step<'_>, operation: Arc<Operation>, what: What) {
        self.put(step, Sent::new(operation, what, step.now));
    }

    /// Sends the scripts, unless they are on their way already.
    pub(super) fn load_scripts(&mut self, step: &mut Step<'_>) {
        if !self.inflight.is_under_way(What::Load) {
            let operation = Operation::new(server::Command::LoadScripts);
            self.send(step, operation, What::Load);
        }
    }

    /// Sends the RELEASE now, if the connection is clean, and then again until it is answered.
    pub(super) fn release(
        &mut self,
        step: &mut Step<'_>,
        operation: &Arc<Operation>,
        until: Tick,
        tag: Option<Tag>,
    ) -> DutyId {
        let now = self.clean;
        let id = self.duties.add(Arc::clone(operation), until, tag, now);
        if now {
            self.send_release(step, id);
        }
        id
    }

    /// Returns true if the node is about to confirm a RELEASE. `meets` is true if a handshake is unanswered: releases
    /// that wait for a connection are sent behind it. A RELEASE that was answered by an error is sent again, but nobody
    /// waits for that.
    pub(super) fn is_confirming(&self, meets: bool) -> bool {
        let is_expected = match self.clean {
            true => self.duties.is_any_under_way(),
            false => meets && !self.duties.is_empty(),
        };
        is_expected && self.inflight.stalled().is_none()
    }

    /// The time at which a RELEASE is sent again, if this node may be asked then.
    pub(super) fn next_retry(&self) -> Option<Tick> {
        let may_retry = self.clean && self.inflight.stalled().is_none();
        self.duties.next_retry().filter(|_| may_retry)
    }

    /// Sends each RELEASE again that is due.
    pub(super) fn retry(&mut self, step: &mut Step<'_>) {
        if self.next_retry().is_some() {
            for id in self.duties.due(step.now) {
                self.send_release(step, id);
            }
        }
    }

    /// Sends requests that waited, as many as there is room for now.
    pub(super) fn send_waiting(&mut self, step: &mut Step<'_>) {
        while let Some(operation) = self.inflight.next_waiting(step.now) {
            self.fly(step, operation);
        }
    }

    fn send_release(&mut self, step: &mut Step<'_>, id: DutyId) {
        if let Some(operation) = self.duties.sent(id) {
            self.send(step, operation, What::Release(id));
        }
    }

    fn put(&mut self, step: &mut Step<'_>, sent: Sent) {
        if let Some(operation) = self.inflight.add(sent) {
            self.fly(step, operation);
        }
    }

    fn fly(&self, step: &mut Step<'_>, operation: Arc<Operation>) {
        let guard = Arc::clone(&self.guard);
        step.effects
            .push_back(Effect::Send(self.node, operation, guard));
    }

    // ---- what is answered -------------------------------------------------------------------

    /// Handles the answer to a vote, a RELEASE or a CLIENT KILL. The other requests need nothing here.
    pub(super) fn answered(&mut self, step: &mut Step<'_>, sent: Sent, answer: Answered) {
        match sent.what {
            What::Vote(tag) => self.voted(step, tag, sent, answer),
            What::Release(id) => self.released(step, id, sent, answer),
            // If the right is missing, the connection's note says so. After another error it is tried again, behind the
            // next handshake.
            What::Kill(client) if matches!(answer, Ok(_) | Err(Fault::Withheld(_))) => {
                match answer {
                    Ok(_) => self.doubtful.settle(client),
                    Err(_) => self.doubtful.withhold(client),
                }
                self.release_again(step);
            }
            What::Kill(_) | What::Load | What::Handshake => {}
        }
    }

    fn voted(&mut self, step: &mut Step<'_>, tag: Tag, sent: Sent, answer: Answered) {
        // A request that takes something is not sent again, because it would pass its own RELEASE. Others may be sent
        // again.
        let harmless = !sent.takes() || !step.settings.rules.hold(Rule::AcquireOnce);
        if answer == Err(Fault::NoScript) && harmless && !sent.again {
            return self.put(step, sent.again(step.now));
        }
        let answer = answer.and_then(Answer::credible).map_err(fault::silence);
        // An older request may still come and undo what this answer says, so the answer is no vote.
        let may_be_undone = sent.holds(|entry| self.doubtful.may_undo(entry));
        let answer = match may_be_undone && step.settings.rules.hold(Rule::MoveForgets) {
            true => Err(Silence::ConnectionLost),
            false => answer,
        };
        self.tell(step, tag, answer);
    }

    fn released(&mut self, step: &mut Step<'_>, id: DutyId, sent: Sent, answer: Answered) {
        let proves_nothing = sent.frees(|entry| self.doubtful.may_take(entry));
        match answer {
            Ok(_) if proves_nothing && step.settings.rules.hold(Rule::ReleaseBehindKill) => {
                self.duties.doubt(id);
            }
            Ok(reply) => {
                if let Some(tag) = self.duties.done(id) {
                    let answer = match reply.is_unadmitted() {
                        true => Err(Silence::NotAdmitted),
                        false => Ok(reply),
                    };
                    self.tell(step, tag, answer);
                }
            }
            Err(_) if !step.settings.rules.hold(Rule::ReleaseUntilAnswered) => {
                self.duties.done(id);
            }
            Err(Fault::NoScript) if !sent.again && self.duties.is_owed(id) => {
                self.put(step, sent.again(step.now));
            }
            Err(Fault::Withheld(text) | Fault::Error(text)) => {
                self.duties.failed(id, step.now, Some(text));
            }
            Err(Fault::NotAdmitted | Fault::NoScript) => self.duties.failed(id, step.now, None),
        }
    }

    /// The guard that requests carry to this node.
    pub(super) fn guard(&self) -> &str {
        self.guard.as_str()
    }

    /// Sets the guard of the record that was read here.
    pub(super) fn set_guard(&mut self, guard: String) {
        if guard != self.guard.as_str() {
            self.guard = Guard::new(guard);
        }
    }

    /// A handshake said that the server is in this run. Ends older connections that may still carry an ACQUIRE or a
    /// REPAIR. Then, if it is the first handshake of this connection, sends the releases that are owed.
    pub(super) fn clean_up(&mut self, step: &mut Step<'_>, run: &str) {
        if step.settings.rules.hold(Rule::KillSameRunOnly) {
            self.doubtful.keep_run(run);
        }
        for client in self.doubtful.clients() {
            if !self.inflight.is_under_way(What::Kill(client)) {
                let operation = Operation::new(server::Command::Disconnect { client: client.0 });
                self.send(step, operation, What::Kill(client));
            }
        }
        if !self.clean {
            self.clean = true;
            for id in self.duties.unanswered() {
                self.send_release(step, id);
            }
        }
        self.release_again(step);
    }

    /// Sends each RELEASE again whose answer proved nothing, if it proves something now because the older connection is
    /// over.
    fn release_again(&mut self, step: &mut Step<'_>) {
        let Self {
            duties, doubtful, ..
        } = self;
        for id in duties.doubted(|entry| !doubtful.may_take(entry)) {
            self.send_release(step, id);
        }
    }

    // ---- what is not answered ---------------------------------------------------------------

    /// No request to this node counts as late before this time. `None` if the node is stalled or owes nothing, or if
    /// this RELEASE was not sent at once.
    pub(super) fn patience(&self, release: Option<DutyId>, settings: &Settings) -> Option<Tick> {
        let is_prompt = release.is_none_or(|id| self.duties.is_prompt(id));
        let may_wait = is_prompt && self.inflight.stalled().is_none();
        self.inflight.late_at(settings).filter(|_| may_wait)
    }

    /// If the node is stalled from now on, because its oldest request was late at `seen`, takes back what can be taken
    /// back. Returns true if it is.
    pub(super) fn stall(&mut self, step: &mut Step<'_>, seen: Tick) -> bool {
        let Some(waiting) = self.inflight.stall(seen, step.settings) else {
            return false;
        };
        step.effects.push_back(Effect::Withdraw(self.node));
        let owed = self.take_back(step, waiting, &Silence::Stalled);
        self.send_again(step, &owed);
        true
    }

    /// The connection took back operations. See [`InFlight::withdrawn`].
    pub(super) fn withdrawn(&mut self, step: &mut Step<'_>, taken: usize, behind: usize) {
        let taken = self.inflight.withdrawn(taken, behind);
        let owed = self.take_back(step, taken, &Silence::Stalled);
        self.send_again(step, &owed);
    }

    /// Sends these releases again on the connection that took them back. A stalled node may still carry out what each
    /// of them frees, long after this process has ended. So they must stay behind it on the same connection.
    fn send_again(&mut self, step: &mut Step<'_>, owed: &[DutyId]) {
        for &id in owed {
            self.duties.delayed(id);
            self.send_release(step, id);
        }
    }

    /// A connection was opened.
    pub(super) fn connected(&mut self, now: Tick, client: ClientId) {
        self.client = client;
        self.inflight.connected(now);
    }

    /// The connection is over. `run` is the server's run, as last read.
    pub(super) fn lost(&mut self, step: &mut Step<'_>, why: &str, run: Option<&str>) {
        self.clean = false;
        let lost = self.inflight.lost();
        let may_take = lost.may_take();
        if let (false, Some(run)) = (may_take.is_empty(), run) {
            self.doubtful.add(self.client, run.to_owned(), may_take);
        }
        for sent in lost.sent {
            match sent.what {
                What::Vote(tag) => self.tell(step, tag, Err(Silence::ConnectionLost)),
                What::Release(id) => self.duties.unsent(id, step.now),
                What::Handshake | What::Load | What::Kill(_) => {}
            }
        }
        let waiting = Silence::Unreachable(why.to_owned());
        for id in self.take_back(step, lost.waiting, &waiting) {
            self.duties.unsent(id, step.now);
        }
    }

    /// These requests never left. If the first request of an entry never left, its RELEASE has nothing to free. (A
    /// REPAIR that never left proves nothing, because its ACQUIRE did leave.) Returns the other releases, in their
    /// order.
    fn take_back(
        &mut self,
        step: &mut Step<'_>,
        taken: VecDeque<Sent>,
        why: &Silence,
    ) -> Vec<DutyId> {
        let mut never_taken = BTreeSet::new();
        let mut owed = Vec::new();
        for sent in taken {
            match sent.what {
                What::Vote(tag) => {
                    never_taken.extend(
                        sent.operation
                            .command()
                            .entry_that(Request::begins)
                            .cloned(),
                    );
                    self.tell(step, tag, Err(why.clone()));
                }
                What::Release(id) if sent.frees(|entry| never_taken.contains(entry)) => {
                    if let Some(tag) = self.duties.done(id) {
                        self.tell(step, tag, Err(why.clone()));
                    }
                }
                What::Release(id) => owed.push(id),
                What::Handshake | What::Load | What::Kill(_) => {}
            }
        }
        owed
    }

    fn tell(&self, step: &mut Step<'_>, tag: Tag, answer: Result<Answer, Silence>) {
        step.heard.push_back(Heard::Answer {
            tag,
            node: self.node,
            answer,
        });
    }
}
