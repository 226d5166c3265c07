//! Which servers, and what all their clients agree on: from the command line, the environment, or a file.

use std::{env::VarError, fs::File, io::Read, time::Duration};

use quorate::{Builder, Quorum};

use super::duration;
use crate::failure::Failure;

/// The servers, with their passwords: what a command under the lock does not inherit.
pub(crate) const NODES: &str = "QUORATE_NODES";
/// A file with the servers.
pub(crate) const NODES_FILE: &str = "QUORATE_NODES_FILE";
const KEY_PREFIX: &str = "QUORATE_KEY_PREFIX";
const FLEET: &str = "QUORATE_FLEET";
const MAX_TTL: &str = "QUORATE_MAX_TTL";
const RESTART_MARGIN: &str = "QUORATE_RESTART_MARGIN";
const CONNECT_TIMEOUT: &str = "QUORATE_CONNECT_TIMEOUT";
const NODE_TIMEOUT: &str = "QUORATE_NODE_TIMEOUT";
const LABEL: &str = "QUORATE_LABEL";
const ALLOW_EVICTION: &str = "QUORATE_ALLOW_EVICTION";

/// More is not read of a file with servers.
const LONGEST_FILE: u64 = 1 << 20;

/// Which servers, and what all their clients agree on.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Servers")]
pub(crate) struct Fleet {
    /// A server: redis://[user:password@]host[:port], rediss://.. (TLS) or unix:///path. Repeat it
    /// for every server; every client has to name the same ones. Default: those in QUORATE_NODES
    #[arg(long = "node", value_name = "URL", global = true)]
    nodes: Vec<String>,

    /// What every key on the servers begins with [default: quorate]
    #[arg(long, value_name = "PREFIX", global = true)]
    key_prefix: Option<String>,

    /// The word that all clients of these servers share: for clients that reach them by different
    /// addresses [default: 8 hex digits that follow from the addresses]
    #[arg(long, value_name = "WORD", global = true)]
    fleet: Option<String>,

    /// The longest ttl that any client of these servers uses; the same in every client [default: 30s]
    #[arg(long, value_name = "DURATION", global = true,
          value_parser = duration)]
    max_ttl: Option<Duration>,

    /// Added to the time that a restarted server is kept out; the same in every client of these
    /// servers [default: 5s]
    #[arg(long, value_name = "DURATION", global = true,
          value_parser = duration)]
    restart_margin: Option<Duration>,

    /// How long to wait until a majority of the servers can be talked to [default: 5s]
    #[arg(long, value_name = "DURATION", global = true,
          value_parser = duration)]
    connect_timeout: Option<Duration>,

    /// How long to wait for one server's answer [default: 500ms]
    #[arg(long, value_name = "DURATION", global = true,
          value_parser = duration)]
    node_timeout: Option<Duration>,

    /// Who holds, as operators see it [default: host:pid]
    #[arg(long, value_name = "TEXT", global = true)]
    label: Option<String>,

    /// Count servers whose maxmemory-policy may evict keys, and with them locks: only for servers
    /// that never reach maxmemory
    #[arg(long, global = true)]
    allow_eviction: bool,
}

impl Fleet {
    /// Takes from the environment what was not said on the command line.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        word(&mut self.key_prefix, KEY_PREFIX)?;
        word(&mut self.fleet, FLEET)?;
        word(&mut self.label, LABEL)?;
        time(&mut self.max_ttl, MAX_TTL)?;
        time(&mut self.restart_margin, RESTART_MARGIN)?;
        time(&mut self.connect_timeout, CONNECT_TIMEOUT)?;
        time(&mut self.node_timeout, NODE_TIMEOUT)?;
        if !self.allow_eviction
            && let Some(word) = set(ALLOW_EVICTION)?
        {
            self.allow_eviction = match word.as_str() {
                "1" | "true" => true,
                "0" | "false" => false,
                _ => {
                    return Err(Failure::usage(format!(
                        "{ALLOW_EVICTION} is neither 1 nor 0"
                    )));
                }
            };
        }
        Ok(())
    }

    /// The environment in which `quorate` finds the same settings, label apart.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let time = |d: &Option<Duration>| d.map(|d| format!("{}ms", d.as_millis()));
        // A comma may stand in a password.
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|url| url.replace(',', "%2C"))
            .collect();
        let settings = [
            (
                NODES,
                Some(nodes.join(",")).filter(|nodes| !nodes.is_empty()),
            ),
            (KEY_PREFIX, self.key_prefix.clone()),
            (FLEET, self.fleet.clone()),
            (MAX_TTL, time(&self.max_ttl)),
            (RESTART_MARGIN, time(&self.restart_margin)),
            (CONNECT_TIMEOUT, time(&self.connect_timeout)),
            (NODE_TIMEOUT, time(&self.node_timeout)),
            (ALLOW_EVICTION, self.allow_eviction.then(|| "1".to_owned())),
        ];
        let said = settings.into_iter();
        said.filter_map(|(variable, value)| Some((variable, value?)))
            .collect()
    }

    /// A builder with everything that was said, on the command line or in the environment.
    pub(crate) fn builder(&self) -> Result<Builder, Failure> {
        let nodes = self.nodes()?;
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
        if self.allow_eviction {
            builder = builder.allow_eviction();
        }
        if let Some(label) = &self.label {
            builder = builder.label(label);
        }
        // What is left to do at the end is telling nodes to let go, and their connections carry
        // that: who does not answer in this time would not in the default's 5 s either.
        Ok(builder
            .connect_timeout(self.connect_timeout())
            .shutdown_timeout(self.node_timeout().saturating_mul(2)))
    }

    /// The servers as they were named: on the command line, in the environment, or in a file that
    /// the environment names.
    pub(crate) fn nodes(&self) -> Result<Vec<String>, Failure> {
        if !self.nodes.is_empty() {
            return Ok(self.nodes.clone());
        }
        let (listed, file) = (set(NODES)?, set(NODES_FILE)?);
        let (nodes, wanted) = match (listed, file) {
            (Some(_), Some(_)) => {
                return Err(Failure::usage(format!(
                    "{NODES} and {NODES_FILE} are both set: set one of them"
                )));
            }
            (Some(list), None) => (urls(&list), None),
            (None, Some(path)) => (from_file(&path)?, Some(path)),
            (None, None) => (Vec::new(), None),
        };
        match (nodes.is_empty(), wanted) {
            (false, _) => Ok(nodes),
            (true, Some(path)) => Err(Failure::usage(format!(
                "the file {path:?}, which {NODES_FILE} names, names no server: write one URL on each line"
            ))),
            (true, None) => Err(Failure::usage(no_servers())),
        }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(Duration::from_secs(5))
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

fn no_servers() -> String {
    // What `quorate lock` hands to its command.
    let hint = match std::env::var_os("QUORATE_TOKEN") {
        Some(_) => format!(
            ". A command that `quorate lock` runs finds {NODES} only with `quorate lock --keep-env`"
        ),
        None => String::new(),
    };
    format!(
        "no servers are named: give --node URL for each of them, or set {NODES} (separated by \
         commas), as in {NODES}=redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1. `quorate demo` \
         needs none{hint}"
    )
}

fn word(field: &mut Option<String>, variable: &str) -> Result<(), Failure> {
    if field.is_none() {
        *field = set(variable)?;
    }
    Ok(())
}

fn time(field: &mut Option<Duration>, variable: &str) -> Result<(), Failure> {
    if field.is_none() {
        let said = set(variable)?.map(|text| duration(&text));
        *field = said
            .transpose()
            .map_err(|why| Failure::usage(format!("{variable}: {why}")))?;
    }
    Ok(())
}

/// What a variable says; nothing if it is empty.
fn set(variable: &str) -> Result<Option<String>, Failure> {
    match std::env::var(variable) {
        Ok(text) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{variable} is not valid UTF-8")))
        }
    }
}

fn from_file(path: &str) -> Result<Vec<String>, Failure> {
    if path.contains("://") || path.contains('@') {
        return Err(Failure::usage(format!(
            "{NODES_FILE} is the name of a file, and looks like a URL: URLs are for {NODES}"
        )));
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST_FILE).read_to_string(&mut text));
    read.map_err(|error| {
        Failure::usage(format!(
            "the file {path:?}, which {NODES_FILE} names, cannot be read: {error}"
        ))
    })?;
    // Some editors begin a file with a mark of the encoding.
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    Ok(lines
        .filter(|line| !line.starts_with('#'))
        .flat_map(urls)
        .collect())
}

fn urls(list: &str) -> Vec<String> {
    let urls = list.split(',').map(str::trim);
    urls.filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect()
}
