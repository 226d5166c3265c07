//! `quorate nodes`: shows which servers vote, and why the others do not. With `--wait` it waits until enough vote.

use std::{future::pending, time::Duration};

use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressStyle};
use quorate::{Health, NodeState, NodeStatus, Quorum, cli::are_needed};
use serde_json::json;
use tokio::{select, time};

use crate::{
    args::{Args, Nodes, Wait},
    failure::{self, Failure, UNAVAILABLE},
    output,
    signals::Signals,
    survey,
};

/// The longest interval of a rate limit.
const LONGEST_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// How often the line on a terminal is redrawn.
const REDRAW: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: &Args, nodes: &Nodes, quorum: &Quorum) -> Result<u8, Failure> {
    let Some(wait) = nodes.wait else {
        survey::reach(args, quorum).await;
        show(args, quorum);
        let able = vote(quorum, Wait::Majority);
        return Ok(if able { 0 } else { UNAVAILABLE });
    };
    let mut signals = Signals::new()?;
    select! {
        biased;
        signal = signals.end() => {
            let when = "ended while waiting for the servers to vote";
            return Err(Failure::interrupted(signal as i32, when));
        }
        () = until_vote(args, quorum, wait) => {}
        () = over(nodes.timeout) => {}
    }
    let enough = vote(quorum, wait);
    show(args, quorum);
    match enough {
        true => Ok(0),
        false => Err(Failure::new(
            UNAVAILABLE,
            "timeout",
            match wait {
                Wait::Majority => "too few servers vote, and the --timeout is over",
                Wait::All => "not all servers vote, and the --timeout is over",
            },
        )),
    }
}

// ---- the wait -------------------------------------------------------------------------------

async fn over(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => time::sleep(timeout).await,
        None => pending().await,
    }
}

/// On a terminal it prints what it waits for.
async fn until_vote(args: &Args, quorum: &Quorum, wait: Wait) {
    survey::reach(args, quorum).await;
    let mut changes = quorum.node_changes();
    let mut redraw = time::interval(REDRAW);
    // This is drawn only on a terminal, and vanishes when it is dropped.
    let progress = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("quorate: {msg}") {
        progress.set_style(style);
    }
    while !vote(quorum, wait) {
        progress.set_message(waits_for(quorum, wait));
        select! {
            change = changes.next() => if change.is_none() {
                break;
            },
            _ = redraw.tick(), if !progress.is_hidden() => {}
        }
    }
    progress.finish_and_clear();
}

fn vote(quorum: &Quorum, wait: Wait) -> bool {
    let health = quorum.health();
    match wait {
        Wait::Majority => health.is_ready(),
        Wait::All => health.voting == quorum.nodes().len(),
    }
}

/// For example `1 of 3 vote; the quarantine takes 12.3 s more; not counted: 10.0.0.1:6379 (unreachable)`
fn waits_for(quorum: &Quorum, wait: Wait) -> String {
    let (nodes, health) = (quorum.nodes(), quorum.health());
    let left = match wait {
        Wait::Majority => health.votes_in,
        Wait::All => nodes.iter().filter_map(survey::quarantine).max(),
    };
    let mut text = format!("{} of {} vote", health.voting, nodes.len());
    if let Some(left) = left {
        text += &format!("; the quarantine takes {} more", output::seconds(left));
    }
    let neither = nodes
        .iter()
        .filter(|node| !matches!(node.state, NodeState::Voting | NodeState::Quarantined(_)))
        .map(|node| format!("{} ({})", node.node, survey::state(node).0));
    let neither: Vec<String> = neither.collect();
    if !neither.is_empty() {
        text += &format!("; not counted: {}", neither.join(", "));
    }
    text
}

// ---- output --------------------------------------------------------------------------------

fn show(args: &Args, quorum: &Quorum) {
    let (nodes, health) = (quorum.nodes(), quorum.health());
    if args.json {
        let nodes = nodes.iter().map(|node| {
            let (state, reason) = survey::state(node);
            let round_trip = node.round_trip.map(output::milliseconds);
            json!({
                "node": &*node.node, "state": state, "reason": reason, "note": node.note,
                "round_trip_ms": round_trip, "limits_up_to_ms": output::milliseconds(node.limits_up_to),
            })
        });
        let nodes: Vec<_> = nodes.collect();
        let votes_in = health.votes_in.map(output::milliseconds);
        output::say(
            &json!({
                "voting": health.voting, "needed": health.needed, "spare": health.spare,
                "votes_in_ms": votes_in, "fleet": quorum.fleet(), "nodes": nodes,
            })
            .to_string(),
        );
    } else {
        let rows: Vec<Vec<String>> = nodes
            .iter()
            .map(|node| {
                let note = node
                    .note
                    .as_ref()
                    .map(|note| format!(" ({note})"))
                    .unwrap_or_default();
                let round_trip = node.round_trip.map(output::seconds);
                vec![
                    node.node.to_string(),
                    round_trip.unwrap_or_default(),
                    format!("{}{note}", node.state),
                ]
            })
            .collect();
        output::say(&output::table(&["NODE", "ROUND TRIP", "STATE"], &rows));
        output::say("");
        output::say(&verdict(health, &nodes));
        for line in survey::young(&nodes, LONGEST_INTERVAL) {
            output::say(&line);
        }
        output::say(&format!("fleet id: {}", quorum.fleet()));
    }
}

/// Says whether locks can be taken.
pub(crate) fn verdict(health: Health, nodes: &[NodeStatus]) -> String {
    let total = nodes.len();
    let Health {
        voting,
        needed,
        spare,
        votes_in,
        ..
    } = health;
    let needed = are_needed(needed);
    if health.is_ready() {
        return match spare {
            0 => format!(
                "{voting} of {total} vote and {needed}: locks can be taken, and no more may fail"
            ),
            _ => format!(
                "{voting} of {total} vote and {needed}: locks can be taken, and {spare} more may fail"
            ),
        };
    }
    let then = match votes_in {
        Some(left) => failure::ends_by_itself(left, survey::may_be_new(nodes)),
        None => "see the state of each one above".to_owned(),
    };
    format!("{voting} of {total} vote and {needed}: no lock can be taken; {then}")
}
