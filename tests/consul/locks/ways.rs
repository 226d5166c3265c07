//! The ways to reach an agent: TLS, a Unix socket, and the variables of Consul's own tools.

use quorate::{
    Error,
    consul::{Consul, Tls},
};

use super::*;
use crate::support::{again, tls::certificates};

async fn works(consul: &Consul) {
    let lease = consul.mutex("ways/a b?#%").lock().await.unwrap();
    let waits = tokio::spawn(consul.mutex("ways/a b?#%").lock());
    tokio::time::sleep(ms(300)).await;
    lease.release().await.unwrap();
    waits.await.unwrap().unwrap().release().await.unwrap();
    let permit = consul.semaphore("ways/ü", 2).acquire().await.unwrap();
    permit.release().await.unwrap();
    assert!(consul.shutdown().await.is_empty());
}

#[tokio::test]
async fn tls_works_with_a_private_authority_and_a_client_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let files = certificates(directory.path());
    let read = |path| std::fs::read(path).unwrap();
    let agent = Agent::with().tls(&files).start();
    let builder = || Consul::builder().url(agent.tls_url());
    let trusts = || Tls::new().ca_certificates(read(&files.ca));
    works(&builder().tls(trusts()).connect().await.unwrap()).await;
    works(
        &builder()
            .tls(Tls::new().danger_accept_any_certificate())
            .connect()
            .await
            .unwrap(),
    )
    .await;
    let error = builder().connect().await.unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let plain = Consul::connect(agent.tls_url().replace("https", "http"))
        .await
        .unwrap_err();
    assert!(matches!(plain, Error::NoQuorum(_)), "{plain}");
    nothing_is_left(&agent).await;

    let strict = Agent::with().tls(&files).asks_for_certificates().start();
    let builder = || Consul::builder().url(strict.tls_url());
    assert!(builder().tls(trusts()).connect().await.is_err());
    let known = trusts().client_certificate(read(&files.cert), read(&files.key));
    works(&builder().tls(known).connect().await.unwrap()).await;
    for bad in [
        Tls::new().ca_certificates("no PEM"),
        trusts().client_certificate("no PEM", "no PEM"),
        trusts().client_certificate(read(&files.ca), read(&files.key)),
    ] {
        let error = builder().tls(bad).connect_lazy().unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }
}

#[tokio::test]
async fn a_socket_and_a_prefix() {
    let agent = Agent::with().socket().start();
    let url = format!("unix://{}", agent.socket().display());
    let consul = Consul::builder()
        .url(&url)
        .prefix("locks/team")
        .connect()
        .await
        .unwrap();
    let lease = consul.mutex("a").lock().await.unwrap();
    assert_eq!(lease.name(), "a");
    assert_eq!(agent.keys(""), ["locks/team/a/.lock"]);
    lease.release().await.unwrap();
    works(&consul).await;
    agent.kill9();
    let error = Consul::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("unreachable"), "{error}");
}

/// Returns true if the client works with these variables. It runs in a process of its own, because the environment
/// belongs to the whole process.
fn works_with(variables: &[(&str, &str)]) -> bool {
    let output = again(module_path!(), "with_the_environment")
        .arg("--ignored")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{variables:?}: {said}");
    assert!(said.contains("1 passed") || said.contains("1 failed"));
    output.status.success()
}

#[tokio::test]
async fn the_variables_of_consuls_tools() {
    let agent = Agent::with().acl().start();
    let rules = r#"key_prefix "" { policy = "write" } session_prefix "" { policy = "write" }"#;
    let token = agent.token(rules);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let address = agent.address();
    for variable in [
        ("CONSUL_HTTP_TOKEN", token.as_str()),
        ("CONSUL_HTTP_TOKEN_FILE", file.to_str().unwrap()),
    ] {
        assert!(works_with(&[("CONSUL_HTTP_ADDR", &address), variable]));
    }
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn the_variables_of_consuls_tools_for_tls() {
    let directory = tempfile::tempdir().unwrap();
    let files = certificates(directory.path());
    let agent = Agent::with().tls(&files).asks_for_certificates().start();
    let url = agent.tls_url();
    let plain = url.trim_start_matches("https://");
    let ca = ("CONSUL_CACERT", files.ca.to_str().unwrap());
    let cert = ("CONSUL_CLIENT_CERT", files.cert.to_str().unwrap());
    let key = ("CONSUL_CLIENT_KEY", files.key.to_str().unwrap());
    let tls = ("CONSUL_HTTP_SSL", "true");
    let [by_url, by_address] = [&*url, plain].map(|address| ("CONSUL_HTTP_ADDR", address));
    assert!(works_with(&[by_url, ca, cert, key]));
    assert!(works_with(&[by_address, tls, ca, cert, key]));
    assert!(!works_with(&[by_url, ca]), "it asks for a certificate");
    assert!(
        !works_with(&[by_url, cert, key]),
        "nobody knows its authority"
    );
    nothing_is_left(&agent).await;
}

#[tokio::test]
#[ignore = "a process of the tests above"]
async fn with_the_environment() {
    works(&Consul::from_env().await.unwrap()).await;
}
