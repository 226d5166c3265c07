use std::{
    path::Path,
    task::{Poll, ready},
};

use super::*;
use crate::node::answer::Answer;
use crate::{
    base::tls::{Authorities, Trust},
    node::redis::{
        TlsSettings,
        support::{
            again,
            tls::{Certificates, certificates},
        },
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
    let authorities = Authorities::of(&std::fs::read(ca).unwrap()).unwrap();
    tls.set(&TlsSettings {
        trust: Some(Trust::Only(authorities)),
        ..TlsSettings::default()
    });
    if let Some(name) = expected {
        tls.name = name.try_into().unwrap();
    }
    address
}

#[tokio::test]
async fn a_tls_connection_is_encrypted_and_verified() {
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
    // This is more than TLS takes at once.
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
        why.starts_with("its TLS certificate is not signed by any CA in ca_certificates"),
        "{why}"
    );
}

#[tokio::test]
async fn a_server_that_asks_for_a_client_certificate_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = tls_server(dir.path(), "tls-auth-clients yes");
    let why = refused(&format!("{}#insecure", server.url())).await;
    assert!(why.contains("tls-auth-clients no"), "{why}");
}

#[tokio::test]
async fn a_plain_port_taken_for_tls_or_the_reverse_names_the_scheme() {
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
    let dialled = dial(&address, None, keys, &CHANNEL.into(), limit).await;
    let why = dialled.err().unwrap();
    let (Refused(text) | Unreachable(text)) = &why;
    assert!(text.contains("use redis://"), "{why:?}");
}

#[tokio::test]
async fn files_that_hang_are_told_and_not_taken_for_a_plain_port() {
    let dir = tempfile::tempdir().unwrap();
    let (server, _) = tls_server(dir.path(), "");
    let mut address = address(&server.url());
    let Endpoint::Tls { tls, .. } = &mut address.endpoint else {
        panic!("{}", server.url())
    };
    let settings = TlsSettings::default();
    tls.set(&settings);
    let (go_on, hangs) = std::sync::mpsc::channel::<()>();
    let other = settings.files.clone();
    let other = tokio::spawn(async move { other.run(move || hangs.recv()).await });
    tokio::task::yield_now().await;
    let limit = Duration::from_secs(2);
    let keys = Arc::new(Keys::new("quorate"));
    let dialled = dial(&address, None, keys, &CHANNEL.into(), limit).await;
    let why = dialled.err().unwrap();
    let Unreachable(text) = &why else {
        panic!("{why:?}")
    };
    assert!(
        text.contains("the files with certificates") && text.contains("were not read within 2"),
        "{text}"
    );
    drop(go_on);
    let _ = other.await.unwrap().unwrap();
}

/// The variable counts for a whole process, so another process reads it.
#[tokio::test]
async fn ssl_cert_file_replaces_the_systems_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let (server, files) = tls_server(dir.path(), "");
    let elsewhere = tempfile::tempdir().unwrap();
    let stranger = certificates(elsewhere.path());
    let (empty, fifo) = (dir.path().join("empty.pem"), dir.path().join("fifo"));
    std::fs::write(&empty, "").unwrap();
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    for (ca, outcome) in [
        (&files.ca, "outcome: greeted"),
        (
            &stranger.ca,
            "outcome: Refused(\"its TLS certificate is not signed by any CA that this machine trusts",
        ),
        (&empty, "outcome: Refused(\"SSL_CERT_FILE names "),
        (
            &fifo,
            "no certificate was found there: it is not a regular file",
        ),
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
#[ignore = "started by ssl_cert_file_replaces_the_systems_certificates"]
async fn child() {
    if let Ok(url) = std::env::var("QUORATE_TEST_DIAL") {
        match dialled(&address(&url)).await {
            Ok(_) => println!("outcome: greeted"),
            Err(why) => println!("outcome: {why:?}"),
        }
    }
}
