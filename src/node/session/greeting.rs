//! The client's part of the handshake: what it brings, and what it makes of the answer.

use std::time::Duration;

use super::Step;
use crate::{
    Error,
    clock::Tick,
    node::{
        admission::{BootRecord, Handshake, Meeting, Stored, record::FORMAT},
        status::NodeState,
    },
    rules::Rule,
};

/// The record as last read, and when: what this client can witness.
pub(crate) struct Witness {
    pub(crate) record: BootRecord,
    /// `open` stood.
    open: bool,
    read_at: Tick,
}

/// What a node that was met is.
pub(super) enum Standing {
    /// Its record is of this fleet: what it says decides.
    Fit,
    /// It is not counted. The text says why, and what to do.
    Refused(String),
    /// Another address leads to the same server.
    Duplicate(String),
    /// What it says has to be read again before it counts.
    Changed,
}

impl Standing {
    pub(super) fn state(
        &self,
        now: Tick,
        witness: Option<&Witness>,
        fleet: &super::Fleet,
    ) -> NodeState {
        match (self, witness, fleet.stop()) {
            (Self::Refused(why) | Self::Duplicate(why), ..) => NodeState::Refused(why.clone()),
            (Self::Fit, Some(_), Some(why)) => NodeState::Refused(why.to_string()),
            (Self::Fit, Some(witness), None) if !witness.record.votes() => {
                NodeState::Quarantined(witness.votes_at().since(now))
            }
            (Self::Fit, Some(witness), None)
                if witness.open && fleet.counts(witness.record.terms) =>
            {
                NodeState::Voting
            }
            // The fleet's terms were raised, and this node has to learn them before it counts.
            (Self::Fit, ..) | (Self::Changed, ..) => NodeState::Connecting,
        }
    }
}

impl Witness {
    /// When the quarantine is over, if it is watched until then.
    fn votes_at(&self) -> Tick {
        let z = self.record.terms.quarantine();
        let left = z.saturating_sub(self.record.witnessed);
        self.read_at.plus(Duration::from_millis(left))
    }
}

/// What to bring: x is the w that was read, and what this clock counted from then to this sending
/// while it saw a majority.
pub(super) fn handshake(
    step: &mut Step<'_>,
    node: usize,
    witness: Option<&Witness>,
) -> Result<Handshake, Error> {
    let terms = step.fleet.terms_to_bring();
    let since = step.fleet.witnesses_since(node);
    let (mut known, mut witnessed) = (None, 0);
    if let (
        Some(Witness {
            record, read_at, ..
        }),
        Some(since),
    ) = (witness, since)
    {
        let passed = step.now.since(since.max(*read_at)).as_millis();
        let passed = u64::try_from(passed).unwrap_or(u64::MAX);
        known = Some((record.run.clone(), record.id.clone()));
        witnessed = record.witnessed.saturating_add(passed);
        if !step.settings.rules.hold(Rule::Quarantine) {
            witnessed = terms.join(record.terms).quarantine();
        }
    }
    Ok(Handshake {
        masters: step.settings.total() as u64,
        list: step.settings.list.clone(),
        terms,
        vouch: step.fleet.vouch(),
        used: step.fleet.was_used(),
        known,
        witnessed,
        nonce: format!("{:032x}", step.chance.bits()?),
    })
}

/// The handshake was answered by an error.
pub(super) fn failed(why: &str, fleet: &super::Fleet) -> Standing {
    // The server's words for what its ACL does not permit to a script, or to anybody.
    let acl = [
        "can't run this command",
        "can't access",
        "No permissions",
        "NOPERM",
    ];
    let advice = if acl.iter().any(|words| why.contains(words)) {
        "; its ACL withholds permissions that quorate needs: grant them with ACL SETUSER".into()
    } else if why.starts_with("WRONGTYPE") {
        format!(
            "; somebody else wrote to quorate's keys: {}",
            fleet.forget_hint()
        )
    } else {
        String::new()
    };
    Standing::Refused(format!(
        "it answered the handshake with an error: {why}{advice}"
    ))
}

/// Is the node one of this fleet? And what was read of it.
pub(super) fn judge(
    step: &mut Step<'_>,
    node: usize,
    meeting: &Meeting,
) -> (Standing, Option<Witness>) {
    let (standing, record) = match fitting_record(step, node, meeting) {
        Ok(mut record) => {
            if !step.settings.rules.hold(Rule::MarginInRecord) {
                record.terms.margin = step.settings.terms.margin;
            }
            (Standing::Fit, Some(record))
        }
        Err(standing) => (standing, None),
    };
    // A record of another fleet is in sight too; that of a server that is not fit is not.
    let foreign = match &standing {
        Standing::Refused(_) => foreign(step, meeting),
        _ => None,
    };
    step.fleet
        .see(step.now, node, record.as_ref().or(foreign.as_ref()));
    let witness = record.map(|record| Witness {
        record,
        open: meeting.open,
        read_at: step.now,
    });
    (standing, witness)
}

fn fitting_record(
    step: &mut Step<'_>,
    node: usize,
    meeting: &Meeting,
) -> Result<BootRecord, Standing> {
    fit(step, meeting).map_err(Standing::Refused)?;
    if step.settings.rules.hold(Rule::OneServerOneVote)
        && let Err(other) = step.fleet.claim_run(node, &meeting.server.run)
    {
        let other = step
            .settings
            .nodes
            .get(other)
            .map_or("another node", |id| id);
        return Err(Standing::Duplicate(format!(
            "it is the same server as {other}: give every master one address"
        )));
    }
    match &meeting.stored {
        Stored::Record(record) if step.fleet.is_mine(record) => Ok(record.clone()),
        Stored::Record(record) => Err(Standing::Refused(of_another_fleet(step, record))),
        Stored::Other(format) => Err(Standing::Refused(format!(
            "it holds format {format} and this client speaks format {FORMAT}: use one version of \
             quorate in every client; if no other version runs any more, {}",
            step.fleet.forget_hint()
        ))),
        Stored::Nothing => Err(Standing::Refused("it keeps no record of this fleet".into())),
    }
}

fn foreign(step: &Step<'_>, meeting: &Meeting) -> Option<BootRecord> {
    let record = meeting.stored.record()?;
    (fit(step, meeting).is_ok() && !step.fleet.is_mine(record)).then(|| record.clone())
}

fn of_another_fleet(step: &Step<'_>, record: &BootRecord) -> String {
    let (difference, hint) = (step.fleet.difference(record), step.fleet.forget_hint());
    match record.votes() {
        true => format!(
            "it votes for another fleet ({difference}): give every client the same masters; if they \
             are the same by other addresses, give every client the same fleet name \
             (fleet, QUORATE_FLEET); if that fleet is gone for good, {hint}"
        ),
        false => format!(
            "its record is of another fleet ({difference}): it is replaced as soon as this client \
             sees a voting master of its own fleet; if there is none, {hint}"
        ),
    }
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
            "its maxmemory-policy is {}, so locks may vanish: set it to noeviction (allow_eviction \
             counts it all the same: only where maxmemory is never reached)",
            server.eviction
        ));
    }
    Ok(())
}

fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
