//! Texts for operators: what is wrong when TLS fails, and what to do.

use std::io;

use rustls::{AlertDescription, CertificateError};

use crate::base::printable::printable;

pub(super) const UNKNOWN_TO_AUTHORITIES: &str = "its TLS certificate is not signed by any CA in ca_certificates: add \
     the certificate of the CA that signed it";

/// Returns true if no trusted CA has signed the certificate. With a bad signature, a trusted CA has the same name but
/// another key.
pub(super) fn is_unknown_issuer(error: &io::Error) -> bool {
    use CertificateError::{BadSignature, UnknownIssuer};
    matches!(
        rustls_error(error),
        Some(rustls::Error::InvalidCertificate(
            UnknownIssuer | BadSignature
        ))
    )
}

/// The reason and the remedy, if TLS itself failed and not the connection under it.
pub(in crate::node::redis) fn advice(error: &io::Error) -> Option<String> {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    let unknown_issuer = is_unknown_issuer(error);
    let error = rustls_error(error)?;
    Some(match error {
        _ if unknown_issuer => "its TLS certificate is not signed by any CA that this machine trusts: name its CA's \
             file in the environment variable SSL_CERT_FILE, or, in a program, give the file's text to \
             Builder::ca_certificates (in tests, #insecure in the URL accepts any certificate)"
            .into(),
        InvalidCertificate(_) => {
            format!(
                "its TLS certificate is not accepted: {} \
                 (in tests, #insecure in the URL accepts any)",
                printable(error)
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
        _ => format!("the TLS handshake failed: {}", printable(error)),
    })
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
