//! The builder of a quorum. Nothing is checked before it connects, and nothing is dialled before it is checked.

#[cfg(feature = "tls-rustls")]
use std::path::PathBuf;
use std::{fmt, future::Future, sync::Arc, time::Duration};

use crate::{
    Credentials, Error, Quorum,
    base::rules::Rules,
    node::redis::{BoxError, IntoNode, Provider},
    quorum::{
        assembly::{self, Given},
        settings::{Options, each_setting},
    },
};
#[cfg(feature = "tls-rustls")]
use crate::{
    base::tls::{Authorities, ClientCertificate, Identity, IdentityFiles, Trust},
    node::redis::TlsSettings,
    quorum::settings::server_name,
};

/// Builds a [`Quorum`]. Only the nodes must be given; every other setting has a default.
///
/// ```no_run
/// # async fn example() -> Result<(), quorate::Error> {
/// use std::time::Duration;
/// let quorum = quorate::Quorum::builder()
///     .nodes(["redis://10.0.0.1:6379", "redis://10.0.1.1:6379", "redis://10.0.2.1:6379"])
///     .node_timeout(Duration::from_millis(200))
///     .label("payouts-7")
///     .connect()
///     .await?;
/// # drop(quorum); Ok(()) }
/// ```
#[must_use = "a builder does nothing until it connects"]
pub struct Builder {
    nodes: Vec<Result<Given, Error>>,
    #[cfg(feature = "tls-rustls")]
    authorities: Option<Result<Authorities, Error>>,
    #[cfg(feature = "tls-rustls")]
    identity: Option<Result<Identity, Error>>,
    credentials: Option<Provider>,
    options: Options,
    rules: Rules,
}

impl Quorum {
    /// Dials all nodes at once with default settings, and returns when a majority has answered.
    ///
    /// [`Quorum::builder`] changes settings, and [`Quorum::from_env`] reads them from the environment.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    ///
    /// # Cancel safety
    /// May be dropped; that closes all connections.
    pub async fn connect<T: IntoNode>(nodes: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        Self::builder().nodes(nodes).connect().await
    }

    /// Returns a builder, to change settings before connecting.
    pub fn builder() -> Builder {
        Builder::new()
    }
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            #[cfg(feature = "tls-rustls")]
            authorities: None,
            #[cfg(feature = "tls-rustls")]
            identity: None,
            credentials: None,
            options: Options::default(),
            rules: Rules::ALL,
        }
    }

    /// Adds one master. Every client has to list the same masters.
    ///
    /// It takes a URL or a [`MemoryNode`](crate::MemoryNode), and with the feature `fence-redis` also a
    /// `redis::ConnectionInfo` or a `redis::Client`. From a client it takes the address, TLS and credentials; the
    /// connection is always quorate's own.
    pub fn node(mut self, node: impl IntoNode) -> Self {
        self.nodes.push(node.into_node().map(Given::Target));
        self
    }

    /// Adds several masters, as [`node`](Self::node) adds one.
    pub fn nodes<T: IntoNode>(mut self, nodes: impl IntoIterator<Item = T>) -> Self {
        self.nodes.extend(
            nodes
                .into_iter()
                .map(|node| node.into_node().map(Given::Target)),
        );
        self
    }

    /// Adds a master of another kind. Outside semver.
    #[cfg(feature = "unstable-node")]
    pub fn custom_node(mut self, node: impl crate::node::Node + 'static) -> Self {
        self.nodes
            .push(Ok(Given::Custom(std::sync::Arc::new(node))));
        self
    }

    /// Trusts the certificate authorities in `pem` for the `rediss://` nodes of this quorum, **in place of** the
    /// system's. Default: the system's authorities.
    ///
    /// The authorities in `SSL_CERT_FILE` and `SSL_CERT_DIR` are not read either. So only these connections trust a
    /// private CA, and they trust nothing else. (The `redis` crate's `TlsCertificates::root_cert` does the same.) To
    /// trust the system's authorities too, add their certificates to `pem`.
    ///
    /// `pem` holds one or more certificates, such as the text of a `ca.crt`; a key among them is ignored. The last call
    /// counts. The setting concerns TLS only: a `redis://` node stays unencrypted, and a node with
    /// `rediss://…#insecure` trusts any certificate. If `pem` is not valid, [`connect`](Self::connect) fails with
    /// `Invalid`.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let quorum = quorate::Quorum::builder()
    ///     .nodes(["rediss://10.0.0.1", "rediss://10.0.1.1", "rediss://10.0.2.1"])
    ///     .ca_certificates(std::fs::read("/etc/redis/ca.crt")?)
    ///     .connect()
    ///     .await?;
    /// # drop(quorum); Ok(()) }
    /// ```
    #[cfg(feature = "tls-rustls")]
    pub fn ca_certificates(mut self, pem: impl AsRef<[u8]>) -> Self {
        let authorities = Authorities::of(pem.as_ref());
        self.authorities =
            Some(authorities.map_err(|why| Error::Invalid(format!("ca_certificates: {why}"))));
        self.options.cacert = None;
        self
    }

    /// Shows this certificate to `rediss://` nodes that ask for one (`tls-auth-clients`, which is `yes` by default in
    /// Redis and Valkey). Both texts are PEM: the certificate, with those of intermediate CAs behind it, and its private
    /// key without a passphrase.
    ///
    /// For a certificate that is renewed while the program runs, use
    /// [`client_certificate_files`](Self::client_certificate_files). The last call of the two counts. If the texts are
    /// not valid, or do not belong together, [`connect`](Self::connect) fails with `Invalid`. A server that refuses the
    /// certificate says why in [`Quorum::nodes`]. One certificate serves all nodes, and the server's own password or
    /// ACL user is needed beside it.
    #[cfg(feature = "tls-rustls")]
    pub fn client_certificate(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        let identity = Identity::of(&certificates.into(), &key.into());
        let invalid = |why| Error::Invalid(format!("client_certificate: {why}"));
        self.identity = Some(identity.map_err(invalid));
        (self.options.client_cert, self.options.client_key) = (None, None);
        self
    }

    /// As [`client_certificate`](Self::client_certificate), from files that are read again for each connection. So a
    /// certificate that is renewed (cert-manager, SPIFFE) is shown on the next connection.
    ///
    /// Connections that are open stay as they are. Files that do not belong together are read once more after 100 ms,
    /// because one of them may not be written yet. If they still cannot be used, the last pair that could is shown, and
    /// the node's [`note`](crate::NodeStatus::note) says so. Only regular files are read, for one connection at a time.
    ///
    /// [`connect`](Self::connect) reads the files too, which blocks the thread, and fails with `Invalid` if they cannot
    /// be used.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), quorate::Error> {
    /// let quorum = quorate::Quorum::builder()
    ///     .nodes(["rediss://10.0.0.1", "rediss://10.0.1.1", "rediss://10.0.2.1"])
    ///     .client_certificate_files("/run/tls/tls.crt", "/run/tls/tls.key")
    ///     .connect()
    ///     .await?;
    /// # drop(quorum); Ok(()) }
    /// ```
    #[cfg(feature = "tls-rustls")]
    pub fn client_certificate_files(
        mut self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.identity = None;
        self.options.client_cert = Some(certificates.into());
        self.options.client_key = Some(key.into());
        self
    }

    /// Asks `provider` for the user and the password of each connection to a node whose URL has no password. It is
    /// called with the node's address (`host:port`).
    ///
    /// If the credentials expire ([`Credentials::expires_in`]), it is called again when 70 to 80 % of that time has
    /// passed. The connection then logs in again and stays open, so no lease and no place in a queue is lost, provided
    /// that a majority of the nodes accepts the new credentials before the old ones end. One node logs in at a time, and
    /// tries the credentials on a connection of its own first, because a server accepts a user without rights too. A
    /// node that refuses is logged at WARN and noted in [`Quorum::nodes`]; its connection stays with the old login as
    /// long as the server lets it, and tries again.
    ///
    /// For a new connection, an error of the provider makes the node [`Refused`](crate::NodeState::Refused) with that
    /// text, and it is tried again after 1 to 5 s. A provider without an answer is dropped after
    /// [`dial_timeout`](Self::dial_timeout). It runs as a task of its own on the runtime; code that blocks belongs into
    /// `tokio::task::spawn_blocking`. It may be called for several nodes at once, so a provider that asks a service
    /// should cache its answer. No log, state or `Debug` of quorate shows a password. An error of the provider is shown,
    /// except if it contains one of the last passwords.
    ///
    /// Not promised: leases, if all nodes close their connections and refuse the new credentials.
    ///
    /// ```no_run
    /// # async fn signed_token(_: &str) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn example() -> Result<(), quorate::Error> {
    /// use std::time::Duration;
    /// use quorate::Credentials;
    /// let quorum = quorate::Quorum::builder()
    ///     .nodes(["rediss://10.0.0.1", "rediss://10.0.1.1", "rediss://10.0.2.1"])
    ///     .credentials(|node| async move {
    ///         let token = signed_token(&node).await?;
    ///         Ok(Credentials::new("payouts", token).expires_in(Duration::from_secs(900)))
    ///     })
    ///     .connect()
    ///     .await?;
    /// # drop(quorum); Ok(()) }
    /// ```
    pub fn credentials<P, F>(mut self, provider: P) -> Self
    where
        P: Fn(Arc<str>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.credentials = Some(Provider::new(provider));
        let options = &mut self.options;
        (
            options.username,
            options.password_file,
            options.password_command,
        ) = (None, None, None);
        self
    }

    /// Sets what a configuration file gives, and keeps everything that it does not give.
    ///
    /// The last call counts, as with every setter: settings of the file replace those that were set before, and calls
    /// after this one replace those of the file. The file's masters join those that were added before and those that
    /// are added later; to name others in their place, change [`Config::nodes`](crate::Config::nodes).
    #[cfg(feature = "serde")]
    pub fn config(mut self, config: crate::Config) -> Self {
        let options = config.options();
        #[cfg(feature = "tls-rustls")]
        {
            self.authorities = self.authorities.filter(|_| options.cacert.is_none());
            self.identity = self.identity.filter(|_| options.client_cert.is_none());
        }
        let keeps_credentials = options.credentials().is_none();
        self.credentials = self.credentials.filter(|_| keeps_credentials);
        self.options = options.or(self.options);
        self.nodes(config.nodes)
    }

    /// Replaces all settings that were given before.
    #[doc(hidden)]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Switches rules of the protocol off, so that a test can check that it finds what they prevent. The client's
    /// decisions follow them on every kind of node; the scripts do not.
    #[cfg(feature = "test-util")]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Dials all nodes at once and returns when a majority has answered. The other nodes are dialled in the background.
    ///
    /// # Errors
    /// - `Invalid` if a setting is not valid, or if two addresses lead to one server.
    /// - `NoQuorum` if no majority answered within `connect_timeout`. The report names every node and its reason.
    ///
    /// # Cancel safety
    /// May be dropped; that closes all connections.
    pub async fn connect(self) -> Result<Quorum, Error> {
        let quorum = self.connect_lazy()?;
        quorum.ready().await?;
        Ok(quorum)
    }

    /// Starts to dial and returns at once.
    ///
    /// A lock that is taken before all nodes are connected stands on those that are. [`Quorum::ready`] waits a little
    /// for the others too.
    ///
    /// Call it within a tokio runtime with I/O and time enabled, because the background work runs there. When that
    /// runtime is gone, every call answers `RuntimeGone`. So make one quorum for the program, in `main`, and in tests one in
    /// each test: each `#[tokio::test]` has a runtime of its own, and a quorum in a `static` answers it in the second one.
    ///
    /// # Errors
    /// - `Invalid` if a setting is not valid, if an address is given twice, and outside of a runtime.
    /// - `System` if the system refuses a timer, mostly because too many files are open.
    pub fn connect_lazy(self) -> Result<Quorum, Error> {
        if self.nodes.is_empty() {
            return Err(Error::Invalid(
                "no node was given: a quorum needs at least one master".into(),
            ));
        }
        let label = self.options.checked()?;
        self.check_nodes()?;
        #[cfg_attr(not(feature = "tls-rustls"), allow(unused_mut))]
        let mut nodes = self.nodes.into_iter().collect::<Result<Vec<_>, _>>()?;
        #[cfg(feature = "tls-rustls")]
        {
            let settings = TlsSettings {
                trust: match self.authorities.transpose()? {
                    Some(authorities) => Some(Trust::Only(authorities)),
                    None => trust_of(&self.options)?,
                },
                certificate: match self.identity.transpose()? {
                    Some(identity) => ClientCertificate::Fixed(identity),
                    None => certificate_of(&self.options)?,
                },
                server_name: self
                    .options
                    .server_name
                    .as_deref()
                    .map(server_name)
                    .transpose()?,
                ..TlsSettings::default()
            };
            for node in &mut nodes {
                node.secure(&settings);
            }
        }
        let credentials = self.credentials.or_else(|| self.options.credentials());
        assembly::start(nodes, credentials.as_ref(), self.options, self.rules, label)
    }

    /// Checks that each node's address can be understood.
    pub(crate) fn check_nodes(&self) -> Result<(), Error> {
        let bad = |given: &Result<Given, Error>| given.as_ref().err().cloned();
        let found = self.nodes.iter().map(bad).enumerate();
        match found.filter_map(|(i, error)| Some((i, error?))).next() {
            None => Ok(()),
            Some((i, error)) => Err(in_the_list(error, i + 1, self.nodes.len())),
        }
    }

    /// The settings as text.
    #[cfg(test)]
    pub(crate) fn shown(&self) -> String {
        let nodes = self.nodes.iter().map(|node| node.as_ref().unwrap().id());
        let label = self.options.checked().unwrap();
        let connect_timeout = self.options.connect_timeout();
        let settings = self.options.clone().settle(
            self.rules,
            label,
            crate::quorum::settings::Roster {
                nodes: nodes.collect(),
                list: "list".into(),
                ranks: Vec::new(),
            },
            "quorate:wake:test".into(),
        );
        format!("{settings:?} connect_timeout: {connect_timeout:?}")
    }
}

macro_rules! setter {
    ($(#[$doc:meta])* Duration $name:ident) => {
        $(#[$doc])*
        pub fn $name(mut self, d: Duration) -> Self {
            self.options.$name = Some(d);
            self
        }
    };
    ($(#[$doc:meta])* String $name:ident) => {
        $(#[$doc])*
        pub fn $name(mut self, $name: impl Into<String>) -> Self {
            self.options.$name = Some($name.into());
            self
        }
    };
    ($(#[$doc:meta])* PathBuf $name:ident) => {};
    ($(#[$doc:meta])* Text $name:ident) => {};
    ($(#[$doc:meta])* bool $name:ident) => {
        $(#[$doc])*
        pub fn $name(mut self) -> Self {
            self.options.$name = Some(true);
            self
        }
    };
}

macro_rules! make_setters {
    ($($(#[$doc:meta])* $name:ident: $kind:ident {
        default: $default:expr,
        check: $check:expr,
        variable: $variable:literal,
        help: $help:literal,
    })*) => {
        impl Builder {
            $(setter! { $(#[$doc])* $kind $name })*
        }
    };
}

each_setting!(make_setters);

/// The CAs in the file that the settings name. It is read here only to see that it can be used.
#[cfg(feature = "tls-rustls")]
fn trust_of(options: &Options) -> Result<Option<Trust>, Error> {
    let Some(path) = &options.cacert else {
        return Ok(None);
    };
    Authorities::in_file(path).map_err(|why| Error::Invalid(format!("cacert: {why}")))?;
    Ok(Some(Trust::File(path.as_path().into())))
}

/// The certificate in the files that the settings name.
#[cfg(feature = "tls-rustls")]
fn certificate_of(options: &Options) -> Result<ClientCertificate, Error> {
    let (Some(certificates), Some(key)) = (&options.client_cert, &options.client_key) else {
        return Ok(ClientCertificate::None);
    };
    let files = IdentityFiles::open(certificates, key);
    files
        .map(ClientCertificate::Files)
        .map_err(|why| Error::Invalid(format!("client_certificate_files: {why}")))
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

/// Adds the node's place in the list. A bad URL may hold a password, so little of it is shown.
fn in_the_list(error: Error, number: usize, total: usize) -> Error {
    match error {
        Error::Invalid(why) if total > 1 => {
            Error::Invalid(format!("node {number} of {total}: {why}"))
        }
        error => error,
    }
}
