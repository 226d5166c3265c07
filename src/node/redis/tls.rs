//! TLS by rustls.
//!
//! The cryptography is named here and never left to a process-wide default, which would panic in a
//! program that has none, or two. Root certificates are read anew for every connection: it costs
//! some milliseconds on a thread for such things, and a CA that was replaced is seen.

use std::{fmt, io, sync::Arc};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{node::DialError, report::said};

/// Whom to expect at the other end.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) name: ServerName<'static>,
    pub(super) trust: Trust,
}

#[derive(Clone)]
pub(super) enum Trust {
    /// Whoever the system's certificates vouch for, or those in `SSL_CERT_FILE`.
    System,
    /// Whoever the certificates in this file vouch for.
    #[cfg(test)]
    Only(std::path::PathBuf),
    /// Anybody.
    Anybody,
}

impl Tls {
    pub(super) fn new(host: &str, insecure: bool) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| format!("{host:?} is no host name"))?;
        Ok(Self {
            name,
            trust: if insecure {
                Trust::Anybody
            } else {
                Trust::System
            },
        })
    }

    pub(super) async fn wrap(&self, tcp: TcpStream) -> Result<TlsStream<TcpStream>, DialError> {
        let config = self.trust.config().await.map_err(DialError::Refused)?;
        TlsConnector::from(Arc::new(config))
            .connect(self.name.clone(), tcp)
            .await
            .map_err(|error| {
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
                .map_err(|error| error.to_string())??,
            #[cfg(test)]
            Self::Only(path) => roots_in(path),
            Self::Anybody => {
                let verifier = Arc::new(TrustAnybody(provider));
                return Ok(builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier)
                    .with_no_client_auth());
            }
        };
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found
            .errors
            .first()
            .map(|error| format!(" ({error})"))
            .unwrap_or_default();
        return Err(format!(
            "no root certificates are found here{why}: \
             install the system's, or name the CA's file in SSL_CERT_FILE"
        ));
    }
    Ok(roots)
}

#[cfg(test)]
fn roots_in(path: &std::path::Path) -> RootCertStore {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(
        CertificateDer::pem_file_iter(path)
            .unwrap()
            .map(Result::unwrap),
    );
    roots
}

/// What is wrong and what to do, where TLS itself failed and not the connection under it.
pub(super) fn advice(error: &io::Error) -> Option<String> {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    let error = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(match error {
        // A bad signature: the CA that is trusted has the same name, but another key.
        InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "nobody whom this machine trusts vouches for its TLS certificate: \
             name its CA's file in the environment variable SSL_CERT_FILE \
             (in tests, #insecure in the URL trusts anybody)"
                .into()
        }
        InvalidCertificate(_) => {
            format!(
                "its TLS certificate is not accepted: {} \
                 (in tests, #insecure in the URL accepts any)",
                said(error)
            )
        }
        InvalidMessage(_) => {
            "it does not speak TLS on this port: use redis://, or its TLS port".into()
        }
        AlertReceived(AlertDescription::CertificateRequired) => {
            "it asks for a client's TLS certificate, and quorate has none: \
             set `tls-auth-clients no` there"
                .into()
        }
        _ => format!("the TLS handshake failed: {}", said(error)),
    })
}

/// For `#insecure`: signatures are checked, but not who signed.
struct TrustAnybody(Arc<CryptoProvider>);

impl fmt::Debug for TrustAnybody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TrustAnybody")
    }
}

impl ServerCertVerifier for TrustAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
