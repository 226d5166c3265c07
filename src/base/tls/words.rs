//! The faults of a certificate in words, with what to do.

use rustls::CertificateError;

use crate::base::printable::printable;

/// The fault of a server's or a client's certificate, and what to do.
pub(crate) fn fault_of(error: &CertificateError) -> String {
    use CertificateError as Fault;
    let words = match error {
        Fault::Other(other) => return other_fault(&other.0.to_string()),
        Fault::Expired | Fault::ExpiredContext { .. } => {
            "it has expired: renew it, or correct the clock of this machine"
        }
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => {
            "it is not valid yet: correct the clock of this machine, or of the one that made it"
        }
        Fault::NotValidForName | Fault::NotValidForNameContext { .. } => {
            return format!(
                "{}: add the name or the address by which it is reached to its subjectAltName",
                printable(error)
            );
        }
        Fault::UnknownIssuer | Fault::BadSignature => {
            "it is not signed by any CA that this client trusts: give it the certificate of the CA that signed it"
        }
        Fault::InvalidPurpose | Fault::InvalidPurposeContext { .. } => {
            "it is made for another purpose: its extendedKeyUsage must have serverAuth"
        }
        Fault::UnsupportedSignatureAlgorithmContext { .. }
        | Fault::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "it, or that of its CA, is signed in a way that is not supported, such as SHA-1 or P-521: sign it with \
             SHA-256 and a key of RSA, P-256, P-384 or Ed25519"
        }
        _ => return printable(error),
    };
    words.to_owned()
}

/// `name` is that of a fault that rustls passes on from `webpki`.
fn other_fault(name: &str) -> String {
    let words = match name {
        "CaUsedAsEndEntity" => {
            "it is that of a CA (CA:TRUE), as `openssl req -x509` makes one: make it with -addext \
             basicConstraints=critical,CA:FALSE, or let a CA sign another one"
        }
        "UnsupportedCertVersion" => {
            "it is of X.509 version 1: make one of version 3 (openssl x509 -req with -extfile)"
        }
        "EndEntityUsedAsCa" => {
            "a certificate in its chain is not that of a CA (CA:TRUE is missing): let a CA sign it"
        }
        _ => return apart(name),
    };
    words.to_owned()
}

/// The words of a name such as `PathLenConstraintViolated`.
fn apart(name: &str) -> String {
    let mut words = String::new();
    for letter in printable(name).chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[test]
    fn a_fault_without_words_of_its_own_is_told_in_those_of_its_name() {
        let other = |name: &str| {
            let inner: Box<dyn std::error::Error + Send + Sync> = name.into();
            fault_of(&CertificateError::Other(OtherError(Arc::from(inner))))
        };
        assert_eq!(
            other("PathLenConstraintViolated"),
            "path len constraint violated"
        );
        assert!(other("CaUsedAsEndEntity").contains("CA:FALSE"));
    }
}
