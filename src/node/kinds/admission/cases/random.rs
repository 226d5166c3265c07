//! Random handshakes, ADMITs and contents of `boot`.

use super::*;

fn masters(chance: &mut Chance) -> u64 {
    chance.one(&[3, 3, 3, 3, 3, 3, 5])
}

fn list(chance: &mut Chance) -> &'static str {
    chance.one(&["word", "word", "word", "word", "word", "word", "other"])
}

fn terms(chance: &mut Chance) -> Terms {
    Terms {
        max_ttl: secs(chance.one(&[5, 20, 20, 20, 20, 40, 86_400])),
        margin: secs(chance.one(&[1, 5, 5, 5, 5, 10])),
    }
}

/// A w near Z of the usual terms, near 27 h, or any other.
fn w(chance: &mut Chance) -> u64 {
    match chance.up_to(8) {
        0 => chance.up_to(Z),
        1 => chance.one(&[0, Z - 1, Z, Z + 1]),
        2 => 97_200_000 + chance.up_to(3) - 1,
        3 => chance.up_to(300_000_000),
        // Often less than 1 % above the one before.
        _ => 60_000 + chance.up_to(1200),
    }
}

pub(crate) fn hello(chance: &mut Chance) -> Handshake {
    Handshake {
        masters: masters(chance),
        list: list(chance).into(),
        terms: terms(chance),
        vouch: chance.one(&[Vouch::Stranger, Vouch::Voter, Vouch::Majority]),
        used: chance.up_to(8) == 0,
        known: None,
        witnessed: w(chance),
        nonce: format!("nonce{}", chance.up_to(1_000_000)),
    }
}

pub(crate) fn admit(chance: &mut Chance) -> Admit {
    Admit {
        masters: masters(chance),
        list: list(chance).into(),
        run: String::new(),
        id: String::new(),
        terms: terms(chance),
        witnessed: w(chance),
        mode: chance.one(&[Mode::New, Mode::Raise, Mode::Forced]),
    }
}

/// Anything that somebody may have left in `boot`.
pub(crate) fn boot(chance: &mut Chance) -> String {
    let run = chance.one(&[
        "RUN/00000000/-1",
        "RUN/00000000/-1",
        "RUN/12345678/7",
        "eeee/00000000/-1",
    ]);
    match chance.up_to(8) {
        0 => chance
            .one(&["", "garbage", "garbage RUN", "3", "3 3 word"])
            .into(),
        1 => format!(
            "{} 3 {run} id 20000 1000 500",
            chance.one(&["1", "2", "0", "77"])
        ),
        2 => format!("3 3 word 86400001 5000 {run} id 1 1 90000"),
        _ => BootRecord {
            masters: masters(chance),
            list: list(chance).into(),
            terms: terms(chance),
            run: run.into(),
            id: format!("id{}", chance.up_to(1000)),
            vouched: chance.up_to(2) == 0,
            used: chance.up_to(4) == 0,
            witnessed: w(chance),
        }
        .to_string(),
    }
}

/// Equal except for the run and for the lock that is named: each node names any of its own.
pub(crate) fn alike(a: &Reply, b: &Reply) -> bool {
    match (a, b) {
        (Reply::Surveyed { used: u1, lock: l1 }, Reply::Surveyed { used: u2, lock: l2 }) => {
            u1 == u2 && l1.is_some() == l2.is_some()
        }
        (Reply::Met(a), Reply::Met(b)) => met(a) == met(b),
        (a, b) => a == b,
    }
}

fn met(meeting: &Meeting) -> (Stored, bool, String) {
    let run_id = meeting.server.run.split('/').next().unwrap();
    let mut stored = meeting.stored.clone();
    if let Stored::Record(record) = &mut stored {
        record.run = record.run.replace(run_id, "RUN");
    }
    (stored, meeting.open, meeting.server.role.clone())
}
