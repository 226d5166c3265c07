//! `quorate bootstrap`: admits brand-new servers within seconds.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use quorate::{Error, NodeState, NodeStatus, Quorum};
use serde_json::json;

use crate::{
    args::{self, Args},
    failure::Failure,
    output, survey,
};

pub(crate) async fn run(args: &Args, bootstrap: &args::Bootstrap) -> Result<u8, Failure> {
    let quorum = survey::reach(args).await?;
    let before = quorum.nodes();
    let done = match bootstrap.force {
        true => quorum.bootstrap_forced().await,
        false => unforced(&quorum).await,
    };
    done.map_err(needs_all)?;
    let after = quorum.nodes();
    let changed = !before.iter().all(votes);
    if args.json {
        let nodes = before.iter().zip(&after);
        let nodes = nodes.map(|(before, after)| {
            json!({"node": &*before.node, "before": survey::state(before).0, "after": survey::state(after).0})
        });
        let nodes: Vec<_> = nodes.collect();
        output::say(&json!({"changed": changed, "nodes": nodes}).to_string());
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| {
            vec![
                before.node.to_string(),
                before.state.to_string(),
                after.state.to_string(),
            ]
        })
        .collect();
    output::say(&output::table(&["NODE", "BEFORE", "NOW"], &rows));
    output::say("");
    output::say(&match changed {
        true => format!(
            "all {} nodes vote now, for leases of up to {}",
            after.len(),
            output::seconds(args.fleet.max_ttl())
        ),
        false => format!("nothing to do: all {} nodes voted already", after.len()),
    });
    Ok(0)
}

/// It takes some seconds where servers look new or do not answer: then it says what it waits for.
async fn unforced(quorum: &Quorum) -> Result<(), Error> {
    let bootstrap = quorum.bootstrap();
    tokio::pin!(bootstrap);
    tokio::select! {
        done = &mut bootstrap => return done,
        () = tokio::time::sleep(Duration::from_millis(1500)) => {}
    }
    let look_new = |node: &NodeStatus| matches!(node.state, NodeState::Quarantined(_));
    let text = match quorum.nodes().iter().all(look_new) {
        true => {
            "these servers look new: waiting some seconds to hear from any client that knows them"
        }
        false => "waiting for every server to answer",
    };
    // Drawn on a terminal only, and gone at the end.
    let progress = ProgressBar::new_spinner().with_message(text);
    if progress.is_hidden() {
        output::complain(text);
    }
    if let Ok(style) = ProgressStyle::with_template("quorate: {msg} {elapsed}") {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(500));
    let done = bootstrap.await;
    progress.finish_and_clear();
    done
}

/// A majority would not do.
fn needs_all(error: Error) -> Failure {
    let some_missing = matches!(error, Error::NoQuorum(_));
    let failure = Failure::from(error);
    match some_missing {
        true => failure.saying(
            "bootstrap needs every server, and not all of them answered in time and vote: mend what each \
             one says, and say it again:",
        ),
        false => failure,
    }
}

fn votes(node: &NodeStatus) -> bool {
    node.state == NodeState::Voting
}
