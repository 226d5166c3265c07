//! TLS by rustls.
//!
//! Root certificates are read again for every connection. That costs some milliseconds on a thread for blocking work,
//! and a CA that was replaced is noticed.

mod advice;

use std::sync::Arc;

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

pub(super) use self::advice::advice;
use self::advice::{UNKNOWN_TO_AUTHORITIES, is_unknown_issuer};
use crate::{
    base::{
        printable::printable,
        tls::{Authorities, Trust},
    },
    node::DialError,
};

/// The name to expect in the server's certificate, and the certificates to trust.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) name: ServerName<'static>,
    pub(super) trust: Trust,
}

impl Tls {
    pub(super) fn new(host: &str, insecure: bool) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| "its host is not a valid name for TLS")?;
        Ok(Self {
            name,
            trust: if insecure {
                Trust::Anybody
            } else {
                Trust::System
            },
        })
    }

    /// Trusts only these authorities, unless it trusts any server.
    pub(super) fn trust(&mut self, authorities: &Authorities) {
        if !matches!(self.trust, Trust::Anybody) {
            self.trust = Trust::Only(authorities.clone());
        }
    }

    pub(super) async fn wrap(&self, tcp: TcpStream) -> Result<TlsStream<TcpStream>, DialError> {
        let config = config(&self.trust).await.map_err(DialError::Refused)?;
        TlsConnector::from(Arc::new(config))
            .connect(self.name.clone(), tcp)
            .await
            .map_err(|error| {
                let unknown = matches!(self.trust, Trust::Only(_)) && is_unknown_issuer(&error);
                if unknown {
                    return DialError::Refused(UNKNOWN_TO_AUTHORITIES.into());
                }
                advice(&error).map(DialError::Refused).unwrap_or_else(|| {
                    DialError::Unreachable(format!(
                        "it breaks off the TLS handshake ({}); \
                         if this is a plain port, use redis://",
                        printable(error)
                    ))
                })
            })
    }
}

/// The TLS settings. The system's root certificates are read on a thread for blocking work.
async fn config(trust: &Trust) -> Result<ClientConfig, String> {
    let read = match trust {
        Trust::System => tokio::task::spawn_blocking(|| Trust::System.config())
            .await
            .map_err(|error| error.to_string())?,
        other => other.config(),
    };
    Ok(read?.with_no_client_auth())
}
