//! A master that is a Redis or Valkey server.
//!
//! [`address`] says where the server is, and [`login`] who logs in, with the password in the URL or with [`credentials`]. [`dial`] connects. [`greet`] makes a [`connection`]
//! that is ready for commands, or says what to do. [`frame`] finds the replies in the bytes that arrive, and [`outbox`]
//! groups waiting operations into calls. [`encode`] and [`decode`] translate between commands and bytes. [`rights`]
//! lists what the server's ACL has to permit. [`secret`] keeps the password out of every text.

mod address;
mod connection;
mod credentials;
mod decode;
mod dial;
mod encode;
mod frame;
mod greet;
mod login;
mod outbox;
mod rights;
mod secret;
#[cfg(feature = "tls-rustls")]
mod tls;

#[cfg(test)]
#[path = "../../../tests/support/mod.rs"]
pub(crate) mod support;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

pub use address::IntoNode;
pub(crate) use address::{Address, Target};
pub use credentials::Credentials;
pub(crate) use credentials::{BoxError, Provider, command, file};
pub(crate) use encode::Keys;
#[cfg(feature = "tls-rustls")]
pub(crate) use tls::TlsSettings;

use self::credentials::Logins;
use super::{Dial, Node};

/// For tests: the answer in a server's reply.
#[cfg(test)]
pub(crate) fn answer(
    command: &super::Command,
    frame: redis_protocol::resp3::types::OwnedFrame,
) -> super::Answered {
    decode::answer(command, &[frame], &secret::Secret::new(""))
}

/// A server, and how to reach it.
#[derive(Debug)]
pub(crate) struct RedisNode {
    id: String,
    address: Arc<Address>,
    keys: Arc<Keys>,
    /// `None` if the URL has the password, or needs none.
    logins: Option<Arc<Logins>>,
    dial_timeout: Duration,
}

impl RedisNode {
    pub(crate) fn new(
        address: Address,
        keys: Arc<Keys>,
        credentials: Option<Provider>,
        dial_timeout: Duration,
    ) -> Self {
        let credentials = credentials.filter(|_| !address.has_password());
        let logins =
            |provider| Logins::new(provider, &address.id(), address.url_user(), dial_timeout);
        Self {
            id: address.id(),
            logins: credentials.map(logins).map(Arc::new),
            address: Arc::new(address),
            keys,
            dial_timeout,
        }
    }
}

impl Node for RedisNode {
    fn id(&self) -> &str {
        &self.id
    }

    fn dial(&self, channel: &Arc<str>) -> Dial {
        let (address, keys) = (Arc::clone(&self.address), Arc::clone(&self.keys));
        let (channel, limit) = (Arc::clone(channel), self.dial_timeout);
        let logins = self.logins.clone();
        Box::pin(async move { dial::dial(&address, logins, keys, &channel, limit).await })
    }
}
