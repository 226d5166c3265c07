//! `ca_certificates`: the authorities that the connections of one quorum trust.

use std::{path::Path, time::Duration};

use crate::support::{
    Kind, Server, ServerOptions,
    tls::{Certificates, certificates, self_signed, signed},
};
use quorate::{Builder, Error, NodeState, Quorum};

/// A server with a certificate from a CA of its own.
fn server(dir: &Path) -> (Server, Certificates) {
    let files = certificates(dir);
    let server = ServerOptions::new(Kind::Redis).tls(&files).start();
    (server, files)
}

fn builder(server: &Server) -> Builder {
    let builder = Quorum::builder().node(server.url());
    builder.connect_timeout(Duration::from_secs(3))
}

/// The reason why the only node is not reached.
pub(super) async fn refused(builder: Builder) -> String {
    let quorum = builder.connect_lazy().unwrap();
    let error = quorum.ready().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    match &quorum.nodes()[0].state {
        NodeState::Refused(why) => why.clone(),
        other => panic!("{other}"),
    }
}

fn invalid(pem: impl AsRef<[u8]>) -> String {
    let builder = Quorum::builder().node("rediss://127.0.0.1:1");
    match builder.ca_certificates(pem).connect_lazy() {
        Err(Error::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_quorum_trusts_its_own() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ((server, ours), (other, theirs)) = (server(one.path()), server(two.path()));
    let (our_ca, their_ca) = (
        std::fs::read(&ours.ca).unwrap(),
        std::fs::read_to_string(&theirs.ca).unwrap(),
    );

    let quorum = builder(&server).ca_certificates(&our_ca).connect().await;
    let quorum = quorum.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let lease = quorum.mutex("a").lock().await.unwrap();
    lease.release().await.unwrap();

    // In the same process, the CA of the other server, and the system's.
    let why = refused(builder(&server).ca_certificates(&their_ca)).await;
    assert!(
        why.contains("not signed by any CA in ca_certificates"),
        "{why}"
    );
    let why = refused(builder(&server)).await;
    assert!(
        why.contains("not signed by any CA that this machine trusts")
            && why.contains("ca_certificates"),
        "{why}"
    );

    // Several certificates in one text, with other text and a key among them.
    let key = std::fs::read_to_string(&ours.key).unwrap();
    let our_text = String::from_utf8(our_ca).unwrap();
    let both = format!("# ours\n{our_text}{key}\n{their_ca}");
    for server in [&server, &other] {
        let reached = builder(server).ca_certificates(&both).connect().await;
        assert!(reached.is_ok(), "{reached:?}");
    }
    // The last call counts.
    let builder = builder(&other).ca_certificates(&their_ca);
    refused(builder.ca_certificates(&our_text)).await;
}

/// A quorum of one server with these files. It trusts their CA.
fn with_files(files: &Certificates, line: &str) -> (Server, Builder) {
    let options = ServerOptions::new(Kind::Redis).tls(files);
    let server = options.config(line).start();
    let builder = builder(&server).ca_certificates(std::fs::read(&files.ca).unwrap());
    (server, builder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_wrong_server_certificate_is_told_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    certificates(dir);
    let p256 = "prime256v1";
    let (one_two, both) = ("tls-protocols \"TLSv1.2\"", "");
    let p521 = signed(dir, "p521", "secp521r1", "server", 2);
    for (files, line, says) in [
        (
            self_signed(dir, "self", "self_signed"),
            both,
            &["(CA:TRUE)", "CA:FALSE"][..],
        ),
        (
            signed(dir, "old", p256, "", 2),
            both,
            &["X.509 version 1", "version 3"],
        ),
        (p521.clone(), both, &["no algorithm in common", "P-256"]),
        (p521, one_two, &["no algorithm in common", "P-256"]),
        (
            signed(dir, "elsewhere", p256, "elsewhere", 2),
            both,
            &["redis.internal", "subjectAltName", "QUORATE_SERVER_NAME"],
        ),
        (
            signed(dir, "expired", p256, "server", -1),
            both,
            &["it has expired: renew it"],
        ),
        (
            signed(dir, "client", p256, "client", 2),
            both,
            &["extendedKeyUsage must have serverAuth"],
        ),
    ] {
        let (_server, builder) = with_files(&files, line);
        let why = refused(builder).await;
        for words in says {
            assert!(why.contains(words), "no {words:?} in {why}");
        }
        let misleads = why.contains("QUORATE_CLIENT_CERT") || why.contains("OtherError");
        assert!(!misleads, "{why}");
    }
    // The advice for the first one is right.
    let (_server, builder) = with_files(&self_signed(dir, "leaf", "leaf"), "");
    builder.connect().await.unwrap();
    // A server of TLS 1.2 that asks for a certificate says no more than one with P-521.
    let files = signed(dir, "asks", p256, "server", 2);
    let line = format!("tls-auth-clients yes\n{one_two}");
    let why = refused(with_files(&files, &line).1).await;
    assert!(
        why.contains("asks for a TLS certificate of this client"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_name_replaces_the_address_in_the_check_of_certificates() {
    let dir = tempfile::tempdir().unwrap();
    certificates(dir.path());
    let files = signed(dir.path(), "elsewhere", "prime256v1", "elsewhere", 2);
    let (server, right) = with_files(&files, "");
    let quorum = right.server_name("redis.internal").connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    assert!(quorum.mutex("a").try_lock().await.unwrap().is_some());
    let ca = std::fs::read(&files.ca).unwrap();
    let wrong = builder(&server)
        .ca_certificates(&ca)
        .server_name("redis.example");
    let why = refused(wrong).await;
    assert!(why.contains("redis.example"), "{why}");
    for name in ["", "a b", "redis://u:hunter2@h"] {
        let error = builder(&server)
            .server_name(name)
            .connect_lazy()
            .unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, Error::Invalid(_)) && text.contains("server_name"),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn text_that_is_not_a_certificate_is_invalid() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificates(dir.path());
    let ca = std::fs::read_to_string(&files.ca).unwrap();
    let key = std::fs::read_to_string(&files.key).unwrap();
    let bad = |inside: &str| {
        format!("-----BEGIN CERTIFICATE-----\n{inside}\n-----END CERTIFICATE-----\n")
    };
    let none = "ca_certificates: it holds no certificate: give the PEM itself";
    let unreadable = "ca_certificates: a certificate in it cannot be read";
    let broken = "ca_certificates: it is not valid PEM";
    for (pem, says) in [
        (String::new(), none),
        ("/etc/redis/ca.crt".into(), none),
        (key.clone(), none),
        (bad("aGVsbG8="), unreadable),
        (bad("!"), broken),
        (format!("{ca}{}", bad("aGVsbG8=")), unreadable),
        (ca[..ca.len() / 2].to_owned(), broken),
    ] {
        let why = invalid(&pem);
        assert!(why.starts_with(says), "{why}: {pem}");
        let secret = key.lines().nth(1).unwrap();
        assert!(!why.contains(&secret[..4]), "{why}");
    }
    // DER is not accepted as PEM.
    assert!(invalid([0x30, 0x82, 0x01]).starts_with(none));
}
