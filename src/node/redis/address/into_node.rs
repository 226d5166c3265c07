//! The values that may be given as a node: a URL, what the `redis` crate made of one, or a master in this process.

#[cfg(feature = "fence-redis")]
use redis::{Client, ConnectionInfo};

use super::{
    Address,
    shown::{may_hold_password, shown},
    url,
};
#[cfg(feature = "fence-redis")]
use crate::base::printable::printable;
use crate::{Error, MemoryNode};

/// Anything that names a server. It may be a URL (`redis://[user][:password@]host[:port][/db]`, `rediss://` for TLS, or
/// `unix:///path?db=..&user=..&pass=..`) or, with the feature `fence-redis`, a [`redis::ConnectionInfo`] or a
/// [`redis::Client`].
///
/// quorate takes the address, the credentials and the database from it. The connection is always quorate's own, because
/// the restart rule needs it. A [`redis::Client`] with TLS certificates inside is refused, because they cannot be read
/// out. Give the certificates of its CA to `Builder::ca_certificates`, and its own to `Builder::client_certificate`.
///
/// TLS trusts the certificates given to `Builder::ca_certificates` (feature `tls-rustls`). Without them it trusts the
/// certificates that the environment variables `SSL_CERT_FILE` (a file) and `SSL_CERT_DIR` (directories) name. If these
/// are not set, it trusts the system's certificates. If a variable leads to no certificate, the node's state says so.
/// `rediss://host:port/#insecure` trusts any server, and is for tests.
///
/// In a password, the characters `@ : / # ? %` must be percent-encoded (`@` is `%40`). A URL that could be read in two
/// ways is refused, and the error shows only its scheme and its host. No error, state, log or `Debug` shows a password.
pub trait IntoNode: sealed::Sealed {
    #[doc(hidden)]
    fn into_node(self) -> Result<Target, Error>;
}

impl IntoNode for MemoryNode {
    fn into_node(self) -> Result<Target, Error> {
        Ok(Target::Memory(self))
    }
}

/// The kind of master.
#[derive(Clone, Debug)]
pub enum Target {
    /// A server.
    Server(Address),
    /// A master in this process.
    Memory(MemoryNode),
}

impl IntoNode for &str {
    fn into_node(self) -> Result<Target, Error> {
        let address = url::parse(self).and_then(|info| Address::new(&info));
        address.map(Target::Server).map_err(|why| {
            let hint = if may_hold_password(self) {
                "; if the password has characters such as @ : / # ? %, write them percent-encoded \
                 (@ is %40)"
            } else {
                ""
            };
            Error::Invalid(format!(
                "\"{}\" is not a valid node: {why}; allowed are redis://, rediss:// (TLS) and \
                 unix://, as in redis://user:password@host:6379/0{hint}",
                shown(self)
            ))
        })
    }
}

impl IntoNode for String {
    fn into_node(self) -> Result<Target, Error> {
        self.as_str().into_node()
    }
}

#[cfg(feature = "fence-redis")]
impl IntoNode for ConnectionInfo {
    fn into_node(self) -> Result<Target, Error> {
        Address::new(&self).map(Target::Server).map_err(|why| {
            let place = self.addr().to_string();
            let place = if place.contains('@') { "***" } else { &place };
            Error::Invalid(format!("{} is not a valid node: {why}", printable(place)))
        })
    }
}

#[cfg(feature = "fence-redis")]
impl IntoNode for Client {
    fn into_node(self) -> Result<Target, Error> {
        self.get_connection_info().clone().into_node()
    }
}

impl<T: IntoNode + Clone> IntoNode for &T {
    fn into_node(self) -> Result<Target, Error> {
        self.clone().into_node()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for &str {}
    impl Sealed for String {}
    #[cfg(feature = "fence-redis")]
    impl Sealed for redis::ConnectionInfo {}
    #[cfg(feature = "fence-redis")]
    impl Sealed for redis::Client {}
    impl Sealed for crate::MemoryNode {}
    impl<T: Sealed + Clone> Sealed for &T {}
}
