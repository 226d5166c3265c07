//! Whom a TLS connection trusts, by rustls.
//!
//! The cryptography is named here and never left to a process-wide default, which would panic in a program that has
//! none, or two.

mod anybody;
mod authorities;

use std::sync::Arc;

use rustls::{ClientConfig, ConfigBuilder, RootCertStore, client::WantsClientCert, crypto::ring};

pub(crate) use self::authorities::Authorities;
use self::{anybody::TrustAnybody, authorities::system_roots};

/// Whose certificate is accepted.
#[derive(Clone)]
pub(crate) enum Trust {
    /// A server for which the system's certificates vouch, or those in `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR`.
    System,
    /// A server for which one of these vouches.
    Only(Authorities),
    Anybody,
    /// No server: for what does not speak TLS.
    #[cfg(feature = "consul")]
    Nobody,
}

impl Trust {
    /// How to connect. It may read files.
    pub(crate) fn config(&self) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let roots: Arc<RootCertStore> = match self {
            Self::System => system_roots()?.into(),
            Self::Only(authorities) => authorities.roots(),
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
