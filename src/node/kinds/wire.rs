//! Encodes commands for a server and decodes its replies. Each kind defines its own bytes.

use redis_protocol::resp3::types::OwnedFrame;

use super::{Command, mutex, rwlock, slots};
use crate::node::{
    answer::Answer,
    request::{Question, Request, Side, Target, Verb},
    wire::{
        Keys, Writer,
        read::{Hide, count, integer, yes},
    },
};

impl Command {
    /// The name for people, as the protocol has it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Admission(command) => command.name(),
            Self::Server(command) => command.name(),
            Self::Request(request) => request.name(),
            Self::Question(question) => question.name(),
            Self::Rate(command) => command.name(),
        }
    }

    /// Writes its bytes. The caller writes the guard of a guarded command behind them.
    pub(crate) fn encode(&self, writer: &mut Writer, keys: &Keys) {
        match self {
            Self::Admission(command) => command.encode(writer, keys),
            Self::Server(command) => command.encode(writer),
            Self::Request(request) => request.encode(writer, keys),
            Self::Question(question) => question.encode(writer, keys),
            Self::Rate(command) => command.encode(writer, keys),
        }
    }

    /// How many replies of the server belong to it.
    pub(crate) fn replies(&self) -> usize {
        match self {
            Self::Admission(command) => command.replies(),
            Self::Server(command) => command.replies(),
            Self::Request(_) | Self::Question(_) | Self::Rate(_) => 1,
        }
    }

    /// The replies whose error is an error of the command.
    pub(crate) fn decisive<'f>(&self, replies: &'f [OwnedFrame]) -> &'f [OwnedFrame] {
        match self {
            Self::Admission(command) => command.decisive(replies),
            Self::Server(_) | Self::Request(_) | Self::Question(_) | Self::Rate(_) => replies,
        }
    }

    /// Decodes its replies, none of which may be a decisive error. None: the replies have another shape.
    pub(crate) fn decode(&self, replies: &[OwnedFrame], hide: Hide<'_>) -> Option<Answer> {
        match (self, replies) {
            (Self::Admission(command), _) => command.decode(replies, hide).map(Answer::Admission),
            (Self::Server(command), _) => command.decode(replies).map(Answer::Server),
            (Self::Request(request), [reply]) => request.decode(reply),
            (Self::Question(question), [reply]) => question.decode(reply, hide),
            (Self::Rate(command), [reply]) => command.decode(reply),
            (Self::Request(_) | Self::Question(_) | Self::Rate(_), _) => None,
        }
    }
}

impl Request {
    fn name(&self) -> &'static str {
        if self.frees() {
            return "RELEASE";
        }
        match (&self.verb, &self.target) {
            (Verb::Acquire { .. }, Target::Rwlock(_, Side::Reader)) => "READ",
            (Verb::Acquire { .. }, Target::Rwlock(_, Side::Writer)) => "WRITE",
            (Verb::Acquire { .. }, Target::Slot(..)) => "TAKE",
            (Verb::Acquire { .. }, Target::Mutex(_)) => match self.keeps_a_place() {
                true => "JOIN",
                false => "ACQUIRE",
            },
            (Verb::Yield { .. }, _) => "YIELD",
            (Verb::Raise { .. }, _) => "RAISE",
            (Verb::Extend { .. }, _) => "EXTEND",
            (Verb::Repair { .. }, _) => "REPAIR",
            (Verb::Release(_), _) => "RELEASE",
        }
    }

    fn encode(&self, writer: &mut Writer, keys: &Keys) {
        match &self.target {
            Target::Mutex(names) => mutex::encode(names, self, writer, keys),
            Target::Rwlock(name, side) => rwlock::encode(name, *side, self, writer, keys),
            Target::Slot(pool, slot) => slots::encode(pool, *slot, self, writer, keys),
        }
    }

    /// Decodes the reply of its script, or its item in the reply of a batch.
    fn decode(&self, reply: &OwnedFrame) -> Option<Answer> {
        if self.frees() {
            return Some(match integer(reply)? {
                -1 => Answer::ReleasedUnadmitted,
                _ => Answer::Released(yes(reply)?),
            });
        }
        Some(match (&self.verb, &self.target) {
            (Verb::Acquire { wait, .. }, Target::Mutex(names)) => {
                mutex::acquired(names, wait.place(), reply)?
            }
            (Verb::Acquire { .. }, Target::Rwlock(..)) => rwlock::acquired(reply)?,
            (Verb::Acquire { .. }, Target::Slot(..)) => slots::taken(reply)?,
            (Verb::Yield { .. } | Verb::Release(_), _) => yes(reply)?.then_some(Answer::Yielded)?,
            (Verb::Raise { .. }, _) => match integer(reply)? {
                -1 => Answer::Lost,
                _ => Answer::Raised(count(reply)?),
            },
            (Verb::Extend { .. }, _) => match yes(reply)? {
                true => Answer::Extended,
                false => Answer::Lost,
            },
            (Verb::Repair { .. }, _) => Answer::Repaired(yes(reply)?),
        })
    }
}

impl Question {
    fn name(&self) -> &'static str {
        match self {
            Self::InspectMutex(_) | Self::InspectRwlock(_) | Self::InspectPool(_) => "INSPECT",
            Self::EvictMutex(_) | Self::EvictRwlock(_) => "EVICT",
            Self::Resize(..) => "RESIZE",
        }
    }

    fn encode(&self, writer: &mut Writer, keys: &Keys) {
        match self {
            Self::InspectMutex(name) => mutex::encode_inspect(name, writer, keys),
            Self::EvictMutex(name) => mutex::encode_evict(name, writer, keys),
            Self::InspectRwlock(name) => rwlock::encode_inspect(name, writer, keys),
            Self::EvictRwlock(name) => rwlock::encode_evict(name, writer, keys),
            Self::InspectPool(pool) => slots::encode_inspect(pool, writer, keys),
            Self::Resize(pool, limit) => slots::encode_resize(pool, *limit, writer, keys),
        }
    }

    fn decode(&self, reply: &OwnedFrame, hide: Hide<'_>) -> Option<Answer> {
        match self {
            Self::InspectMutex(_) => mutex::inspected(reply, hide),
            Self::EvictMutex(_) => mutex::evicted(reply),
            Self::InspectRwlock(_) => rwlock::inspected(reply, hide),
            Self::EvictRwlock(_) => rwlock::evicted(reply),
            Self::InspectPool(_) => slots::inspected(reply, hide),
            Self::Resize(..) => slots::resized(reply),
        }
    }
}
