//! `quorate limit`: takes units of a rate limit, then becomes the command. It holds nothing while the command runs.

use std::{
    future::pending,
    process::Command,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use quorate::{Error, NodeState, NodeStatus, Outage, Quorum, Quota, RateLimiter, cli::SLOTS_UP_TO};
use serde_json::{Map, Value};
use tokio::{select, time};

use crate::{
    args::{Args, Limit, Rate},
    child::name_servers,
    failure::{self, Failure},
    output,
    signals::Signals,
    survey,
};

/// A limit, and how many of its units are wanted.
struct Wanted<'a> {
    limit: &'a Limit,
    quota: Quota,
    quorum: Quorum,
    limiter: RateLimiter,
}

/// The answer to a demand for units.
struct Said {
    is_allowed: bool,
    wait: Duration,
    /// `None` if no server has said it.
    remaining: Option<u32>,
}

/// Takes the units. `next` is then the command that this process has to become.
pub(crate) async fn run(
    args: &Args,
    limit: &Limit,
    next: &mut Option<Command>,
) -> Result<u8, Failure> {
    let quorum = args.fleet.builder()?.connect_lazy()?;
    let wanted = Wanted::new(limit, quorum)?;
    if limit.show {
        return wanted.show(args).await;
    }
    let mut signals = Signals::new()?;
    let taken = select! {
        biased;
        signal = signals.end() => Err(Failure::interrupted(
            signal as i32,
            "ended while waiting for room; nothing was run",
        )),
        taken = wanted.take(args) => taken,
    };
    // The units count from now on, so the command has to start soon. A signal that comes meanwhile is not for the
    // command, which does not run yet. It ends this process at once.
    let last_words = args.fleet.node_timeout() / 4;
    let ended = select! {
        biased;
        signal = signals.end() => Some(signal),
        _ = time::timeout(last_words, wanted.quorum.shutdown()) => None,
    };
    let said = taken?;
    if let Some(signal) = ended {
        let text = "ended after the units were taken; nothing was run";
        return Err(Failure::interrupted(signal as i32, text));
    }
    let Some((program, words)) = limit.command.split_first() else {
        if args.json {
            output::say(&Value::Object(wanted.as_json(&said)).to_string());
        }
        return Ok(0);
    };
    let mut command = Command::new(program);
    command.args(words).env("QUORATE_NAME", &*limit.name);
    name_servers(&mut command, &args.fleet, limit.keep_env, true);
    *next = Some(command);
    Ok(0)
}

impl<'a> Wanted<'a> {
    /// All settings are checked before any server is waited for.
    fn new(limit: &'a Limit, quorum: Quorum) -> Result<Self, Failure> {
        let quotas = limit.rates.iter();
        let quotas = quotas.map(|Rate { limit, period }| Quota::new(*limit, *period));
        let Some(quota) = quotas.reduce(Quota::and) else {
            return Err(Failure::usage("give at least one --rate"));
        };
        let limiter = quorum.rate_limiter(&*limit.name, quota.clone());
        limiter.validate()?;
        let wanted = Self {
            limit,
            quota,
            quorum,
            limiter,
        };
        match limit.cost <= wanted.most() {
            true => Ok(wanted),
            false => Err(Failure::usage(format!(
                "--cost {} exceeds the limit of {}",
                limit.cost, wanted.quota
            ))),
        }
    }

    /// The smallest limit.
    fn most(&self) -> u32 {
        let limits = self.limit.rates.iter().map(|rate| rate.limit);
        limits.min().unwrap_or(0)
    }

    /// Takes the units as soon as there is room. Also waits for a quarantine that ends within the wait.
    async fn take(&self, args: &Args) -> Result<Said, Failure> {
        self.reach(args).await;
        let end = match (self.limit.no_wait, self.limit.wait) {
            (true, _) => Some(Instant::now()),
            (false, wait) => wait.and_then(|wait| Instant::now().checked_add(wait)),
        };
        loop {
            let error = match self.attempt(args, end).await {
                Ok(said) => return said,
                Err(error) => error,
            };
            let left = match &error {
                Error::Quarantined(_) => error.retry_after().unwrap_or_default(),
                _ => return Err(self.failed(error)),
            };
            if left > left_until(end) {
                return Err(self.failed(error));
            }
            self.says_that_it_waits(args, left, || self.why_quarantined(left));
            time::sleep(left).await;
        }
    }

    /// Takes the units, or fails because others used them. The outer error means that no node could say whether there
    /// is room.
    async fn attempt(
        &self,
        args: &Args,
        end: Option<Instant>,
    ) -> Result<Result<Said, Failure>, Error> {
        let said = self.ask().await?;
        if said.is_allowed {
            let remaining = self.remaining(args).await.or(said.remaining);
            return Ok(Ok(Said { remaining, ..said }));
        }
        let longest = left_until(end);
        if self.limit.no_wait || said.wait > longest {
            return Ok(Err(self.denied(&said)));
        }
        self.says_that_it_waits(args, said.wait, || self.why(&said));
        let limiter = self.limiter.clone().on_outage(self.limit.on_outage.into());
        match time::timeout(longest, limiter.until_n_ready(self.limit.cost)).await {
            Ok(ready) => {
                ready?;
                Ok(Ok(Said::allowed(self.remaining(args).await)))
            }
            Err(_) => {
                // The last answer says how much longer the wait would have been.
                let said = self.ask().await?;
                Ok(match said.is_allowed {
                    true => Ok(said),
                    false => Err(self.denied(&said)),
                })
            }
        }
    }

    fn says_that_it_waits(&self, args: &Args, wait: Duration, why: impl FnOnce() -> String) {
        if wait > output::WORTH_A_LINE && output::is_watched(args.json, args.verbose) {
            output::complain(&format!("waiting for {:?}: {}", self.limit.name, why()));
        }
    }

    /// Prints how many units are left, and which servers do not yet give units of such long intervals.
    async fn show(&self, args: &Args) -> Result<u8, Failure> {
        // One server is not enough here, because each is asked.
        select! {
            Ok(()) = self.quorum.ready() => {}
            () = survey::reach(args, &self.quorum) => {}
        }
        let seen = self.limiter.check_n(0).await;
        let seen = seen.map_err(|error| self.failed(error))?;
        let said = Said {
            is_allowed: seen.is_allowed(),
            wait: seen.wait(),
            remaining: Some(seen.remaining()),
        };
        if args.json {
            output::say(&Value::Object(self.as_json(&said)).to_string());
            return Ok(0);
        }
        output::say(&format!(
            "{} of {} are left of the limit of {}",
            seen.remaining(),
            seen.limit(),
            self.quota
        ));
        let longest = self.limit.rates.iter().map(|rate| rate.period).max();
        for line in survey::young(&self.quorum.nodes(), longest.unwrap_or_default()) {
            output::say(&line);
        }
        Ok(0)
    }

    /// Waits until a majority can be asked, or until it is known of each server whether it can. If one server is
    /// enough, the others then get only the time for one answer.
    async fn reach(&self, args: &Args) {
        select! {
            Ok(()) = self.quorum.ready() => {}
            () = survey::reach(args, &self.quorum) => {}
            () = async {
                self.one_gives().await;
                time::sleep(args.fleet.node_timeout()).await;
            } => {}
        }
    }

    /// Waits for a server that may have the units in its own share.
    async fn one_gives(&self) {
        let mut changes = self.quorum.node_changes();
        loop {
            let nodes = self.quorum.nodes();
            let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            let suffices = |node: &NodeStatus| {
                let mut rates = self.limit.rates.iter();
                rates.all(|rate| {
                    let has_shares =
                        rate.limit > SLOTS_UP_TO && rate.limit / count >= self.limit.cost;
                    has_shares && node.limits_up_to >= rate.period
                })
            };
            let votes = |node: &&NodeStatus| node.state == NodeState::Voting;
            if nodes.iter().filter(votes).any(suffices) {
                return;
            }
            if changes.next().await.is_none() {
                return pending().await;
            }
        }
    }

    /// Asks once. The outage is handled here, so that the text about it is true.
    async fn ask(&self) -> Result<Said, Error> {
        let error = match self.limiter.check_n(self.limit.cost).await {
            Ok(decision) => {
                return Ok(Said {
                    is_allowed: decision.is_allowed(),
                    wait: decision.wait(),
                    remaining: Some(decision.remaining()),
                });
            }
            Err(error) => error,
        };
        match (self.limit.on_outage.into(), error.retry_after()) {
            (Outage::Allow, _) if is_outage(&error) => Ok(Said::allowed(None)),
            (Outage::Deny, wait) if is_outage(&error) => Ok(Said {
                is_allowed: false,
                wait: wait.unwrap_or_default(),
                remaining: None,
            }),
            _ => Err(error),
        }
    }

    /// How many units are left according to all servers, for JSON.
    async fn remaining(&self, args: &Args) -> Option<u32> {
        if !args.json || !self.limit.command.is_empty() {
            return None;
        }
        let seen = self.limiter.check_n(0).await.ok()?;
        Some(seen.remaining())
    }

    // ---- output -----------------------------------------------------------------------------

    fn denied(&self, said: &Said) -> Failure {
        let advice = match self.limit.no_wait {
            true => "without --no-wait this waits for it",
            false => "a longer --wait waits for it",
        };
        let text = format!("{:?}: {}; {advice}", self.limit.name, self.why(said));
        Failure::denied(text, self.as_json(said))
    }

    fn why(&self, said: &Said) -> String {
        let (quota, wait) = (&self.quota, output::seconds(said.wait));
        match said.remaining {
            Some(_) => format!(
                "the limit of {quota} has no room for {} more; there is room in {wait}, unless others take it",
                self.limit.cost
            ),
            None => format!(
                "no server can tell whether the limit of {quota} has room, and --on-outage deny treats that as no \
                 room; that may change in {wait}"
            ),
        }
    }

    /// A limit must know what was used in its longest interval, so this can take longer than the quarantine of locks.
    fn why_quarantined(&self, left: Duration) -> String {
        let mut text = format!(
            "the rate limiter is starting up, because too few servers have been watched for a whole interval; try again \
             in {}",
            output::seconds(left)
        );
        if survey::may_be_new(&self.quorum.nodes()) {
            text += "; ";
            text += failure::IF_NEW;
        }
        text
    }

    /// The failure for an error of the rate limiter.
    fn failed(&self, error: Error) -> Failure {
        let name = &*self.limit.name;
        let text = match &error {
            Error::NoQuorum(report) => {
                let needed = report.needed();
                let nodes = if needed == 1 { "node is" } else { "nodes are" };
                format!(
                    "{name:?}: too few nodes can tell whether there is room, {needed} {nodes} needed; each node's reason:"
                )
            }
            Error::Quarantined(_) => {
                let left = error.retry_after().unwrap_or_default();
                format!("{name:?}: {}", self.why_quarantined(left))
            }
            Error::TooSlow(_) => {
                format!(
                    "{name:?}: the units of the nodes came too late to be used: find out why the nodes are slow"
                )
            }
            _ => return error.into(),
        };
        Failure::from(error).saying(text)
    }

    fn as_json(&self, said: &Said) -> Map<String, Value> {
        let fields = [
            ("name", (*self.limit.name).into()),
            ("allowed", said.is_allowed.into()),
            ("wait_ms", output::wait_ms(said.wait).into()),
            ("remaining", said.remaining.into()),
            ("limit", self.most().into()),
        ];
        let fields = fields.into_iter();
        fields.map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

impl Said {
    fn allowed(remaining: Option<u32>) -> Self {
        Self {
            is_allowed: true,
            wait: Duration::ZERO,
            remaining,
        }
    }
}

fn left_until(end: Option<Instant>) -> Duration {
    end.map_or(Duration::MAX, |end| {
        end.saturating_duration_since(Instant::now())
    })
}

/// Returns true if no server could say whether there is room.
fn is_outage(error: &Error) -> bool {
    matches!(error, Error::NoQuorum(_) | Error::Quarantined(_))
}
