//! TLS by rustls.
//!
//! Files with certificates are read again for every connection. That costs some milliseconds on a thread for blocking
//! work, and a certificate that was replaced is noticed.

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
        tls::{ClientCertificate, Trust},
    },
    node::DialError,
};

/// The name to expect in the server's certificate, the certificates to trust, and the one to show.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) name: ServerName<'static>,
    pub(super) trust: Trust,
    shows: ClientCertificate,
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
            shows: ClientCertificate::None,
        })
    }

    /// Trusts only these servers, unless it trusts any.
    pub(super) fn trust(&mut self, trust: &Trust) {
        if !matches!(self.trust, Trust::Anybody) {
            self.trust = trust.clone();
        }
    }

    /// Shows this certificate to a server that asks for one.
    pub(crate) fn show(&mut self, certificate: &ClientCertificate) {
        self.shows = certificate.clone();
    }

    /// The encrypted stream, and a note for operators if there is one.
    pub(super) async fn wrap(
        &self,
        tcp: TcpStream,
    ) -> Result<(TlsStream<TcpStream>, Option<String>), DialError> {
        let (config, note) = self.config().await.map_err(DialError::Refused)?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(self.name.clone(), tcp)
            .await
            .map_err(|error| {
                let given = matches!(self.trust, Trust::Only(_) | Trust::File(_));
                if given && is_unknown_issuer(&error) {
                    return DialError::Refused(UNKNOWN_TO_AUTHORITIES.into());
                }
                advice(&error).map(DialError::Refused).unwrap_or_else(|| {
                    DialError::Unreachable(format!(
                        "it breaks off the TLS handshake ({}); \
                         if this is a plain port, use redis://",
                        printable(error)
                    ))
                })
            })?;
        Ok((stream, note))
    }

    /// The TLS settings. Files are read on a thread for blocking work.
    async fn config(&self) -> Result<(ClientConfig, Option<String>), String> {
        let (trust, shows) = (self.trust.clone(), self.shows.clone());
        let reads_files = trust.reads_files() || shows.reads_files();
        let make = move || trust.config().map(|builder| shows.complete(builder));
        match reads_files {
            true => tokio::task::spawn_blocking(make)
                .await
                .map_err(|error| error.to_string())?,
            false => make(),
        }
    }
}
