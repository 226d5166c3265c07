//! The certificate that connections to masters show: given once, or in files that are read for each connection.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rustls::{ClientConfig, ConfigBuilder, client::WantsClientCert};

use super::identity::Identity;
use crate::base::files::read_regular;

/// A renewal writes two files. A pair that does not fit is read again after this time.
const HALF_RENEWED: Duration = Duration::from_millis(100);

/// The files of a client's certificate and of its key. They are read for each connection, so a renewed certificate is
/// used by the next one.
pub(crate) struct IdentityFiles {
    certificates: PathBuf,
    key: PathBuf,
    /// The last pair that could be used.
    last: Mutex<Identity>,
}

impl IdentityFiles {
    /// Reads the files. The error says which file is wrong, and shows nothing of its content.
    pub(crate) fn open(certificates: &Path, key: &Path) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self {
            certificates: certificates.to_owned(),
            key: key.to_owned(),
            last: Mutex::new(read_twice(certificates, key)?),
        }))
    }

    /// The pair in the files, or the last good one with the reason why the files cannot be used.
    fn pair(&self) -> (Identity, Option<String>) {
        let read = read_twice(&self.certificates, &self.key);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let note = match read {
            Ok(pair) => {
                *last = pair;
                None
            }
            Err(why) => Some(format!(
                "it was shown an older client certificate, because {why}"
            )),
        };
        (last.clone(), note)
    }
}

fn read_twice(certificates: &Path, key: &Path) -> Result<Identity, String> {
    read(certificates, key).or_else(|_| {
        thread::sleep(HALF_RENEWED);
        read(certificates, key)
    })
}

fn read(certificates: &Path, key: &Path) -> Result<Identity, String> {
    let text = |path: &Path| {
        read_regular(path).map_err(|error| format!("the file {path:?} cannot be read: {error}"))
    };
    Identity::of(&text(certificates)?, &text(key)?)
        .map_err(|why| format!("{why} (files {certificates:?} and {key:?})"))
}

/// The certificate that a client shows if the server asks for one.
#[derive(Clone, Default)]
pub(crate) enum ClientCertificate {
    #[default]
    None,
    Fixed(Identity),
    Files(Arc<IdentityFiles>),
}

impl ClientCertificate {
    /// Returns true if [`complete`](Self::complete) reads files.
    pub(crate) fn reads_files(&self) -> bool {
        matches!(self, Self::Files(_))
    }

    /// Completes the configuration of a connection. Returns a note for operators with it, if there is one.
    pub(crate) fn complete(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> (ClientConfig, Option<String>) {
        let (identity, note) = match self {
            Self::None => return (builder.with_no_client_auth(), None),
            Self::Fixed(identity) => (identity.clone(), None),
            Self::Files(files) => files.pair(),
        };
        (identity.complete(builder), note)
    }
}

/// Shows no key.
impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCertificate")
    }
}
