//! The readers, the writer and the waiting writers of a read-write lock: as each node names them, and merged.

use std::{cmp::Reverse, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use super::{
    Holder, Inspection, NodeInspection,
    line::{PRINTED, length},
};
use crate::{
    FencingToken,
    base::{
        majority::majority,
        owner::owner_of,
        text::{are_needed, table},
    },
};

/// The read-write lock of a name, as one node knows it.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRwlock {
    /// The writer.
    pub writer: Option<Holder>,
    /// The newest token that was given out there: a writer's, or the epoch of readers.
    pub token: Option<FencingToken>,
    /// The readers, the one with the most time left first: up to 100.
    pub readers: Vec<Reader>,
    /// How many read.
    pub reading: u64,
    /// The writers that wait: up to 100.
    pub writers: Vec<WaitingWriter>,
    /// How many writers wait.
    pub waiting: u64,
}

/// A reader. `Display`: `web-3:77, for 8.2 s more unless it is renewed`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// The reader, and how much longer it reads.
    pub holder: Holder,
    /// The nodes that name it. In [`NodeRwlock::readers`] it is that node alone.
    pub nodes: Vec<Arc<str>>,
    /// True if a majority names it. If not, it is mostly an attempt under way, or something that an attempt has left
    /// there.
    pub is_held: bool,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holder.fmt(f)
    }
}

/// A writer that waits, and keeps new readers out meanwhile. `Display`: `web-4:12`.
///
/// These writers have no order, and it is not known how long they have waited.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingWriter {
    /// The text on the node, `<owner>@<label>`. It belongs to this one wait. The writer will write under another owner.
    pub entry: String,
    /// The writer's label: that of its handle, or of its quorum.
    pub label: String,
    /// How much longer it keeps readers out unless it asks again.
    pub remaining: Duration,
    /// The nodes that name it. In [`NodeRwlock::writers`] it is that node alone.
    pub nodes: Vec<Arc<str>>,
}

impl WaitingWriter {
    /// The owner's uuid, with its hyphens. It is new for every wait. `None` if this library did not write the text on
    /// the node.
    pub fn owner(&self) -> Option<String> {
        owner_of(&self.entry).map(|owner| owner.to_string())
    }
}

impl fmt::Display for WaitingWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl Inspection {
    /// The writer of the read-write lock of this name, as a majority of nodes names it.
    pub fn writer(&self) -> Option<&Holder> {
        let writers = self.rwlocks().filter_map(|node| node.writer.as_ref());
        self.of_a_majority(writers)
    }

    /// The readers of the read-write lock of this name, the one with the most time left first.
    ///
    /// Readers that fewer nodes than a majority name come last ([`Reader::is_held`] is false). Each node names its
    /// first 100 readers; [`reading`](Self::reading) counts all.
    pub fn readers(&self) -> Vec<Reader> {
        let mut readers: BTreeMap<&str, Reader> = BTreeMap::new();
        for reader in self.rwlocks().flat_map(|node| &node.readers) {
            match readers.get_mut(reader.holder.entry.as_str()) {
                Some(known) => {
                    known.holder.remaining = known.holder.remaining.max(reader.holder.remaining);
                    known.nodes.extend(reader.nodes.iter().cloned());
                }
                None => {
                    readers.insert(&reader.holder.entry, reader.clone());
                }
            }
        }
        let needed = majority(self.nodes.len());
        let mut readers: Vec<Reader> = readers.into_values().collect();
        for reader in &mut readers {
            reader.is_held = reader.nodes.len() >= needed;
        }
        readers.sort_by_key(|reader| Reverse((reader.is_held, reader.holder.remaining)));
        readers
    }

    /// How many read under the read-write lock of this name: the readers that a majority of nodes names. (If nodes do
    /// not name all of their readers, it is at least the number that a majority of nodes counts.)
    pub fn reading(&self) -> u64 {
        let held = self.readers().iter().filter(|one| one.is_held).count();
        let all_are_named = |node: &NodeRwlock| node.reading <= length(node.readers.len());
        if self.rwlocks().all(all_are_named) {
            return length(held);
        }
        let mut counts: Vec<u64> = self.rwlocks().map(|node| node.reading).collect();
        counts.sort_by_key(|count| Reverse(*count));
        let of_a_majority = counts.get(majority(self.nodes.len()) - 1).copied();
        length(held).max(of_a_majority.unwrap_or(0))
    }

    /// The writers that wait for the read-write lock of this name and keep new readers out, in no order.
    ///
    /// These are the first in the queue, and the writers that have asked within the last 2 s or so. The other writers
    /// queue behind the first, and are not named. A writer on fewer nodes than a majority has just come, is leaving, or
    /// could not reach the others. A writer that died stays for some 2 s more. A writer that has waited and writes now
    /// stays as long as it keeps the lock.
    ///
    /// Each node names its first 100 writers; [`waiting_to_write`](Self::waiting_to_write) counts all.
    pub fn waiting_writers(&self) -> Vec<WaitingWriter> {
        let mut writers: BTreeMap<&str, WaitingWriter> = BTreeMap::new();
        for writer in self.rwlocks().flat_map(|node| &node.writers) {
            match writers.get_mut(writer.entry.as_str()) {
                Some(known) => {
                    known.remaining = known.remaining.max(writer.remaining);
                    known.nodes.extend(writer.nodes.iter().cloned());
                }
                None => {
                    writers.insert(&writer.entry, writer.clone());
                }
            }
        }
        writers.into_values().collect()
    }

    /// How many [`waiting_writers`](Self::waiting_writers) there are: the most that any node counts, or that all of
    /// them name together.
    pub fn waiting_to_write(&self) -> u64 {
        let counts = self.rwlocks().map(|node| node.waiting);
        let named = length(self.waiting_writers().len());
        counts.max().unwrap_or(0).max(named)
    }

    /// The newest token that any node has given out for the read-write lock of this name.
    pub fn newest_rwlock_token(&self) -> Option<FencingToken> {
        self.rwlocks().filter_map(|node| node.token).max()
    }

    /// Returns true if any node names a reader, a writer or a writer that waits.
    pub(super) fn uses_rwlock(&self) -> bool {
        self.rwlocks().any(NodeRwlock::is_used)
    }

    /// Prints the read-write lock for operators.
    pub(super) fn print_rwlock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)?;
        self.print_who(f)?;
        match self.waiting_to_write() {
            0 => Ok(()),
            1 => f.write_str("; 1 waits to write"),
            more => write!(f, "; {more} wait to write"),
        }?;
        let rows: Vec<Vec<String>> = self.nodes.iter().map(NodeInspection::rwlock_row).collect();
        let head = [
            "NODE",
            "WRITER",
            "REMAINING",
            "READERS",
            "WAITING",
            "TOKEN",
            "STATE",
        ];
        write!(f, "\n\n{}", table(&head, &rows))?;
        self.print_readers(f)?;
        self.print_writers(f)
    }

    fn print_who(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (answered, total) = (self.answered(), self.nodes.len());
        let needed = majority(total);
        let held = self.rwlocks().filter(|node| node.is_held()).count();
        match (self.writer(), self.reading()) {
            (Some(writer), _) => {
                let is = |node: &&NodeRwlock| {
                    let there = node.writer.as_ref();
                    there.is_some_and(|other| other.entry == writer.entry)
                };
                let on = self.rwlocks().filter(is).count();
                write!(
                    f,
                    " is held for writing on {on} of {total} nodes by {writer}"
                )
            }
            (None, _) if answered < needed => write!(
                f,
                ": the readers and the writer are unknown, {answered} of {total} nodes answered and {}",
                are_needed(needed)
            ),
            (None, 0) if held == 0 => f.write_str(": nobody reads or writes"),
            (None, 0) => write!(
                f,
                ": nobody reads or writes: entries on {held} of {total} nodes, but {needed} nodes must name the same holder"
            ),
            (None, reading) => write!(f, " is held for reading by {reading}"),
        }
    }

    /// Prints a row for each of the first readers.
    fn print_readers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (readers, total) = (self.readers(), self.nodes.len());
        let rows = readers.iter().take(PRINTED).map(|reader| {
            let on = format!("{} of {total} nodes", reader.nodes.len());
            vec![
                reader.holder.label.clone(),
                reader.holder.time_left(),
                match reader.is_held {
                    true => on,
                    false => format!("{on}: no majority"),
                },
            ]
        });
        print_rows(&["READER", "REMAINING", "ON"], rows.collect(), f)?;
        print_rest(self.reading(), readers.len(), f)
    }

    /// Prints a row for each of the first writers that wait.
    fn print_writers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (writers, total) = (self.waiting_writers(), self.nodes.len());
        let rows = writers.iter().take(PRINTED).map(|writer| {
            let on = format!("{} of {total} nodes", writer.nodes.len());
            vec![writer.label.clone(), on]
        });
        print_rows(&["WAITS TO WRITE", "ON"], rows.collect(), f)?;
        print_rest(self.waiting_to_write(), writers.len(), f)
    }

    fn rwlocks(&self) -> impl Iterator<Item = &NodeRwlock> {
        self.nodes.iter().filter_map(|node| node.rwlock.as_ref())
    }
}

fn print_rows(head: &[&str], rows: Vec<Vec<String>>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match rows.is_empty() {
        true => Ok(()),
        false => write!(f, "\n\n{}", table(head, &rows)),
    }
}

/// Prints how many have no row. They are counted, or named beyond the first.
fn print_rest(counted: u64, named: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let printed = length(named.min(PRINTED));
    match counted.max(length(named)).saturating_sub(printed) {
        0 => Ok(()),
        more => write!(f, "\nand {more} more"),
    }
}

impl NodeRwlock {
    fn is_held(&self) -> bool {
        self.writer.is_some() || self.reading > 0
    }

    fn is_used(&self) -> bool {
        self.is_held() || self.waiting > 0
    }
}

impl NodeInspection {
    /// The node's row in the table of the read-write lock.
    fn rwlock_row(&self) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let nothing = NodeRwlock::default();
        let known = self.rwlock.as_ref().unwrap_or(&nothing);
        let said = |text: String| self.silence.is_none().then_some(text);
        let writer = known.writer.as_ref();
        vec![
            self.node.to_string(),
            or_dash(writer.map(|writer| writer.label.clone())),
            or_dash(writer.map(Holder::time_left)),
            or_dash(said(known.reading.to_string())),
            or_dash(said(known.waiting.to_string())),
            or_dash(known.token.map(|token| token.to_string())),
            self.state(),
        ]
    }
}

#[cfg(test)]
mod tests;
