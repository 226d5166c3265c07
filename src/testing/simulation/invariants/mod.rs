//! The invariants, one per file. Each takes plain data and returns a violation, so that tests can plant a violation and
//! see that it is found.

pub(crate) mod admitted;
pub(crate) mod answers;
pub(crate) mod bounded;
pub(crate) mod counters;
pub(crate) mod endurance;
pub(crate) mod entering;
pub(crate) mod epochs;
pub(crate) mod eviction;
pub(crate) mod exclusion;
pub(crate) mod finality;
pub(crate) mod gate;
pub(crate) mod keys;
pub(crate) mod limits;
pub(crate) mod livelock;
pub(crate) mod logins;
pub(crate) mod order;
pub(crate) mod overtaken;
pub(crate) mod places;
pub(crate) mod progress;
pub(crate) mod records;
pub(crate) mod refusals;
pub(crate) mod resizes;
pub(crate) mod settled;
pub(crate) mod sides;
pub(crate) mod spent;
pub(crate) mod stall;
pub(crate) mod strangers;
pub(crate) mod support;
pub(crate) mod tidy;
pub(crate) mod turns;
pub(crate) mod uniqueness;
pub(crate) mod updates;
pub(crate) mod voting;
pub(crate) mod whole;

use std::fmt;

/// One operation of one client, for the text of a failure. Instants are true time in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) client: usize,
    pub(crate) incarnation: u64,
    pub(crate) what: &'static str,
    pub(crate) name: String,
    pub(crate) token: Option<u64>,
    pub(crate) asked_at: u64,
    pub(crate) answered_at: Option<u64>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            client,
            incarnation,
            what,
            name,
            token,
            asked_at,
            answered_at,
        } = self;
        write!(
            f,
            "client {client}.{incarnation} {what} {name:?}, asked at {}",
            ms(*asked_at)
        )?;
        if let Some(at) = answered_at {
            write!(f, ", answered at {}", ms(*at))?;
        }
        match token {
            Some(token) => write!(f, ", token {token}"),
            None => Ok(()),
        }
    }
}

/// True time for the text of a failure: `1234.567 ms`.
pub(crate) fn ms(nanos: u64) -> String {
    format!("{}.{:03} ms", nanos / 1_000_000, nanos / 1_000 % 1_000)
}

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
    pub(crate) operations: Vec<Operation>,
}

impl Violation {
    pub(crate) fn new(
        invariant: &'static str,
        what: impl Into<String>,
        operations: &[&Operation],
    ) -> Self {
        let operations = operations.iter().map(|&op| op.clone()).collect();
        Self {
            invariant,
            what: what.into(),
            operations,
        }
    }
}

pub(crate) type Held = Result<(), Violation>;

#[cfg(test)]
pub(crate) fn operation(client: usize, token: u64, asked_at: u64, answered_at: u64) -> Operation {
    Operation {
        client,
        incarnation: 0,
        what: "lock",
        name: "a".into(),
        token: Some(token),
        asked_at,
        answered_at: Some(answered_at),
    }
}
