//! Computes the record after a handshake or an ADMIT (protocol §2). Pure functions; `handshake.lua` and `admit.lua` do
//! the same.

use super::{Admit, BootRecord, Handshake, Mode, Server, Stored, Vouch, record::THROWAWAY};
use crate::base::rules::{Rule, Rules};

/// Builds `run` out of the fields of INFO.
pub(crate) fn run(run_id: &str, replid2: &str, second_offset: &str) -> String {
    let replid2 = replid2.get(..8).unwrap_or(replid2);
    format!("{run_id}/{replid2}/{second_offset}")
}

/// Returns true if two runs are one memory. Their texts are equal, or they are of one process and `replid2` is now
/// zeros, which means only that the server has freed its backlog.
pub(crate) fn same_run(stored: &str, now: &str) -> bool {
    if stored == now {
        return true;
    }
    match (stored.split_once('/'), now.split_once('/')) {
        (Some((a, _)), Some((b, rest))) => a == b && rest == "00000000/-1",
        _ => false,
    }
}

/// Returns true if a record is of this client's fleet: the same N and the same list.
pub(crate) fn is_mine(record: &BootRecord, masters: u64, list: &str, rules: Rules) -> bool {
    (record.masters == masters || !rules.hold(Rule::SameFleet))
        && (record.list == list || !rules.hold(Rule::SameList))
}

/// The record after a handshake, with the numbers of protocol §2. `visited`: a client of the record's own fleet was
/// there within [`VISIT`](super::record::VISIT). None: nothing may be written here.
pub(crate) fn meet(
    text: Option<&str>,
    server: &Server,
    hello: &Handshake,
    visited: bool,
    rules: Rules,
) -> Option<BootRecord> {
    // 1
    if server.role != "master" || server.mode != "standalone" {
        return None;
    }
    let old = match text.map(Stored::read) {
        None | Some(Stored::Nothing) => return Some(new_record(None, server, hello, rules)),
        // 3
        Some(Stored::Other(_)) => {
            let run_id = server.run.split('/').next().unwrap_or_default();
            let here = text.is_some_and(|text| text.contains(run_id));
            if hello.list == THROWAWAY && rules.hold(Rule::ThrowawayGivesWay) {
                return None;
            }
            // It may have been used, because its u may have another meaning. Its terms count in any format.
            let old = text.and_then(BootRecord::of_another_format);
            return (!here && rules.hold(Rule::RunFirst)).then(|| BootRecord {
                used: true,
                ..new_record(old.as_ref(), server, hello, rules)
            });
        }
        Some(Stored::Record(mut old)) => {
            // 2a
            if old.list != hello.list && rules.hold(Rule::ThrowawayGivesWay) {
                if hello.list == THROWAWAY {
                    return None;
                }
                if old.list == THROWAWAY {
                    return Some(new_record(None, server, hello, rules));
                }
            }
            if !rules.hold(Rule::MarginInRecord) {
                old.terms.margin = hello.terms.margin;
            }
            old
        }
    };
    let mine = is_mine(&old, hello.masters, &hello.list, rules);
    // 2
    let same = same_run(&old.run, &server.run) || !rules.hold(Rule::RunAndRecord);
    if !same && (mine || rules.hold(Rule::RunFirst)) {
        return Some(new_record(Some(&old), server, hello, rules));
    }
    // 4
    let vouches = hello.vouch >= Vouch::Voter;
    let unsure =
        !old.vouched || hello.vouch == Vouch::Majority || !rules.hold(Rule::LoneVoterLowers);
    let replaces = !mine || (old.terms.exceed(hello.terms) && unsure);
    let replaces = match vouches {
        true => replaces && rules.hold(Rule::VoucherReplaces),
        false => same && !mine && gives_way(&old, hello, visited, rules),
    };
    if replaces && !old.votes() {
        return Some(new_record(Some(&old), server, hello, rules));
    }
    // 5
    if !mine {
        return None;
    }
    Some(met_again(&old, server, hello, rules))
}

/// Returns true if a record that does not vote gives way to any other fleet. Nobody has vouched for it, and none of its
/// clients is there. The client that comes has stayed, because it has read this record before.
fn gives_way(old: &BootRecord, hello: &Handshake, visited: bool, rules: Rules) -> bool {
    let binds = old.vouched || !rules.hold(Rule::UnusedGivesWay);
    let stays = visited && rules.hold(Rule::VisitedStays);
    let known = hello.known.as_ref();
    let was_read = known.is_some_and(|(run, id)| *run == old.run && *id == old.id);
    !binds && !stays && was_read
}

/// Lines 6 and 7.
fn met_again(old: &BootRecord, server: &Server, hello: &Handshake, rules: Rules) -> BootRecord {
    let vouches = hello.vouch >= Vouch::Voter;
    let open_to_all = !old.vouched || !rules.hold(Rule::StrangersChangeNothing);
    let mut record = old.clone();
    record.run.clone_from(&server.run);
    let is_throwaway = hello.list == THROWAWAY;
    if vouches || is_throwaway || (open_to_all && !old.votes()) {
        record.terms = old.terms.join(hello.terms);
        record.vouched |= vouches;
    }
    record.used |= hello.used;
    let known = hello.known.as_ref();
    if known.is_some_and(|(run, id)| *run == old.run && *id == old.id) {
        let x = hello.witnessed.min(record.terms.history());
        record.witnessed = record.witnessed.max(x);
    }
    record
}

/// NEW. If a memory came back from a disk, and had voted or was vouched for, its terms are kept.
fn new_record(
    old: Option<&BootRecord>,
    server: &Server,
    hello: &Handshake,
    rules: Rules,
) -> BootRecord {
    let mut record = BootRecord {
        masters: hello.masters,
        list: hello.list.clone(),
        terms: hello.terms,
        run: server.run.clone(),
        id: hello.nonce.clone(),
        vouched: hello.vouch >= Vouch::Voter,
        used: hello.used,
        witnessed: 0,
    };
    if !rules.hold(Rule::Quarantine) {
        record.witnessed = record.terms.quarantine();
    }
    let Some(old) = old else { return record };
    record.used |= old.used || old.votes();
    let mine = is_mine(old, hello.masters, &hello.list, rules);
    let from_disk = !same_run(&old.run, &server.run);
    let binds = (old.votes() || old.vouched) && rules.hold(Rule::DiskVouches);
    if mine && from_disk && binds && hello.vouch < Vouch::Majority {
        record.terms = match hello.vouch {
            Vouch::Stranger if hello.list != THROWAWAY => old.terms,
            _ => old.terms.join(hello.terms),
        };
        record.vouched = true;
    }
    record
}

/// The record after an ADMIT. None: refused.
pub(crate) fn admit(record: &BootRecord, admit: &Admit) -> Option<BootRecord> {
    let same = record.masters == admit.masters
        && record.list == admit.list
        && record.run == admit.run
        && record.id == admit.id;
    let fits = match admit.mode {
        Mode::New => !record.used,
        Mode::Raise => record.votes(),
        Mode::Forced => true,
    };
    (same && fits && !record.terms.exceed(admit.terms)).then(|| BootRecord {
        terms: admit.terms,
        vouched: true,
        witnessed: record.witnessed.max(admit.witnessed),
        ..record.clone()
    })
}

#[cfg(test)]
pub(crate) mod tests;
