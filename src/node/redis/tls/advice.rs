//! Texts for operators: what is wrong when TLS fails, and what to do.

use std::io;

use rustls::{AlertDescription, CertificateError};

use super::asked::Wanted;
use crate::base::{printable::printable, tls::fault_of};

pub(super) const UNKNOWN_TO_AUTHORITIES: &str = "its TLS certificate is not signed by any CA in ca_certificates (QUORATE_CACERT): add \
     the certificate of the CA that signed it";

const ASKS_FOR_CERTIFICATE: &str = "it asks for a TLS certificate of this client: give one with \
     Builder::client_certificate_files, or name its files in QUORATE_CLIENT_CERT and QUORATE_CLIENT_KEY \
     (or set `tls-auth-clients no` there)";

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

const NOTHING_IN_COMMON: &str = "the TLS handshake failed, because it has no algorithm in common with this client: its \
     certificate may have a key that is not supported, such as P-521 (use RSA, P-256, P-384 or Ed25519), or its \
     tls-ciphers or tls-ciphersuites leave nothing";

/// The reason and the remedy, if TLS itself failed and not the connection under it. `wanted` is `None` if it is not known.
pub(in crate::node::redis) fn advice(error: &io::Error, wanted: Option<Wanted>) -> Option<String> {
    use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage};
    let unknown_issuer = is_unknown_issuer(error);
    let error = rustls_error(error)?;
    Some(match error {
        _ if unknown_issuer => "its TLS certificate is not signed by any CA that this machine trusts: name its CA's \
             file in the environment variable SSL_CERT_FILE, or, in a program, give the file's text to \
             Builder::ca_certificates (in tests, #insecure in the URL accepts any certificate)"
            .into(),
        InvalidCertificate(fault) => {
            use CertificateError::{NotValidForName, NotValidForNameContext};
            let or_else = match fault {
                NotValidForName | NotValidForNameContext { .. } => {
                    ", or set server_name (QUORATE_SERVER_NAME) to a name that it has"
                }
                _ => "",
            };
            format!(
                "its TLS certificate is not accepted: {}{or_else}",
                fault_of(fault)
            )
        }
        InvalidMessage(_) => {
            "it does not speak TLS on this port: use redis://, or its TLS port".into()
        }
        AlertReceived(alert) => match refused_certificate(*alert) {
            Some(why) => format!("it refuses the TLS certificate of this client: {why}"),
            None => match (*alert, wanted) {
                (AlertDescription::CertificateRequired, _) => ASKS_FOR_CERTIFICATE.into(),
                // TLS 1.2 says only this if a certificate is missing.
                (AlertDescription::HandshakeFailure, Some(Wanted::Missing)) => {
                    ASKS_FOR_CERTIFICATE.into()
                }
                (AlertDescription::HandshakeFailure, Some(Wanted::Not)) => NOTHING_IN_COMMON.into(),
                (AlertDescription::ProtocolVersion, _) => {
                    "it speaks neither TLS 1.2 nor TLS 1.3: allow one of them there (tls-protocols)"
                        .into()
                }
                _ => format!(
                    "the TLS handshake failed: {}; see the server's log for the reason",
                    printable(error)
                ),
            },
        },
        _ => format!("the TLS handshake failed: {}", printable(error)),
    })
}

/// The reason why a server refuses a client's certificate, if this alert says so. The words are those of OpenSSL, which
/// Redis and Valkey use.
fn refused_certificate(alert: AlertDescription) -> Option<&'static str> {
    use AlertDescription as Alert;
    Some(match alert {
        Alert::UnknownCA => "it does not trust the CA that signed it (tls-ca-cert-file there)",
        Alert::CertificateExpired => "it has expired; renew it",
        Alert::CertificateRevoked => "it was revoked",
        Alert::UnsupportedCertificate => {
            "it is not made for clients (extendedKeyUsage lacks clientAuth)"
        }
        Alert::BadCertificate => "it is not valid; it may not be valid yet",
        Alert::DecryptError => "its signature is wrong: a CA of the same name has another key",
        Alert::CertificateUnknown | Alert::AccessDenied | Alert::NoCertificate => {
            "see the server's log for the reason"
        }
        _ => return None,
    })
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
