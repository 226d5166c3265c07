//! TLS to an agent: the authorities that are trusted, and the client's certificate.

use rustls::ClientConfig;

use crate::{
    Error,
    base::tls::{Authorities, Identity, Trust},
};

/// The TLS settings for Consul. By default the certificate authorities of the system are trusted, or those in
/// `SSL_CERT_FILE` and `SSL_CERT_DIR`.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use quorate::consul::{Consul, Tls};
/// let consul = Consul::builder()
///     .url("https://consul.example:8501")
///     .tls(Tls::new().ca_certificates(std::fs::read("/etc/consul.d/ca.pem")?))
///     .connect()
///     .await?;
/// # drop(consul); Ok(()) }
/// ```
#[derive(Clone, Default)]
#[must_use = "it does nothing until it is given to a builder"]
pub struct Tls {
    authorities: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    trusts_anybody: bool,
}

impl Tls {
    /// The default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the certificate authorities in this PEM, in place of the system's.
    pub fn ca_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.authorities = Some(pem.into());
        self
    }

    /// Shows this certificate to agents that ask for one (`verify_incoming`). Both texts are PEM.
    pub fn client_certificate(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((certificates.into(), key.into()));
        self
    }

    /// Accepts any certificate, so anybody in between can read the token: for tests only.
    pub fn danger_accept_any_certificate(mut self) -> Self {
        self.trusts_anybody = true;
        self
    }

    pub(super) fn config(&self) -> Result<ClientConfig, Error> {
        let wrong = |why: String| Error::Invalid(format!("the TLS of Consul: {why}"));
        let trust = match &self.authorities {
            _ if self.trusts_anybody => Trust::Anybody,
            None => Trust::System,
            Some(pem) => Trust::Only(
                Authorities::of(pem).map_err(|why| wrong(format!("ca_certificates: {why}")))?,
            ),
        };
        let builder = trust.config().map_err(wrong)?;
        let Some((certificates, key)) = &self.identity else {
            return Ok(builder.with_no_client_auth());
        };
        let identity = Identity::of(certificates, key);
        let identity = identity.map_err(|why| wrong(format!("client_certificate: {why}")))?;
        Ok(identity.complete(builder))
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}
