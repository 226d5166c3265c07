//! The task of one lease: it is renewed, watched, and given back.

use std::{future, pin::Pin, sync::Arc, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt as _};
use rand::RngExt as _;
use tokio::{
    select,
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    agent::{Agent, Held},
    fault::Fault,
    place::Seen,
    sessions::{Renewed, Session},
    take::Permits,
};
use crate::{
    Error, Lease, LossReason, Renewal,
    base::{clock::Tick, ending::Ending, logs},
    lease::{
        keeper::{Keeper, LeaseId},
        response::{Responder, Response},
        shared::Shared,
        upkeep::{Due, Good, Upkeep},
    },
    protocol::ballot::validity::notice,
};

/// A lease that is held for longer than this hears at once when Consul says that it is over. A shorter section is
/// spared the query.
const WATCHED_AFTER: Duration = Duration::from_millis(100);
/// Each keeper has one lease.
const ONLY: LeaseId = LeaseId(0);

/// A request to the task of a lease.
enum Asked {
    Extend(Responder<()>),
    Release(Option<Responder<()>>),
    Abandon,
}

/// The way to the task of a lease.
struct Desk {
    asks: mpsc::UnboundedSender<Asked>,
    ending: Arc<Ending>,
}

impl Keeper for Desk {
    fn extend(&self, _: LeaseId) -> Response<()> {
        self.ask(Asked::Extend)
    }

    fn release(&self, _: LeaseId) -> Response<()> {
        self.ask(|reply| Asked::Release(Some(reply)))
    }

    fn free(&self, _: LeaseId) {
        let _ = self.asks.send(Asked::Release(None));
    }

    fn abandon(&self, _: LeaseId) {
        let _ = self.asks.send(Asked::Abandon);
    }
}

impl Desk {
    /// If the task is gone, the answer says why, because the request is dropped with its way back.
    fn ask(&self, what: impl FnOnce(Responder<()>) -> Asked) -> Response<()> {
        let (reply, answer) = Response::channel(Arc::clone(&self.ending));
        let _ = self.asks.send(what(reply));
        answer
    }
}

/// Makes a lease of the permits, and keeps it in the background.
pub(super) fn hold(agent: &Arc<Agent>, permits: Permits, renewal: Renewal) -> Lease {
    let (now, ttl) = (agent.now(), permits.ttl());
    let good = Good {
        until: permits.good_until(),
        notice: notice(ttl),
        is_provisional: false,
        is_partial: false,
    };
    let upkeep = Upkeep::new(ttl, now, good, renewal, jitter(ttl));
    let shared = Arc::new(Shared::new(
        permits.name().clone(),
        permits.token(),
        Arc::clone(&agent.clock),
        now,
        good.notice,
        upkeep.valid_until(),
    ));
    logs::debug!(
        name = shared.name.as_str(),
        token = shared.token.as_u64(),
        "acquired"
    );
    let (asks, asked) = mpsc::unbounded_channel();
    let ending = Arc::clone(agent.ending());
    let keeping = Keeping {
        held: agent.begins(shared.name.as_str()),
        agent: Arc::clone(agent),
        shared: Arc::clone(&shared),
        permits,
        upkeep,
        renewals: FuturesUnordered::new(),
        news: None,
        watches_at: Some(Instant::now() + WATCHED_AFTER),
        told: false,
    };
    agent.spawn(keeping.run(asked));
    Lease::new(shared, Arc::new(Desk { asks, ending }), ONLY)
}

/// A renewal under way.
type Renewing = Pin<Box<dyn Future<Output = Answered> + Send>>;

/// The result of a renewal.
struct Answered {
    /// The caller that waits for it; `None` if the renewal was due.
    caller: Option<Responder<()>>,
    answer: Result<Renewed, Fault>,
}

struct Keeping {
    agent: Arc<Agent>,
    shared: Arc<Shared>,
    permits: Permits,
    upkeep: Upkeep,
    renewals: FuturesUnordered<Renewing>,
    news: Option<watch::Receiver<Seen>>,
    /// When it begins to watch.
    watches_at: Option<Instant>,
    /// Its loss was logged.
    told: bool,
    held: Held,
}

impl Keeping {
    async fn run(mut self, mut asked: mpsc::UnboundedReceiver<Asked>) {
        let over = self.agent.over();
        tokio::pin!(over);
        loop {
            let wake = self.look();
            let wake = async move {
                match wake {
                    Some(at) => sleep_until(at).await,
                    None => future::pending().await,
                }
            };
            select! {
                biased;
                asked = asked.recv() => match asked {
                    Some(Asked::Extend(caller)) => self.renew(Some(caller)),
                    Some(Asked::Release(caller)) => return self.release(caller).await,
                    Some(Asked::Abandon) | None => return self.permits.abandon(),
                },
                () = &mut over => {
                    // Nobody renews the lease any more.
                    self.told = true;
                    self.shared.lose(LossReason::NodesLost);
                    return self.permits.abandon();
                }
                Some(answered) = self.renewals.next() => self.answered(answered),
                seen = news(&mut self.news) => self.sees(seen),
                () = wake => {}
            }
        }
    }

    /// Does what is due, and returns when something will be due again.
    fn look(&mut self) -> Option<Instant> {
        loop {
            let now = self.agent.now();
            if self.upkeep.warn_once(now) {
                logs::warn!(
                    name = self.shared.name.as_str(),
                    held_for_ms = logs::ms(self.shared.held_for()),
                    "a lease has been held for 60 ttl"
                );
            }
            self.shared.set_reason_at_end(self.upkeep.reason_at_end());
            if let Some(lost) = self.shared.lost_now() {
                self.lose(lost.reason);
                return None;
            }
            if self.watches_at.is_some_and(|at| at <= Instant::now()) {
                self.watches_at = None;
                self.news = Some(self.permits.place().watch());
            }
            match self.upkeep.due(now, self.shared.beat_at()) {
                Due::Lose(reason) => self.shared.lose(reason),
                Due::Renew => {
                    self.upkeep.renewal_sent(now);
                    self.renew(None);
                }
                Due::Wait(at) => {
                    let due = Instant::now() + at.since(now);
                    return Some(self.watches_at.map_or(due, |at| at.min(due)));
                }
            }
        }
    }

    fn renew(&mut self, caller: Option<Responder<()>>) {
        let renewal = Session::renewal(self.permits.sessions());
        self.renewals.push(Box::pin(async move {
            let answer = renewal.await;
            Answered { caller, answer }
        }));
    }

    fn answered(&mut self, Answered { caller, answer }: Answered) {
        let now = self.agent.now();
        let is_due = caller.is_none();
        let answer = match answer {
            Ok(Renewed::At(at)) => self.extended(at, now, is_due),
            Ok(Renewed::Gone) => {
                self.shared.lose(LossReason::Evicted);
                Err(self.over())
            }
            Err(fault) => {
                let error = fault.error(self.shared.name.as_str(), &self.agent.http.node);
                if is_due && self.shared.lost_now().is_none() {
                    let first = self.upkeep.renewal_failed(now);
                    self.agent.renewal_failed(&self.shared, first, &error);
                }
                Err(error)
            }
        };
        if let Some(caller) = caller {
            let _ = caller.send(answer);
        }
    }

    /// Notes that Consul renewed the sessions. `at` is when Consul was asked.
    fn extended(&mut self, at: Tick, now: Tick, is_due: bool) -> Result<(), Error> {
        self.permits.renewed(at);
        let jitter = jitter(self.upkeep.ttl());
        self.upkeep.extended(at, now, is_due, jitter);
        let (until, notice) = (self.upkeep.valid_until(), self.upkeep.notice());
        match self.shared.prolong(until, notice, true) {
            true => Ok(()),
            false => Err(self.over()),
        }
    }

    fn over(&self) -> Error {
        match self.shared.lost_now() {
            Some(lost) => lost.into(),
            None => self.agent.ending().error(),
        }
    }

    /// Takes the news of a watcher. The watcher's faults say nothing about the lease: the renewals will find out.
    fn sees(&mut self, seen: Seen) {
        let Some(Ok(keys)) = seen else {
            return;
        };
        let place = self.permits.place();
        let is_ours = match keys.view(self.permits.form(), &place.folder) {
            Ok(view) => self.permits.sees(view),
            Err(_) => self.permits.is_newer_than(keys.index()),
        };
        if !is_ours {
            self.shared.lose(LossReason::Evicted);
        }
    }

    /// Logs the loss once, unless the lease was given up.
    fn lose(&mut self, reason: LossReason) {
        (self.news, self.watches_at) = (None, None);
        let told = std::mem::replace(&mut self.told, true);
        if reason != LossReason::Released && !told {
            logs::warn!(
                name = self.shared.name.as_str(),
                reason = reason.to_string(),
                held_for_ms = logs::ms(self.shared.held_for()),
                "a lease is lost"
            );
        }
    }

    async fn release(mut self, caller: Option<Responder<()>>) {
        // The holder may have seen the end of the lease before this task did.
        if let Some(lost) = self.shared.lost_now() {
            self.lose(lost.reason);
        }
        logs::debug!(name = self.shared.name.as_str(), "released");
        // Renewals that are under way do not matter any more.
        drop(self.renewals);
        drop(self.held);
        let answer = self.permits.give_back().await;
        if let Some(caller) = caller {
            let _ = caller.send(answer);
        }
    }
}

/// Waits for the next news of a watcher.
async fn news(news: &mut Option<watch::Receiver<Seen>>) -> Seen {
    let Some(receiver) = news else {
        return future::pending().await;
    };
    if receiver.changed().await.is_err() {
        *news = None;
        return None;
    }
    receiver.borrow_and_update().clone()
}

/// Spreads renewals, so that many leases are not renewed in one burst.
fn jitter(ttl: Duration) -> Duration {
    rand::rng().random_range(Duration::ZERO..=ttl / 20)
}
