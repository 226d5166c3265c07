//! The options of `quorate torture`, and its help.

use std::{path::PathBuf, time::Duration};

use clap::Subcommand;

use super::duration;

pub(super) const ABOUT: &str = "\
Takes locks under load, records every operation, and checks the guarantees.

Tasks in several processes take locks with a short ttl, read a counter in a store, sleep, and write it \
back one higher: once with the store's check of the fencing token, once without. Every step is recorded. Meanwhile \
kill, pause and cut off servers and clients. At the end these guarantees are checked:

  - no two sections of one name run at once while their leases are valid; with --semaphore, no two of one slot, and \
no more than there are slots; with --rwlock, nobody beside a writer
  - no token is given twice, and tokens grow in the order of the grants; a reader's token lies between those of the \
writers before and after it
  - no update is lost in the store that checks tokens; an update of the other store is lost only by a holder that \
the first store refused; nothing changes while it is read
  - no lock is left on any server
  - every name is granted again after the last fault

Sections go on and write when their lease is lost, as a careless program does: the token protects against that. If \
others use these servers, give it a prefix of its own (--key-prefix).";

pub(super) const AFTER: &str = "\
Examples:
  quorate torture                          30 s, without a store
  quorate torture --store redis://10.0.9.1 --duration 5m
      and meanwhile, kill -9 a server
  quorate torture --semaphore 3            semaphores of three slots
  quorate torture --rwlock --readers 50    read-write locks: half only read
  quorate torture --several                up to three names at once
  quorate torture judge /var/tmp/history   judge a recorded history again

From several containers of one machine: `torture run --history DIR` in each, `torture look` once at the \
end, `torture judge` on the folder. Histories of several machines are refused: their clocks cannot be \
compared.

Exit status: 0 when every guarantee held; 1 when one did not; 64 wrong usage; 69 no majority, or no store; 70 \
a process of the load ended early.
--json: {scenario, locks, sections, grants, longest_gap_ms, .., findings: [{kind, text}]} for each history.

The history: one JSON object per line with `at` (ns of CLOCK_BOOTTIME) and `event`: \
process, invoked, granted, failed, begun, renewed, lost, writing, ended, released, stopping; looked, \
left, stored; and, from the program that causes the faults, scenario, fault, healed. See docs::testing of the crate \
for more.";

/// `torture` alone does all of it; its steps are for histories that several programs write, such as in containers.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Torture {
    #[command(subcommand)]
    pub(crate) step: Option<TortureStep>,

    #[command(flatten)]
    pub(crate) load: Load,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TortureStep {
    /// Only record a history, without a look or a judgement at the end
    Run(Load),
    /// Only add to a history what is left on the servers and in the store
    Look(Look),
    /// Only judge histories, each a folder
    Judge(Judge),
}

/// Who does what how often.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub(crate) struct Load {
    /// The number of processes
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,

    /// The number of tasks in each process; each takes one name
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) tasks: u32,

    #[command(flatten)]
    pub(crate) names: Names,

    /// How many sections of a hundred only read
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true, default_value_t = 80, requires = "rwlock", value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) readers: u32,

    /// How long a grant lasts unless renewed [default: 2s, or --max-ttl if that is less]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration)]
    pub(crate) ttl: Option<Duration>,

    /// How long a section takes on average, from nothing to twice this. One in 200 takes a
    /// ttl and a half, so that leases are renewed as well
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration, default_value = "20ms")]
    pub(crate) section: Duration,

    /// How long the run takes [default: 30s, or until --stop-file appears]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration)]
    pub(crate) duration: Option<Duration>,

    /// End when this file appears, for a caller that cannot send a signal
    #[arg(long, value_name = "FILE")]
    pub(crate) stop_file: Option<PathBuf>,

    /// The folder for the history, with a new file for each process [default: a temporary folder, kept if a
    /// guarantee did not hold]
    #[arg(long, value_name = "DIR")]
    pub(crate) history: Option<PathBuf>,

    /// Switch a rule of the protocol off: the judge has to find the violation that the rule prevents
    #[cfg(feature = "test-util")]
    #[arg(long, value_name = "RULE", value_parser = ["quarantine", "release-everywhere"])]
    pub(crate) without_rule: Option<String>,

    /// Which of the processes this is, if it is one of the load's own.
    #[arg(skip)]
    pub(crate) worker: Option<u32>,
}

/// What is fought for. The same wherever one history is made.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Names {
    /// How many names are used: torture-0, torture-1, ..
    #[arg(long = "names", value_name = "N", allow_hyphen_values = true, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) count: u32,

    /// Each name is a semaphore with this many slots, not a lock. Each slot has counters of its own in the
    /// store
    #[arg(long, value_name = "L", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) semaphore: Option<u32>,

    /// Each name is a read-write lock. A reader reads the store at the beginning and at the end of its section, and
    /// a writer does as with a lock
    #[arg(long, conflicts_with_all = ["semaphore", "several"])]
    pub(crate) rwlock: bool,

    /// A section takes one, two or three of the names at once, all or none, and writes to the counters of
    /// each
    #[arg(long, conflicts_with = "semaphore")]
    pub(crate) several: bool,

    /// A Redis or Valkey that the sections write to, once with a check of tokens and once without; not one of the
    /// lock servers. Without it lost updates are not looked for
    #[arg(long, value_name = "URL")]
    pub(crate) store: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Look {
    /// The folder of the history to add to
    #[arg(long, value_name = "DIR")]
    pub(crate) history: PathBuf,

    #[command(flatten)]
    pub(crate) names: Names,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Judge {
    /// Folders of .jsonl files, each the history of one run
    #[arg(required = true, value_name = "DIR")]
    pub(crate) histories: Vec<PathBuf>,
}
