//! Judges a node that answered the handshake: is it one of this fleet?

use std::time::Duration;

use super::{
    standing::{Standing, Witness},
    step::Step,
};
use crate::{
    base::rules::Rule,
    node::admission::{
        BootRecord, Meeting, Stored,
        record::{FORMAT, VISIT},
    },
};

/// Judges the node. Returns what was read of it if it is one of this fleet. `sent_at_us` is this client's wall clock in
/// µs when it sent the handshake.
pub(super) fn judge(
    step: &mut Step<'_>,
    node: usize,
    meeting: &Meeting,
    sent_at_us: u64,
    took: Duration,
) -> (Standing, Option<Witness>) {
    let (standing, record) = match fitting_record(step, node, meeting) {
        Ok(mut record) => {
            if !step.settings.rules.hold(Rule::MarginInRecord) {
                record.terms.margin = step.settings.terms.margin;
            }
            (
                clock_of(step, &record, meeting, sent_at_us, took),
                Some(record),
            )
        }
        Err(standing) => (standing, None),
    };
    // The record of another fleet counts as seen too, unless the server is not fit.
    let foreign = match &standing {
        Standing::Unfit(_) | Standing::Taken(_) => foreign(step, meeting),
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

/// Compares the node's clock with this client's. The node cuts tokens at its TIME + max_ttl, so a node that is further
/// behind would make a token that is too small. TIME was read after the handshake was sent, so a slow network does not
/// make a clock look late. But if an answer took more than half of the margin, the excess counts as if the clock were
/// behind by it.
fn clock_of(
    step: &Step<'_>,
    record: &BootRecord,
    meeting: &Meeting,
    sent_at_us: u64,
    took: Duration,
) -> Standing {
    let slack = took.saturating_sub(record.terms.margin / 2);
    let behind = Duration::from_micros(sent_at_us.saturating_sub(meeting.time)) + slack;
    match behind > record.terms.max_ttl && step.settings.rules.hold(Rule::ClockNotBehind) {
        true => Standing::Behind(behind),
        false => Standing::Fit,
    }
}

fn fitting_record(
    step: &mut Step<'_>,
    node: usize,
    meeting: &Meeting,
) -> Result<BootRecord, Standing> {
    fit(step, meeting).map_err(Standing::Unfit)?;
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
        Stored::Record(record) if step.settings.is_throwaway() => Err(Standing::Unfit(format!(
            "its record is of another fleet ({}), and this client has throwaway set, which is for servers that nobody \
             else uses: take the setting away, or, if that fleet is gone for good, {}",
            step.fleet.difference(record),
            step.fleet.forget_hint()
        ))),
        Stored::Record(record) if record.votes() || record.vouched => {
            Err(Standing::Unfit(of_another_fleet(step, record)))
        }
        Stored::Record(record) => Err(Standing::Taken(format!(
            "its record is of another fleet ({}) that has never voted, and clients of that fleet are connected to \
             it: stop them, or give every client the same masters and the same fleet name (fleet, QUORATE_FLEET); \
             {} s after the last of them has gone, this client replaces the record by itself",
            step.fleet.difference(record),
            VISIT.as_secs()
        ))),
        Stored::Other(format) => Err(Standing::Unfit(format!(
            "it holds format {format} and this client speaks format {FORMAT}: use one version of \
             quorate in every client; if no other version runs any more, {}",
            step.fleet.forget_hint()
        ))),
        Stored::Nothing => Err(Standing::Unfit("it keeps no record of this fleet".into())),
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
            "it votes for another fleet ({difference}): give every client the same masters; if they are the same \
             masters at other addresses, give every client the same fleet name (fleet, QUORATE_FLEET); if that fleet \
             is gone for good, {hint}"
        ),
        false => format!(
            "its record is of another fleet ({difference}): it is replaced as soon as this client \
             sees a voting master of its own fleet; if there is none, {hint}"
        ),
    }
}

/// Checks if this is a server that can be counted at all.
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
            "it is a {}, not a master: its data follows another server's",
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
            "its maxmemory-policy is {}, so locks may vanish: set it to noeviction (or set allow_eviction, but only \
             if maxmemory is never reached)",
            server.eviction
        ));
    }
    Ok(())
}

fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split('.').map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}
