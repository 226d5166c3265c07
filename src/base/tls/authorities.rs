//! The authorities whose signature on a server's certificate counts: given certificates, or those of the system.

use std::{env, error::Error as _, ffi::OsString, path::Path, sync::Arc};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use rustls_native_certs::{CertificateResult, load_certs_from_paths};

#[cfg(feature = "tls-rustls")]
use crate::base::files::read_regular;
use crate::base::{files::open_regular, printable::printable};

const FILE: &str = "SSL_CERT_FILE";
const NO_CERTIFICATE: &str = "it holds no certificate: give the PEM itself (`-----BEGIN CERTIFICATE-----`), not the \
     path of a file";
const DIRECTORIES: &str = "SSL_CERT_DIR";

/// The certificates of certificate authorities: at least one.
#[derive(Clone)]
pub(crate) struct Authorities(Arc<RootCertStore>);

impl Authorities {
    /// Reads PEM. One certificate that cannot be used is an error even beside others, because it was given for a
    /// reason. Nothing of the text is shown, because it may hold a key.
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
            true => Err(NO_CERTIFICATE),
        }
    }

    /// Reads a file with PEM.
    #[cfg(feature = "tls-rustls")]
    pub(crate) fn in_file(path: &Path) -> Result<Self, String> {
        let pem = read_regular(path).map_err(|error| {
            format!("the file {path:?} with the CA's certificate cannot be read: {error}")
        })?;
        Self::of(&pem).map_err(|why| match why {
            NO_CERTIFICATE => format!("the file {path:?} holds no certificate in PEM"),
            _ => format!("the file {path:?}: {why}"),
        })
    }

    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        Arc::clone(&self.0)
    }
}

/// The authorities that `SSL_CERT_FILE` and `SSL_CERT_DIR` name. If neither names any, those that the system trusts.
pub(super) fn system_roots() -> Result<RootCertStore, String> {
    let (file, directories) = (env::var_os(FILE), env::var_os(DIRECTORIES));
    if let Some(roots) = named_roots(file, directories)? {
        return Ok(roots);
    }
    let mut roots = RootCertStore::empty();
    take(rustls_native_certs::load_native_certs(), &mut roots).map_err(|why| {
        format!(
            "no root certificates were found on this machine ({why}): install the system's, or name the CA's file in \
             {FILE}"
        )
    })?;
    Ok(roots)
}

/// The certificates that the two variables name. `None` if neither is set; an empty variable counts as not set. A
/// variable that leads to no certificate is an error even if the other one is right, because it was set for a reason.
fn named_roots(
    file: Option<OsString>,
    directories: Option<OsString>,
) -> Result<Option<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    let wrong = |variable, value: &OsString, why| {
        format!("{variable} names {value:?}, but no certificate was found there: {why}")
    };
    let is_set = |value: &OsString| !value.is_empty();
    if let Some(file) = file.filter(is_set) {
        let opened = open_regular(Path::new(&file));
        opened.map_err(|error| wrong(FILE, &file, error.to_string()))?;
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

/// Adds the certificates that can be used. It is an error if there are none.
fn take(found: CertificateResult, roots: &mut RootCertStore) -> Result<(), String> {
    match roots.add_parsable_certificates(found.certs) {
        (0, _) => Err(match found.errors.first() {
            Some(error) => printable(
                error
                    .source()
                    .map_or(error.to_string(), ToString::to_string),
            ),
            None => "no certificate in PEM format".into(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {

    use std::fs;

    use super::*;
    use crate::node::redis::support::tls::certificates;

    fn named(file: Option<&Path>, directories: Option<&str>) -> Result<Option<usize>, String> {
        let roots = named_roots(file.map(Into::into), directories.map(Into::into))?;
        Ok(roots.map(|roots| roots.len()))
    }

    #[test]
    fn a_variable_that_leads_to_no_certificate_is_reported() {
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
            ("none", "it is not a regular file"),
            ("empty.pem", "no certificate in PEM format"),
            ("text.pem", "no certificate in PEM format"),
            ("broken.pem", ""),
            ("strange.pem", "no certificate in PEM format"),
        ] {
            let text = named(Some(&at(name)), None).unwrap_err();
            let start = format!(
                "SSL_CERT_FILE names {:?}, but no certificate was found there: {why}",
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
            ("none", "no certificate in PEM format"),
            ("empty.pem", "Not a directory"),
        ] {
            // This holds also beside a file that is right.
            let text = named(Some(&files.ca), Some(&directory(name))).unwrap_err();
            let start = format!(
                "SSL_CERT_DIR names {:?}, but no certificate was found there: {why}",
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
