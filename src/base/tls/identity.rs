//! The certificate that a client shows, and its key.

use std::sync::Arc;

use rustls::{
    ClientConfig, ConfigBuilder,
    client::WantsClientCert,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};

use super::words::fault_of;

/// The keys that a client's certificate may have.
const KEYS: &str = "RSA with 2048 to 4096 bits, ECDSA with P-256 or P-384, or Ed25519";

/// A client's certificate with its key, which belong together.
#[derive(Clone)]
pub(crate) struct Identity(Arc<SingleCertAndKey>);

impl Identity {
    /// Reads PEM. Nothing of the texts is shown, because they hold a key.
    pub(crate) fn of(certificates: &[u8], key: &[u8]) -> Result<Self, String> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
        let chain = chain.map_err(|_| "the certificate is not valid PEM")?;
        if chain.is_empty() {
            return Err(
                "the PEM of the certificate holds no certificate (`-----BEGIN CERTIFICATE-----`)"
                    .into(),
            );
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
            let is_encrypted = String::from_utf8_lossy(key).contains("ENCRYPTED");
            match is_encrypted {
                true => "the key is encrypted: give it without a passphrase",
                false => "the PEM of the key holds no private key (`-----BEGIN PRIVATE KEY-----`)",
            }
        })?;
        match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
            Ok(pair) => Ok(Self(Arc::new(pair.into()))),
            Err(rustls::Error::InconsistentKeys(_)) => {
                Err("the certificate and the key do not belong together".into())
            }
            Err(rustls::Error::InvalidCertificate(fault)) => Err(format!(
                "the certificate cannot be used: {}",
                fault_of(&fault)
            )),
            Err(_) => Err(format!("the key cannot be used: it must be {KEYS}")),
        }
    }

    /// Completes the configuration of a connection that shows it.
    pub(crate) fn complete(
        self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> ClientConfig {
        builder.with_client_cert_resolver(self.0)
    }
}
