//! `quorate bootstrap` admits servers that have never held a lock. `quorate raise-terms` admits nothing: it waits until
//! the quarantine is over, and raises the terms that all clients agree on. They do what the methods of
//! [`Quorum`] with these names do.

use std::{future::Future, time::Duration};

use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use quorate::{Error, NodeState, NodeStatus, Quorum};
use serde_json::json;
use tokio::{pin, select, time};

use crate::{
    args::Args,
    failure::{self, Failure},
    output,
    signals::Signals,
    survey::{self, quarantine},
};

/// How often to look at the nodes.
const LOOK: Duration = Duration::from_millis(100);
/// A wait that takes longer than this prints what it waits for.
const AT_ONCE: Duration = Duration::from_millis(1500);
const FOR_ALL: &str = "waiting for every server to answer";

#[derive(Clone, Copy)]
pub(crate) enum How {
    /// `bootstrap --new`
    New,
    /// `bootstrap --force`
    Force,
    /// `raise-terms`
    Raise,
}

pub(crate) async fn run(args: &Args, how: How, quorum: &Quorum) -> Result<u8, Failure> {
    let mut signals = Signals::new()?;
    select! {
        biased;
        signal = signals.end() => {
            let text = "interrupted before it was done; it can be run again";
            Err(Failure::interrupted(signal as i32, text))
        }
        code = done(args, how, quorum) => code,
    }
}

async fn done(args: &Args, how: How, quorum: &Quorum) -> Result<u8, Failure> {
    survey::reach(args, quorum).await;
    let before = quorum.nodes();
    let mut progress = Progress::new(args.json);
    match how {
        How::New => {
            let text = match before.iter().all(|node| quarantine(node).is_some()) {
                true => "listening for about 7 s for clients that use these servers",
                false => FOR_ALL,
            };
            let done = progress.during(quorum.bootstrap(), text).await;
            done.map_err(not_admitted)?;
        }
        How::Force => {
            let done = progress.during(quorum.bootstrap_forced(), FOR_ALL).await;
            done.map_err(not_admitted)?;
        }
        How::Raise => wait(quorum, &mut progress).await?,
    }
    drop(progress);
    let after = quorum.nodes();
    match args.json {
        true => output::say(&as_json(&before, &after)),
        false => output::say(&as_text(args, &before, &after)),
    }
    Ok(if quorum.health().is_ready() {
        0
    } else {
        failure::UNAVAILABLE
    })
}

// ---- raise-terms: nothing is admitted -------------------------------------------------------

/// Waits until a majority votes, and no node that answers is in quarantine.
async fn wait(quorum: &Quorum, progress: &mut Progress) -> Result<(), Failure> {
    loop {
        let text = "waiting until enough servers vote (all of them, if --max-ttl or --restart-margin is greater than \
                    the fleet's)";
        progress
            .during(quorum.raise_terms(), text)
            .await
            .map_err(not_raised)?;
        if quarantine_is_over(quorum, progress).await {
            return Ok(());
        }
    }
}

/// Returns false once fewer nodes answer than a majority, or than this client's terms need.
async fn quarantine_is_over(quorum: &Quorum, progress: &mut Progress) -> bool {
    loop {
        let (nodes, needed) = (quorum.nodes(), quorum.health().needed);
        let voting = nodes.iter().filter(|node| votes(node)).count();
        let left: Vec<Duration> = nodes.iter().filter_map(quarantine).collect();
        if voting + left.len() < needed {
            return false;
        }
        if let Some(longest) = left.iter().max() {
            progress.say(&waiting(voting, nodes.len(), *longest), advice(&nodes));
        } else if !nodes.iter().any(|node| node.state == NodeState::Connecting) {
            return true;
        }
        time::sleep(LOOK).await;
    }
}

fn waiting(voting: usize, total: usize, left: Duration) -> String {
    let left = match left.as_millis().div_ceil(1000) {
        seconds @ 0..600 => format!("{seconds} s"),
        // Rounded up to whole minutes.
        seconds => {
            let minutes = u64::try_from(seconds.div_ceil(60)).unwrap_or(u64::MAX);
            output::seconds(Duration::from_secs(minutes.saturating_mul(60)))
        }
    };
    format!("waiting for the quarantine: {voting} of {total} vote, {left} left")
}

fn advice(nodes: &[NodeStatus]) -> Option<&'static str> {
    survey::may_be_new(nodes).then_some(failure::IF_NEW)
}

// ---- output ---------------------------------------------------------------------------------

/// Prints to stderr what the command waits for. On a terminal this is a line that vanishes after the wait. Otherwise it
/// is a line that is printed when the wait starts.
struct Progress {
    said: bool,
    advised: bool,
    json: bool,
    line: ProgressBar,
}

impl Progress {
    fn new(json: bool) -> Self {
        // The spinner is drawn on a terminal only.
        let line = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
        if let Ok(style) = ProgressStyle::with_template("quorate: {msg}") {
            line.set_style(style);
        }
        Self {
            said: false,
            advised: false,
            json,
            line,
        }
    }

    fn say(&mut self, text: &str, advice: Option<&str>) {
        if self.json {
            return;
        }
        let advice = advice.filter(|_| !self.advised);
        match (self.line.is_hidden(), advice) {
            (true, Some(advice)) => output::complain(&format!("{text}; {advice}")),
            (true, None) if !self.said => output::complain(text),
            (true, None) => {}
            (false, Some(advice)) => self.line.suspend(|| output::complain(advice)),
            (false, None) => {}
        }
        self.said = true;
        self.advised |= advice.is_some();
        self.line.set_message(text.to_owned());
    }

    /// Prints `text` if `what` takes longer than people wait without a message.
    async fn during<T>(&mut self, what: impl Future<Output = T>, text: &str) -> T {
        pin!(what);
        select! {
            biased;
            done = &mut what => return done,
            () = time::sleep(AT_ONCE) => self.say(text, None),
        }
        what.await
    }
}

fn as_json(before: &[NodeStatus], after: &[NodeStatus]) -> String {
    let nodes = before.iter().zip(after).map(|(before, after)| {
        json!({"node": &*before.node, "before": survey::state(before).0, "after": survey::state(after).0})
    });
    let nodes: Vec<_> = nodes.collect();
    json!({"changed": changed(before, after), "nodes": nodes}).to_string()
}

fn as_text(args: &Args, before: &[NodeStatus], after: &[NodeStatus]) -> String {
    let rows = before.iter().zip(after).map(|(before, after)| {
        vec![
            before.node.to_string(),
            survey::state(before).0.to_owned(),
            after.state.to_string(),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let table = output::table(&["NODE", "BEFORE", "NOW"], &rows);
    let verdict = verdict(args.fleet.max_ttl(), before, after);
    format!("{table}\n\n{verdict}")
}

fn verdict(max_ttl: Duration, before: &[NodeStatus], after: &[NodeStatus]) -> String {
    let total = after.len();
    let missing = after.iter().filter(|node| !votes(node));
    let missing: Vec<String> = missing
        .map(|node| format!("{} ({})", node.node, survey::state(node).0))
        .collect();
    let voting = total - missing.len();
    let longest = output::seconds(max_ttl);
    match (missing.is_empty(), changed(before, after)) {
        (true, true) => {
            format!("all {total} nodes vote now; this client may take leases of up to {longest}")
        }
        (true, false) => format!("nothing to do: all {total} nodes voted already"),
        (false, _) => format!(
            "{voting} of {total} nodes vote; this client may take leases of up to {longest}; not voting: {}",
            missing.join(", ")
        ),
    }
}

/// Returns true if a node votes now that did not vote before.
fn changed(before: &[NodeStatus], after: &[NodeStatus]) -> bool {
    let mut nodes = before.iter().zip(after);
    nodes.any(|(before, after)| !votes(before) && votes(after))
}

fn votes(node: &NodeStatus) -> bool {
    node.state == NodeState::Voting
}

// ---- errors ---------------------------------------------------------------------------------

fn not_admitted(error: Error) -> Failure {
    match error {
        // A majority is not enough here.
        Error::NoQuorum(_) => Failure::from(error).saying(
            "bootstrap needs every server, but not all of them answered in time and vote. Correct what is wrong \
             below and run it again:",
        ),
        // The command line is right, but the servers are not what it said.
        Error::Invalid(why) => Failure::new(failure::UNAVAILABLE, "refused", why),
        error => error.into(),
    }
}

fn not_raised(error: Error) -> Failure {
    match &error {
        Error::NoQuorum(report) if report.needed() > report.nodes().len() / 2 + 1 => {
            Failure::from(error).saying(
                "a greater --max-ttl or --restart-margin than the fleet's needs every server, but not all of them \
                 vote. Correct what is wrong below and run it again:",
            )
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_rounded_up() {
        let said = |ms| waiting(1, 3, Duration::from_millis(ms));
        assert_eq!(
            said(20_001),
            "waiting for the quarantine: 1 of 3 vote, 21 s left"
        );
        assert!(said(0).ends_with(", 0 s left"));
        assert!(said(599_000).ends_with(", 599 s left"));
        assert!(said(600_001).ends_with(", 11 min left"));
        assert!(said(72_780_000).ends_with(", 20 h 13 min left"));
    }
}
