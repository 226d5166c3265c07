use std::{
    path::Path,
    task::{Poll, ready},
};

use super::*;
use crate::node::answer::Answer;
use crate::{
    base::tls::Authorities,
    node::redis::support::{
        again,
        tls::{Certificates, certificates},
    },
};

fn tls_server(dir: &Path, line: &str) -> (Server, Certificates) {
    let files = certificates(dir);
    (
        ServerOptions::new(Kind::Redis)
            .password("sesame")
            .tls(&files)
            .config(line)
            .start(),
        files,
    )
}

fn trusting(url: &str, ca: &Path, expected: Option<&'static str>) -> Address {
    let mut address = address(url);
    let Endpoint::Tls { tls, .. } = &mut address.endpoint else {
        panic!("{url}")
    };
    tls.trust(&Authorities::of(&std::fs::read(ca).unwrap()).unwrap());
    if let Some(name) = expected {
        tls.name = name.try_into().unwrap();
    }
    address
}

#[tokio::test]
async fn encrypted_and_verified() {
    let dir = tempfile::tempdir().unwrap();
    let (server, files) = tls_server(dir.path(), "");
    let localhost = server.url().replace("127.0.0.1", "localhost");
    for (url, name) in [
        (server.url(), None),
        (server.url(), Some("localhost")),
        (localhost, None),
    ] {
        let mut connection = dialled(&trusting(&url, &files.ca, name)).await.unwrap();
        let answer = ask(
            &mut *connection,
            Command::Admission(admission::Command::Survey),
        )
        .await;
        assert_eq!(
            answer,
            Ok(Answer::Admission(admission::Reply::Surveyed {
                used: false,
                lock: None
            }))
        );
    }
    let insecure = format!("{}/#insecure", server.url());
    let mut connection = connected(&insecure).await;
    // More than TLS takes at once.
    let survey = Operation::new(admission::Command::Survey);
    for _ in 0..5_000 {
        connection.send(Arc::clone(&survey), Arc::default());
    }
    let mut answers = 0;
    poll_fn(|cx| {
        if let Poll::Ready(flushed) = connection.poll_flush(cx) {
            flushed.unwrap();
        }
        while answers < 5_000 {
            let answer = ready!(connection.poll_incoming(cx)).unwrap();
            assert_eq!(
                answer,
                Incoming::Answer(Ok(Answer::Admission(admission::Reply::Surveyed {
                    used: false,
                    lock: None
                })))
            );
            answers += 1;
        }
        Poll::Ready(())
    })
    .await;

    let DialError::Refused(why) =
        fails(&trusting(&server.url(), &files.ca, Some("h.example"))).await
    else {
        panic!("reached")
    };
    assert!(
        why.starts_with("its TLS certificate is not accepted: ") && why.contains("h.example"),
        "{why}"
    );
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = certificates(elsewhere.path());
    let DialError::Refused(why) = fails(&trusting(&server.url(), &stranger.ca, None)).await else {
        panic!("reached")
    };
    assert!(
        why.starts_with("none of the certificates in ca_certificates"),
        "{why}"
    );
}

#[tokio::test]
async fn a_client_certificate_is_not_had() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = tls_server(dir.path(), "tls-auth-clients yes");
    let why = refused(&format!("{}#insecure", server.url())).await;
    assert!(why.contains("tls-auth-clients no"), "{why}");
}

#[tokio::test]
async fn plain_and_tls_confused() {
    let dir = tempfile::tempdir().unwrap();
    let (tls, _) = tls_server(dir.path(), "");
    let plain = Server::start(Kind::Redis);
    let why = fails(&address(&tls.url().replace("rediss:", "redis:"))).await;
    let (Refused(text) | Unreachable(text)) = &why;
    assert!(text.contains("use rediss://"), "{why:?}");
    let limit = Duration::from_millis(500);
    let address = address(&format!(
        "{}#insecure",
        plain.url().replace("redis:", "rediss:")
    ));
    let keys = Arc::new(Keys::new("quorate"));
    let dialled = dial(&address, keys, &CHANNEL.into(), limit).await;
    let why = dialled.err().unwrap();
    let (Refused(text) | Unreachable(text)) = &why;
    assert!(text.contains("use redis://"), "{why:?}");
}

/// The variable counts for a whole process, so a process of its own reads it.
#[tokio::test]
async fn the_systems_certificates_may_be_a_file_of_ours() {
    let dir = tempfile::tempdir().unwrap();
    let (server, files) = tls_server(dir.path(), "");
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = certificates(elsewhere.path());
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    for (ca, outcome) in [
        (&files.ca, "outcome: greeted"),
        (
            &stranger.ca,
            "outcome: Refused(\"nobody whom this machine trusts",
        ),
        (&empty, "outcome: Refused(\"SSL_CERT_FILE names "),
    ] {
        let child = again(module_path!(), "child")
            .arg("--ignored")
            .env("SSL_CERT_FILE", ca)
            .env_remove("SSL_CERT_DIR")
            .env("QUORATE_TEST_DIAL", server.url())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        assert!(said.contains(outcome), "{said}");
    }
}

#[tokio::test]
#[ignore = "started by the_systems_certificates_may_be_a_file_of_ours"]
async fn child() {
    if let Ok(url) = std::env::var("QUORATE_TEST_DIAL") {
        match dialled(&address(&url)).await {
            Ok(_) => println!("outcome: greeted"),
            Err(why) => println!("outcome: {why:?}"),
        }
    }
}
