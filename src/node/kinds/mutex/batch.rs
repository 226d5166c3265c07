//! Many operations about locks as one script call (protocol §3, "Batches").

use super::{Command, Reply};
use crate::{
    name::Name,
    node::wire::{
        Arg::{Bytes, Number, Text},
        Keys, Script, Writer, ms,
    },
    owner::Entry,
};

pub(super) static BATCH: Script = Script::new(include_str!("batch.lua"));

/// What one operation adds to the bytes beside its name, its entry: about that.
const OVERHEAD: usize = 64;

/// An operation as one of a batch.
pub(crate) struct Rider<'c> {
    letter: u8,
    name: &'c Name,
    entry: &'c Entry,
    numbers: [Option<u64>; 2],
    /// What it is held to, in ms. A batch has one.
    pub(crate) max_ttl: Option<u64>,
    /// The answer to it where all of the batch went as asked.
    pub(crate) as_asked: Reply,
}

impl Command {
    /// The same as one of a batch. None: it travels alone.
    pub(crate) fn rider(&self) -> Option<Rider<'_>> {
        let (letter, name, entry, numbers, max_ttl, as_asked) = match self {
            Self::Acquire {
                name,
                entry,
                ttl,
                floor,
                max_ttl,
            } => {
                let numbers = [Some(ms(*ttl)), Some(*floor)];
                let granted = Reply::Granted(*floor);
                (b'A', name, entry, numbers, Some(ms(*max_ttl)), granted)
            }
            Self::Raise {
                name,
                entry,
                token,
                max_ttl,
            } => {
                let (numbers, raised) = ([Some(*token), None], Reply::Raised(*token));
                (b'T', name, entry, numbers, Some(ms(*max_ttl)), raised)
            }
            Self::Extend { name, entry, ttl } => {
                let numbers = [Some(ms(*ttl)), None];
                (b'E', name, entry, numbers, None, Reply::Extended)
            }
            Self::Release { name, entry } => {
                (b'R', name, entry, [None; 2], None, Reply::Released(true))
            }
            Self::Repair { .. } | Self::Inspect { .. } | Self::Evict { .. } => return None,
        };
        Some(Rider {
            letter,
            name,
            entry,
            numbers,
            max_ttl,
            as_asked,
        })
    }
}

impl Rider<'_> {
    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.name.as_str().len() + self.entry.as_str().len() + OVERHEAD
    }
}

/// One script call of them all. The guard is to follow.
pub(crate) fn encode<'c>(
    riders: impl Iterator<Item = Rider<'c>> + Clone,
    writer: &mut Writer,
    keys: &Keys,
) {
    let (mut letters, mut words, mut max_ttl) = (Vec::with_capacity(64), 0, None);
    for rider in riders.clone() {
        letters.push(rider.letter);
        words += 1 + rider.numbers.iter().flatten().count();
        max_ttl = max_ttl.or(rider.max_ttl);
    }
    // Beside them: open, c0 and c1; max_ttl, the letters and the guard.
    writer.begin_call(&BATCH, letters.len() + 3, words + 3);
    writer.put(keys.open());
    for rider in riders.clone() {
        writer.put(keys.lock(rider.name));
    }
    writer.put(keys.current());
    writer.put(keys.previous());
    writer.put(Number(max_ttl.unwrap_or(0)));
    writer.put(Bytes(&letters));
    for rider in riders {
        writer.put(Text(rider.entry.as_str()));
        for number in rider.numbers.into_iter().flatten() {
            writer.put(Number(number));
        }
    }
}
