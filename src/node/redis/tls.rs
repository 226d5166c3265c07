//! TLS by rustls.
//!
//! The cryptography is named here and never left to a process-wide default, which would panic in a
//! program that has none, or two. Root certificates are read anew for every connection: it costs
//! some milliseconds on a thread for such things, and a CA that was replaced is seen.

use std::{env, error::Error as _, ffi::OsString, fmt, io, path::Path, sync::Arc};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use rustls_native_certs::{CertificateResult, load_certs_from_paths};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{node::DialError, report::said};

/// The certificates of certificate authorities: at least one.
#[derive(Clone)]
pub(crate) struct Authorities(Arc<RootCertStore>);

impl Authorities {
    /// Reads PEM. A certificate that cannot be used is an error also beside others: it was given for a reason. Of
    /// the text nothing is shown, as a key may stand in it.
    pub(crate) fn of(pem: &[u8]) -> Result<Self, &'static str> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| "it is not valid PEM")?;
            roots
                .add(certificate)
                .map_err(|_| "a certificate in it cannot be read")?;
        }
        match roots.is_empty() {
            false => Ok(Self(Arc::new(roots))),
            true => Err("there is no certificate in it: give the PEM itself \
                 (`-----BEGIN CERTIFICATE-----`), not the path of a file"),
        }
    }
}

/// Whom to expect at the other end.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) name: ServerName<'static>,
    pub(super) trust: Trust,
}

#[derive(Clone)]
pub(super) enum Trust {
    /// Those for whom the system's certificates vouch, or those in `SSL_CERT_FILE` and
    /// `SSL_CERT_DIR`.
    System,
    /// Those for whom one of these vouches.
    Only(Authorities),
    /// Anybody.
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
            Self::Only(Authorities(roots)) => Arc::clone(roots),
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
    let (file, directories) = (env::var_os(FILE), env::var_os(DIRECTORIES));
    if let Some(roots) = named_roots(file, directories)? {
        return Ok(roots);
    }
    let mut roots = RootCertStore::empty();
    take(rustls_native_certs::load_native_certs(), &mut roots).map_err(|why| {
        format!(
            "no root certificates are found here ({why}): \
             install the system's, or name the CA's file in {FILE}"
        )
    })?;
    Ok(roots)
}

const FILE: &str = "SSL_CERT_FILE";
const DIRECTORIES: &str = "SSL_CERT_DIR";

/// The certificates that the two variables name; none if neither is set. An empty one is as if it
/// were not set. One that leads to no certificate is an error, whatever the other does: it was set for a
/// reason.
fn named_roots(
    file: Option<OsString>,
    directories: Option<OsString>,
) -> Result<Option<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    let wrong = |variable, value: &OsString, why| {
        format!("{variable} names {value:?}, where no certificate is found: {why}")
    };
    let is_set = |value: &OsString| !value.is_empty();
    if let Some(file) = file.filter(is_set) {
        let found = load_certs_from_paths(Some(Path::new(&file)), None);
        take(found, &mut roots).map_err(|why| wrong(FILE, &file, why))?;
    }
    if let Some(directories) = directories.filter(is_set) {
        let mut found = CertificateResult::default();
        for directory in env::split_paths(&directories) {
            let more = load_certs_from_paths(None, Some(&directory));
            found.certs.extend(more.certs);
            found.errors.extend(more.errors);
        }
        take(found, &mut roots).map_err(|why| wrong(DIRECTORIES, &directories, why))?;
    }
    Ok(Some(roots).filter(|roots| !roots.is_empty()))
}

/// Adds what can be used of it, which must be something.
fn take(found: CertificateResult, roots: &mut RootCertStore) -> Result<(), String> {
    match roots.add_parsable_certificates(found.certs) {
        (0, _) => Err(match found.errors.first() {
            Some(error) => said(
                error
                    .source()
                    .map_or(error.to_string(), ToString::to_string),
            ),
            None => "nothing is there in PEM".into(),
        }),
        _ => Ok(()),
    }
}

const UNKNOWN_TO_AUTHORITIES: &str = "none of the certificates in ca_certificates vouches for its TLS certificate: \
     give that of the CA which signed it";

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Nobody who is trusted signed it. A bad signature: the CA that is trusted has the same name, but another key.
fn is_unknown_issuer(error: &io::Error) -> bool {
    use CertificateError::{BadSignature, UnknownIssuer};
    matches!(
        rustls_error(error),
        Some(rustls::Error::InvalidCertificate(
            UnknownIssuer | BadSignature
        ))
    )
}

/// What is wrong and what to do, where TLS itself failed and not the connection under it.
pub(super) fn advice(error: &io::Error) -> Option<String> {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    let unknown_issuer = is_unknown_issuer(error);
    let error = rustls_error(error)?;
    Some(match error {
        _ if unknown_issuer => "nobody whom this machine trusts vouches for its TLS certificate: \
             name its CA's file in the environment variable SSL_CERT_FILE, \
             or, in a program, give the file's text to Builder::ca_certificates \
             (in tests, #insecure in the URL trusts anybody)"
            .into(),
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::support::tls::certificates, *};

    fn named(file: Option<&Path>, directories: Option<&str>) -> Result<Option<usize>, String> {
        let roots = named_roots(file.map(Into::into), directories.map(Into::into))?;
        Ok(roots.map(|roots| roots.len()))
    }

    #[test]
    fn a_variable_that_leads_to_no_certificate_is_said_to_be_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("none")).unwrap();
        fs::write(at("empty.pem"), "").unwrap();
        fs::write(at("text.pem"), "no certificate").unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        fs::write(at("broken.pem"), broken).unwrap();
        let strange = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        fs::write(at("strange.pem"), strange).unwrap();
        for (name, why) in [
            ("missing.pem", "No such file or directory"),
            ("none", "Is a directory"),
            ("empty.pem", "nothing is there in PEM"),
            ("text.pem", "nothing is there in PEM"),
            ("broken.pem", ""),
            ("strange.pem", "nothing is there in PEM"),
        ] {
            let text = named(Some(&at(name)), None).unwrap_err();
            let start = format!(
                "SSL_CERT_FILE names {:?}, where no certificate is found: {why}",
                at(name)
            );
            assert!(
                text.starts_with(&start) && text.len() > start.len().min(90),
                "{text}"
            );
        }

        let files = certificates(dir.path());
        assert_eq!(named(Some(&files.ca), None), Ok(Some(1)));
        let directory = |name: &str| at(name).display().to_string();
        for (name, why) in [
            ("missing", "No such file or directory"),
            ("none", "nothing is there in PEM"),
            ("empty.pem", "Not a directory"),
        ] {
            // Also beside a file that is right.
            let text = named(Some(&files.ca), Some(&directory(name))).unwrap_err();
            let start = format!(
                "SSL_CERT_DIR names {:?}, where no certificate is found: {why}",
                directory(name)
            );
            assert!(text.starts_with(&start), "{text}");
        }
        fs::copy(&files.ca, at("none").join("ca.pem")).unwrap();
        let several = format!("{}:{}", directory("missing"), directory("none"));
        assert_eq!(named(None, Some(&several)), Ok(Some(1)));
        assert_eq!(named(None, None), Ok(None));
        let empty = Some(Path::new(""));
        assert_eq!(named(None, Some("")), Ok(None));
        assert_eq!(named(empty, None), Ok(None));
        assert_eq!(named(empty, Some("")), Ok(None));
        assert_eq!(named(Some(&files.ca), Some("")), Ok(Some(1)));
        assert_eq!(named(empty, Some(&several)), Ok(Some(1)));
    }
}
