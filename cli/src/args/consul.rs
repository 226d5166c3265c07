//! Consul in place of the masters: for `lock` and `semaphore`.

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

/// The error for `--consul` if it cannot be used.
#[cfg(not(feature = "consul"))]
pub(super) const ELSEWHERE: &str = "this `quorate` was built without Consul; `quorate lock` and `quorate semaphore` know it otherwise: cargo install quorate-cli";
/// The error for `--consul` from commands that do not know it.
#[cfg(feature = "consul")]
pub(super) const ELSEWHERE: &str = "--consul is known to `quorate lock` and `quorate semaphore` only, behind that word: all other commands ask Redis \
     or Valkey masters";
/// How long one answer of Consul may take.
#[cfg(feature = "consul")]
const ANSWER: Duration = Duration::from_secs(5);

/// Without Consul there is nothing to ask for.
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
    /// Take it in Consul by this agent, not on servers: http://host:port, https://.., host:port or unix:///path.
    /// It is what `consul lock` takes by that name. The token and the like come from Consul's own variables
    /// (CONSUL_HTTP_TOKEN, CONSUL_CACERT, ..)
    #[arg(long = "consul", value_name = "URL")]
    url: Option<String>,

    /// The datacenter where it is taken [default: the agent's own]
    #[arg(long, value_name = "NAME", requires = "url")]
    datacenter: Option<String>,
}

#[cfg(feature = "consul")]
impl InConsul {
    pub(crate) fn is_asked(&self) -> bool {
        self.url.is_some()
    }

    /// Consul, which is not asked anything yet; none if it is not wanted.
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

/// Whether `--consul` was given where it is not known.
pub(super) fn is_elsewhere(error: &clap::Error) -> bool {
    let word = error.get(ContextKind::InvalidArg);
    error.kind() == ErrorKind::UnknownArgument
        && matches!(word, Some(ContextValue::String(word)) if word == "--consul")
}
