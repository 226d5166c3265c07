//! Which servers, and what all their clients agree on: from the command line, the environment, or a file.

use std::time::Duration;

use quorate::{
    Builder, Error, Quorum,
    cli::{
        ALLOW_EVICTION, CONNECT_TIMEOUT, FLEET, KEY_PREFIX, LABEL, MAX_TTL, NODE_TIMEOUT, NODES,
        RESTART_MARGIN, SET_NODES, Variables, duration,
    },
};

use crate::failure::Failure;

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

    /// How long to wait until a majority of the servers, or Consul, can be talked to [default: 5s]
    #[arg(long, value_name = "DURATION", global = true,
          value_parser = duration)]
    connect_timeout: Option<Duration>,

    /// How long to wait for one server's answer [default: 500ms; Consul's 5s]
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
    /// Takes from the environment what was not given on the command line, except for the servers.
    pub(crate) fn fill(&mut self) -> Result<(), Failure> {
        self.fill_from(&Variables::of_this_process()).map_err(usage)
    }

    /// With Consul no other servers are named, on the command line. What the environment says of them does not count:
    /// it may be the machine's.
    pub(super) fn fill_beside_consul(&mut self) -> Result<(), Failure> {
        let of_masters = [
            ("--node", !self.nodes.is_empty()),
            ("--key-prefix", self.key_prefix.is_some()),
            ("--fleet", self.fleet.is_some()),
            ("--max-ttl", self.max_ttl.is_some()),
            ("--restart-margin", self.restart_margin.is_some()),
            ("--allow-eviction", self.allow_eviction),
        ];
        if let Some((option, _)) = of_masters.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!(
                "--consul cannot be used with {option}, which is about Redis or Valkey masters: leave one of them out"
            )));
        }
        if self.label.is_none() {
            self.label = Variables::of_this_process().word(LABEL).map_err(usage)?;
        }
        Ok(())
    }

    fn fill_from(&mut self, variables: &Variables) -> Result<(), Error> {
        for (field, variable) in [
            (&mut self.key_prefix, KEY_PREFIX),
            (&mut self.fleet, FLEET),
            (&mut self.label, LABEL),
        ] {
            if field.is_none() {
                *field = variables.word(variable)?;
            }
        }
        for (field, variable) in [
            (&mut self.max_ttl, MAX_TTL),
            (&mut self.restart_margin, RESTART_MARGIN),
            (&mut self.connect_timeout, CONNECT_TIMEOUT),
            (&mut self.node_timeout, NODE_TIMEOUT),
        ] {
            if field.is_none() {
                *field = variables.duration(variable)?;
            }
        }
        if !self.allow_eviction {
            self.allow_eviction = variables.flag(ALLOW_EVICTION)?.unwrap_or(false);
        }
        Ok(())
    }

    /// The environment in which `quorate` finds the same settings, except for the label.
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
        // At the end nodes are only told to let go, on connections that are open: a node that does not answer in
        // this time would not in the default's 5 s either.
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
        let variables = Variables::of_this_process();
        match variables.nodes().map_err(usage)? {
            (_, None) => Err(Failure::usage(format!(
                "no servers are named: give --node URL for each of them, or {SET_NODES}. `quorate demo` \
                 needs none{}",
                variables.hint()
            ))),
            (nodes, Some(_)) => Ok(nodes),
        }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout.unwrap_or(Duration::from_secs(5))
    }

    pub(crate) fn node_timeout(&self) -> Duration {
        self.answer_within(Duration::from_millis(500))
    }

    /// How long one answer may take, if nobody said otherwise.
    pub(crate) fn answer_within(&self, default: Duration) -> Duration {
        self.node_timeout.unwrap_or(default)
    }

    pub(crate) fn prefix(&self) -> &str {
        self.key_prefix.as_deref().unwrap_or("quorate")
    }

    pub(crate) fn given_label(&self) -> Option<&str> {
        self.label.as_deref()
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

fn usage(error: Error) -> Failure {
    Failure::usage(error.to_string())
}
