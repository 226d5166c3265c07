//! Puts a history together: one [`Op`] for each operation, no matter where its lines stand.

use std::{collections::HashMap, hash::Hash};

use super::super::history::{Accesses, Event, Line, Locks, Part, Scenario, Side, record_of};

/// An attempt or wait for one lock, several locks or a slot, and all that followed from it. Instants are in ns of the
/// history's clock.
#[derive(Clone, Debug)]
pub(super) struct Op {
    /// The index of its process.
    pub(super) process: usize,
    pub(super) number: u64,
    /// The line in the process's file at which it was invoked.
    pub(super) line: usize,
    /// One name, or several that are taken at once.
    pub(super) names: Vec<String>,
    /// For a read-write lock.
    pub(super) side: Option<Side>,
    pub(super) invoked: u64,
    pub(super) granted: Option<Grant>,
    /// The answers to its first read, for each name. Empty if it has not read.
    pub(super) read: Vec<Accesses>,
    /// The latest end of validity that is known.
    pub(super) valid_until: u64,
    /// When it began to write to the store.
    pub(super) writing: Option<u64>,
    pub(super) lost: Option<u64>,
    pub(super) ended: Option<u64>,
    /// The answers to its write, for each name. For a reader, those to its second read.
    pub(super) wrote: Vec<Accesses>,
    /// When it failed or was released.
    pub(super) over: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) at: u64,
    pub(super) token: u64,
    pub(super) valid_ns: u64,
    /// For a semaphore.
    pub(super) slot: Option<u32>,
}

/// One process of the load.
pub(super) struct Process {
    pub(super) label: String,
    file: String,
    /// When its last line was written. The process lived at least until then.
    pub(super) last: u64,
    /// When it was told to end.
    pub(super) stopped: Option<u64>,
    /// When it was first granted anything. A majority had answered it by then.
    pub(super) answered: Option<u64>,
    /// When each of its lines was written, in order.
    pub(super) lines: Vec<u64>,
}

/// A fault, or its repair.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) at: u64,
    pub(super) what: String,
    /// For a fault: the processes that it stops.
    pub(super) stops: Option<String>,
}

/// Something that was found on a node at the end: a lock, a slot, or the place of a waiter.
pub(super) struct Left {
    pub(super) at: u64,
    pub(super) node: String,
    pub(super) name: String,
    pub(super) slot: Option<u32>,
    pub(super) side: Option<Side>,
    pub(super) waits: bool,
    pub(super) label: String,
    pub(super) remaining_ms: Option<u64>,
    pub(super) token: Option<u64>,
}

#[derive(Default)]
pub(super) struct History {
    pub(super) scenario: Scenario,
    /// The kind of lock behind the names.
    pub(super) locks: Locks,
    pub(super) processes: Vec<Process>,
    pub(super) ops: Vec<Op>,
    pub(super) faults: Vec<Change>,
    pub(super) healed: Vec<Change>,
    /// When all masters voted again.
    pub(super) voting: Vec<u64>,
    /// When all processes were told to end, by something other than a process of the load.
    pub(super) stopping: Vec<u64>,
    /// The number of nodes that were looked at, successfully or not.
    pub(super) looked: usize,
    pub(super) left: Vec<Left>,
    /// Nodes that could not be looked at, and why.
    pub(super) unseen: Vec<(String, String)>,
    /// The record, its counter with a check of tokens, and its counter without one.
    pub(super) stored: Vec<(String, u64, u64)>,
    /// The instant from which reported times count.
    pub(super) start: u64,
    /// When the last line of all files was written.
    pub(super) end: u64,
}

impl History {
    pub(super) fn new(parts: &[Part]) -> Result<Self, String> {
        let mut history = Self::default();
        let mut clocks: Vec<(&str, &str)> = Vec::new();
        let mut kinds: Vec<(&str, Locks)> = Vec::new();
        let times = || {
            parts
                .iter()
                .flat_map(|part| &part.lines)
                .map(|(_, line)| line.at)
        };
        history.start = times().min().unwrap_or(0);
        history.end = times().max().unwrap_or(0);
        for part in parts {
            if let Some((
                _,
                Line {
                    event: Event::Process { clock, locks, .. },
                    ..
                },
            )) = part.lines.first()
            {
                clocks.push((&part.file, clock));
                // The look, and the program that brings the faults, may not know the kind.
                if part.lines.iter().any(|(_, line)| line.event.is_wish()) {
                    kinds.push((&part.file, *locks));
                }
            }
            history.take(part)?;
        }
        if let Some((first, others)) = clocks.split_first()
            && let Some(other) = others.iter().find(|other| other.1 != first.1)
        {
            return Err(format!(
                "{} and {} were recorded by different clocks (another machine, or a reboot between them): their \
                 order cannot be told",
                first.0, other.0
            ));
        }
        if let Some((first, others)) = kinds.split_first() {
            if let Some(other) = others.iter().find(|other| other.1 != first.1) {
                return Err(format!(
                    "{} and {} were recorded with different values of --semaphore, --rwlock or --several: {} and {}",
                    first.0, other.0, first.1, other.1
                ));
            }
            history.locks = first.1;
        }
        Ok(history)
    }

    fn take(&mut self, part: &Part) -> Result<(), String> {
        let mut process = None;
        let mut stopping = Vec::new();
        let mut open: HashMap<u64, Op> = HashMap::new();
        for (number, Line { at, event }) in &part.lines {
            let at = *at;
            let here = || format!("{}, line {number}", part.file);
            if let Some(process) = process
                && let Some(process) = self.processes.get_mut::<usize>(process)
            {
                process.last = process.last.max(at);
                process.lines.push(at);
                if matches!(event, Event::Granted { .. }) {
                    process.answered = Some(process.answered.map_or(at, |first| first.min(at)));
                }
            }
            match event.clone() {
                Event::Process { label, .. } => {
                    process = Some(self.processes.len());
                    self.processes.push(Process {
                        label,
                        file: part.file.clone(),
                        last: at,
                        stopped: None,
                        answered: None,
                        lines: vec![at],
                    });
                }
                Event::Invoked {
                    op,
                    name,
                    also,
                    side,
                } => {
                    let process =
                        process.ok_or_else(|| format!("{}: no process line before it", here()))?;
                    let new = Op {
                        process,
                        number: op,
                        line: *number,
                        names: [vec![name], also].concat(),
                        side,
                        invoked: at,
                        granted: None,
                        read: Vec::new(),
                        valid_until: 0,
                        writing: None,
                        lost: None,
                        ended: None,
                        wrote: Vec::new(),
                        over: None,
                    };
                    if open.insert(op, new).is_some() {
                        return Err(format!("{}: operation {op} is invoked twice", here()));
                    }
                }
                Event::Scenario(scenario) => self.scenario = scenario,
                Event::Fault { what, stops } => self.faults.push(Change { at, what, stops }),
                Event::Healed { what } => self.healed.push(Change {
                    at,
                    what,
                    stops: None,
                }),
                Event::Voting => self.voting.push(at),
                Event::Stopping => stopping.push(at),
                Event::Alive => {}
                Event::Looked { node, silent } => {
                    self.looked += 1;
                    self.unseen.extend(silent.map(|why| (node, why)));
                }
                Event::Left {
                    node,
                    name,
                    slot,
                    side,
                    waits,
                    label,
                    remaining_ms,
                    token,
                } => {
                    self.left.push(Left {
                        at,
                        node,
                        name,
                        slot,
                        side,
                        waits,
                        label,
                        remaining_ms,
                        token,
                    });
                }
                Event::Stored {
                    name,
                    fenced,
                    plain,
                } => self.stored.push((name, fenced, plain)),
                of_an_op => {
                    let number = op_of(&of_an_op);
                    let op = number.and_then(|number| open.get_mut(&number));
                    let op =
                        op.ok_or_else(|| format!("{}: its operation was never invoked", here()))?;
                    op.happen(at, of_an_op);
                }
            }
        }
        if let Some(process) = process.and_then(|process| self.processes.get_mut::<usize>(process))
        {
            // Lines may be out of order by a little.
            process.lines.sort_unstable();
        }
        let mut ops: Vec<Op> = open.into_values().collect();
        ops.sort_by_key(|op| op.line);
        match process.and_then(|process| self.processes.get_mut::<usize>(process)) {
            Some(process) if !ops.is_empty() => process.stopped = stopping.into_iter().min(),
            _ => self.stopping.extend(stopping),
        }
        self.ops.extend(ops);
        Ok(())
    }

    /// The time in which the operation held the lock for certain: it had been granted, its section went on, its lease
    /// was valid, and it had not been told of a loss. Returns `None` if its lease was over before it could look at it.
    pub(super) fn held(&self, op: &Op) -> Option<(u64, u64)> {
        let granted = op.granted.filter(|granted| granted.valid_ns > 0)?;
        // A killed process held the lock for as long as it lived.
        let end = match op.ended {
            Some(end) => end,
            None => self.processes.get(op.process)?.last,
        };
        let end = end.min(op.valid_until);
        let end = op.lost.map_or(end, |lost| end.min(lost));
        Some((granted.at, end.max(granted.at)))
    }

    /// The granted operations of each name, in the order of their grants.
    pub(super) fn grants_by_name(&self) -> Vec<(&str, Vec<(&Op, Grant)>)> {
        self.grants_by(|op| op.names.iter().map(String::as_str).collect())
    }

    /// The same for each record, which one operation holds at a time.
    pub(super) fn grants_by_record(&self) -> Vec<(String, Vec<(&Op, Grant)>)> {
        self.grants_by(Op::records)
    }

    fn grants_by<'h, K: Ord + Hash>(
        &'h self,
        keys: impl Fn(&'h Op) -> Vec<K>,
    ) -> Vec<(K, Vec<(&'h Op, Grant)>)> {
        let mut all: HashMap<K, Vec<(&Op, Grant)>> = HashMap::new();
        for op in &self.ops {
            for key in keys(op) {
                let grants = all.entry(key).or_default();
                grants.extend(op.granted.map(|grant| (op, grant)));
            }
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (_, grants) in &mut all {
            grants.sort_by_key(|(_, grant)| grant.at);
        }
        all
    }

    /// `dc1.0's operation 17 on "a" (dc1.0.jsonl, line 45: invoked at 1.200 s, granted token 9 at ..)`
    pub(super) fn tell(&self, op: &Op) -> String {
        let (label, file) = self
            .processes
            .get(op.process)
            .map_or(("?", "?"), |process| (&process.label, &process.file));
        let mut story = format!("invoked at {}", self.time(op.invoked));
        match op.granted {
            Some(grant) => {
                let slot = grant.slot.map(|slot| format!("slot {slot} with "));
                story.push_str(&format!(
                    ", granted {}token {} at {}",
                    slot.unwrap_or_default(),
                    grant.token,
                    self.time(grant.at)
                ));
            }
            None if op.over.is_some() => story.push_str(", not granted"),
            None => story.push_str(", never answered"),
        }
        if let Some(lost) = op.lost {
            story.push_str(&format!(", told of its loss at {}", self.time(lost)));
        }
        match op.ended {
            Some(end) => story.push_str(&format!(
                ", ended at {}, valid until {}",
                self.time(end),
                self.time(op.valid_until)
            )),
            None if op.granted.is_some() => story.push_str(", never ended"),
            None => {}
        }
        format!(
            "{label}'s operation {} {} ({file}, line {}: {story})",
            op.number,
            op.aim(),
            op.line
        )
    }

    /// Formats an instant as the time since the history began.
    pub(super) fn time(&self, at: u64) -> String {
        let micros = at.saturating_sub(self.start) / 1_000;
        format!("{}.{:06} s", micros / 1_000_000, micros % 1_000_000)
    }
}

impl Op {
    /// The records that it was granted and wrote to, one for each name. Empty if it was granted nothing.
    pub(super) fn records(&self) -> Vec<String> {
        let Some(grant) = self.granted else {
            return Vec::new();
        };
        let names = self.names.iter();
        names.map(|name| record_of(name, grant.slot)).collect()
    }

    /// Returns true if it only reads, beside other readers.
    pub(super) fn reads(&self) -> bool {
        self.side == Some(Side::Reader)
    }

    /// Returns true if it asked for this name alone.
    pub(super) fn is_for(&self, name: &str) -> bool {
        matches!(self.names.as_slice(), [one] if one == name)
    }

    /// For example `on "a" and "b"`.
    fn aim(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| format!("{name:?}")).collect();
        let what = match self.side {
            None => "on",
            Some(Side::Reader) => "reading",
            Some(Side::Writer) => "writing",
        };
        format!("{what} {}", names.join(" and "))
    }

    fn happen(&mut self, at: u64, event: Event) {
        match event {
            Event::Granted {
                token,
                valid_ns,
                slot,
                ..
            } => {
                self.granted = Some(Grant {
                    at,
                    token,
                    valid_ns,
                    slot,
                });
                self.valid_until = at.saturating_add(valid_ns);
            }
            Event::Begun {
                fenced,
                plain,
                also,
                ..
            } => self.read = [vec![Accesses { fenced, plain }], also].concat(),
            Event::Renewed { valid_until, .. } => {
                self.valid_until = self.valid_until.max(valid_until);
            }
            Event::Lost { .. } => self.lost = Some(at),
            Event::Writing { .. } => self.writing = Some(at),
            Event::Ended {
                fenced,
                plain,
                also,
                valid_until,
                ..
            } => {
                self.ended = Some(at);
                self.wrote = [vec![Accesses { fenced, plain }], also].concat();
                self.valid_until = self.valid_until.max(valid_until);
            }
            Event::Failed { .. } | Event::Released { .. } => self.over = Some(at),
            _ => {}
        }
    }
}

/// The operation that a line is about, if it was invoked before.
fn op_of(event: &Event) -> Option<u64> {
    match event {
        Event::Granted { op, .. }
        | Event::Failed { op, .. }
        | Event::Begun { op, .. }
        | Event::Renewed { op, .. }
        | Event::Lost { op, .. }
        | Event::Writing { op }
        | Event::Ended { op, .. }
        | Event::Released { op, .. } => Some(*op),
        _ => None,
    }
}
