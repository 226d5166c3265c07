//! A history put together: one [`Op`] for each operation, wherever its lines stand.

use std::{collections::HashMap, hash::Hash};

use super::super::history::{Access, Event, Line, Part, Scenario, record_of};

/// A wish for a lock or for a slot, and all that followed from it. Instants are ns of the history's clock.
#[derive(Clone, Debug)]
pub(super) struct Op {
    /// Its process, as an index.
    pub(super) process: usize,
    pub(super) number: u64,
    /// Where it was invoked: the line in the process's file.
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) invoked: u64,
    pub(super) granted: Option<Grant>,
    pub(super) read: Option<Accesses>,
    /// The latest end of validity that is known of.
    pub(super) valid_until: u64,
    /// When it began to write to the store.
    pub(super) writing: Option<u64>,
    pub(super) lost: Option<u64>,
    pub(super) ended: Option<End>,
    /// It failed, or was released.
    pub(super) over: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) at: u64,
    pub(super) token: u64,
    pub(super) valid_ns: u64,
    /// Of a semaphore.
    pub(super) slot: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Accesses {
    pub(super) fenced: Access,
    pub(super) plain: Access,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) at: u64,
    pub(super) wrote: Accesses,
}

/// One process of the load.
pub(super) struct Process {
    pub(super) label: String,
    file: String,
    /// When its last line was written: it lived at least until then.
    pub(super) last: u64,
    /// When it was told to end.
    pub(super) stopped: Option<u64>,
    /// When each of its lines was written, in order.
    pub(super) lines: Vec<u64>,
}

/// Something was broken, or mended.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) at: u64,
    pub(super) what: String,
    /// Of a fault: whom it stops.
    pub(super) stops: Option<String>,
}

/// A lock or a slot that was found at the end.
pub(super) struct Left {
    pub(super) at: u64,
    pub(super) node: String,
    pub(super) name: String,
    pub(super) slot: Option<u32>,
    pub(super) label: String,
    pub(super) remaining_ms: Option<u64>,
    pub(super) token: Option<u64>,
}

#[derive(Default)]
pub(super) struct History {
    pub(super) scenario: Scenario,
    /// The names are semaphores of so many slots.
    pub(super) limit: Option<u32>,
    pub(super) processes: Vec<Process>,
    pub(super) ops: Vec<Op>,
    pub(super) faults: Vec<Change>,
    pub(super) healed: Vec<Change>,
    /// When everybody was told to end, by something other than a process of the load.
    pub(super) stopping: Vec<u64>,
    /// How many nodes were looked at, or tried to.
    pub(super) looked: usize,
    pub(super) left: Vec<Left>,
    /// Nodes that could not be looked at, and why.
    pub(super) unseen: Vec<(String, String)>,
    /// (record, fenced, plain)
    pub(super) stored: Vec<(String, u64, u64)>,
    /// Where times are counted from.
    pub(super) start: u64,
    /// When the last line of all was written.
    pub(super) end: u64,
}

impl History {
    pub(super) fn new(parts: &[Part]) -> Result<Self, String> {
        let mut history = Self::default();
        let mut clocks: Vec<(&str, &str)> = Vec::new();
        let mut limits: Vec<(&str, Option<u32>)> = Vec::new();
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
                    event: Event::Process { clock, limit, .. },
                    ..
                },
            )) = part.lines.first()
            {
                clocks.push((&part.file, clock));
                // The look and what brings the faults may not know it.
                if part.lines.iter().any(|(_, line)| line.event.is_wish()) {
                    limits.push((&part.file, *limit));
                }
            }
            history.take(part)?;
        }
        if let Some((first, others)) = clocks.split_first()
            && let Some(other) = others.iter().find(|other| other.1 != first.1)
        {
            return Err(format!(
                "{} and {} were recorded by different clocks (another machine, or a reboot between \
                 them): what was first cannot be told",
                first.0, other.0
            ));
        }
        if let Some((first, others)) = limits.split_first() {
            if let Some(other) = others.iter().find(|other| other.1 != first.1) {
                return Err(format!(
                    "{} and {} were recorded with different words for --semaphore",
                    first.0, other.0
                ));
            }
            history.limit = first.1;
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
            }
            match event.clone() {
                Event::Process { label, .. } => {
                    process = Some(self.processes.len());
                    self.processes.push(Process {
                        label,
                        file: part.file.clone(),
                        last: at,
                        stopped: None,
                        lines: vec![at],
                    });
                }
                Event::Invoked { op, name } => {
                    let process =
                        process.ok_or_else(|| format!("{}: no process line before it", here()))?;
                    let new = Op {
                        process,
                        number: op,
                        line: *number,
                        name,
                        invoked: at,
                        granted: None,
                        read: None,
                        valid_until: 0,
                        writing: None,
                        lost: None,
                        ended: None,
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
                    label,
                    remaining_ms,
                    token,
                } => {
                    self.left.push(Left {
                        at,
                        node,
                        name,
                        slot,
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
            // A line may be written a little after one of a later instant.
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

    /// From when to when the operation held the lock for certain: it had been granted, its section
    /// went on, its lease was valid and it had not been told otherwise. None where its lease was over
    /// before it could be looked at.
    pub(super) fn held(&self, op: &Op) -> Option<(u64, u64)> {
        let granted = op.granted.filter(|granted| granted.valid_ns > 0)?;
        // Killed: it held while it lived.
        let end = match op.ended {
            Some(end) => end.at,
            None => self.processes.get(op.process)?.last,
        };
        let end = end.min(op.valid_until);
        let end = op.lost.map_or(end, |lost| end.min(lost));
        Some((granted.at, end.max(granted.at)))
    }

    /// The granted operations of each name, in the order of their grants.
    pub(super) fn grants_by_name(&self) -> Vec<(&str, Vec<(&Op, Grant)>)> {
        self.grants_by(|op| Some(op.name.as_str()))
    }

    /// The same of each record: what one holds at a time.
    pub(super) fn grants_by_record(&self) -> Vec<(String, Vec<(&Op, Grant)>)> {
        self.grants_by(Op::record)
    }

    fn grants_by<'h, K: Ord + Hash>(
        &'h self,
        key: impl Fn(&'h Op) -> Option<K>,
    ) -> Vec<(K, Vec<(&'h Op, Grant)>)> {
        let mut all: HashMap<K, Vec<(&Op, Grant)>> = HashMap::new();
        for op in &self.ops {
            let Some(key) = key(op) else { continue };
            let grants = all.entry(key).or_default();
            grants.extend(op.granted.map(|grant| (op, grant)));
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
                self.time(end.at),
                self.time(op.valid_until)
            )),
            None if op.granted.is_some() => story.push_str(", never ended"),
            None => {}
        }
        format!(
            "{label}'s operation {} on {:?} ({file}, line {}: {story})",
            op.number, op.name, op.line
        )
    }

    /// Since the history began.
    pub(super) fn time(&self, at: u64) -> String {
        let micros = at.saturating_sub(self.start) / 1_000;
        format!("{}.{:06} s", micros / 1_000_000, micros % 1_000_000)
    }
}

impl Op {
    /// What it was granted, and wrote to; none if it was granted nothing.
    pub(super) fn record(&self) -> Option<String> {
        let grant = self.granted?;
        Some(record_of(&self.name, grant.slot))
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
            Event::Begun { fenced, plain, .. } => self.read = Some(Accesses { fenced, plain }),
            Event::Renewed { valid_until, .. } => {
                self.valid_until = self.valid_until.max(valid_until);
            }
            Event::Lost { .. } => self.lost = Some(at),
            Event::Writing { .. } => self.writing = Some(at),
            Event::Ended {
                fenced,
                plain,
                valid_until,
                ..
            } => {
                let wrote = Accesses { fenced, plain };
                self.ended = Some(End { at, wrote });
                self.valid_until = self.valid_until.max(valid_until);
            }
            Event::Failed { .. } | Event::Released { .. } => self.over = Some(at),
            _ => {}
        }
    }
}

/// Which operation a line is about, if that was invoked before.
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
