//! The options of `lock` and `semaphore` that take the lock in Consul instead of on the masters.

use clap::error::{ContextKind, ContextValue, ErrorKind};
#[cfg(feature = "consul")]
use {
    super::Fleet,
    quorate::{
        Error,
        consul::{Builder, Consul},
    },
    std::time::Duration,
};

/// The error for `--consul` in a build without Consul.
#[cfg(not(feature = "consul"))]
pub(super) const ELSEWHERE: &str = "this `quorate` was built without Consul. To get --consul for `quorate lock` and \
                                    `quorate semaphore`, build it with the feature `consul`, a default one";
/// The error for `--consul` with a command that does not have it.
#[cfg(feature = "consul")]
pub(super) const ELSEWHERE: &str = "only `quorate lock` and `quorate semaphore` take --consul, after the name of the \
     command. All other commands use Redis or Valkey masters";
/// How long one answer of Consul may take.
#[cfg(feature = "consul")]
const ANSWER: Duration = Duration::from_secs(5);

/// Stands for the options of Consul in a build without Consul, where there are none.
#[cfg(not(feature = "consul"))]
#[derive(Debug, Default)]
pub(crate) struct InConsul;

#[cfg(not(feature = "consul"))]
impl InConsul {
    #[allow(clippy::unused_self)]
    pub(crate) fn is_asked(&self) -> bool {
        false
    }
}

/// Where Consul is, if the lock is to be taken there.
#[cfg(feature = "consul")]
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Consul")]
pub(crate) struct InConsul {
    /// Take it in Consul through this agent, not on masters: http://host:port, https://.., host:port or
    /// unix:///path.
    /// It is the one that `consul lock` takes by that name. The token and the TLS settings come from Consul's own
    /// variables
    /// (CONSUL_HTTP_TOKEN, CONSUL_CACERT, ..)
    #[arg(long = "consul", value_name = "URL")]
    url: Option<String>,

    /// The datacenter in which to take it [default: the agent's own]
    #[arg(long, value_name = "NAME", requires = "url")]
    datacenter: Option<String>,
}

#[cfg(feature = "consul")]
impl InConsul {
    pub(crate) fn is_asked(&self) -> bool {
        self.url.is_some()
    }

    /// Returns a Consul client that has not asked anything yet, or `None` without `--consul`.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn connect_lazy(&self, fleet: &Fleet) -> Result<Option<Consul>, Error> {
        let Some(url) = &self.url else {
            return Ok(None);
        };
        let answer = fleet.answer_within(ANSWER);
        let mut builder = Builder::from_env()?
            .url(url)
            .request_timeout(answer)
            .shutdown_timeout(answer.saturating_mul(2));
        if let Some(datacenter) = &self.datacenter {
            builder = builder.datacenter(datacenter);
        }
        if let Some(label) = fleet.given_label() {
            builder = builder.label(label);
        }
        builder.connect_lazy().map(Some)
    }
}

/// Returns true if the error is about `--consul` with a command that does not have it.
pub(super) fn is_elsewhere(error: &clap::Error) -> bool {
    let word = error.get(ContextKind::InvalidArg);
    error.kind() == ErrorKind::UnknownArgument
        && matches!(word, Some(ContextValue::String(word)) if word == "--consul")
}
