//! What every kind of node has to do for its admission (protocol §2).

// As in a test, a mistake ends it.
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
        "§2 line 9: below Z every handshake is written; beyond it w is, once it has grown by \
         1 %. The answer says the greater w nevertheless.",
        w_is_answered_always_and_written_when_it_is_worth_it,
        Keys
    ),
    case!(
        "§2 `Guard`: where `open` is not what the client expects nothing is done; RELEASE \
         alone works.",
        a_node_that_may_not_vote_takes_only_releases,
        Flush
    ),
    case!(
        "§2: who the server is comes with every answer.",
        a_handshake_says_who_the_server_is
    ),
    case!(
        "§2, §3: the node's clock comes with every answer, so that one that is behind is not counted.",
        a_handshake_tells_the_time
    ),
    case!(
        "§2 lines 1 and 2: a replica is refused and writes nothing; a master that was one \
         meanwhile is another memory.",
        a_failback_is_another_run,
        Replica,
        Keys
    ),
    case!(
        "§2 bootstrap: every grant leaves a counter, so counters show use, before the node \
         votes too; and one of them names its lock, however old it is.",
        a_survey_sees_counters_and_names_a_lock,
        Flush,
        Counters
    ),
    case!(
        "§1, §2: an error is no answer; a full server writes nothing, and still frees and closes.",
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
        "§2 lines 8 to 10 at maxmemory: `open` is closed, what cannot be written is an error \
         and stays.",
        a_full_server_is_closed_and_not_opened,
        Flush,
        Full,
        Keys
    ),
];

/// Of one who sees no voter, and knows nothing.
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

/// What `open` says of this record.
fn guard_of(record: &str) -> String {
    let words: Vec<&str> = record.split(' ').collect();
    let [format, masters, list, max_ttl, margin, _, id, ..] = words[..] else {
        panic!("{record:?}");
    };
    format!("{max_ttl} {format} {masters} {list} {margin} {id}")
}

/// In the texts: the run of the server, that of another process, and that of the server before it
/// freed its backlog.
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
