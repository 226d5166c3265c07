//! The command line: its options, its commands and their help.

mod config;
mod consul;
mod fleet;
mod help;
mod limit;
mod lock;
mod torture;

use std::{ffi::OsString, fmt, ops::Deref, path::PathBuf, time::Duration};

use clap::{ArgAction, Parser, Subcommand, ValueEnum, ValueHint, error::ErrorKind};
use clap_complete::Shell;
use quorate::cli::duration;

pub(crate) use self::consul::InConsul;
pub(crate) use self::fleet::Fleet;
pub(crate) use self::limit::{Limit, Rate};
pub(crate) use self::lock::{Asked, Lock, Run, Semaphore};
pub(crate) use self::torture::{Judge, Load, Look, Names, Torture, TortureStep};

use crate::failure::{Failure, USAGE};

/// What was asked for.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, about = "Quorum locks over independent Redis or Valkey masters.",
          long_about = help::ABOUT, after_long_help = help::AFTER, after_help = "`--help` says more, with examples.",
          max_term_width = 100, subcommand_required = true, arg_required_else_help = true,
          infer_subcommands = false)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) fleet: Fleet,

    /// Print results as JSON on stdout, and errors as JSON on stderr
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,

    /// Print more on stderr: with -v changes of nodes and leases, with -vv every operation
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Output")]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock: a mutex, several at once, or a read-write lock
    #[command(long_about = help::LOCK, after_long_help = help::LOCK_AFTER, override_usage = help::LOCK_USAGE)]
    Lock(Lock),
    /// Run a command while holding one of the slots of a semaphore
    #[command(long_about = help::SEMAPHORE, after_long_help = help::SEMAPHORE_AFTER, override_usage = help::SEMAPHORE_USAGE)]
    Semaphore(Semaphore),
    /// Wait until a rate limit has room, then run a command
    #[command(long_about = limit::ABOUT, after_long_help = limit::AFTER, override_usage = limit::USAGE)]
    Limit(Limit),
    /// Show the holders and the waiters of a lock, a read-write lock or a semaphore, on every node
    #[command(long_about = help::INSPECT, override_usage = help::INSPECT_USAGE)]
    Inspect(Inspect),
    /// Free a lock, or slots of a semaphore, no matter who holds it
    #[command(long_about = help::EVICT, override_usage = help::EVICT_USAGE)]
    Evict(Evict),
    /// Change how many slots a semaphore has, for all programs that use it
    #[command(long_about = help::RESIZE, override_usage = help::RESIZE_USAGE)]
    Resize(Resize),
    /// Show every server's state
    #[command(long_about = help::NODES)]
    Nodes(Nodes),
    /// Print every change of a server's state, until it is interrupted
    #[command(long_about = help::WATCH)]
    Watch,
    /// Admit servers that have never held a lock, once and by hand
    #[command(long_about = help::BOOTSTRAP)]
    Bootstrap(Bootstrap),
    /// Wait until the servers vote, and raise the fleet's --max-ttl and --restart-margin; admits nothing
    #[command(long_about = help::RAISE_TERMS)]
    RaiseTerms,
    /// Check that a server does what quorate needs, and print a page about it
    #[cfg(feature = "conformance")]
    #[command(long_about = help::CONFORMANCE)]
    Conformance,
    /// Show how quorate works, on nodes within this process, without a server
    #[command(long_about = help::DEMO)]
    Demo,
    /// Take locks under load, record every operation, and check the guarantees
    #[command(long_about = torture::ABOUT, after_long_help = torture::AFTER)]
    Torture(Box<Torture>),
    /// Print the completions for a shell
    #[command(long_about = help::COMPLETIONS)]
    Completions(Completions),
    /// Write the man pages into a directory
    #[command(long_about = help::MAN)]
    Man(Man),
}

/// The name that a command is about.
#[derive(clap::Args)]
pub(crate) struct Name {
    /// The name: 1 to 512 bytes of any text
    #[arg(required_unless_present = "named", conflicts_with = "named")]
    name: Option<String>,

    /// The name, if it begins with a dash: --name=-x
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true)]
    named: Option<String>,
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        let name = self.name.as_ref().or(self.named.as_ref());
        name.map(String::as_str).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    pub(crate) name: Name,

    /// Show how much is left of the rate limit of this name. Give all of the rates that `quorate limit` is given,
    /// such as 2000/min
    #[arg(long = "rate", value_name = "N/PERIOD", allow_hyphen_values = true, value_parser = limit::rate)]
    pub(crate) rates: Vec<Rate>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Evict {
    #[command(flatten)]
    pub(crate) name: Name,

    /// Free this slot of the semaphore of that name, not the lock. Repeat it for more slots
    #[arg(long = "slot", value_name = "N", allow_hyphen_values = true)]
    pub(crate) slots: Vec<u32>,

    /// Free it. Without this option nothing is freed
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Resize {
    #[command(flatten)]
    pub(crate) name: Name,

    /// The new number of slots
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) limit: u32,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Nodes {
    /// Wait until a majority of the servers, or all of them, vote
    #[arg(long, value_name = "HOW_MANY")]
    pub(crate) wait: Option<Wait>,

    /// How long to wait at most [default: for ever]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration, requires = "wait")]
    pub(crate) timeout: Option<Duration>,
}

/// How many servers have to vote.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Wait {
    Majority,
    All,
}

/// Without one of them nothing is admitted.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Bootstrap {
    /// Admit servers that have never held a lock, without their quarantine. Run it once, by hand; never put it into
    /// a start-up script
    #[arg(long)]
    pub(crate) new: bool,

    /// As --new, but without checking whether a server votes already, was used, or is known to a client, and
    /// without waiting for that. Use it only if no client has run for longer than the longest ttl: otherwise two
    /// may hold one lock. Never put it into a start-up script
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    pub(crate) shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Man {
    /// The directory, which is made if it does not exist
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) dir: PathBuf,
}

impl Args {
    /// Takes from the environment and the configuration file what was not given on the command line.
    fn fill(&mut self) -> Result<(), Failure> {
        match &self.command {
            Command::Lock(Lock { run, .. }) | Command::Semaphore(Semaphore { run, .. })
                if run.consul.is_asked() =>
            {
                self.fleet.fill_beside_consul()
            }
            // They run where software is built and where shells start, and use no setting.
            Command::Completions(_) | Command::Man(_) => Ok(()),
            _ => self.fleet.fill(),
        }
    }
}

/// Reads the command line. An `Err` is the exit status when there is nothing more to do, such as after `--help`.
/// `worker` is the number of this process, if a load has started it with its own command line.
pub(crate) fn parse(words: &[OsString], worker: Option<u32>) -> Result<Args, u8> {
    let mut args = Args::try_parse_from(words).map_err(not_read)?;
    if let (Some(worker), Command::Torture(torture)) = (worker, &mut args.command) {
        args.fleet.take_from_environment();
        match &mut torture.step {
            Some(TortureStep::Run(load)) => load.worker = Some(worker),
            _ => torture.load.worker = Some(worker),
        }
    }
    match args.fill() {
        Ok(()) => Ok(args),
        Err(failure) => {
            failure.tell(args.json);
            Err(failure.code())
        }
    }
}

fn not_read(mut error: clap::Error) -> u8 {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            0
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            USAGE
        }
        _ => {
            let line = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
            lock::advise(&mut error, &line.collect::<Vec<_>>());
            help::suggest_a_command(&mut error);
            let mut text = error.render().to_string();
            if consul::is_elsewhere(&error) {
                text = consul::ELSEWHERE.to_owned();
            }
            let text = text.trim_end().strip_prefix("error: ").unwrap_or(&text);
            let wants_json = std::env::args_os()
                .take_while(|word| word != "--")
                .any(|word| word == "--json");
            Failure::usage(without_secrets(text)).tell(wants_json);
            USAGE
        }
    }
}

/// Hides passwords in an error text. The text repeats a word of the command line, and a URL in the wrong place may hold
/// a password. So words with an `@` or `://` are hidden.
fn without_secrets(text: &str) -> String {
    let mut clean = String::new();
    for piece in text.split_inclusive(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`'))
    {
        let word =
            piece.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '`'));
        let end = piece.get(word.len()..).unwrap_or_default();
        let may_be_secret = word.contains("://") || word.contains('@');
        clean.push_str(if may_be_secret { "***" } else { word });
        clean.push_str(end);
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_nothing_wrong() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }

    /// Options of other programs that comments and pages mention.
    #[cfg(feature = "consul")]
    const FOREIGN: [&str; 20] = [
        "--all-features",
        "--appendonly",
        "--bench",
        "--bind",
        "--dir",
        "--example",
        "--exact",
        "--features",
        "--fence",
        "--full",
        "--ignored",
        "--lib",
        "--nocapture",
        "--nodes",
        "--open",
        "--path",
        "--port",
        "--save",
        "--test",
        "--workspace",
    ];

    #[test]
    fn every_setting_stands_in_the_help_and_in_the_guide() {
        let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/docs/operations.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        for setting in quorate::cli::SETTINGS {
            let option = format!("--{}", setting.name.replace('_', "-"));
            for text in [help::AFTER, &guide] {
                let is_there = text.contains(setting.variable) && text.contains(&option);
                assert!(setting.variable.is_empty() || is_there, "{}", setting.name);
            }
        }
    }

    // The texts also mention --consul, which exists only with this feature.
    #[cfg(feature = "consul")]
    #[test]
    fn every_option_and_command_that_a_text_names_exists() {
        use clap::CommandFactory as _;
        let command = Args::command();
        let all: Vec<&clap::Command> = std::iter::once(&command)
            .chain(command.get_subcommands())
            .chain(
                command
                    .get_subcommands()
                    .flat_map(clap::Command::get_subcommands),
            )
            .collect();
        let longs = all
            .iter()
            .flat_map(|c| c.get_arguments())
            .filter_map(|a| a.get_long());
        let mut options: Vec<String> = longs.map(|long| format!("--{long}")).collect();
        options.extend(["--help".to_owned(), "--version".to_owned()]);
        let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let library = package.parent().unwrap();
        let mut texts = vec![library.join("README.md"), package.join("README.md")];
        let mut folders = vec![library.join("src"), package.join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => texts.push(path),
                }
            }
        }
        let word = |c: char| c.is_ascii_lowercase() || c == '-';
        let (mut seen, mut unknown) = (0, std::collections::BTreeSet::new());
        for path in texts {
            let text = std::fs::read_to_string(&path).unwrap();
            for (at, _) in text.match_indices("--") {
                let before = text[..at].chars().next_back();
                let option = text[at..].split(|c| !word(c)).next().unwrap();
                if before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-')
                    || !option[2..].starts_with(|c: char| c.is_ascii_lowercase())
                {
                    continue;
                }
                seen += 1;
                if !options.iter().any(|o| o == option) && !FOREIGN.contains(&option) {
                    unknown.insert((path.clone(), option.to_owned()));
                }
            }
            for (at, start) in text.match_indices("`quorate ") {
                let name = text[at + start.len()..].split(|c| !word(c)).next().unwrap();
                let known = command.get_subcommands().any(|c| c.get_name() == name);
                seen += 1;
                if !known && !name.is_empty() && !name.starts_with('-') {
                    unknown.insert((path.clone(), name.to_owned()));
                }
            }
        }
        assert!(unknown.is_empty(), "{unknown:#?}");
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn a_url_in_the_wrong_place_is_not_repeated() {
        for (text, shown) in [
            (
                "unexpected argument 'redis://me:pw@h' found",
                "unexpected argument '***' found",
            ),
            (
                "invalid value 'redis://me:h\"unter@h' for",
                "invalid value '***\"***' for",
            ),
            (
                "value 'me:pw@h'\nUsage: quorate",
                "value '***'\nUsage: quorate",
            ),
            ("a required argument: <NAME>", "a required argument: <NAME>"),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }
}
