//! Where a lock is taken: on the masters, or in Consul.

use std::time::Duration;

use futures::future::join_all;
use quorate::{Error, Inspection, Quorum, Renewal, cli::are_needed};
use tokio::select;
#[cfg(feature = "consul")]
use {
    crate::output,
    quorate::{Silence, Vote, consul::Consul},
    tokio::time::{self, Instant},
};

use crate::{
    args::{Args, Asked, Run},
    failure::{self, Failure},
    survey,
    wanted::{Terms, Wanted},
};

/// How often Consul is asked whether it is ready.
#[cfg(feature = "consul")]
const AGAIN: Duration = Duration::from_millis(250);

/// Where the lock is taken.
pub(super) enum Backend {
    Masters(Quorum),
    #[cfg(feature = "consul")]
    Consul(Consul),
}

impl Backend {
    /// Opens the backend without sending anything yet.
    pub(super) fn open(args: &Args, run: &Run) -> Result<Self, Failure> {
        #[cfg(feature = "consul")]
        if let Some(consul) = run.consul.connect_lazy(&args.fleet)? {
            return Ok(Self::Consul(consul));
        }
        Ok(Self::Masters(args.fleet.builder()?.connect_lazy()?))
    }

    /// The lock or slot that is asked for, with its settings.
    pub(super) fn wanted(
        &self,
        run: &Run,
        asked: &Asked,
        ttl: Duration,
        renewal: Renewal,
    ) -> Wanted {
        let terms = Terms {
            ttl,
            wait: run.wait,
            renewal,
        };
        match self {
            Self::Masters(quorum) => Wanted::of(quorum, asked, terms),
            #[cfg(feature = "consul")]
            Self::Consul(consul) => Wanted::in_consul(consul, &asked.shown(), asked.limit(), terms),
        }
    }

    /// Waits until the backend can be used, for as long as `--connect-timeout` allows. With `--no-wait` only until it is
    /// known that it cannot be used now; the attempt then fails with the reasons.
    pub(super) async fn ready(&self, args: &Args, run: &Run) -> Result<(), Failure> {
        match self {
            Self::Masters(quorum) => select! {
                ready = quorum.ready() => Ok(ready?),
                () = survey::no_majority(quorum), if run.no_wait => Ok(()),
            },
            #[cfg(feature = "consul")]
            Self::Consul(consul) => {
                consul_ready(consul, args.fleet.connect_timeout(), run.no_wait).await
            }
        }
    }

    /// The failure when the lock or slot was not granted.
    pub(super) async fn refused(&self, run: &Run, asked: &Asked, error: Error) -> Failure {
        match (self, &error) {
            // The user's next question is who holds it, so the nodes are asked once more.
            (Self::Masters(quorum), Error::Held(_)) => asked.held(run, &seen(quorum, asked).await),
            // Only servers that look new get the hint about new servers. The error alone does not tell.
            (Self::Masters(quorum), Error::Quarantined(_)) => {
                let left = error.retry_after().unwrap_or_default();
                let text = quarantined(left, quorum);
                Failure::from(error).saying(text)
            }
            (Self::Masters(_), _) => error.into(),
            #[cfg(feature = "consul")]
            (Self::Consul(_), Error::Held(report)) => {
                let text = format!("{error}; {}", asked.advice(run));
                Failure::held_in_consul(report, text)
            }
            #[cfg(feature = "consul")]
            (Self::Consul(_), _) => Failure::of_consul(error),
        }
    }

    /// Describes what the command waits for, as `"a", held by web-1:77`. `None` if the wait is over.
    pub(super) async fn waits_for(&self, asked: &Asked, wanted: &Wanted) -> Option<String> {
        let name = asked.shown();
        let quorum = match self {
            Self::Masters(quorum) => quorum,
            // Consul names the holder to callers that do not get the lock. If the lock is free, the caller that has
            // waited longest gets it next.
            #[cfg(feature = "consul")]
            Self::Consul(_) => {
                return match wanted.take_now().await {
                    Err(Error::Held(report)) if report.holder().is_some() => {
                        let holder = report.holder().unwrap_or_default();
                        Some(format!("{name:?}, held by {holder}"))
                    }
                    Err(_) => Some(format!("{name:?} in Consul")),
                    Ok(_) => None,
                };
            }
        };
        let seen = seen(quorum, asked).await;
        let health = quorum.health();
        let what = match asked.taken_by(&seen) {
            Some(taken) => taken,
            None if health.is_ready() => "which is changing hands".to_owned(),
            None => match health.votes_in {
                Some(left) => quarantined(left, quorum),
                None => format!(
                    "{} of {} nodes vote and {}",
                    health.voting,
                    quorum.nodes().len(),
                    are_needed(health.needed)
                ),
            },
        };
        Some(format!("{name:?}, {what}{}", asked.line(&seen)))
    }

    /// Takes back grants and releases what is held.
    pub(super) async fn end(&self) {
        match self {
            Self::Masters(quorum) => drop(quorum.shutdown().await),
            #[cfg(feature = "consul")]
            Self::Consul(consul) => select! {
                _ = consul.shutdown() => {}
                // Consul does not answer, and the shutdown would ask it again for a long time.
                Err(_) = consul.ready() => {}
            },
        }
    }
}

/// The nodes' knowledge of each name. Names that cannot be asked about are left out.
async fn seen(quorum: &Quorum, asked: &Asked) -> Vec<Inspection> {
    let names = asked.names().iter().map(|name| quorum.inspect(name));
    let seen = join_all(names).await.into_iter();
    seen.filter_map(Result::ok).collect()
}

/// Waits until Consul answers, because it may be about to start, or to elect a leader. A request that it refuses once
/// is not sent again: it would be refused again.
#[cfg(feature = "consul")]
async fn consul_ready(consul: &Consul, within: Duration, once: bool) -> Result<(), Failure> {
    let end = Instant::now() + within;
    loop {
        let error = match time::timeout_at(end, consul.ready()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => {
                let within = output::seconds(within);
                let text = format!("Consul did not answer within {within}");
                return Err(Failure::unavailable(text));
            }
        };
        // This error says more than that the time is over.
        let again = Instant::now() + AGAIN;
        if once || again >= end || is_refusal(&error) {
            return Err(Failure::of_consul(error));
        }
        time::sleep_until(again).await;
    }
}

#[cfg(feature = "consul")]
fn is_refusal(error: &Error) -> bool {
    error.report().is_none_or(|report| {
        let mut nodes = report.nodes().iter();
        nodes.any(|node| matches!(node.vote, Vote::None(Silence::Unfit(_))))
    })
}

fn quarantined(left: Duration, quorum: &Quorum) -> String {
    let then = failure::ends_by_itself(left, survey::may_be_new(&quorum.nodes()));
    format!("too few nodes may vote yet; {then}")
}
