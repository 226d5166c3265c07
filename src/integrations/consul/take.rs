//! Taking permits, by one transaction that is not cut short once it was sent, and giving them back.

use std::{sync::Arc, time::Duration};

use futures::future;
use tokio::{sync::oneshot, time::sleep};

use super::{
    agent::Agent,
    agreed::Settled,
    fault::Fault,
    place::Place,
    record::{Form, Id, RECORD, View, unlock},
    sessions::{Renewed, Session},
    wire::{Refusal, Step},
};
use crate::{
    Error, FencingToken, LossReason, Lost,
    base::{clock::Tick, name::Name},
};

/// How often a change of the record is tried. If others change it all the time, they leave dead holders out of it.
const ATTEMPTS: usize = 20;
/// The rest between two attempts.
const REST: Duration = Duration::from_millis(50);

/// The outcome of an attempt to take permits.
pub(super) enum Taken {
    Yes(Permits),
    /// Nothing was done.
    Refused(Vec<Session>, Refusal),
    /// Consul did not answer. If it may have been done, the sessions are destroyed.
    Fault(Vec<Session>, Fault),
}

/// The permits that are held: a session for each.
pub(super) struct Permits {
    agent: Arc<Agent>,
    place: Arc<Place>,
    name: Name,
    form: Form,
    ttl: Duration,
    sessions: Vec<Session>,
    /// The view at the taking, or the watcher's view since.
    view: View,
    token: FencingToken,
}

/// Sends the transaction. If the caller is gone before the answer, the permits are given back.
pub(super) async fn take(attempt: Attempt) -> Result<Taken, Error> {
    let (sender, answer) = oneshot::channel();
    let agent = Arc::clone(&attempt.agent);
    let ending = Arc::clone(agent.ending());
    agent.spawn(async move {
        if let Err(Taken::Yes(permits)) = sender.send(attempt.run().await) {
            drop(permits.give_back().await);
        }
    });
    answer.await.map_err(|_| ending.error())
}

/// An attempt to take permits, according to a view.
pub(super) struct Attempt {
    pub(super) agent: Arc<Agent>,
    pub(super) place: Arc<Place>,
    pub(super) name: Name,
    pub(super) form: Form,
    pub(super) limit: u32,
    /// The limit must not change before the answer is there.
    pub(super) _settled: Settled,
    pub(super) ttl: Duration,
    pub(crate) label: Arc<str>,
    pub(super) view: View,
    pub(super) sessions: Vec<Session>,
}

impl Attempt {
    async fn run(mut self) -> Taken {
        let (agent, folder) = (&self.agent, &self.place.folder);
        let ids = ids_of(&self.sessions);
        let steps = self
            .view
            .take(self.form, folder, self.limit, &ids, &self.label);
        let now = agent.now();
        // Sessions that have grown old are renewed at the same time, for the whole TTL.
        let renewal = match self.sessions.iter().all(|one| one.life().is_fresh(now)) {
            true => None,
            false => Some(Session::renewal(&self.sessions)),
        };
        let renewal = future::OptionFuture::from(renewal);
        let (answer, renewed) = future::join(agent.http.transact(&steps), renewal).await;
        if let Some(Ok(Renewed::At(at))) = renewed {
            self.sessions.iter_mut().for_each(|one| one.renewed(at));
        }
        let outcome = match answer {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(refusal)) => return Taken::Refused(self.sessions, refusal),
            Err(fault) if fault.is_certain => return Taken::Fault(self.sessions, fault),
            Err(fault) => return Taken::Fault(Vec::new(), fault),
        };
        let index = outcome.written_at(&format!("{folder}{RECORD}"));
        let token = index.and_then(|index| Some((index, FencingToken::try_from(index).ok()?)));
        let Some((index, token)) = token else {
            return Taken::Fault(Vec::new(), Fault::unreadable(&"it names no index"));
        };
        let view = self.view.after_take(self.limit, &ids, &self.label, index);
        Taken::Yes(Permits {
            agent: self.agent,
            place: self.place,
            name: self.name,
            form: self.form,
            ttl: self.ttl,
            sessions: self.sessions,
            view,
            token,
        })
    }
}

impl Permits {
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    pub(super) fn token(&self) -> FencingToken {
        self.token
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(super) fn place(&self) -> &Arc<Place> {
        &self.place
    }

    pub(super) fn sessions(&self) -> &[Session] {
        &self.sessions
    }

    /// The end until which all sessions can be relied on.
    pub(super) fn good_until(&self) -> Tick {
        let ends = self.sessions.iter().map(|one| one.life().good_until());
        ends.min().unwrap_or_default()
    }

    /// Returns true if the permits are still of use.
    pub(super) fn is_in_time(&self) -> bool {
        let now = self.agent.now();
        self.sessions.iter().all(|one| one.life().is_in_time(now))
    }

    pub(super) fn renewed(&mut self, at: Tick) {
        self.sessions.iter_mut().for_each(|one| one.renewed(at));
    }

    /// Takes a view from a watcher. Returns false if it shows that the permits are lost. A view older than the grant
    /// says nothing.
    pub(super) fn sees(&mut self, view: View) -> bool {
        if self.is_newer_than(view.index) {
            return true;
        }
        self.view = view;
        self.view.is_held_by(&ids_of(&self.sessions))
    }

    /// Returns true if the grant is newer than this index, so a view of that index says nothing about it.
    pub(super) fn is_newer_than(&self, index: u64) -> bool {
        index < self.view.index
    }

    /// Leaves the permits to the TTL of the sessions.
    pub(super) fn abandon(self) {
        self.sessions.into_iter().for_each(Session::leave);
    }

    /// Gives the permits back, and waits for the confirmation.
    ///
    /// # Errors
    /// - `Lost` if the permits were lost before.
    /// - `NoQuorum`: the sessions are destroyed in the background.
    pub(super) async fn give_back(self) -> Result<(), Error> {
        let ids = ids_of(&self.sessions);
        let left = match self.form {
            Form::Lock => self.unlock(&ids).await,
            Form::Semaphore => self.leave(&ids).await,
        };
        match left {
            Ok(Left::Free) => {
                self.sessions.into_iter().for_each(Session::rest);
                Ok(())
            }
            Ok(Left::Busy) => self.end().await,
            Ok(Left::NotOurs) => Err(Lost {
                reason: LossReason::Evicted,
            }
            .into()),
            Err(fault) => Err(fault.error(self.name.as_str(), &self.agent.http.node)),
        }
    }

    async fn unlock(&self, ids: &[Id]) -> Result<Left, Fault> {
        let steps: Vec<Step> = ids
            .iter()
            .flat_map(|id| unlock(&self.place.folder, id))
            .collect();
        Ok(match self.agent.http.transact(&steps).await? {
            Ok(_) => Left::Free,
            Err(_) => Left::NotOurs,
        })
    }

    async fn leave(&self, ids: &[Id]) -> Result<Left, Fault> {
        let (http, folder) = (&self.agent.http, &self.place.folder);
        let mut view = self.newest();
        for _ in 0..ATTEMPTS {
            if http.transact(&view.leave(folder, ids)).await?.is_ok() {
                let is_ours = view.is_held_by(ids);
                return Ok(if is_ours { Left::Free } else { Left::NotOurs });
            }
            // The waiters are served sooner if it is not tried again.
            if view.is_waited_for() {
                break;
            }
            let (pairs, index) = http.list(folder, None).await?;
            view = match View::read(self.form, folder, &pairs, index) {
                Ok(view) => view,
                Err(_) => return Ok(Left::NotOurs),
            };
        }
        Ok(Left::Busy)
    }

    /// The newest view that is known.
    fn newest(&self) -> View {
        let known = self.place.known();
        let newer = known.filter(|keys| !self.is_newer_than(keys.index()));
        let newer = newer.and_then(|keys| keys.view(self.form, &self.place.folder).ok());
        newer.unwrap_or_else(|| self.view.clone())
    }

    /// Ends the sessions, because the record has changed since: a session without an entry does not hold. The next
    /// client that changes the record leaves them out, or a task of this process does, in the background.
    async fn end(self) -> Result<(), Error> {
        let all = self.sessions.into_iter().map(Session::end);
        let ended = future::try_join_all(all).await;
        let (agent, place) = (Arc::clone(&self.agent), self.place);
        self.agent.spawn(async move {
            tidy(&agent, &place).await;
        });
        ended
            .map(drop)
            .map_err(|fault| fault.error(self.name.as_str(), &self.agent.http.node))
    }
}

/// The outcome of giving permits back.
enum Left {
    Free,
    /// Others changed the record.
    Busy,
    NotOurs,
}

/// Leaves dead holders out of a semaphore's record, so that no session of this process stays in it.
async fn tidy(agent: &Agent, place: &Place) {
    for _ in 0..ATTEMPTS {
        let Ok((pairs, index)) = agent.http.list(&place.folder, None).await else {
            return;
        };
        let Ok(view) = View::read(Form::Semaphore, &place.folder, &pairs, index) else {
            return;
        };
        let steps = view.leave(&place.folder, &[]);
        if steps.is_empty() || matches!(agent.http.transact(&steps).await, Ok(Ok(_)) | Err(_)) {
            return;
        }
        sleep(REST).await;
    }
}

pub(super) fn ids_of(sessions: &[Session]) -> Vec<Id> {
    sessions.iter().map(|one| Arc::clone(one.id())).collect()
}
