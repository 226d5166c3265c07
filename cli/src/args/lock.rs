//! The options of `quorate lock` and `quorate semaphore`: what to take, and the command to run under it.

use std::{ffi::OsString, time::Duration};

use clap::{
    CommandFactory as _,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{Args, InConsul, duration};
use crate::failure::{Failure, HELD};

#[derive(Debug, clap::Args)]
pub(crate) struct Lock {
    /// The name: 1 to 512 bytes of any text; in Consul a path of its keys, such as jobs/nightly. With several
    /// names, at most 64, the locks of all of them at once, or none
    #[arg(required_unless_present = "named", value_name = "NAME")]
    names: Vec<String>,

    /// A name that begins with a dash: --name=-x
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true)]
    named: Vec<String>,

    /// Take the read-write lock of this name to read: beside other readers, while nobody writes
    #[arg(long, conflicts_with = "write")]
    read: bool,

    /// Take the read-write lock of this name to write: alone. While this waits, new readers wait too
    #[arg(long)]
    write: bool,

    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Semaphore {
    /// The name: 1 to 512 bytes of any text; in Consul a path of its keys, such as jobs/nightly
    #[arg(required_unless_present = "named", conflicts_with = "named")]
    name: Option<String>,

    /// The name, if it begins with a dash: --name=-x
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true)]
    named: Option<String>,

    /// The number of slots: at most this many commands run at once. Give the same number in all programs
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    limit: u32,

    #[command(flatten)]
    pub(crate) run: Run,
}

/// For how long what is asked for is waited for and held, and what is run meanwhile.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// How long a grant lasts unless renewed. Others wait this long if this machine dies; in Consul, where 10s is
    /// the least, up to twice as long [default: 10s, or --max-ttl if that is less]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration)]
    pub(crate) ttl: Option<Duration>,

    /// How long to wait for it [default: for ever]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Try once, and end with 75 if it is not free now. It ends with 69 as soon as too few servers for a majority are
    /// left; one that hangs counts after --dial-timeout, or --connect-timeout if that is less
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// The exit status if others still hold it when the wait is over
    #[arg(short = 'E', long, value_name = "N", allow_hyphen_values = true, default_value_t = HELD)]
    pub(crate) conflict_status: u8,

    /// Print nothing if others hold it. All other errors are printed
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// End the command when it has run for this long, for commands that may hang. It gets SIGTERM a twentieth of
    /// the ttl earlier [default: no limit]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// Hold the lock or slot until all of the command's process group has ended, not only the command itself. The
    /// processes that it left in the background are ended too if the lock or slot is lost
    #[arg(long)]
    pub(crate) whole_group: bool,

    /// Keep QUORATE_NODES in the command's environment, so that it can run quorate itself. The values of --node,
    /// --config and the other options of servers are put there too
    #[arg(long)]
    pub(crate) keep_env: bool,

    /// The command to run, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,

    #[cfg_attr(feature = "consul", command(flatten))]
    #[cfg_attr(not(feature = "consul"), clap(skip))]
    pub(crate) consul: InConsul,
}

/// The lock or the slot that the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Mutex(String),
    /// More than one name, each of them once.
    Several(Vec<String>),
    Read(String),
    Write(String),
    Slot {
        name: String,
        limit: u32,
    },
}

impl Lock {
    pub(crate) fn asked(&self) -> Result<Asked, Failure> {
        let names = [&*self.names, &*self.named].concat();
        let Some((first, more)) = names.split_first() else {
            return Err(Failure::usage("no name is given"));
        };
        let of_a_side = match (self.read, self.write) {
            (true, _) => Some("--read"),
            (_, true) => Some("--write"),
            _ => None,
        };
        let in_consul = self.run.consul.is_asked();
        match of_a_side {
            Some(side) if in_consul => Err(Failure::usage(format!(
                "{side} cannot be used with --consul: a lock in Consul has one holder at a time, as with `consul \
                 lock`. Read-write locks need Redis or Valkey masters"
            ))),
            Some(side) if !more.is_empty() => Err(Failure::usage(format!(
                "{side} takes one name, and {} are given: several names can only be locked as mutexes",
                names.len()
            ))),
            Some(_) if self.read => Ok(Asked::Read(first.clone())),
            Some(_) => Ok(Asked::Write(first.clone())),
            None if more.is_empty() => Ok(Asked::Mutex(first.clone())),
            None if in_consul => Err(Failure::usage(
                "--consul takes one name: a lock in Consul is one key, as with `consul lock`. Several names at once \
                 need Redis or Valkey masters",
            )),
            None => self.several(names.clone()),
        }
    }

    fn several(&self, mut names: Vec<String>) -> Result<Asked, Failure> {
        // In `quorate lock nightly rsync -- -a` the word `rsync` would be locked as a name, and `-a` would be run.
        let command = self.run.command.first().and_then(|word| word.to_str());
        if let Some(option) = command.filter(|word| word.starts_with('-')) {
            return Err(Failure::usage(super::without_secrets(&format!(
                "`{option}` is not a command: {BEFORE_ALL}"
            ))));
        }
        names.sort();
        names.dedup();
        Ok(match <[String; 1]>::try_from(names) {
            Ok([name]) => Asked::Mutex(name),
            Err(names) => Asked::Several(names),
        })
    }
}

impl Semaphore {
    pub(crate) fn asked(&self) -> Asked {
        Asked::Slot {
            name: self.name.clone().or(self.named.clone()).unwrap_or_default(),
            limit: self.limit,
        }
    }
}

/// Advice for a user who left `--` out, or put it behind the command.
const BEFORE_ALL: &str = "put `--` before the whole command, as in `quorate lock nightly -- ./report.sh --full`. \
     Words before it are names and options of quorate";

/// Advice about a name that begins with a dash.
const DASHED: &str = "if it is a name, write --name=";

/// Replaces clap's advice about an unknown word. That is to put it behind `--`, where the command belongs. `line` is the
/// command line.
pub(super) fn advise(error: &mut clap::Error, line: &[String]) {
    let missing = error.kind() == ErrorKind::MissingRequiredArgument;
    if !missing && error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let usage = error.render().to_string();
    let is_of = |command: &&&str| usage.contains(&format!("Usage: quorate {command} "));
    let runs = ["lock", "semaphore", "limit"].iter().find(is_of).copied();
    let has_name = runs.or(["inspect", "evict", "resize"].iter().find(is_of).copied());
    let own_words: Vec<&String> = line.iter().take_while(|word| *word != "--").collect();
    let lacks_dashes = runs.is_some() && own_words.len() == line.len();
    let mut tips = Vec::new();
    if let Some(ContextValue::String(invalid)) = error.get(ContextKind::InvalidArg) {
        // Clap names only -a of -abc.
        let at = own_words
            .iter()
            .position(|word| word.starts_with(invalid.as_str()));
        let word = at
            .and_then(|at| own_words.get(at))
            .map_or(invalid, |word| *word);
        let before = at.and_then(|at| own_words.get(at.checked_sub(1)?));
        let option = before.filter(|option| takes_a_value(option));
        match option {
            _ if !word.starts_with('-') => {}
            Some(option) => tips.push(format!(
                "if it is the value of {option}, write {option}={word}"
            )),
            None if lacks_dashes && runs != Some("limit") => {}
            None if has_name.is_some() => tips.push(format!("{DASHED}{word}")),
            None => {}
        }
    }
    if lacks_dashes && (!missing || runs == Some("lock")) {
        tips.push(BEFORE_ALL.to_owned());
    }
    if !tips.is_empty() {
        let tips = tips.into_iter().map(Into::into).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
}

/// Returns true if a word is the long name of an option that takes a value.
fn takes_a_value(word: &str) -> bool {
    let command = Args::command();
    let all = command.get_subcommands().chain([&command]);
    let mut options = all.flat_map(clap::Command::get_opts);
    options.any(|option| {
        let long = option.get_long();
        option.get_action().takes_values()
            && long.is_some_and(|it| word.strip_prefix("--") == Some(it))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::Command;

    fn asked(words: &[&str]) -> Result<Asked, String> {
        let all = ["quorate", "lock"].iter().chain(words);
        let args = Args::try_parse_from(all).map_err(|mut error| {
            let line: Vec<String> = ["lock"]
                .iter()
                .chain(words)
                .map(|it| (*it).to_owned())
                .collect();
            advise(&mut error, &line);
            error.render().to_string()
        })?;
        match args.command {
            Command::Lock(lock) => lock.asked().map_err(|failure| format!("{failure:?}")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_name_is_a_mutex_and_several_are_all_or_none() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        for (words, wanted) in [
            (&["a", "--", "true"][..], Asked::Mutex("a".into())),
            (&["a", "a", "--", "true"], Asked::Mutex("a".into())),
            (
                &["b", "--ttl", "3s", "a", "b", "--no-wait", "--", "x", "c"],
                Asked::Several(names(&["a", "b"])),
            ),
            (&["a", "--read", "--", "true"], Asked::Read("a".into())),
            (&["--write", "a", "--", "true"], Asked::Write("a".into())),
            (&["--name=-x", "--", "true"], Asked::Mutex("-x".into())),
            (&["--name", "-x", "--", "true"], Asked::Mutex("-x".into())),
            (
                &["a", "--name=--read", "--", "true"],
                Asked::Several(names(&["--read", "a"])),
            ),
        ] {
            assert_eq!(asked(words), Ok(wanted), "{words:?}");
        }
    }

    #[cfg(feature = "consul")]
    #[test]
    fn conflicting_options_are_refused_with_the_reason() {
        let consul = ["--consul", "http://127.0.0.1:8500", "--", "true"];
        let with_consul = |words: &[&'static str]| [words, &consul[..]].concat();
        for (words, says) in [
            (
                vec!["a", "--read", "--write", "--", "true"],
                "'--read' cannot be used with '--write'",
            ),
            (
                vec!["a", "b", "--read", "--", "true"],
                "--read takes one name, and 2 are given: several names can only be locked as mutexes",
            ),
            (
                vec!["a", "b", "c", "--write", "--", "true"],
                "--write takes one name, and 3 are given",
            ),
            (
                with_consul(&["a", "--read"]),
                "--read cannot be used with --consul: a lock in Consul has one holder at a time, as with `consul lock`",
            ),
            (
                with_consul(&["a", "--write"]),
                "--write cannot be used with --consul",
            ),
            (
                with_consul(&["a", "b"]),
                "--consul takes one name: a lock in Consul is one key, as with `consul lock`",
            ),
            (vec!["--", "true"], "<NAME>..."),
            (vec!["-x", "--", "true"], "if it is a name, write --name=-x"),
        ] {
            let error = asked(&words).unwrap_err();
            assert!(error.contains(says), "{words:?}: {error}");
        }
    }

    /// A newcomer may leave `--` out, or put it behind the command. The command's words must not be locked then.
    #[test]
    fn an_error_for_missing_dashes_says_where_they_belong() {
        for words in [
            &["nightly", "./report.sh"][..],
            &["nightly", "./report.sh", "--wait", "3s"],
            &["nightly", "rsync", "-a", "here", "there"],
            &["nightly", "./report.sh", "--full"],
            &["nightly", "rsync", "--", "-a", "here", "there"],
            &["nightly"],
        ] {
            let error = asked(words).unwrap_err();
            assert!(error.contains(BEFORE_ALL), "{words:?}: {error}");
            assert!(!error.contains("as a value"), "{words:?}: {error}");
        }
    }
}
