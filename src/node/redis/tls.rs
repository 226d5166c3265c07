//! TLS by rustls.
//!
//! The cryptography is named here and never left to a process-wide default, which would panic in a
//! program that has none, or two. Root certificates are read anew for every connection: that costs some
//! milliseconds on a thread for blocking work, and a CA that was replaced is noticed.

mod advice;
mod anybody;
mod authorities;

use std::sync::Arc;

use rustls::{ClientConfig, crypto::ring, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

pub(super) use self::advice::advice;
pub(crate) use self::authorities::Authorities;
use self::{
    advice::{UNKNOWN_TO_AUTHORITIES, is_unknown_issuer},
    anybody::TrustAnybody,
    authorities::system_roots,
};
use crate::{node::DialError, report::said};

/// Whom to expect at the other end.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) name: ServerName<'static>,
    pub(super) trust: Trust,
}

#[derive(Clone)]
pub(super) enum Trust {
    /// A server for which the system's certificates vouch, or those in `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR`.
    System,
    /// A server for which one of these vouches.
    Only(Authorities),
    Anybody,
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

    /// Trusts these alone, unless it trusts anybody.
    pub(super) fn trust(&mut self, authorities: &Authorities) {
        if !matches!(self.trust, Trust::Anybody) {
            self.trust = Trust::Only(authorities.clone());
        }
    }

    pub(super) async fn wrap(&self, tcp: TcpStream) -> Result<TlsStream<TcpStream>, DialError> {
        let config = self.trust.config().await.map_err(DialError::Refused)?;
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
                        said(error)
                    ))
                })
            })
    }
}

impl Trust {
    async fn config(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let roots = match self {
            Self::System => tokio::task::spawn_blocking(system_roots)
                .await
                .map_err(|error| error.to_string())??
                .into(),
            Self::Only(authorities) => authorities.roots(),
            Self::Anybody => {
                let verifier = Arc::new(TrustAnybody::new(provider));
                return Ok(builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier)
                    .with_no_client_auth());
            }
        };
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}
