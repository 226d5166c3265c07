//! The standing of a node that was met: is it of this fleet, and what was read from it?

use std::time::Duration;

use super::fleet::Fleet;
use crate::{
    base::{clock::Tick, text::seconds},
    node::{admission::BootRecord, status::NodeState},
};

/// The result of the last handshake.
pub(super) enum Standing {
    /// Its record is of this fleet. The record decides if it votes.
    Fit,
    /// It is not counted. The text gives the reason and the remedy.
    Unfit(String),
    /// It refused to write the record. The text gives the reason and the remedy.
    RefusesWrites(&'static str),
    /// Its record is of another fleet that has never voted, and clients of that fleet are connected. It is met again
    /// until they are gone. Then its record is replaced. The text says so.
    Taken(String),
    /// Another address leads to the same server. The text names it.
    Duplicate(String),
    /// Its record is of this fleet, and its clock is this far behind this client's.
    Behind(Duration),
    /// It has to be met again before it counts.
    Changed,
}

impl Standing {
    pub(super) fn state(&self, now: Tick, witness: Option<&Witness>, fleet: &Fleet) -> NodeState {
        match (self, witness, fleet.stop()) {
            (Self::Unfit(why) | Self::Taken(why) | Self::Duplicate(why), ..) => {
                NodeState::Refused(why.clone())
            }
            (Self::Behind(by), ..) => NodeState::Refused(format!(
                "its clock is {} behind this machine's, which is more than max_ttl: correct the clock that is wrong (NTP)",
                seconds(*by)
            )),
            (Self::RefusesWrites(why), ..) => NodeState::RefusesWrites((*why).to_owned()),
            (Self::Fit, Some(_), Some(why)) => NodeState::Refused(why.to_string()),
            // The next handshake makes it vote.
            (Self::Fit, Some(witness), None)
                if !witness.record.votes() && fleet.admits_at_once(&witness.record) =>
            {
                NodeState::Connecting
            }
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

/// The record that was read last, and when. It is the basis for counting how long this client has watched the node.
pub(crate) struct Witness {
    pub(crate) record: BootRecord,
    /// `<prefix>:open` was there.
    pub(super) open: bool,
    pub(super) read_at: Tick,
}

impl Witness {
    /// The time at which the quarantine is over, if the node is watched until then.
    fn votes_at(&self) -> Tick {
        let z = self.record.terms.quarantine();
        let left = z.saturating_sub(self.record.witnessed);
        self.read_at.plus(Duration::from_millis(left))
    }
}
