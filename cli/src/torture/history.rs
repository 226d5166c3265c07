//! The history: what happened, one JSON object per line, in one file per process. Each line is written by one system
//! call before its task goes on. So the history of a process that is killed is complete up to that moment.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// How often a process of the load writes that it is alive.
pub(super) const ALIVE: Duration = Duration::from_millis(50);

/// An event, and its time in ns of the clock that [`now`] reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    pub(super) at: u64,
    #[serde(flatten)]
    pub(super) event: Event,
}

/// The events. `op` counts the operations of one process. An operation is one attempt or wait for a lock and all that
/// follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// The first line of a process's file.
    Process {
        label: String,
        /// The clock that `at` is read from: only histories of one clock can be compared.
        clock: String,
        ttl_ms: u64,
        #[serde(flatten)]
        locks: Locks,
    },
    /// A process writes this every [`ALIVE`]. Where it does not, it stood still.
    Alive,
    Invoked {
        op: u64,
        name: String,
        /// The other names, where several are asked for at once.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<String>,
        /// For a read-write lock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        side: Option<Side>,
    },
    /// The operation has its lease, which was valid for this long at that time.
    Granted {
        op: u64,
        token: u64,
        valid_ns: u64,
        /// For a semaphore.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<u32>,
    },
    /// The operation ended without a lease.
    Failed {
        op: u64,
        why: String,
    },
    /// The section has read the store. `also` has the answers for the other names.
    Begun {
        op: u64,
        fenced: Access,
        plain: Access,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Accesses>,
    },
    /// The lease was renewed: its validity ends later.
    Renewed {
        op: u64,
        valid_until: u64,
    },
    /// The holder was told that the lease is lost.
    Lost {
        op: u64,
        reason: String,
    },
    /// The section begins to write to the store. A reader's section begins to read it once more.
    Writing {
        op: u64,
    },
    /// The section has done so. `valid_until` is the latest end of validity that it knew of.
    Ended {
        op: u64,
        fenced: Access,
        plain: Access,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        also: Vec<Accesses>,
        valid_until: u64,
    },
    Released {
        op: u64,
        outcome: String,
    },

    /// The expectations of the program that brings the faults. Without it only promises that always hold are judged.
    Scenario(Scenario),
    /// Something was broken. From one second after this until the next `healed`, no process whose label begins with
    /// `stops` can be granted anything (`*`: no process at all).
    Fault {
        what: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stops: Option<String>,
    },
    Healed {
        what: String,
    },
    /// All masters vote again after the last fault, as one client saw it.
    Voting,
    /// A process is told to end. From now on its tasks ask for nothing new.
    Stopping,

    /// At the end, every node was asked for every name. `silent` says why a node did not answer.
    Looked {
        node: String,
        silent: Option<String>,
    },
    /// A lock, a slot of a semaphore, or something of a read-write lock was left there.
    Left {
        node: String,
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        slot: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        side: Option<Side>,
        /// It is not a lock, but the place of a writer that waits.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
        label: String,
        remaining_ms: Option<u64>,
        token: Option<u64>,
    },
    /// The counters of one [record](record_of) in the store, at the end of the run.
    Stored {
        name: String,
        fenced: u64,
        plain: u64,
    },
}

impl Event {
    /// Returns true if a process of the load asked for a lock here.
    pub(super) fn is_wish(&self) -> bool {
        matches!(self, Self::Invoked { .. })
    }
}

/// The kind of lock behind the names, which decides what is judged. Without a field they are mutexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Locks {
    /// Semaphores with this many slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<u32>,
    /// Read-write locks. This many of a hundred sections only read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) readers: Option<u32>,
    /// Mutexes, of which a section takes one, or several at once.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) several: bool,
}

impl fmt::Display for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self {
                limit: Some(limit), ..
            } => write!(f, "semaphores of {limit}"),
            Self {
                readers: Some(readers),
                ..
            } => write!(f, "rwlocks, {readers} % read"),
            Self { several: true, .. } => f.write_str("several at once"),
            Self { .. } => f.write_str("mutexes"),
        }
    }
}

/// The side from which somebody holds a read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Side {
    Reader,
    Writer,
}

/// The answers of both stores about one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Accesses {
    pub(super) fenced: Access,
    pub(super) plain: Access,
}

impl Accesses {
    pub(super) const UNKNOWN: Self = Self {
        fenced: Access::UNKNOWN,
        plain: Access::UNKNOWN,
    };
    pub(super) const NO_STORE: Self = Self {
        fenced: Access::NO_STORE,
        plain: Access::NO_STORE,
    };
}

/// The answer of a store: the value that was read or written, or a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Access {
    Value(u64),
    Without(Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Word {
    /// The store has seen a newer token.
    Refused,
    /// The access may have happened or not, because there was no answer.
    Unknown,
    /// There is no store.
    NoStore,
}

impl Access {
    pub(super) const REFUSED: Self = Self::Without(Word::Refused);
    pub(super) const UNKNOWN: Self = Self::Without(Word::Unknown);
    pub(super) const NO_STORE: Self = Self::Without(Word::NoStore);

    pub(super) fn value(self) -> Option<u64> {
        match self {
            Self::Value(value) => Some(value),
            Self::Without(_) => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) does: String,
    /// The longest time without a grant of any one name that the design promises.
    pub(super) gap_ms: Option<u64>,
    /// A run with fewer sections than this shows nothing.
    pub(super) at_least: u64,
    /// Sights that the fault must have caused.
    pub(super) must_see: Vec<Sight>,
    /// Findings that this scenario allows, because it does not promise against them.
    pub(super) may_break: Vec<Kind>,
    /// A rule was switched off, so these must be found. Otherwise the judge is blind.
    pub(super) must_find: Vec<Kind>,
    /// The faults concern only processes whose label begins with one of these. The order of all others is judged
    /// throughout. `None`: the faults concern every process.
    pub(super) disturbs: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sight {
    /// The store refused a stale holder.
    Refusal,
    /// A holder was told that its lease is lost.
    Loss,
    /// Somebody held a lease at the last fault that was valid for half a second more.
    Held,
    /// For one pair of waiters it was certain which one had asked first, and that one was served first.
    Order,
}

/// The kinds of finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// Two sections of one name or slot ran at once while both leases were valid, unless both only read. Or more
    /// holders than a semaphore has slots. Or a reader's data was changed while it read.
    Exclusion,
    /// A token was given twice, or was smaller than an earlier one.
    Token,
    /// An update was lost that the check of tokens should have saved.
    LostUpdate,
    /// The store refused a holder whose lease was valid.
    Fence,
    /// A lock was left on a node.
    Leftover,
    /// A node could not be looked at.
    Unseen,
    /// A waiter was overtaken by another that asked long after it.
    Order,
    /// Nobody got a name for longer than was promised, or ever again.
    Progress,
    /// The run did not show what it was made to show.
    Vacuous,
}

/// The record that one holder at a time writes to, and for which tokens are compared: a name, or a slot of it.
pub(super) fn record_of(name: &str, slot: Option<u32>) -> String {
    match slot {
        None => name.to_owned(),
        Some(slot) => format!("{name}/{slot}"),
    }
}

/// `CLOCK_BOOTTIME` in ns. It is the clock of leases, and the same for all processes and containers of a machine.
pub(super) fn now() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: nix::time::ClockId = nix::time::ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: nix::time::ClockId = nix::time::ClockId::CLOCK_MONOTONIC;
    let Ok(t) = CLOCK.now() else { return 0 };
    let seconds = u64::try_from(t.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// The identity of that clock. It changes with every boot.
pub(super) fn clock() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| "this machine".to_owned(), |id| id.trim().to_owned())
}

/// Writes one process's part of a history.
pub(super) struct Recorder {
    file: File,
    ops: AtomicU64,
}

impl Recorder {
    /// Creates a new file that no other run or process writes to.
    pub(super) fn create(dir: &Path, label: &str) -> io::Result<Self> {
        // A label may be a URL.
        let path = dir.join(format!("{}.{}.jsonl", label.replace('/', "_"), now()));
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)?;
        Ok(Self {
            file,
            ops: AtomicU64::new(0),
        })
    }

    pub(super) fn next_op(&self) -> u64 {
        self.ops.fetch_add(1, Relaxed) + 1
    }

    /// Writes an event that happens now.
    pub(super) fn write(&self, event: Event) -> io::Result<()> {
        self.write_at(now(), event)
    }

    pub(super) fn write_at(&self, at: u64, event: Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line { at, event })?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }
}

/// A file as it was read, with the numbers of its lines.
pub(super) struct Part {
    pub(super) file: String,
    pub(super) lines: Vec<(usize, Line)>,
}

/// Returns true if the folder holds a history.
pub(super) fn is_there(dir: &Path) -> bool {
    let mut files = fs::read_dir(dir).into_iter().flatten().flatten();
    files.any(|entry| entry.path().extension().is_some_and(|it| it == "jsonl"))
}

/// Reads all `.jsonl` files of a folder.
pub(super) fn read(dir: &Path) -> Result<Vec<Part>, String> {
    let wrong = |error: io::Error| format!("cannot read {}: {error}", dir.display());
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .map_err(wrong)?
        .collect::<io::Result<Vec<_>>>()
        .map_err(wrong)?
        .into_iter()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == "jsonl"))
        .collect();
    if files.is_empty() {
        return Err(format!("no .jsonl file in {}", dir.display()));
    }
    files.sort();
    files.iter().map(|path| read_file(path)).collect()
}

fn read_file(path: &Path) -> Result<Part, String> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    parse(&file, &text)
}

/// Parses a file. An incomplete last line is dropped: it belongs to a process that was killed while it wrote.
pub(super) fn parse(file: &str, text: &str) -> Result<Part, String> {
    let whole = text
        .rfind('\n')
        .map_or("", |end| text.get(..end).unwrap_or(""));
    let lines = whole
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.is_empty());
    let lines = lines.map(|(i, line)| match serde_json::from_str(line) {
        Ok(line) => Ok((i + 1, line)),
        Err(error) => Err(format!("{file}, line {}: {error}", i + 1)),
    });
    Ok(Part {
        file: file.to_owned(),
        lines: lines.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_as_it_was_written() {
        let events = [
            Event::Granted {
                op: 3,
                token: 7,
                valid_ns: 5,
                slot: Some(2),
            },
            Event::Invoked {
                op: 3,
                name: "a".into(),
                also: vec!["b".into()],
                side: Some(Side::Reader),
            },
            Event::Begun {
                op: 3,
                fenced: Access::REFUSED,
                plain: Access::Value(41),
                also: vec![Accesses {
                    fenced: Access::Value(7),
                    plain: Access::UNKNOWN,
                }],
            },
            Event::Process {
                label: "p".into(),
                clock: "c".into(),
                ttl_ms: 2_000,
                locks: Locks {
                    readers: Some(80),
                    ..Locks::default()
                },
            },
            Event::Voting,
            Event::Stopping,
            Event::Fault {
                what: "node1 killed".into(),
                stops: None,
            },
            Event::Scenario(Scenario {
                name: "calm".into(),
                must_see: vec![Sight::Refusal],
                ..Scenario::default()
            }),
        ];
        for event in events {
            let line = Line { at: 12, event };
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line, "{text}");
        }
        for text in [
            r#"{"at":1,"event":"scenario","name":"x","gap_ms":null}"#,
            r#"{"at":1,"event":"granted","op":1,"token":1,"valid_ns":1}"#,
            r#"{"at":1,"event":"process","label":"p","clock":"c","ttl_ms":1,"limit":3}"#,
            r#"{"at":1,"event":"process","label":"p","clock":"c","ttl_ms":1}"#,
            r#"{"at":1,"event":"invoked","op":1,"name":"a"}"#,
        ] {
            assert!(serde_json::from_str::<Line>(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn only_a_last_line_may_be_broken_off() {
        let good = r#"{"at":1,"event":"stopping"}"#;
        let part = parse("a", &format!("{good}\n{good}\n{{\"at\":2,\"ev")).unwrap();
        assert_eq!(part.lines.len(), 2);
        let wrong = parse("a", &format!("{good}\n{{\"at\":2,\"ev\n{good}\n"))
            .err()
            .unwrap();
        assert!(wrong.starts_with("a, line 2: "), "{wrong}");
    }
}
