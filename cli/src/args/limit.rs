//! The options of `quorate limit`, and its help.

use std::{ffi::OsString, time::Duration};

use clap::ValueEnum;
use quorate::Outage;

use super::{Name, duration};

pub(super) const ABOUT: &str = "\
Waits until a rate limit has room, then runs a command. At most the given number of commands begin in any interval, \
wherever the interval begins, on all machines together.

Nothing is held while the command runs: a limit counts how often commands begin, not how many run at once. To limit \
that, use `quorate semaphore`. Without a command it takes the units and ends, so that a script can go on.";

pub(super) const AFTER: &str = "\
Examples:
  quorate limit supplier --rate 2000/min -- ./call.sh
  quorate limit supplier --rate 2000/min --rate 50/s -- ./call.sh   both apply
  quorate limit supplier --rate 2000/min --cost 20 -- ./call.sh 20
  quorate limit mail --rate 1/10m --no-wait -- ./mail.sh            now or never
  quorate limit supplier --rate 2000/min && curl https://supplier   in a script

The limit holds for any interval. A cron job that runs every 10 minutes begins a moment earlier or later each time, \
so it finds a limit of 1/10m still used up every second time. Give it a shorter period: 1/9m.

Each server has a share of the limit and gives it out by itself. The share of a server that is down cannot be used, \
and a server that is left still gives out its own. A limit of at most 16 units needs a majority. All programs that \
share a limit have to give the same rates, in any order: the same name with other rates is a separate limit. Waiters \
are served in no particular order.

A server that restarted may have forgotten what it gave out. It gives out nothing until it has been watched for a \
whole interval, the longest of the rates. If only short commands use the servers, run `quorate watch` as a service.

The command replaces this process: it has its process id and its terminal, and gets all signals itself. It finds the \
name in QUORATE_NAME. The variables that an enclosing `quorate lock` has set stay set. QUORATE_NODES and \
QUORATE_PASSWORD_COMMAND are removed, because they may hold passwords; --keep-env keeps them. If this process is stopped or slow before the command begins, \
the command begins late: the limit applies to the moment when it was allowed.

How long servers that are not well delay a call: those that refuse a connection, not at all. Those that hang, by one \
--node-timeout (500ms) if one well server has enough in its share, or for a limit of at most 16 units if a majority is \
well. If every server hangs, the call goes on, as --on-outage says, after the smaller of --dial-timeout (3s) and \
--connect-timeout (5s), and one --node-timeout more.

Nothing is printed while all is well. On a terminal, or with -v, one line tells why it waits. \
Ctrl-C, TERM, HUP and QUIT end the wait.

Exit status:
  0        it was allowed (without a command)
  N        the command's own
  128+n    the wait was ended by signal n
  126 127  the command cannot be run / was not found
  64       wrong usage or setting
  69       no server can tell whether there is room in time: see --on-outage
  75       no room within the wait, at once if it is known that room comes later

--json: without a command {name, allowed: true, wait_ms: 0, remaining, limit}; remaining is null if that \
is not known. With --show, allowed tells whether there is room for one unit. An error is an object on stderr; \
`denied` also has name, allowed: false, wait_ms, \
remaining and limit. limit is the smallest of the rates' numbers.";

// clap's own usage line would show the name as optional, because --name can stand for it.
pub(super) const USAGE: &str = "quorate limit [OPTIONS] --rate <N/PERIOD> <NAME> [-- <CMD>...]";

/// How a rate is written.
const RATE: &str = "a rate is N/PERIOD, as in 2000/min, 50/s or 3/10m: N is at least 1, and PERIOD is s, sec, second, min, \
     minute, h, hour, d, day, or a duration from 100ms to 24h";

#[derive(Debug, clap::Args)]
pub(crate) struct Limit {
    #[command(flatten)]
    pub(crate) name: Name,

    /// At most N in any PERIOD, as in 2000/min: s, min, h, d or a duration such as 500ms, from 100ms to 24h.
    /// Repeat it for up to four rates that apply together. Give the same rates in all programs that use the limit
    #[arg(long = "rate", value_name = "N/PERIOD", allow_hyphen_values = true, required = true, value_parser = rate)]
    pub(crate) rates: Vec<Rate>,

    /// How many units to take, all at once
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) cost: u32,

    /// How long to wait until there is room [default: for ever]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Ask once, and end with 75 if there is no room now
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Take nothing, and print how much is left
    #[arg(long, conflicts_with_all = ["command", "wait", "no_wait", "cost", "on_outage", "keep_env"])]
    pub(crate) show: bool,

    /// The outcome while no server can tell whether there is room: error ends with 69, deny waits as if there were
    /// none (75), allow goes on without counting
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = OnOutage::Error, hide_possible_values = true)]
    pub(crate) on_outage: OnOutage,

    /// Keep QUORATE_NODES in the command's environment, so that it can run quorate itself. The values of --node,
    /// --config and the other options of servers are put there too
    #[arg(long)]
    pub(crate) keep_env: bool,

    /// The command to run, after `--`
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// At most `limit` units in any interval of length `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) limit: u32,
    pub(crate) period: Duration,
}

/// As [`Outage`], for the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnOutage {
    Error,
    Deny,
    Allow,
}

impl From<OnOutage> for Outage {
    fn from(it: OnOutage) -> Self {
        match it {
            OnOutage::Error => Self::Error,
            OnOutage::Deny => Self::Deny,
            OnOutage::Allow => Self::Allow,
        }
    }
}

pub(super) fn rate(text: &str) -> Result<Rate, String> {
    read(text).ok_or_else(|| RATE.to_owned())
}

fn read(text: &str) -> Option<Rate> {
    let (limit, period) = text.split_once('/')?;
    let period = match period {
        "s" | "sec" | "second" => Duration::from_secs(1),
        "min" | "minute" => Duration::from_secs(60),
        "h" | "hour" => Duration::from_secs(3600),
        "d" | "day" => Duration::from_secs(24 * 3600),
        other => duration(other).ok()?,
    };
    let limit = limit.parse().ok().filter(|limit| *limit > 0)?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(24 * 3600);
    allowed.contains(&period).then_some(Rate { limit, period })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, limit, ms) in [
            ("50/s", 50, 1000),
            ("1/second", 1, 1000),
            ("2000/min", 2000, 60_000),
            ("7/hour", 7, 3_600_000),
            ("4294967295/d", u32::MAX, 86_400_000),
            ("3/10m", 3, 600_000),
            ("3/100ms", 3, 100),
            ("3/24h", 3, 86_400_000),
        ] {
            let period = Duration::from_millis(ms);
            assert_eq!(rate(text), Ok(Rate { limit, period }), "{text}");
        }
        for text in [
            "",
            "5",
            "/s",
            "5/",
            "0/s",
            "-1/s",
            "4294967296/s",
            "5/m",
            "5/99ms",
            "5/25h",
            "5/1.5s",
            "5 / s",
            "s/5",
            "5/s/s",
        ] {
            assert_eq!(rate(text), Err(RATE.to_owned()), "{text}");
        }
    }
}
