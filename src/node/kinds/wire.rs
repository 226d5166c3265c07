//! Commands and replies on the wire of a server: each kind's own.

use redis_protocol::resp3::types::OwnedFrame;

use super::Command;
use crate::node::{
    answer::Answer,
    wire::{Keys, Writer, read::Hide},
};

impl Command {
    /// As people know it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Admission(command) => command.name(),
            Self::Mutex(command) => command.name(),
            Self::Slots(command) => command.name(),
            Self::Rate(command) => command.name(),
            Self::Rwlock(command) => command.name(),
            Self::Several(command) => command.name(),
            Self::Server(command) => command.name(),
        }
    }

    /// Its bytes. The guard of a guarded one is to follow them.
    pub(crate) fn encode(&self, writer: &mut Writer, keys: &Keys) {
        match self {
            Self::Admission(command) => command.encode(writer, keys),
            Self::Mutex(command) => command.encode(writer, keys),
            Self::Slots(command) => command.encode(writer, keys),
            Self::Rate(command) => command.encode(writer, keys),
            Self::Rwlock(command) => command.encode(writer, keys),
            Self::Several(command) => command.encode(writer, keys),
            Self::Server(command) => command.encode(writer),
        }
    }

    /// How many replies of the server belong to it.
    pub(crate) fn replies(&self) -> usize {
        match self {
            Self::Admission(command) => command.replies(),
            Self::Mutex(_)
            | Self::Slots(_)
            | Self::Rate(_)
            | Self::Rwlock(_)
            | Self::Several(_) => 1,
            Self::Server(command) => command.replies(),
        }
    }

    /// Those of its replies whose error is one of the command.
    pub(crate) fn decisive<'f>(&self, replies: &'f [OwnedFrame]) -> &'f [OwnedFrame] {
        match self {
            Self::Admission(command) => command.decisive(replies),
            Self::Mutex(_)
            | Self::Server(_)
            | Self::Slots(_)
            | Self::Rate(_)
            | Self::Rwlock(_)
            | Self::Several(_) => replies,
        }
    }

    /// What its replies say, of which no decisive one is an error. None: they are of another shape.
    pub(crate) fn decode(&self, replies: &[OwnedFrame], hide: Hide<'_>) -> Option<Answer> {
        match self {
            Self::Admission(command) => command.decode(replies, hide).map(Answer::Admission),
            Self::Mutex(command) => command.decode(replies, hide),
            Self::Server(command) => command.decode(replies).map(Answer::Server),
            Self::Slots(command) => command.decode(replies, hide),
            Self::Rate(command) => command.decode(replies),
            Self::Rwlock(command) => command.decode(replies, hide),
            Self::Several(command) => command.decode(replies),
        }
    }
}
