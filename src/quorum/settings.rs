//! The settings of one quorum as its user gave them, their defaults and their checks.

use std::{sync::Arc, time::Duration};

use crate::{
    Error,
    base::{name::check_word, owner::Label, rules::Rules},
    node::{
        admission::{Terms, record::LONGEST},
        settings::Settings,
    },
};

const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
const SHORTEST_MAX_TTL: Duration = Duration::from_millis(100);

/// Settings that nobody has checked yet, each with its default. The nodes are not among them.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) node_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) dial_timeout: Duration,
    pub(crate) shutdown_timeout: Duration,
    pub(crate) max_ttl: Duration,
    pub(crate) margin: Duration,
    pub(crate) prefix: String,
    pub(crate) fleet: Option<String>,
    pub(crate) label: Option<String>,
    pub(crate) allow_eviction: bool,
    pub(crate) rules: Rules,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            node_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(5),
            dial_timeout: Duration::from_secs(3),
            shutdown_timeout: Duration::from_secs(5),
            max_ttl: Duration::from_secs(30),
            margin: Duration::from_secs(5),
            prefix: "quorate".into(),
            fleet: None,
            label: None,
            allow_eviction: false,
            rules: Rules::ALL,
        }
    }
}

impl Draft {
    /// Checks every setting by itself; returns the label that holds.
    pub(crate) fn check(&self) -> Result<Label, Error> {
        check_word("key prefix", &self.prefix)?;
        if let Some(word) = &self.fleet {
            check_word("fleet name", word)?;
        }
        check_max_ttl(self.max_ttl)?;
        check_margin(self.margin)?;
        check_timeout("node_timeout", self.node_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        check_timeout("dial_timeout", self.dial_timeout)?;
        match &self.label {
            Some(label) => Label::new(label),
            None => Ok(Label::of_this_process()),
        }
    }

    /// The longest ttl and the restart margin, which the whole fleet agrees on.
    pub(crate) fn terms(&self) -> Terms {
        Terms::new(self.max_ttl, self.margin)
    }

    /// The settings with these nodes. `list` is the word for the list of them, unless the fleet has a name; `ranks`: the
    /// place of each in it.
    /// `channel`: where who waits hears that it is its turn.
    pub(crate) fn settle(
        self,
        label: Label,
        nodes: Vec<Arc<str>>,
        (list, ranks): (String, Vec<usize>),
        channel: String,
    ) -> Settings {
        Settings {
            nodes,
            terms: self.terms(),
            ranks: self.fleet.is_none().then_some(ranks),
            list: self.fleet.unwrap_or(list),
            prefix: self.prefix,
            node_timeout: self.node_timeout,
            label,
            channel: channel.into(),
            allow_eviction: self.allow_eviction,
            rules: self.rules,
        }
    }
}

pub(crate) fn check_max_ttl(d: Duration) -> Result<(), Error> {
    match (SHORTEST_MAX_TTL..=LONGEST).contains(&d) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "max_ttl {d:?} is not between {SHORTEST_MAX_TTL:?} and 24 h"
        ))),
    }
}

pub(crate) fn check_margin(d: Duration) -> Result<(), Error> {
    match d <= LONGEST {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "restart_margin {d:?} is longer than 24 h"
        ))),
    }
}

pub(crate) fn check_timeout(what: &str, d: Duration) -> Result<(), Error> {
    if d.is_zero() {
        return Err(Error::Invalid(format!(
            "{what} is zero: no node can answer in no time"
        )));
    }
    if d > LONGEST_TIMEOUT {
        return Err(Error::Invalid(format!(
            "{what} {d:?} is longer than an hour"
        )));
    }
    Ok(())
}
