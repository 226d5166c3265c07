//! `client_certificate` and `client_certificate_files`: the certificate that a client shows to a master, and how each
//! kind of wrong certificate is told.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use super::certificates::refused;
use crate::support::{
    Fleet, HANG, Kind, Server, ServerOptions,
    tls::{Certificates, ClientFiles, certificates, client_certificate, signed},
};
use quorate::{Builder, Error, Quorum};
use tempfile::TempDir;
use tokio::time::sleep;

/// An authority, its files, and what a server that asks for clients' certificates needs.
struct Authority {
    dir: TempDir,
    files: Certificates,
}

impl Authority {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let files = certificates(dir.path());
        Self { dir, files }
    }

    fn client(&self, name: &str) -> ClientFiles {
        client_certificate(self.dir.path(), name, "client", 2)
    }

    fn options(&self) -> ServerOptions {
        let options = ServerOptions::new(Kind::Redis).tls(&self.files);
        options.config("tls-auth-clients yes")
    }

    fn ca(&self) -> Vec<u8> {
        fs::read(&self.files.ca).unwrap()
    }

    fn builder(&self, servers: &[Server]) -> Builder {
        let builder = Quorum::builder().nodes(servers.iter().map(Server::url));
        builder
            .ca_certificates(self.ca())
            .connect_timeout(Duration::from_secs(3))
    }
}

fn shown(builder: Builder, files: &ClientFiles) -> Builder {
    let (cert, key) = (
        fs::read(&files.cert).unwrap(),
        fs::read(&files.key).unwrap(),
    );
    builder.client_certificate(cert, key)
}

async fn admitted(quorum: &Quorum) {
    quorum.bootstrap_forced().await.unwrap();
    let lease = quorum.mutex("a").lock().await.unwrap();
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_asks_for_a_certificate_serves_a_client_that_has_one() {
    let authority = Authority::new();
    let server = [authority.options().start()];
    let files = authority.client("client");
    let quorum = shown(authority.builder(&server), &files).connect().await;
    admitted(&quorum.unwrap()).await;
    let from_files = authority.builder(&server);
    let from_files = from_files.client_certificate_files(&files.cert, &files.key);
    admitted(&from_files.connect().await.unwrap()).await;
    // The last call counts.
    let stranger = Authority::new();
    let builder = shown(authority.builder(&server), &stranger.client("stranger"));
    let builder = builder.client_certificate_files(&files.cert, &files.key);
    admitted(&builder.connect().await.unwrap()).await;
    let builder = authority
        .builder(&server)
        .client_certificate_files("/nowhere", "/nowhere");
    admitted(&shown(builder, &files).connect().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_wrong_certificate_is_told_in_words() {
    let authority = Authority::new();
    let server = [authority.options().start()];
    let none = refused(authority.builder(&server)).await;
    assert!(
        none.contains("asks for a TLS certificate of this client")
            && none.contains("QUORATE_CLIENT_CERT"),
        "{none}"
    );
    let stranger = Authority::new();
    let expired = client_certificate(authority.dir.path(), "expired", "client", -1);
    let other = client_certificate(authority.dir.path(), "other", "other", 2);
    for (files, says) in [
        (
            stranger.client("stranger"),
            "does not trust the CA that signed it",
        ),
        (expired, "it has expired"),
        (other, "not made for clients"),
    ] {
        let why = refused(shown(authority.builder(&server), &files)).await;
        let starts = why.starts_with("it refuses the TLS certificate of this client: ");
        assert!(starts && why.contains(says), "{why}");
    }
    // The client trusts nobody who signed the server's certificate: that is told as before.
    let builder = authority.builder(&server).ca_certificates(stranger.ca());
    let why = refused(shown(builder, &authority.client("right"))).await;
    assert!(
        why.contains("not signed by any CA in ca_certificates"),
        "{why}"
    );
}

#[tokio::test]
async fn a_pair_that_cannot_be_used_is_invalid_and_its_key_is_not_shown() {
    let authority = Authority::new();
    let (one, two) = (authority.client("one"), authority.client("two"));
    let read = |path: &Path| fs::read_to_string(path).unwrap();
    let (cert, key) = (read(&one.cert), read(&one.key));
    let p521 = signed(authority.dir.path(), "p521", "secp521r1", "client", 2);
    let version_1 = signed(authority.dir.path(), "v1", "prime256v1", "", 2);
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIH=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let cases = [
        (cert.clone(), read(&two.key), "do not belong together"),
        (String::new(), key.clone(), "holds no certificate"),
        (key.clone(), cert.clone(), "holds no certificate"),
        (cert.clone(), cert.clone(), "holds no private key"),
        (cert.clone(), encrypted.to_owned(), "the key is encrypted"),
        (
            read(&p521.cert),
            read(&p521.key),
            "the key cannot be used: it must be RSA",
        ),
        (
            read(&version_1.cert),
            read(&version_1.key),
            "it is of X.509 version 1",
        ),
        (
            cert[..cert.len() / 2].to_owned(),
            key.clone(),
            "not valid PEM",
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (n, (cert, key, says)) in cases.into_iter().enumerate() {
        let (of_cert, of_key) = (
            dir.path().join(format!("{n}.crt")),
            dir.path().join(format!("{n}.key")),
        );
        fs::write(&of_cert, &cert).unwrap();
        fs::write(&of_key, &key).unwrap();
        let secret = key.lines().nth(1).unwrap_or("none at all").to_owned();
        let builder = || Quorum::builder().node("rediss://127.0.0.1:1");
        let texts = builder().client_certificate(cert, key).connect_lazy();
        let files = builder()
            .client_certificate_files(&of_cert, &of_key)
            .connect_lazy();
        for (result, name) in [
            (texts, "client_certificate: "),
            (files, "client_certificate_files: "),
        ] {
            let Err(Error::Invalid(why)) = result else {
                panic!("{says}: {result:?}")
            };
            assert!(why.starts_with(name) && why.contains(says), "{why}");
            assert!(!why.contains(&secret[..4]), "{why}");
        }
    }
    let missing = Quorum::builder().node("rediss://127.0.0.1:1");
    let missing = missing.client_certificate_files("/nowhere/tls.crt", &one.key);
    let Err(Error::Invalid(why)) = missing.connect_lazy() else {
        panic!("it was found")
    };
    assert!(
        why.contains("\"/nowhere/tls.crt\" cannot be read: No such file"),
        "{why}"
    );
}

/// Renews the pair at `to` as cert-manager does: by replacing one file after the other.
fn renew(to: &ClientFiles, from: &ClientFiles) {
    for (to, from) in [(&to.cert, &from.cert), (&to.key, &from.key)] {
        let new = to.with_extension("new");
        fs::copy(from, &new).unwrap();
        fs::rename(&new, to).unwrap();
    }
}

/// Ends all connections of clients with a certificate.
fn kill_connections(server: &Server) {
    server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]);
}

async fn all_vote(quorum: &Quorum) {
    let deadline = Instant::now() + HANG;
    while quorum.health().voting < quorum.nodes().len() {
        assert!(Instant::now() < deadline, "{:?}", quorum.nodes());
        sleep(Duration::from_millis(20)).await;
    }
}

/// The certificates of a fleet are renewed under load, and at last those of the authority itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_files_are_used_by_the_next_connection_and_no_lease_is_lost() {
    let authority = Authority::new();
    let fleet = Fleet::start_with(3, authority.options());
    let first = authority.client("client");
    let shown = ClientFiles {
        cert: authority.dir.path().join("shown.crt"),
        key: authority.dir.path().join("shown.key"),
    };
    renew(&shown, &first);
    let builder = authority.builder(&fleet);
    let builder = builder.client_certificate_files(&shown.cert, &shown.key);
    let quorum = builder.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let mut leases = Vec::new();
    for n in 0..100 {
        leases.push(quorum.mutex(format!("held-{n}")).lock().await.unwrap());
    }
    let sections = Arc::new(AtomicU64::new(0));
    let worker = {
        let (mutex, sections) = (quorum.mutex("busy"), Arc::clone(&sections));
        tokio::spawn(async move {
            loop {
                if let Ok(lease) = mutex.lock().await
                    && lease.release().await.is_ok()
                {
                    sections.fetch_add(1, Relaxed);
                }
            }
        })
    };
    // New pairs of the same authority, with connections that end while one file is new and the other is old.
    for round in 0..5 {
        let next = authority.client(&format!("client-{round}"));
        fs::copy(&next.cert, &shown.cert).unwrap();
        for server in &*fleet {
            kill_connections(server);
        }
        sleep(Duration::from_millis(40)).await;
        fs::copy(&next.key, &shown.key).unwrap();
        all_vote(&quorum).await;
    }
    // Files that cannot be used: the last pair is shown, and noted.
    fs::write(&shown.key, "garbage").unwrap();
    kill_connections(&fleet[0]);
    let deadline = Instant::now() + HANG;
    let noted = |note: &Option<String>| {
        let note = note.as_deref().unwrap_or_default();
        note.contains("an older client certificate") && note.contains("shown.key")
    };
    while !noted(&quorum.nodes()[0].note) {
        assert!(Instant::now() < deadline, "{:?}", quorum.nodes());
        sleep(Duration::from_millis(20)).await;
    }
    all_vote(&quorum).await;
    // Another authority for clients: the old pair is refused, and the new one is taken without a restart.
    let next = Authority::new();
    let ca = next.files.ca.display().to_string();
    for server in &*fleet {
        server.cmd(&["CONFIG", "SET", "tls-ca-cert-file", &ca]);
    }
    kill_connections(&fleet[0]);
    let deadline = Instant::now() + HANG;
    let refusal = "it does not trust the CA that signed it";
    while !quorum.nodes()[0].state.to_string().contains(refusal) {
        assert!(Instant::now() < deadline, "{:?}", quorum.nodes());
        sleep(Duration::from_millis(20)).await;
    }
    renew(&shown, &next.client("client"));
    for server in &*fleet {
        kill_connections(server);
    }
    let deadline = Instant::now() + HANG;
    while quorum.nodes()[0].note.is_some() {
        assert!(Instant::now() < deadline, "{:?}", quorum.nodes());
        sleep(Duration::from_millis(20)).await;
    }
    all_vote(&quorum).await;
    worker.abort();
    let sections = sections.load(Relaxed);
    assert!(sections > 20, "only {sections} sections");
    for lease in leases {
        assert!(lease.is_valid(), "{}", lease.name());
        lease.release().await.unwrap();
    }
}

/// Reading a FIFO would hang until somebody writes to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_became_fifos_are_told_and_the_last_pair_is_shown() {
    let authority = Authority::new();
    let server = [authority.options().start()];
    let files = authority.client("client");
    let builder = authority.builder(&server);
    let builder = builder.client_certificate_files(&files.cert, &files.key);
    let quorum = builder.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    fs::remove_file(&files.cert).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(&files.cert)
        .status();
    assert!(made.unwrap().success());
    kill_connections(&server[0]);
    let noted = || quorum.nodes()[0].note.clone().unwrap_or_default();
    let deadline = Instant::now() + HANG;
    while !noted().contains("cannot be read: it is not a regular file") {
        assert!(Instant::now() < deadline, "{:?}", quorum.nodes());
        sleep(Duration::from_millis(20)).await;
    }
    all_vote(&quorum).await;
    let builder = authority.builder(&server);
    let builder = builder.client_certificate_files(&files.cert, &files.key);
    let Err(Error::Invalid(why)) = builder.connect_lazy() else {
        panic!("it was read")
    };
    assert!(why.contains("it is not a regular file"), "{why}");
}
