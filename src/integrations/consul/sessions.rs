//! Sessions: one for each permit. Idle sessions are kept for a moment, because the next caller needs one.

use std::{
    future::Future,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::try_join_all;
use tokio::{select, sync::oneshot, time::sleep};

use super::{agent::Agent, fault::Fault, life::Life, record::Id, wire::NewSession};
use crate::base::clock::Tick;

/// How long an idle session is kept.
const KEPT: Duration = Duration::from_secs(1);
/// The clock and the timer are not the same.
const SLACK: Duration = Duration::from_millis(20);
/// The rest between two attempts to destroy a session.
const AGAIN: Duration = Duration::from_millis(500);

/// The settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) ttl: Duration,
    pub(super) lock_delay: Duration,
}

/// A session of this process. When it is dropped, Consul is told to destroy it, and with it all keys that it has
/// locked.
pub(super) struct Session {
    pool: Arc<Pool>,
    id: Id,
    kind: Kind,
    life: Life,
    /// Consul has to be told of its end.
    is_alive: bool,
}

/// Consul's answer to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewed {
    /// All are good for a TTL from then on.
    At(Tick),
    /// At least one of them is gone.
    Gone,
}

/// Makes and keeps sessions.
pub(super) struct Pool {
    agent: Arc<Agent>,
    /// The sessions that nobody uses, and since when.
    idle: Mutex<Vec<(Tick, Session)>>,
}

impl Pool {
    pub(super) fn new(agent: &Arc<Agent>) -> Arc<Self> {
        Arc::new(Self {
            agent: Arc::clone(agent),
            idle: Mutex::default(),
        })
    }

    fn all(&self) -> MutexGuard<'_, Vec<(Tick, Session)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Destroys all sessions that have been idle since before then.
    fn end(&self, before: Tick) {
        let mut ended = Vec::new();
        {
            let mut all = self.all();
            for (since, session) in mem::take(&mut *all) {
                match since <= before {
                    true => ended.push(session),
                    false => all.push((since, session)),
                }
            }
        }
        drop(ended);
    }

    /// Returns `count` sessions: idle ones, and new ones for those that are missing.
    ///
    /// # Errors
    /// Consul did not make a session.
    pub(super) async fn some(
        self: &Arc<Self>,
        kind: Kind,
        count: usize,
    ) -> Result<Vec<Session>, Fault> {
        let mut sessions = self.idle(kind, count);
        let missing = count.saturating_sub(sessions.len());
        let new = (0..missing).map(|_| self.one(kind));
        sessions.extend(try_join_all(new).await?);
        Ok(sessions)
    }

    fn idle(&self, kind: Kind, count: usize) -> Vec<Session> {
        let now = self.agent.now();
        let mut all = self.all();
        let mut found = Vec::new();
        // The latest are the freshest.
        for (since, session) in mem::take(&mut *all).into_iter().rev() {
            let fits = session.kind == kind && since.plus(KEPT) > now;
            match found.len() < count && fits {
                true => found.push(session),
                false => all.push((since, session)),
            }
        }
        all.reverse();
        found
    }

    /// Makes a session. The request is not cut short once it was sent, because Consul would make a session that nobody
    /// knows.
    async fn one(self: &Arc<Self>, kind: Kind) -> Result<Session, Fault> {
        let (sender, made) = oneshot::channel();
        let pool = Arc::clone(self);
        self.agent.spawn(async move {
            if let Err(Ok(unwanted)) = sender.send(pool.make(kind).await) {
                unwanted.rest();
            }
        });
        made.await.unwrap_or_else(|_| Err(Fault::ended()))
    }

    async fn make(self: &Arc<Self>, kind: Kind) -> Result<Session, Fault> {
        let agent = &self.agent;
        let asked_at = agent.now();
        let millis = |d: Duration| format!("{}ms", d.as_millis());
        let id = agent
            .http
            .new_session(&NewSession {
                name: &agent.label,
                ttl: millis(kind.ttl),
                lock_delay: millis(kind.lock_delay),
                behavior: "delete",
                checks: [],
                node_checks: [],
            })
            .await?;
        Ok(Session {
            pool: Arc::clone(self),
            id,
            kind,
            life: Life::new(kind.ttl, asked_at),
            is_alive: true,
        })
    }
}

impl Session {
    pub(super) fn id(&self) -> &Id {
        &self.id
    }

    /// How long the session is good.
    pub(super) fn life(&self) -> Life {
        self.life
    }

    /// Renews all of the sessions, from now on.
    pub(super) fn renewal(
        sessions: &[Self],
    ) -> impl Future<Output = Result<Renewed, Fault>> + Send + 'static + use<> {
        let agent = sessions.first().map(|one| Arc::clone(&one.pool.agent));
        let ids: Vec<Id> = sessions
            .iter()
            .map(|session| Arc::clone(&session.id))
            .collect();
        async move {
            let Some(agent) = agent else {
                return Ok(Renewed::Gone);
            };
            let at = agent.now();
            let all = ids.iter().map(|id| agent.http.renew(id));
            let live = try_join_all(all).await?.into_iter().all(|lives| lives);
            Ok(if live { Renewed::At(at) } else { Renewed::Gone })
        }
    }

    /// Notes a renewal that Consul was asked for at this time.
    pub(super) fn renewed(&mut self, at: Tick) {
        self.life.renewed(at);
    }

    /// Keeps the session for another caller. It holds nothing any more.
    pub(super) fn rest(self) {
        let pool = Arc::clone(&self.pool);
        let agent = &pool.agent;
        if agent.is_closing() {
            return;
        }
        pool.all().push((agent.now(), self));
        let (later, closing) = (Arc::clone(&pool), agent.closing());
        agent.spawn(async move {
            let now = || later.agent.now();
            select! {
                () = closing => later.end(now()),
                () = sleep(KEPT + SLACK) => later.end(now().minus(KEPT)),
            }
        });
    }

    /// Leaves the session to its TTL.
    pub(super) fn leave(mut self) {
        self.is_alive = false;
    }

    /// Destroys the session, and waits for that.
    pub(super) async fn end(mut self) -> Result<(), Fault> {
        let ended = self.pool.agent.http.destroy(&self.id).await;
        self.is_alive &= ended.is_err();
        ended
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.is_alive {
            return;
        }
        let (agent, id) = (Arc::clone(&self.pool.agent), Arc::clone(&self.id));
        let gone_at = self.life.gone_at();
        self.pool.agent.spawn(async move {
            while agent.http.destroy(&id).await.is_err() && agent.now() < gone_at {
                sleep(AGAIN).await;
            }
        });
    }
}
