//! Texts for operators: what is wrong where TLS fails, and what to do.

use std::io;

use rustls::{AlertDescription, CertificateError};

use crate::base::printable::printable;

pub(super) const UNKNOWN_TO_AUTHORITIES: &str = "none of the certificates in ca_certificates vouches for its TLS certificate: \
     give that of the CA which signed it";

/// Nobody who is trusted signed it. With a bad signature, the CA that is trusted has the same name, but
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

/// What is wrong and what to do, where TLS itself failed and not the connection under it.
pub(in crate::node::redis) fn advice(error: &io::Error) -> Option<String> {
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
