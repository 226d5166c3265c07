//! The servers that a TLS connection trusts, and the certificate that it shows, by rustls.
//!
//! The cryptography is named here and never left to a process-wide default, which would panic in a program that has
//! none, or two.

mod anybody;
mod authorities;
#[cfg(feature = "tls-rustls")]
mod client_certificate;
mod identity;
mod words;

#[cfg(feature = "tls-rustls")]
use std::path::Path;
use std::sync::Arc;

use rustls::{ClientConfig, ConfigBuilder, RootCertStore, client::WantsClientCert, crypto::ring};

#[cfg(feature = "tls-rustls")]
pub(crate) use self::client_certificate::{ClientCertificate, IdentityFiles};
use self::{anybody::TrustAnybody, authorities::system_roots};
pub(crate) use self::{authorities::Authorities, identity::Identity, words::fault_of};

/// The servers whose certificate is accepted.
#[derive(Clone)]
pub(crate) enum Trust {
    /// A server that the system's authorities, or those in `SSL_CERT_FILE` and `SSL_CERT_DIR`, vouch for.
    System,
    /// A server that one of these authorities vouches for.
    Only(Authorities),
    /// A server that one of the authorities in this file vouches for. The file is read for each connection.
    #[cfg(feature = "tls-rustls")]
    File(Arc<Path>),
    Anybody,
    /// No server: for connections that do not use TLS.
    #[cfg(feature = "consul")]
    Nobody,
}

impl Trust {
    /// Returns true if [`config`](Self::config) reads files.
    #[cfg(feature = "tls-rustls")]
    pub(crate) fn reads_files(&self) -> bool {
        matches!(self, Self::System | Self::File(_))
    }

    /// The configuration of connections. It may read files.
    pub(crate) fn config(&self) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let roots: Arc<RootCertStore> = match self {
            Self::System => system_roots()?.into(),
            Self::Only(authorities) => authorities.roots(),
            #[cfg(feature = "tls-rustls")]
            Self::File(path) => Authorities::in_file(path)?.roots(),
            #[cfg(feature = "consul")]
            Self::Nobody => RootCertStore::empty().into(),
            Self::Anybody => {
                let verifier = Arc::new(TrustAnybody::new(provider));
                return Ok(builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier));
            }
        };
        Ok(builder.with_root_certificates(roots))
    }
}
