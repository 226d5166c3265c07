//! Cases about admission, for every kind of node (protocol §2).

// A failed case panics, as a test does.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod bootstrap;
mod full;
mod handshake;
pub(super) mod lines;
pub(super) mod modes;
pub(crate) mod random;
mod voting;

use std::time::Duration;

use super::{Admit, BootRecord, Command, Handshake, Meeting, Mode, Reply, Stored, Terms, Vouch};
use crate::{
    node::{
        self, Fault,
        answer::Answer,
        mutex::{
            self,
            cases::{
                DAY, MAX_TTL, about, acquire, counter, evict, extend, inspect, name, raise,
                release, remaining, repair, secs,
            },
        },
    },
    testing::conformance::{
        Change, Key,
        case::{Case, case},
        random::Chance,
        trial::Trial,
    },
};
use bootstrap::*;
use full::*;
use handshake::*;
use voting::*;

const TERMS: Terms = Terms {
    max_ttl: MAX_TTL,
    margin: Duration::from_secs(5),
};
/// Z of these terms.
const Z: u64 = 20_200 + 5_000;

pub(crate) const CASES: &[Case] = &[
    case!(
        "§2 HANDSHAKE, every numbered line: the record and `open` that stand afterwards, and \
         the answer.",
        every_line_of_the_handshake,
        Keys
    ),
    case!(
        "§2 ADMIT, every mode: the record and `open` that stand afterwards.",
        every_mode_of_admit,
        Flush,
        Keys
    ),
    case!(
        "§2 line 9: below Z every handshake is written; beyond Z, w is written once it has \
         grown by 1 %. The answer has the greater w.",
        a_handshake_answers_the_greater_w_and_writes_it_if_worthwhile,
        Keys
    ),
    case!(
        "§2 `Guard`: if `open` is not what the client expects, only a RELEASE is done.",
        a_node_that_may_not_vote_takes_only_releases,
        Flush
    ),
    case!(
        "§2: every answer identifies the server.",
        a_handshake_identifies_the_server
    ),
    case!(
        "§2, §3: every answer has the node's clock, so that a node that is behind is not counted.",
        a_handshake_tells_the_time
    ),
    case!(
        "§2 lines 1 and 2: a replica is refused and writes nothing; a master that was a \
         replica counts as another memory.",
        a_failback_is_another_run,
        Replica,
        Keys
    ),
    case!(
        "§2 bootstrap: every grant leaves a counter, so counters show use, even before the \
         node votes. One of them names its lock, however old it is.",
        a_survey_sees_counters_and_names_a_lock,
        Flush,
        Counters
    ),
    case!(
        "§1, §2: an error is not an answer; a full server writes nothing, but still frees and closes.",
        a_full_server_frees_and_grants_nothing,
        Full
    ),
    case!(
        "§2: a handshake says that the server refuses writes, and then that it takes them again.",
        a_full_server_says_that_it_refuses_writes,
        Full,
        Keys
    ),
    case!(
        "§2 lines 8 to 10 at maxmemory: `open` is closed; a record that cannot be written is \
         an error and stays.",
        a_full_server_is_closed_and_not_opened,
        Flush,
        Full,
        Keys
    ),
];

/// The handshake of a client that sees no voter and has read no record.
pub(crate) fn hello() -> Handshake {
    Handshake {
        masters: 3,
        list: "word".into(),
        terms: TERMS,
        vouch: Vouch::Stranger,
        used: false,
        known: None,
        witnessed: 0,
        nonce: "nonce".into(),
    }
}

/// The last step of a bootstrap.
pub(crate) fn admit(record: &BootRecord) -> Command {
    Command::Admit(admission_of(record))
}

fn admission_of(record: &BootRecord) -> Admit {
    Admit {
        masters: record.masters,
        list: record.list.clone(),
        run: record.run.clone(),
        id: record.id.clone(),
        terms: record.terms,
        witnessed: Z,
        mode: Mode::New,
    }
}

/// The guard that belongs to this record.
fn guard_of(record: &str) -> String {
    let words: Vec<&str> = record.split(' ').collect();
    let [format, masters, list, max_ttl, margin, _, id, ..] = words[..] else {
        panic!("{record:?}");
    };
    format!("{max_ttl} {format} {masters} {list} {margin} {id}")
}

/// Replaces words of a text: `here` by the run of the server, `there` by that of another process, and `freed` by that
/// of the server before it freed its backlog.
pub(super) fn spelled(text: &str) -> String {
    let words = text.split(' ').map(|word| match word {
        "here" => "RUN/00000000/-1",
        "there" => "eeee/00000000/-1",
        "freed" => "RUN/12345678/7",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn terms(max_ttl: &str, margin: &str) -> Terms {
    let ms = |text: &str| Duration::from_millis(text.parse().unwrap());
    Terms {
        max_ttl: ms(max_ttl),
        margin: ms(margin),
    }
}
