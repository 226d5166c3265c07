//! Who reads or writes under a read-write lock and who waits to write: what each node says, and all of them together.

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

/// What one node knows of the read-write lock of a name.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRwlock {
    /// Who writes.
    pub writer: Option<Holder>,
    /// The newest token that was given out there: a writer's, or the epoch of readers.
    pub token: Option<FencingToken>,
    /// Who reads, those who stay for longest first: up to 100.
    pub readers: Vec<Reader>,
    /// How many read.
    pub reading: u64,
    /// Who waits to write: up to 100.
    pub writers: Vec<WaitingWriter>,
    /// How many wait to write.
    pub waiting: u64,
}

/// One who reads. `Display`: `web-3:77, for 8.2 s more unless it is renewed`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// Who it is, and for how much longer it reads.
    pub holder: Holder,
    /// The nodes that say so. In [`NodeRwlock::readers`] it is that node alone.
    pub nodes: Vec<Arc<str>>,
    /// Whether they are a majority. If not, mostly somebody asks at this moment, or has left it there.
    pub is_held: bool,
}

impl fmt::Display for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holder.fmt(f)
    }
}

/// One who waits to write, and keeps new readers out meanwhile. `Display`: `web-4:12`.
///
/// There is no order among them, and for how long they have waited is not known.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingWriter {
    /// `<owner>@<label>` as it stands on the node: who waits, for this one wait. It writes under another owner.
    pub entry: String,
    /// The label that its quorum was built with.
    pub label: String,
    /// For how much longer it keeps readers out unless it asks again.
    pub remaining: Duration,
    /// The nodes that say so. In [`NodeRwlock::writers`] it is that node alone.
    pub nodes: Vec<Arc<str>>,
}

impl WaitingWriter {
    /// The owner's uuid, with its hyphens: new for every wait. None if this library did not write what stands there.
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
    /// Who writes under the read-write lock of this name: whom a majority of nodes names.
    pub fn writer(&self) -> Option<&Holder> {
        let writers = self.rwlocks().filter_map(|node| node.writer.as_ref());
        self.of_a_majority(writers)
    }

    /// Who reads under the read-write lock of this name, those who stay for longest first. Who is named by fewer nodes than
    /// a majority is there too, behind the others ([`Reader::is_held`]).
    ///
    /// Each node names its first 100; [`reading`](Self::reading) counts all.
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

    /// How many read under the read-write lock of this name: each is named by a majority of nodes. (Where nodes do not name
    /// all of their readers it is at least what a majority of nodes counts.)
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

    /// The writers that wait for the read-write lock of this name and keep new readers out, in no order: the first in line, and those
    /// that have asked within the last 2 s or so. The others queue behind the first, and are not named. A writer that stands on fewer
    /// nodes than a majority comes, goes, or could not reach the others. One that died stands there for some 2 s more, and so does one
    /// that has waited and writes now, for as long as it keeps the lock.
    ///
    /// Each node names its first 100; [`waiting_to_write`](Self::waiting_to_write) counts all.
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

    /// How many [`waiting_writers`](Self::waiting_writers) there are: the most that any node counts, or that all of them name together.
    pub fn waiting_to_write(&self) -> u64 {
        let counts = self.rwlocks().map(|node| node.waiting);
        let named = length(self.waiting_writers().len());
        counts.max().unwrap_or(0).max(named)
    }

    /// The newest token that any node has given out for the read-write lock of this name.
    pub fn newest_rwlock_token(&self) -> Option<FencingToken> {
        self.rwlocks().filter_map(|node| node.token).max()
    }

    /// Whether any node says that somebody reads, writes or waits to.
    pub(super) fn uses_rwlock(&self) -> bool {
        self.rwlocks().any(NodeRwlock::is_used)
    }

    /// What an operator reads of the read-write lock.
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
                ": who reads or writes cannot be told, {answered} of {total} nodes answered and {}",
                are_needed(needed)
            ),
            (None, 0) if held == 0 => f.write_str(": nobody reads or writes"),
            (None, 0) => write!(
                f,
                ": nobody reads or writes, on {held} of {total} nodes there is an entry, {}",
                are_needed(needed)
            ),
            (None, reading) => write!(f, " is held for reading by {reading}"),
        }
    }

    /// A row for each of the first.
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

    /// A row for each of the first.
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

/// Of those who are counted or named, those for whom there was no row.
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
    /// The row under the head of the read-write lock's table of nodes.
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
