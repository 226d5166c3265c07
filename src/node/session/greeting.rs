//! The client's part of the handshake: what it brings, and what it makes of the answer.

use std::time::Duration;

use super::Step;
use crate::{
    Error,
    clock::Tick,
    node::{
        admission::{FORMAT, Handshake, Meeting, quarantine},
        status::NodeState,
    },
    report::seconds,
    rules::Rule,
};

/// Run and record as last read, and when: what this client can witness.
pub(crate) struct Witness {
    pub(crate) run: String,
    pub(crate) id: String,
    pub(crate) max_ttl: Duration,
    pub(crate) witnessed: u64,
    /// When that handshake was sent.
    pub(crate) asked_at: Tick,
    read_at: Tick,
}

/// What a node that was met is.
pub(super) enum Standing {
    Voting,
    Quarantined(Tick),
    Refused(String),
    /// Another address leads to the same server.
    Duplicate(String),
    /// What it says has to be read again before it counts.
    Changed,
}

impl Standing {
    pub(super) fn state(&self, now: Tick) -> NodeState {
        match self {
            Self::Voting => NodeState::Voting,
            Self::Quarantined(until) => NodeState::Quarantined(until.since(now)),
            Self::Refused(why) | Self::Duplicate(why) => NodeState::Refused(why.clone()),
            Self::Changed => NodeState::Connecting,
        }
    }
}

/// What to bring: x is the w that was read, and what this clock counted from then to this sending.
pub(super) fn handshake(
    step: &mut Step<'_>,
    witness: Option<&Witness>,
) -> Result<Handshake, Error> {
    let counted = witness.map_or(0, |w| {
        let since = u64::try_from(step.now.since(w.read_at).as_millis()).unwrap_or(u64::MAX);
        w.witnessed.saturating_add(since)
    });
    let wanted = step.settings.max_ttl;
    let counted = match step.settings.rules.hold(Rule::Quarantine) {
        true => counted,
        false => quarantine(step.fleet.max_ttl().max(wanted), step.settings.margin),
    };
    Ok(Handshake {
        fleet: step.settings.total() as u64,
        // A client that asks for more than the fleet knows is refused, and does not teach its own
        // max_ttl to a node that has just been emptied: one would stop the whole fleet for as long.
        max_ttl: step
            .fleet
            .longest_read()
            .map_or(wanted, |longest| wanted.min(longest)),
        fleet_max_ttl: step.fleet.max_ttl(),
        margin: step.settings.margin,
        known: witness.map(|w| (w.run.clone(), w.id.clone())),
        witnessed: counted,
        nonce: format!("{:032x}", step.chance.bits()?),
    })
}

/// The handshake was answered by an error.
pub(super) fn failed(why: &str) -> Standing {
    // The server's words for what its ACL does not permit to a script, or to anybody.
    let acl = [
        "can't run this command",
        "can't access",
        "No permissions",
        "NOPERM",
    ];
    let advice = match acl.iter().any(|words| why.contains(words)) {
        true => "; its ACL withholds permissions that quorate needs: grant them with ACL SETUSER",
        false => "",
    };
    Standing::Refused(format!(
        "it answered the handshake with an error: {why}{advice}"
    ))
}

/// May the node vote? And what was read of it.
pub(super) fn judge(
    step: &mut Step<'_>,
    node: usize,
    meeting: Meeting,
    asked_at: Tick,
) -> (Standing, Option<Witness>) {
    let refuse = |why: String| (Standing::Refused(why), None);
    if let Err(why) = fit(step, &meeting) {
        return refuse(why);
    }
    if step.settings.rules.hold(Rule::OneServerOneVote)
        && let Err(other) = step.fleet.claim_run(node, &meeting.server.run)
    {
        let other = step
            .settings
            .nodes
            .get(other)
            .map_or("another node", |id| id);
        let why = format!("it is the same server as {other}: give every master one address");
        return (Standing::Duplicate(why), None);
    }
    let Some(record) = meeting.record else {
        return refuse("it keeps no record of this fleet".into());
    };
    let fleet = step.settings.total() as u64;
    if record.format != FORMAT {
        return refuse(format!(
            "it holds format {} and this client speaks format {FORMAT}: use one version of quorate",
            record.format
        ));
    }
    if record.fleet != fleet && step.settings.rules.hold(Rule::SameFleet) {
        return refuse(format!(
            "it belongs to a fleet of {} masters and this client counts {fleet}: every client must \
             list the same masters",
            record.fleet
        ));
    }
    step.fleet.read(record.max_ttl);
    let witness = Witness {
        run: record.run,
        id: record.id,
        max_ttl: record.max_ttl,
        witnessed: record.witnessed,
        asked_at,
        read_at: step.now,
    };
    if step.settings.max_ttl > record.max_ttl {
        let why = format!(
            "max_ttl is {} here and {} in the fleet: lower it, or raise it everywhere with \
             `quorate bootstrap --max-ttl`",
            seconds(step.settings.max_ttl),
            seconds(record.max_ttl)
        );
        return (Standing::Refused(why), Some(witness));
    }
    step.fleet.learn(record.max_ttl);
    let z = quarantine(record.max_ttl, step.settings.margin);
    let standing = if record.max_ttl < step.fleet.max_ttl() {
        Standing::Changed
    } else if record.witnessed >= z && meeting.open {
        Standing::Voting
    } else if !step.settings.rules.hold(Rule::Quarantine) {
        // Met again at once, and then it votes.
        Standing::Changed
    } else {
        let left = Duration::from_millis(z.saturating_sub(record.witnessed));
        Standing::Quarantined(step.now.plus(left))
    };
    (standing, Some(witness))
}

/// Is this a server that can be counted at all?
fn fit(step: &Step<'_>, meeting: &Meeting) -> Result<(), String> {
    let server = &meeting.server;
    if server.mode != "standalone" {
        return Err(format!(
            "it runs in {} mode: quorate needs independent masters, without cluster or sentinel",
            server.mode
        ));
    }
    if server.role != "master" {
        return Err(format!(
            "it is a {}, not a master: its memory follows another server's",
            if server.role == "slave" {
                "replica"
            } else {
                &server.role
            }
        ));
    }
    if version(&server.version) < (7, 0) {
        return Err(format!(
            "its version is {}: Redis 7.0, Valkey 7.2 or later is needed",
            server.version
        ));
    }
    let evicts = server.eviction != "noeviction" && step.settings.rules.hold(Rule::NoEviction);
    if evicts && !step.settings.allow_eviction {
        return Err(format!(
            "its maxmemory-policy is {}, so locks may vanish: set it to noeviction (or, knowing \
             that, call allow_eviction)",
            server.eviction
        ));
    }
    Ok(())
}

fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
