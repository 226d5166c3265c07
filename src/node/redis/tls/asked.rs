//! Notes if a server asks for a certificate, for the advice when the handshake fails.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use rustls::{SignatureScheme, client::ResolvesClientCert, sign::CertifiedKey};

/// The server's answer to the certificate of this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The server did not ask for one.
    Not,
    /// It asked, and there was none.
    Missing,
    /// It asked, and one was shown.
    Shown,
}

/// Passes a server's wish for a certificate on.
#[derive(Debug)]
pub(crate) struct Asked {
    resolver: Arc<dyn ResolvesClientCert>,
    was_asked: AtomicBool,
}

impl Asked {
    pub(crate) fn new(resolver: Arc<dyn ResolvesClientCert>) -> Self {
        let was_asked = AtomicBool::new(false);
        Self {
            resolver,
            was_asked,
        }
    }

    pub(crate) fn answer(&self) -> Wanted {
        match (self.was_asked.load(Relaxed), self.resolver.has_certs()) {
            (false, _) => Wanted::Not,
            (true, false) => Wanted::Missing,
            (true, true) => Wanted::Shown,
        }
    }
}

impl ResolvesClientCert for Asked {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.was_asked.store(true, Relaxed);
        self.resolver.resolve(issuers, schemes)
    }

    fn only_raw_public_keys(&self) -> bool {
        self.resolver.only_raw_public_keys()
    }

    fn has_certs(&self) -> bool {
        self.resolver.has_certs()
    }
}
