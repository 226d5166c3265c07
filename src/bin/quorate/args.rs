//! The command line. Its help is written for somebody who has never seen it.

mod torture;

use std::{ffi::OsString, time::Duration};

use clap::{ArgAction, Parser, Subcommand, error::ErrorKind};
use quorate::{Builder, Quorum};

pub(crate) use self::torture::{Judge, Load, Look, Names, Torture, TortureStep};

use crate::{
    failure::{Failure, USAGE},
    output,
};

const NODES: &str = "QUORATE_NODES";

const ABOUT: &str = "\
Quorum locks over independent Redis or Valkey masters.

A lock is held when a majority of the masters grant it: of five, any two may be down. It is held
for a ttl and renewed while it is needed, so that a holder that vanishes blocks others for at most
one ttl. Every holder gets a token that is greater than all before it; let whatever the lock
protects refuse a smaller one, and even a holder that was paused for an hour does no harm.

No servers at hand? `quorate demo` shows all of it within this process.";

const AFTER: &str = "\
Examples:
  export QUORATE_NODES=redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1
  quorate bootstrap                               once, for brand-new servers (takes seconds)
  quorate lock nightly -- ./report.sh             wait for the lock, then run
  quorate lock nightly --no-wait -- ./report.sh   run now or not at all (75)
  quorate inspect nightly                         who holds it, on which nodes
  quorate evict nightly --yes                     free it, whoever holds it
  quorate nodes                                   which servers vote, and why not
  quorate torture                                 does it hold under load and faults?

Environment:
  QUORATE_NODES         the servers, separated by commas (--node)
  QUORATE_KEY_PREFIX    --key-prefix      QUORATE_MAX_TTL    --max-ttl
  QUORATE_NODE_TIMEOUT  --node-timeout    QUORATE_LABEL      --label
  QUORATE_RESTART_MARGIN  --restart-margin                   QUORATE_FLEET  --fleet

Exit status:
  0     done                        69   no majority of nodes, or too slow
  64    wrong usage or setting      75   held by others until the wait ran out
  79    the lock was lost while the command ran
  `lock` else ends with its command's own status; see `quorate lock --help`

Durations: 700ms, 3s, 10m, 24h.

With --json a result is one JSON object on stdout, and an error one on stderr:
  {\"error\":\"no_quorum\",\"message\":..,\"exit\":69,\"nodes\":[{\"node\":..,\"reason\":..}]}";

const LOCK: &str = "\
Runs a command while holding a lock.

Waits until the lock is free, runs the command, and frees the lock when the command ends. The lock
is renewed for as long as the command runs, so --ttl is not a limit of its running time: it is how
long others wait when this machine dies.";

const LOCK_AFTER: &str = "\
Examples:
  quorate lock nightly -- ./report.sh --full
  quorate lock nightly --wait 30s -- ./report.sh
  quorate lock deploy --no-wait -- sh -c 'deploy --fence \"$QUORATE_TOKEN\"'

The command finds in its environment:
  QUORATE_NAME    the name
  QUORATE_TOKEN   the fencing token: an integer greater than any holder had before. Hand it to
                  what the lock protects, and let that refuse a smaller one.

If the lock is lost (evicted, or too few nodes can be reached to renew it), the command's process
group gets SIGTERM at once, and SIGKILL before the lock can be anybody else's. The time between
the two is 80 % of a twentieth of the ttl, and at least 16 ms: 400 ms with the default ttl.

Signals: INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the command's process group, unless
they were ignored from the start (nohup). While waiting for the lock, the first four end the wait.
On a terminal the command is in the foreground: Ctrl-C reaches it, Ctrl-Z stops both, and if the
lock runs out meanwhile the command is killed when it would go on.
If quorate itself is killed with -9 the command dies too (on Linux), but not what the command
started. Do not stop quorate alone (kill -STOP): it cannot end a command in time then.

Exit status:
  N        the command's own
  128+n    the command, or the wait, was ended by signal n
  126 127  the command cannot be run / was not found
  64       wrong usage or setting
  69       no majority of nodes, too few may vote yet (quarantined), or too slow
  75       held by others until the wait ran out
  79       the lock was lost while the command ran: whatever it did is to be looked at";

const INSPECT: &str = "\
Shows who holds a lock, on every node.

Exit status: 0 when a majority of nodes answered (whether the lock is held or not), else 69.
--json: {name, held: true|false|null, holder: {label, entry, remaining_ms}|null, newest_token,
needed, answered, nodes: [{node, state, reason, holder, token}]}; held is null when too few
answered to tell.";

const EVICT: &str = "\
Frees a lock everywhere, whoever holds it.

The holder learns of it when it next renews, after a third of its ttl at most; until then two may
believe that they hold the lock, and only the token tells them apart. Without --yes nothing is
done but to show who holds.

--json: {name, evicted: true|false, holder: {label, entry, remaining_ms}|null}";

const NODES_ABOUT: &str = "\
Shows every server's state: whether it votes, and if not why. And the fleet's word: clients of the
same servers must have the same one (--fleet).

Exit status: 0 when locks can be taken now, else 69.
--json: {voting, needed, spare, votes_in_ms, fleet, nodes: [{node, state, reason, note}]}";

const BOOTSTRAP: &str = "\
Admits brand-new servers within seconds.

A server that is new, or that restarted, does not vote until no lock from before can be left: for
a little more than --max-ttl. That is how a server that lost its memory cannot give a lock away
twice. For servers that have never been used there is nothing to wait for: bootstrap says so. All
of them have to answer, none may vote already, none may have given out a lock, and no client may
know them as servers in use: to hear from every client that is running, it takes about seven
seconds. Done twice, it does nothing. With a greater --max-ttl or --restart-margin than before it
raises that on a fleet that votes; only when it has ended well may clients ask for more.

--json: {changed, nodes: [{node, before, after}]}";

const DEMO: &str = "\
Tells the whole story on in-process nodes, no server needed.

Contenders with growing tokens, two of five nodes dying, a third, and a paused holder whose late
write is refused. Takes about ten seconds; faster where nobody watches (no terminal).

--json: one object per line: {who, says}";

/// What was asked for.
#[derive(Debug, Parser)]
#[command(name = "quorate", version, about = "Quorum locks over independent Redis or Valkey masters.",
          long_about = ABOUT, after_long_help = AFTER, after_help = "`--help` says more, with examples.",
          max_term_width = 100, subcommand_required = true, arg_required_else_help = true,
          infer_subcommands = false)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,

    #[command(flatten)]
    pub(crate) fleet: Fleet,

    /// Results as JSON on stdout, errors as JSON on stderr
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,

    /// Say more on stderr: -v what happens to nodes, -vv every operation
    #[arg(short, long, global = true, action = ArgAction::Count, help_heading = "Output")]
    pub(crate) verbose: u8,
}

/// Which servers, and what all their clients agree on.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Servers")]
pub(crate) struct Fleet {
    /// A server: redis://[user:password@]host[:port], rediss://.. (TLS) or unix:///path. Repeat it
    /// for every server; every client has to name the same ones. Default: those in QUORATE_NODES
    #[arg(long = "node", value_name = "URL", global = true)]
    nodes: Vec<String>,

    /// What every key on the servers begins with [default: quorate]
    #[arg(
        long,
        value_name = "PREFIX",
        global = true,
        env = "QUORATE_KEY_PREFIX",
        hide_env = true
    )]
    key_prefix: Option<String>,

    /// The word that all clients of these servers share: for clients that reach them by different
    /// addresses [default: 8 hex digits that follow from the addresses]
    #[arg(
        long,
        value_name = "WORD",
        global = true,
        env = "QUORATE_FLEET",
        hide_env = true
    )]
    fleet: Option<String>,

    /// The longest ttl that any client of these servers uses; the same in every client [default: 30s]
    #[arg(long, value_name = "DURATION", global = true, env = "QUORATE_MAX_TTL", hide_env = true,
          value_parser = duration)]
    max_ttl: Option<Duration>,

    /// Added to the time that a restarted server is kept out; the same in every client of these
    /// servers [default: 5s]
    #[arg(long, value_name = "DURATION", global = true, env = "QUORATE_RESTART_MARGIN", hide_env = true,
          value_parser = duration)]
    restart_margin: Option<Duration>,

    /// How long to wait for one server's answer [default: 500ms]
    #[arg(long, value_name = "DURATION", global = true, env = "QUORATE_NODE_TIMEOUT", hide_env = true,
          value_parser = duration)]
    node_timeout: Option<Duration>,

    /// Who holds, as operators see it [default: host:pid]
    #[arg(
        long,
        value_name = "TEXT",
        global = true,
        env = "QUORATE_LABEL",
        hide_env = true
    )]
    label: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(long_about = LOCK, after_long_help = LOCK_AFTER)]
    Lock(Lock),
    /// Show who holds a lock, on every node
    #[command(long_about = INSPECT)]
    Inspect(Inspect),
    /// Free a lock everywhere, whoever holds it
    #[command(long_about = EVICT)]
    Evict(Evict),
    /// Show every server's state
    #[command(long_about = NODES_ABOUT)]
    Nodes(Nodes),
    /// Admit brand-new servers within seconds
    #[command(long_about = BOOTSTRAP)]
    Bootstrap(Bootstrap),
    /// Tell the whole story on in-process nodes, no server needed
    #[command(long_about = DEMO)]
    Demo,
    /// Hold locks under load, record every operation, and judge what was promised
    #[command(long_about = torture::ABOUT, after_long_help = torture::AFTER)]
    Torture(Box<Torture>),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Lock {
    /// What to lock: 1 to 512 bytes of any text
    pub(crate) name: String,

    /// How long a grant lasts unless renewed: others wait this long when this machine dies
    /// [default: 10s, or --max-ttl if that is less]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,

    /// How long to wait for the lock [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Try once, and end with 75 if somebody else holds the lock
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// What to run, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Inspect {
    /// The lock's name
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Evict {
    /// The lock's name
    pub(crate) name: String,

    /// Really do it
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Nodes {}

#[derive(Debug, clap::Args)]
pub(crate) struct Bootstrap {
    /// Do not look whether a server votes already, was used, or is known to a client; and do not
    /// wait for that. Only if no client has run for longer than the longest ttl: else two may hold
    /// one lock. Never in a start-up script
    #[arg(long)]
    pub(crate) force: bool,
}

/// Reads the command line; an exit status where there is nothing more to do.
pub(crate) fn parse() -> Result<Args, u8> {
    Args::try_parse().map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            0
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            USAGE
        }
        _ => {
            let text = error.render().to_string();
            let text = text.trim_end().strip_prefix("error: ").unwrap_or(&text);
            let wants_json = std::env::args_os()
                .take_while(|word| word != "--")
                .any(|word| word == "--json");
            if wants_json {
                Failure::usage(text).tell(true);
            } else {
                output::complain(text);
            }
            USAGE
        }
    })
}

impl Fleet {
    /// A builder with everything that was said, on the command line or in the environment.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let nodes = match self.nodes.is_empty() {
            false => self.nodes.clone(),
            true => from_environment(),
        };
        if nodes.is_empty() {
            return Err(Failure::usage(format!(
                "no servers are named: give --node URL for each of them, or set {NODES} (separated \
                 by commas), as in {NODES}=redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1. \
                 `quorate demo` needs none"
            )));
        }
        let mut builder = Quorum::builder().nodes(nodes);
        if let Some(prefix) = &self.key_prefix {
            builder = builder.key_prefix(prefix);
        }
        if let Some(word) = &self.fleet {
            builder = builder.fleet(word);
        }
        if let Some(d) = self.max_ttl {
            builder = builder.max_ttl(d);
        }
        if let Some(d) = self.restart_margin {
            builder = builder.restart_margin(d);
        }
        if let Some(d) = self.node_timeout {
            builder = builder.node_timeout(d);
        }
        if let Some(label) = &self.label {
            builder = builder.label(label);
        }
        // What is left to do at the end is telling nodes to let go, and their connections carry
        // that: who does not answer in this time would not in the default's 5 s either.
        Ok(builder.shutdown_timeout(self.node_timeout().saturating_mul(2)))
    }

    pub(crate) fn node_timeout(&self) -> Duration {
        self.node_timeout.unwrap_or(Duration::from_millis(500))
    }

    pub(crate) fn prefix(&self) -> &str {
        self.key_prefix.as_deref().unwrap_or("quorate")
    }

    /// As the library's own default would have it.
    pub(crate) fn label(&self) -> String {
        let given = self.label.clone();
        given.unwrap_or_else(|| format!("torture:{}", std::process::id()))
    }

    pub(crate) fn max_ttl(&self) -> Duration {
        self.max_ttl.unwrap_or(Duration::from_secs(30))
    }
}

fn from_environment() -> Vec<String> {
    let all = std::env::var(NODES).unwrap_or_default();
    all.split(',')
        .map(str::trim)
        .filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect()
}

/// `700ms`, `3s`, `10m`, `24h`: a whole number and its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let wrong = || {
        format!(
            "{text:?} is no duration: write a whole number and its unit, as in 700ms, 3s, 10m, 24h"
        )
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clap_finds_nothing_wrong() {
        use clap::CommandFactory as _;
        Args::command().debug_assert();
    }

    #[test]
    fn durations_are_a_whole_number_and_a_unit() {
        assert_eq!(duration("700ms"), Ok(Duration::from_millis(700)));
        assert_eq!(duration("3s"), Ok(Duration::from_secs(3)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
        for wrong in [
            "",
            "3",
            "s",
            "3 s",
            " 3s",
            "3S",
            "-3s",
            "+3s",
            "1.5s",
            "3s4",
            "3d",
            "99999999999999999999s",
            "9999999999999999999h",
        ] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
