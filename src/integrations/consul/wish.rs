//! An acquisition, until it succeeds or gives up.

use std::{future, sync::Arc, time::Duration};

use tokio::{
    select,
    time::{Instant, sleep, sleep_until},
};

use super::{
    agent::Agent,
    agreed::{Agreed, Settled},
    fault::Fault,
    held, keeping,
    place::Place,
    record::{Asked, Follows, Form, View},
    sessions::{Kind, Pool, Renewed, Session},
    standing::{FIRST_REST, Standing, Stop},
    take::{Attempt, Permits, Taken, take},
    wire::Refusal,
};
use crate::{
    Error, Lease, Renewal,
    base::{clock::Tick, name::Name},
    lease::response::Responder,
};

/// How long a waiter without a limit puts up with Consul's silence: an election takes some seconds.
const SILENCE: Duration = Duration::from_secs(30);

/// A demand, and how the permits are to be held.
pub(super) struct Wish {
    pub(super) agent: Arc<Agent>,
    pub(super) pool: Arc<Pool>,
    pub(super) place: Arc<Place>,
    pub(super) name: Name,
    pub(super) form: Form,
    pub(super) limit: Arc<Agreed>,
    /// How many permits at once.
    pub(super) count: u32,
    pub(super) kind: Kind,
    pub(super) renewal: Renewal,
    pub(crate) label: Arc<str>,
    pub(super) wait: Wait,
}

/// A decision from a view for one limit. The limit is read once, because a change must not come between a decision and
/// its attempt.
struct Decision {
    view: Arc<View>,
    limit: u32,
    follows: Follows,
}

/// How long an acquisition waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// One attempt, without an error if it fails.
    Never,
    /// One attempt.
    Once,
    /// Until this time, or without a limit.
    Until(Option<Instant>),
}

impl Wish {
    /// Answers with a lease, with `None`, or with the error. It ends if the caller is gone.
    pub(super) async fn run(self, mut reply: Responder<Option<Lease>>) {
        let closing = self.agent.closing();
        let answer = select! {
            biased;
            () = reply.closed() => return,
            () = closing => Err(Error::Closed),
            answer = self.acquire() => answer,
        };
        let hold = |permits| keeping::hold(&self.agent, permits, self.renewal);
        // A lease that nobody takes is dropped here, and so given back.
        drop(reply.send(answer.map(|permits| permits.map(hold))));
    }

    async fn acquire(&self) -> Result<Option<Permits>, Error> {
        let mut standing = Standing::default();
        let until = match self.wait {
            Wait::Never => return self.try_once(&mut standing).await,
            Wait::Once => {
                return match self.try_once(&mut standing).await? {
                    Some(permits) => Ok(Some(permits)),
                    None => Err(self.too_long(standing).await),
                };
            }
            Wait::Until(until) => until,
        };
        let end = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => future::pending().await,
            }
        };
        let in_time = select! {
            biased;
            got = self.wait_for_it(&mut standing) => Some(got),
            () = end => None,
        };
        match in_time {
            Some(got) => got.map(Some),
            None => Err(self.too_long(standing).await),
        }
    }

    /// Makes one attempt. `None` if the permits cannot be had now.
    async fn try_once(&self, standing: &mut Standing) -> Result<Option<Permits>, Error> {
        loop {
            let view = self.look().await.map_err(|stop| self.error(stop))?;
            let decided = self.decide(standing, view).await;
            let decision = decided.map_err(|stop| self.error(stop))?;
            match decision.follows {
                Follows::Conflict(found) => return Err(self.conflict(decision.limit, found)),
                Follows::Full | Follows::Behind => break,
                Follows::Take => {}
            }
            match self.try_to_take(&decision, standing).await {
                Ok(Ok(permits)) => return Ok(Some(permits)),
                Ok(Err(Refusal::LockDelay)) => break,
                // The view was outdated.
                Ok(Err(_)) => {}
                Err(stop) => return Err(self.error(stop)),
            }
        }
        standing.sessions.drain(..).for_each(Session::rest);
        Ok(None)
    }

    /// Waits until it has the permits.
    async fn wait_for_it(&self, standing: &mut Standing) -> Result<Permits, Error> {
        let _turn = self.place.turn(self.form, self.count).await;
        loop {
            match self.round(standing).await {
                Ok(Some(permits)) => return Ok(permits),
                Ok(None) => {}
                Err(Stop::Fault(fault)) if self.bears(standing, &fault) => {
                    let rest = standing.rest();
                    sleep(rest).await;
                }
                Err(stop) => return Err(self.error(stop)),
            }
        }
    }

    /// Looks, and takes the permits if it may. Otherwise it waits for news.
    async fn round(&self, standing: &mut Standing) -> Result<Option<Permits>, Stop> {
        let view = match standing.told(&self.name, self.form, &self.place) {
            Some(view) => view?,
            None if standing.is_in_line => {
                self.wait_for_news(standing).await?;
                return Ok(None);
            }
            None => self.look().await?,
        };
        let decision = self.decide(standing, view).await?;
        standing.set_behind(decision.follows == Follows::Behind, Instant::now());
        match decision.follows {
            Follows::Conflict(found) => Err(Stop::Error(self.conflict(decision.limit, found))),
            Follows::Take => match self.try_to_take(&decision, standing).await? {
                Ok(permits) => Ok(Some(permits)),
                Err(why) => {
                    if why == Refusal::LockDelay && !standing.is_in_line {
                        self.stand_in_line(standing).await?;
                    }
                    standing.refused(why);
                    Ok(None)
                }
            },
            Follows::Full | Follows::Behind => {
                match standing.is_in_line {
                    true => self.wait_for_news(standing).await?,
                    false => self.stand_in_line(standing).await?,
                }
                Ok(None)
            }
        }
    }

    /// Decides by a view. A view from before a change of the limit conflicts with the present limit. So after a
    /// conflict it looks again while no change is under way.
    async fn decide(&self, standing: &mut Standing, view: Arc<View>) -> Result<Decision, Stop> {
        let decision = self.decide_by(standing, view)?;
        if !matches!(decision.follows, Follows::Conflict(_)) {
            return Ok(decision);
        }
        let _settled = self.limit.settled().await;
        let view = self.look().await?;
        self.decide_by(standing, view)
    }

    fn decide_by(&self, standing: &mut Standing, view: Arc<View>) -> Result<Decision, Stop> {
        standing.sees(&view);
        let limit = self.limit.get();
        if self.count > limit {
            // The limit was changed meanwhile.
            return Err(Stop::Error(held::too_many(self.count, limit)));
        }
        let follows = view.follows(self.asked(standing, limit));
        Ok(Decision {
            view,
            limit,
            follows,
        })
    }

    async fn stand_in_line(&self, standing: &mut Standing) -> Result<(), Stop> {
        self.get_sessions(standing).await?;
        let Some(first) = standing.sessions.first() else {
            return Ok(());
        };
        let (http, folder) = (&self.agent.http, &self.place.folder);
        let entry = http.contend(folder, first.id(), self.form.flags(), &self.label);
        match entry.await? {
            true => {
                (standing.is_in_line, standing.has_waited) = (true, true);
                standing.is_stale = true;
                standing.news = Some(self.place.watch());
            }
            false => standing.lose_sessions(),
        }
        Ok(())
    }

    /// Waits until something changes, or until it is time to look or to renew the sessions.
    async fn wait_for_news(&self, standing: &mut Standing) -> Result<(), Stop> {
        let now = self.agent.now();
        let renew_at = standing
            .sessions
            .iter()
            .map(|one| one.life().renew_at())
            .min();
        if renew_at.is_some_and(|at| at <= now) {
            match Session::renewal(&standing.sessions).await? {
                Renewed::At(at) => standing.sessions.iter_mut().for_each(|one| one.renewed(at)),
                Renewed::Gone => standing.lose_sessions(),
            }
            return Ok(());
        }
        let renew_at = renew_at.map(|at| instant_of(at, now));
        let wake = renew_at.into_iter().chain(standing.looks_at()).min();
        let Some(news) = &mut standing.news else {
            return Ok(());
        };
        let timer = async {
            match wake {
                Some(at) => sleep_until(at).await,
                None => future::pending().await,
            }
        };
        select! {
            changed = news.changed() => match changed {
                Ok(()) => standing.is_stale = false,
                // It goes on with a new one.
                Err(_) => standing.news = Some(self.place.watch()),
            },
            () = timer => {
                if standing.again_at.is_some_and(|at| at <= Instant::now()) {
                    (standing.again_at, standing.is_stale) = (None, false);
                }
                if standing.overtakes(Instant::now()) {
                    standing.is_stale = false;
                }
            }
        }
        Ok(())
    }

    /// Takes the permits if nothing has changed since the decision.
    async fn try_to_take(
        &self,
        decision: &Decision,
        standing: &mut Standing,
    ) -> Result<Result<Permits, Refusal>, Stop> {
        self.get_sessions(standing).await?;
        let settled = self.limit.settled().await;
        if self.limit.get() != decision.limit {
            return Ok(Err(Refusal::Changed));
        }
        let sessions = std::mem::take(&mut standing.sessions);
        match take(self.attempt(decision, settled, sessions))
            .await
            .map_err(Stop::Error)?
        {
            Taken::Yes(permits) => match permits.is_in_time() {
                true => Ok(Ok(permits)),
                false => {
                    drop(permits.give_back().await);
                    Err(Stop::Error(held::too_slow(&self.agent, &self.name)))
                }
            },
            Taken::Refused(_, Refusal::Session) => {
                standing.lose_sessions();
                sleep(FIRST_REST).await;
                Ok(Err(Refusal::Session))
            }
            Taken::Refused(sessions, why) => {
                standing.sessions = sessions;
                Ok(Err(why))
            }
            Taken::Fault(sessions, fault) => {
                if sessions.is_empty() {
                    standing.lose_sessions();
                }
                standing.sessions = sessions;
                Err(fault.into())
            }
        }
    }

    fn attempt(&self, decision: &Decision, settled: Settled, sessions: Vec<Session>) -> Attempt {
        Attempt {
            agent: Arc::clone(&self.agent),
            place: Arc::clone(&self.place),
            name: self.name.clone(),
            form: self.form,
            limit: decision.limit,
            _settled: settled,
            ttl: self.kind.ttl,
            label: Arc::clone(&self.label),
            view: View::clone(&decision.view),
            sessions,
        }
    }

    async fn get_sessions(&self, standing: &mut Standing) -> Result<(), Fault> {
        if standing.sessions.is_empty() {
            let count = self.count as usize;
            standing.sessions = self.pool.some(self.kind, count).await?;
        }
        Ok(())
    }

    async fn look(&self) -> Result<Arc<View>, Stop> {
        let (pairs, index) = self.agent.http.list(&self.place.folder, None).await?;
        let view = View::read(self.form, &self.place.folder, &pairs, index);
        let view = view.map_err(|foreign| Stop::Error(held::foreign(&self.name, &foreign)))?;
        Ok(Arc::new(view))
    }

    fn asked<'a>(&self, standing: &'a Standing, limit: u32) -> Asked<'a> {
        let first = standing.sessions.first().map(Session::id);
        Asked {
            limit,
            count: self.count,
            waits_as: first.filter(|_| standing.is_in_line),
            overtakes: standing.overtakes(Instant::now()),
        }
    }

    // ---- what goes wrong ------------------------------------------------------------------------

    /// Returns true if it goes on waiting although Consul does not answer.
    fn bears(&self, standing: &mut Standing, fault: &Fault) -> bool {
        if !standing.has_waited {
            return false;
        }
        let since = standing.silent.take().map(|(since, _)| since);
        let since = since.unwrap_or_else(Instant::now);
        standing.silent = Some((since, fault.clone()));
        self.wait != Wait::Until(None) || since.elapsed() < SILENCE
    }

    fn error(&self, stop: Stop) -> Error {
        match stop {
            Stop::Fault(fault) => fault.error(self.name.as_str(), &self.agent.http.node),
            Stop::Error(error) => error,
        }
    }

    fn conflict(&self, asked: u32, found: u32) -> Error {
        held::conflict(&self.agent, &self.name, asked, found)
    }

    /// The error of a wait that is over.
    async fn too_long(&self, mut standing: Standing) -> Error {
        if let Some((_, fault)) = standing.silent.take() {
            return self.error(fault.into());
        }
        // It may have waited for its turn in this process all the time.
        let view = match standing.view.take() {
            Some(view) => view,
            None => match self.look().await {
                Ok(view) => view,
                Err(stop) => return self.error(stop),
            },
        };
        drop(standing);
        held::held(&self.agent, &self.name, self.form, self.limit.get(), &view).await
    }
}

fn instant_of(at: Tick, now: Tick) -> Instant {
    Instant::now() + at.since(now)
}
