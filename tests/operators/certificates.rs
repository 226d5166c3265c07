//! `ca_certificates`: the authorities that the connections of one quorum trust.

use std::{path::Path, time::Duration};

use crate::support::{
    Kind, Server, ServerOptions,
    tls::{Certificates, certificates},
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
