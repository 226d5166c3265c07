//! The builder of a quorum whose calls block.

#[cfg(feature = "tls-rustls")]
use std::path::PathBuf;
use std::{fmt, sync::Arc, time::Duration};

use super::{Quorum, root::Root};
use crate::{Credentials, Error, IntoNode, quorum::settings::each_setting};

/// Builds a [`Quorum`]. Every setting means the same as in [`quorate::Builder`](crate::Builder), which can be turned
/// into this builder.
///
/// ```no_run
/// # fn main() -> Result<(), quorate::Error> {
/// use quorate::blocking::Quorum;
/// use std::time::Duration;
/// let quorum = Quorum::builder()
///     .nodes(["redis://10.0.0.1:6379", "redis://10.0.1.1:6379", "redis://10.0.2.1:6379"])
///     .node_timeout(Duration::from_millis(200))
///     .label("payouts-7")
///     .connect()?;
/// # drop(quorum); Ok(()) }
/// ```
#[must_use = "a builder does nothing until it connects"]
pub struct Builder(crate::Builder);

impl Quorum {
    /// Dials all nodes at once with default settings, and returns when a majority has answered.
    ///
    /// # Errors
    /// As for [`Builder::connect`].
    pub fn connect<T: IntoNode>(nodes: impl IntoIterator<Item = T>) -> Result<Self, Error> {
        Self::builder().nodes(nodes).connect()
    }

    /// Returns a builder, to change settings before connecting.
    pub fn builder() -> Builder {
        crate::Quorum::builder().into()
    }

    /// Connects with the settings in the environment: [`Builder::from_env`], then [`Builder::connect`].
    ///
    /// # Errors
    /// As for both.
    pub fn from_env() -> Result<Self, Error> {
        Builder::from_env()?.connect()
    }
}

/// Setters that call those of an async builder.
macro_rules! setters {
    ($of:literal: $($name:ident($($arg:ident: $kind:ty)?);)*) => {$(
        #[doc = concat!("As [`", stringify!($name), "`](", $of, "::", stringify!($name), ") of the async one.")]
        pub fn $name(self $(, $arg: $kind)?) -> Self {
            Self(self.0.$name($($arg)?))
        }
    )*};
}

#[cfg(feature = "consul")]
pub(super) use setters;

impl Builder {
    setters! { "crate::Builder":
        node(node: impl IntoNode);
    }

    /// As [`quorate::Builder::nodes`](crate::Builder::nodes).
    pub fn nodes<T: IntoNode>(self, nodes: impl IntoIterator<Item = T>) -> Self {
        Self(self.0.nodes(nodes))
    }

    /// Sets what a configuration file gives, as [`quorate::Builder::config`](crate::Builder::config).
    #[cfg(feature = "serde")]
    pub fn config(self, config: crate::Config) -> Self {
        Self(self.0.config(config))
    }

    /// As [`quorate::Builder::ca_certificates`](crate::Builder::ca_certificates).
    #[cfg(feature = "tls-rustls")]
    pub fn ca_certificates(self, pem: impl AsRef<[u8]>) -> Self {
        Self(self.0.ca_certificates(pem))
    }

    /// As [`quorate::Builder::client_certificate`](crate::Builder::client_certificate).
    #[cfg(feature = "tls-rustls")]
    pub fn client_certificate(
        self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        Self(self.0.client_certificate(certificates, key))
    }

    /// As [`quorate::Builder::client_certificate_files`](crate::Builder::client_certificate_files).
    #[cfg(feature = "tls-rustls")]
    pub fn client_certificate_files(
        self,
        certificates: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        Self(self.0.client_certificate_files(certificates, key))
    }

    /// As [`quorate::Builder::credentials`](crate::Builder::credentials), with a function that may block. It is called
    /// on a thread for blocking work, which it keeps for as long as it takes: limit its time.
    pub fn credentials<P, E>(self, provider: P) -> Self
    where
        P: Fn(&str) -> Result<Credentials, E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
    {
        let provider = Arc::new(provider);
        Self(self.0.credentials(move |node| {
            let provider = Arc::clone(&provider);
            async move {
                let asked = tokio::task::spawn_blocking(move || provider(&node));
                // The message of a panic may hold a password.
                let given = asked.await.map_err(|_| "it panicked")?;
                given.map_err(Into::into)
            }
        }))
    }

    /// Returns a builder with the settings in the environment, as
    /// [`quorate::Builder::from_env`](crate::Builder::from_env).
    ///
    /// # Errors
    /// `Invalid`.
    pub fn from_env() -> Result<Self, Error> {
        crate::Builder::from_env().map(Self)
    }

    /// Dials all nodes at once and returns when a majority has answered. The other nodes are dialled in the background.
    ///
    /// # Errors
    /// - As for [`quorate::Builder::connect`](crate::Builder::connect).
    /// - `Invalid` in async code.
    /// - `System` if no thread can be started.
    pub fn connect(self) -> Result<Quorum, Error> {
        let root = Root::start()?;
        let quorum = root.wait(self.0.connect())??;
        Ok(Quorum::new(root, quorum))
    }

    /// Starts to dial and returns at once, as [`quorate::Builder::connect_lazy`](crate::Builder::connect_lazy).
    ///
    /// # Errors
    /// - `Invalid` if a setting is not valid, and in async code.
    /// - `System` if no thread can be started.
    pub fn connect_lazy(self) -> Result<Quorum, Error> {
        let root = Root::start()?;
        let quorum = root.within(|| self.0.connect_lazy())?;
        Ok(Quorum::new(root, quorum))
    }
}

macro_rules! setter {
    (Duration $name:ident) => {
        setters! { "crate::Builder": $name(d: Duration); }
    };
    (String $name:ident) => {
        setters! { "crate::Builder": $name($name: impl Into<String>); }
    };
    (PathBuf $name:ident) => {};
    (Text $name:ident) => {};
    (bool $name:ident) => {
        setters! { "crate::Builder": $name(); }
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
            $(setter! { $kind $name })*
        }
    };
}

each_setting!(make_setters);

impl From<crate::Builder> for Builder {
    fn from(builder: crate::Builder) -> Self {
        Self(builder)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
