//! `quorate nodes`: which servers vote, and why not.

use serde_json::json;

use crate::{
    args::{Args, Nodes},
    failure::{Failure, UNAVAILABLE},
    output, survey,
};

pub(crate) async fn run(args: &Args, _: &Nodes) -> Result<u8, Failure> {
    let quorum = survey::reach(args).await?;
    let (nodes, health) = (quorum.nodes(), quorum.health());
    let able = health.voting >= health.needed;
    if args.json {
        let nodes = nodes.iter().map(|node| {
            let (state, reason) = survey::state(node);
            json!({"node": &*node.node, "state": state, "reason": reason, "note": node.note})
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
                vec![node.node.to_string(), format!("{}{note}", node.state)]
            })
            .collect();
        output::say(&output::table(&["NODE", "STATE"], &rows));
        output::say("");
        output::say(&verdict(health, nodes.len()));
        output::say(&format!("fleet word: {}", quorum.fleet()));
    }
    Ok(if able { 0 } else { UNAVAILABLE })
}

fn verdict(health: quorate::Health, total: usize) -> String {
    let quorate::Health {
        voting,
        needed,
        spare,
        votes_in,
        ..
    } = health;
    if voting >= needed {
        return match spare {
            0 => format!(
                "{voting} of {total} vote and {needed} are needed: locks can be taken, and no more may fail"
            ),
            _ => format!(
                "{voting} of {total} vote and {needed} are needed: locks can be taken, and {spare} more may fail"
            ),
        };
    }
    let then = match votes_in {
        Some(left) => format!(
            "enough will vote in {}; if these servers are brand-new, `quorate bootstrap` admits them within seconds",
            output::seconds(left)
        ),
        None => "look at what each one says above".to_owned(),
    };
    format!("{voting} of {total} vote and {needed} are needed: no lock can be taken; {then}")
}
