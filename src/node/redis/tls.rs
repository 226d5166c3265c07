//! TLS by rustls.
//!
//! Files with certificates are read again for every connection. That costs some milliseconds on a thread for blocking
//! work, and a certificate that was replaced is noticed.

mod advice;
mod asked;

use std::sync::Arc;

use rustls::{ClientConfig, pki_types::ServerName};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

pub(super) use self::advice::advice;
use self::{
    advice::{UNKNOWN_TO_AUTHORITIES, is_unknown_issuer},
    asked::Asked,
};
use crate::{
    base::{
        files::OneReader,
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
    files: OneReader,
}

/// The TLS settings of a quorum, for all of its servers.
#[derive(Default)]
pub(crate) struct TlsSettings {
    /// The servers to trust. By default those that the system trusts.
    pub(crate) trust: Option<Trust>,
    /// The certificate to show to a server that asks for one.
    pub(crate) certificate: ClientCertificate,
    /// The name to expect in certificates. By default the host of each URL.
    pub(crate) server_name: Option<ServerName<'static>>,
    /// Reads the files, for one connection at a time.
    pub(crate) files: OneReader,
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
            files: OneReader::default(),
        })
    }

    /// Applies the settings. A connection that trusts any server goes on to do so.
    pub(super) fn set(&mut self, settings: &TlsSettings) {
        if let Some(trust) = &settings.trust
            && !matches!(self.trust, Trust::Anybody)
        {
            self.trust = trust.clone();
        }
        if let Some(name) = &settings.server_name {
            self.name = name.clone();
        }
        self.shows = settings.certificate.clone();
        self.files = settings.files.clone();
    }

    /// The encrypted stream.
    pub(super) async fn wrap(
        &self,
        mut config: ClientConfig,
        tcp: TcpStream,
    ) -> Result<TlsStream<TcpStream>, DialError> {
        let asked = Arc::new(Asked::new(Arc::clone(&config.client_auth_cert_resolver)));
        config.client_auth_cert_resolver = Arc::clone(&asked) as _;
        TlsConnector::from(Arc::new(config))
            .connect(self.name.clone(), tcp)
            .await
            .map_err(|error| {
                let given = matches!(self.trust, Trust::Only(_) | Trust::File(_));
                if given && is_unknown_issuer(&error) {
                    return DialError::Refused(UNKNOWN_TO_AUTHORITIES.into());
                }
                let advice = advice(&error, Some(asked.answer()));
                advice.map(DialError::Refused).unwrap_or_else(|| {
                    DialError::Unreachable(format!(
                        "it breaks off the TLS handshake ({}); \
                         if this is a plain port, use redis://",
                        printable(error)
                    ))
                })
            })
    }

    /// The TLS settings, and a note for operators if there is one. Files are read on a thread for blocking work.
    pub(crate) async fn config(&self) -> Result<(ClientConfig, Option<String>), DialError> {
        let (trust, shows) = (self.trust.clone(), self.shows.clone());
        let reads_files = trust.reads_files() || shows.reads_files();
        let make = move || trust.config().map(|builder| shows.complete(builder));
        let made = match reads_files {
            true => {
                let made = self.files.run(make).await;
                made.unwrap_or_else(|error| Err(error.to_string()))
            }
            false => make(),
        };
        made.map_err(DialError::Refused)
    }
}
