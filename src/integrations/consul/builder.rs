//! The builder of a Consul. Nothing is checked before it connects.

use std::{fmt, sync::Arc, time::Duration};

use reqwest::{Client, header::HeaderValue, redirect::Policy};
use tokio::sync::Semaphore;

use super::{
    Consul, Tls,
    address::Address,
    agent::{Agent, Ways},
    asks::check_path,
    http::{Http, REQUESTS},
    root::Root,
};
use crate::{
    Error,
    base::{clock::SystemClock, name::Name, owner::Label, runtime, tls::Trust},
};

/// The address of an agent by default.
const DEFAULT: &str = "http://127.0.0.1:8500";
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(10);
/// A connection may take no longer than this, however long an answer may take.
const LONGEST_DIAL: Duration = Duration::from_secs(3);
/// How many connections wait for the next request.
const IDLE_CONNECTIONS: usize = 16;

/// Builds a [`Consul`]. Every setting has a default.
///
/// ```no_run
/// # async fn example() -> Result<(), quorate::Error> {
/// use quorate::consul::Consul;
/// let consul = Consul::builder()
///     .url("http://10.0.0.1:8500")
///     .token("b1gs33cr3t")
///     .prefix("locks")
///     .connect()
///     .await?;
/// # drop(consul); Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    pub(super) url: Option<String>,
    /// An address without a scheme uses TLS.
    pub(super) is_tls: bool,
    pub(super) token: Option<String>,
    pub(super) login: Option<(String, String)>,
    pub(super) namespace: Option<String>,
    pub(super) datacenter: Option<String>,
    prefix: Option<String>,
    pub(super) tls: Tls,
    label: Option<String>,
    request_timeout: Duration,
    shutdown_timeout: Duration,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            url: None,
            is_tls: false,
            token: None,
            login: None,
            namespace: None,
            datacenter: None,
            prefix: None,
            tls: Tls::new(),
            label: None,
            request_timeout: Duration::from_secs(5),
            shutdown_timeout: Duration::from_secs(5),
        }
    }

    /// The agent's HTTP address: `http://host:port`, `https://host:port`, `host:port`, or `unix:///path` of its socket.
    /// Default: `http://127.0.0.1:8500`. Best use the agent on the same machine, which knows the servers.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// The ACL token. Its policy needs `key_prefix` write for the names, and `session_prefix` write.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// The namespace of the keys and sessions (Consul Enterprise).
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The datacenter that is asked. Default: the agent's own. All programs that share a name have to ask the same one.
    pub fn datacenter(mut self, datacenter: impl Into<String>) -> Self {
        self.datacenter = Some(datacenter.into());
        self
    }

    /// A path before every name: with `locks` the name `jobs/nightly` is at `locks/jobs/nightly`. Default: none, so
    /// that a name is the one that `consul lock` uses.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// The TLS settings, for `https://`.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = tls;
        self
    }

    /// The holder's name, as operators see it, with the characters of [`Builder::label`](crate::Builder::label).
    /// Default: `host:pid`. It names the sessions, and is written into the entries.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// How long to wait for an answer. Default 5 s, because an election of Consul's servers takes some seconds.
    pub fn request_timeout(mut self, d: Duration) -> Self {
        self.request_timeout = d;
        self
    }

    /// How long [`Consul::shutdown`] waits at most. Default 5 s.
    pub fn shutdown_timeout(mut self, d: Duration) -> Self {
        self.shutdown_timeout = d;
        self
    }

    /// Connects, and checks that the agent answers, has a leader and accepts the token, the datacenter and the
    /// namespace.
    ///
    /// # Errors
    /// - `Invalid` if a setting is not valid.
    /// - `NoQuorum` with Consul's answer, or the reason why it cannot be reached.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn connect(self) -> Result<Consul, Error> {
        let consul = self.connect_lazy()?;
        consul.ready().await?;
        Ok(consul)
    }

    /// Returns at once and asks no agent yet. It fails only if a setting is not valid.
    ///
    /// Call it within a tokio runtime with I/O and time enabled, because the background work runs there.
    ///
    /// # Errors
    /// `Invalid` if a setting is not valid, and outside of a runtime.
    pub fn connect_lazy(self) -> Result<Consul, Error> {
        let address = Address::read(self.url.as_deref().unwrap_or(DEFAULT), self.is_tls)?;
        if self.request_timeout < SHORTEST_TIMEOUT {
            return Err(Error::Invalid(format!(
                "a request_timeout of {:?} is too short: at least {SHORTEST_TIMEOUT:?} is needed",
                self.request_timeout
            )));
        }
        let prefix = match self.prefix.as_deref() {
            None | Some("") => String::new(),
            Some(prefix) => {
                Name::new(prefix)?;
                check_path("prefix", prefix)?;
                format!("{prefix}/")
            }
        };
        let label = match &self.label {
            Some(label) => Label::new(label)?,
            None => Label::of_this_process(),
        };
        let scope = [("dc", self.datacenter), ("ns", self.namespace)];
        let scope = scope
            .into_iter()
            .filter_map(|(word, value)| Some((word, value?)));
        let token = self.token.filter(|token| !token.is_empty()).map(secret);
        let http = Http {
            client: client(&address, &self.tls, self.request_timeout)?,
            scope: scope.collect(),
            token: token.transpose()?,
            login: address.login.clone().or(self.login),
            timeout: self.request_timeout,
            requests: Semaphore::new(REQUESTS),
            node: address.shown().into(),
            base: address.base,
        };
        Ok(Consul(Root::new(Agent::new(Ways {
            http,
            label: label.as_str().into(),
            prefix: prefix.into(),
            shutdown_timeout: self.shutdown_timeout,
            clock: Arc::new(SystemClock),
            runtime: runtime::current()?,
        }))))
    }
}

fn client(address: &Address, tls: &Tls, timeout: Duration) -> Result<Client, Error> {
    let wrong =
        |why: String| Error::Invalid(format!("cannot prepare a connection to Consul: {why}"));
    let config = match address.is_tls() {
        true => tls.config()?,
        false => Trust::Nobody.config().map_err(wrong)?.with_no_client_auth(),
    };
    let mut client = Client::builder()
        .tls_backend_preconfigured(config)
        .redirect(Policy::none())
        .connect_timeout(timeout.min(LONGEST_DIAL))
        .pool_max_idle_per_host(IDLE_CONNECTIONS);
    if let Some(path) = &address.socket {
        client = client.unix_socket(path.as_path());
    }
    client.build().map_err(|why| wrong(why.to_string()))
}

fn secret(token: String) -> Result<HeaderValue, Error> {
    let mut value = HeaderValue::try_from(token).map_err(|_| {
        Error::Invalid("Consul's token has characters that no token has: give the token alone, without line breaks".into())
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Neither the token nor a password is shown.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").finish_non_exhaustive()
    }
}
