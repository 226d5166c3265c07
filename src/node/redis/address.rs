//! The address of a server, and the login to it.

mod into_node;
mod shown;
#[cfg(test)]
mod tests;
mod url;

use std::{fmt, path::PathBuf};

use redis::{ConnectionAddr, ConnectionInfo};

pub use self::into_node::IntoNode;
pub(crate) use self::into_node::Target;
#[cfg(feature = "tls-rustls")]
use super::tls::{Tls, TlsSettings};

#[cfg(not(feature = "tls-rustls"))]
const NO_TLS: &str = "TLS needs quorate's feature `tls-rustls`";

/// The endpoint to dial, and the login and the database for it. Two addresses are equal if they name the same server,
/// by host and port or by path. The user and the database do not count.
#[derive(Clone)]
pub struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) db: u32,
    pub(super) login: Option<Login>,
}

/// It has no `Debug`, so that the password is not logged by accident.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
    pub(crate) source: Source,
}

/// Where a login comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Url,
    Provider,
    /// The password comes from the provider, and the user from a URL without a password.
    ProviderAndUrl,
}

#[derive(Clone)]
pub(super) enum Endpoint {
    Tcp {
        host: String,
        port: u16,
    },
    #[cfg(feature = "tls-rustls")]
    Tls {
        host: String,
        port: u16,
        tls: Tls,
    },
    #[cfg(unix)]
    Unix(PathBuf),
}

impl Address {
    fn new(info: &ConnectionInfo) -> Result<Self, String> {
        let endpoint = match info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }
                if host.contains('@') =>
            {
                return Err("its host has an @: give the user and the password separately".into());
            }
            ConnectionAddr::Tcp(host, port) => Endpoint::Tcp {
                // Host names are compared without case, so that one server given twice is noticed at once.
                host: host.to_ascii_lowercase(),
                port: *port,
            },
            #[cfg(feature = "tls-rustls")]
            ConnectionAddr::TcpTls {
                tls_params: Some(_),
                ..
            } => {
                return Err(
                    "its own TLS certificates cannot be read out of a redis::Client: \
                     pass a rediss:// URL, give its own certificate to Builder::client_certificate, \
                     and its CA's to Builder::ca_certificates, or name the CA's file in the environment variable \
                     SSL_CERT_FILE"
                        .into(),
                );
            }
            #[cfg(feature = "tls-rustls")]
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure,
                tls_params: None,
            } => Endpoint::Tls {
                host: host.to_ascii_lowercase(),
                port: *port,
                tls: Tls::new(host, *insecure)?,
            },
            #[cfg(not(feature = "tls-rustls"))]
            ConnectionAddr::TcpTls { .. } => return Err(NO_TLS.into()),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
            other => return Err(format!("{other} cannot be dialled here")),
        };
        let settings = info.redis_settings();
        let db = u32::try_from(settings.db()).map_err(|_| "Invalid database number")?;
        let login = match (settings.username(), settings.password()) {
            (None | Some(""), None | Some("")) => None,
            (user, password) => Some(Login {
                user: user
                    .filter(|user| !user.is_empty())
                    .unwrap_or("default")
                    .into(),
                password: password.unwrap_or_default().into(),
                source: Source::Url,
            }),
        };
        Ok(Self {
            endpoint,
            db,
            login,
        })
    }

    /// Applies these settings if it uses TLS.
    #[cfg(feature = "tls-rustls")]
    pub(crate) fn secure(&mut self, settings: &TlsSettings) {
        if let Endpoint::Tls { tls, .. } = &mut self.endpoint {
            tls.set(settings);
        }
    }

    /// host:port/db, or path/db: what clients have to agree on. It contains the database, so that a SWAPDB is noticed
    /// as another list.
    pub(crate) fn with_database(&self) -> String {
        format!("{}/{}", self.id(), self.db)
    }

    /// host:port, or the path of the socket.
    pub(crate) fn id(&self) -> String {
        let (host, port) = match &self.endpoint {
            Endpoint::Tcp { host, port } => (host, port),
            #[cfg(feature = "tls-rustls")]
            Endpoint::Tls { host, port, .. } => (host, port),
            #[cfg(unix)]
            Endpoint::Unix(path) => return path.display().to_string(),
        };
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        match (&self.endpoint, &other.endpoint) {
            #[cfg(unix)]
            (Endpoint::Unix(one), Endpoint::Unix(two)) => one == two,
            #[cfg(unix)]
            (Endpoint::Unix(_), _) | (_, Endpoint::Unix(_)) => false,
            _ => self.id().eq_ignore_ascii_case(&other.id()),
        }
    }
}

impl Eq for Address {}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The user is left out, because it may be a password that was written in the wrong place.
        f.debug_struct("Address")
            .field("id", &self.id())
            .field("db", &self.db)
            .finish_non_exhaustive()
    }
}
