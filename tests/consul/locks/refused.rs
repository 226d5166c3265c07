//! Errors of Consul and of settings: each says what is wrong and what to do.

use std::time::Duration;

use quorate::{Error, consul::Consul};
use serde_json::json;

use super::*;
use crate::support::MASTER;

/// Checks that the text contains all of these words.
#[track_caller]
fn says(error: &Error, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
}

#[tokio::test]
async fn a_handle_has_a_label_of_its_own_in_place_of_that_of_consul() {
    const URL: &str = "https://[fe80::1%25en0]:8080/a?b=1&c,d;e|f#g";
    let agent = Agent::start();
    let consul = Consul::builder().url(agent.url()).label("web-3");
    let consul = consul.connect().await.unwrap();
    let (mutex, pool) = (consul.mutex("nightly"), consul.semaphore("pool", 2));
    let held = mutex.clone().label(URL).lock().await.unwrap();
    assert_eq!(agent.pairs("nightly/.lock")[0].value, URL);
    let refused = mutex.clone().wait_timeout(ms(100)).lock().await;
    says(&refused.unwrap_err(), &[URL, "session"]);
    held.release().await.unwrap();
    let held = mutex.lock().await.unwrap();
    assert_eq!(agent.pairs("nightly/.lock")[0].value, "web-3");

    let permit = pool.clone().label(URL).acquire().await.unwrap();
    let entries = agent.pairs("pool/");
    assert!(entries.iter().any(|it| it.value == URL), "{entries:?}");
    drop((held, permit));

    for label in ["a b", "redis://:geheim@host"] {
        for refused in [
            mutex.clone().label(label).lock().await.map(drop),
            pool.clone().label(label).acquire().await.map(drop),
        ] {
            let error = refused.unwrap_err();
            says(&error, &["label", "1 to 128 printable"]);
            assert!(!error.to_string().contains("geheim"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_failed_wait_names_the_holder_and_its_session() {
    let agent = Agent::start();
    let consul = Consul::builder()
        .url(agent.url())
        .label("web-1:77")
        .connect()
        .await
        .unwrap();
    let held = consul.mutex("jobs/a").lock().await.unwrap();
    let session = agent.session_ids().remove(0);
    for wait in [Duration::ZERO, ms(300)] {
        let error = consul
            .mutex("jobs/a")
            .wait_timeout(wait)
            .lock()
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Held(_)));
        says(&error, &["jobs/a", "web-1:77", &session]);
        let report = error.report().unwrap();
        assert_eq!(&*report.nodes()[0].node, agent.address());
    }
    held.release().await.unwrap();
    let pool = consul.semaphore("pool", 2);
    let permits = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
    let error = pool
        .clone()
        .wait_timeout(ms(300))
        .acquire()
        .await
        .unwrap_err();
    says(&error, &["all 2 slots are taken", "web-1:77"]);
    drop(permits);
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn another_limit_is_refused_with_both_named() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let held = consul.semaphore("pool", 3).acquire().await.unwrap();
    let other = connect(&agent).await;
    let handle = other.semaphore("pool", 5);
    for error in [
        handle.try_acquire().await.unwrap_err(),
        handle.acquire().await.unwrap_err(),
    ] {
        let Error::LimitConflict(conflict) = &error else {
            panic!("{error}");
        };
        assert_eq!((conflict.asked, conflict.found), (5, 3));
        assert!(!error.is_retryable());
        says(&error, &["limit of 3", "5 was asked for"]);
    }
    held.release().await.unwrap();
    consul.shutdown().await;
    other.shutdown().await;
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn a_record_of_another_form_is_left_as_it_is() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let lock = consul.mutex("a").lock().await.unwrap();
    let error = consul.semaphore("a", 2).try_acquire().await.unwrap_err();
    assert!(matches!(error, Error::Invalid(_)));
    says(&error, &["\"a\"", "is a lock", "another name"]);
    let pool = consul.semaphore("b", 2).acquire().await.unwrap();
    says(
        &consul.mutex("b").lock().await.unwrap_err(),
        &["is a semaphore"],
    );
    for (flags, value, words) in [
        (0, "mine", "flags are 0x0"),
        (7, r#"{"Limit":2,"Holders":{}}"#, "flags are 0x7"),
        (0xe0f6_9a2b_aa41_4de0, "mine", "not a semaphore's record"),
    ] {
        agent.put("c/.lock", flags, value);
        let before = agent.pairs("c/").remove(0);
        says(
            &consul.semaphore("c", 2).acquire().await.unwrap_err(),
            &[words],
        );
        if flags != 0xe0f6_9a2b_aa41_4de0 {
            says(&consul.mutex("c").try_lock().await.unwrap_err(), &[words]);
        }
        let after = agent.pairs("c/").remove(0);
        assert_eq!(
            (after.value, after.modify_index),
            (before.value, before.modify_index)
        );
    }
    agent.delete("c/.lock");
    drop((lock, pool));
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

/// The record is overwritten while one client holds the lock and another waits.
#[tokio::test]
async fn a_record_that_becomes_another_is_noticed() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let held = consul.semaphore("a", 1).acquire().await.unwrap();
    let waits = tokio::spawn(consul.semaphore("a", 1).acquire());
    tokio::time::sleep(ms(300)).await;
    agent.put("a/.lock", 0, "mine");
    assert_eq!(held.lost().await, quorate::LossReason::Evicted);
    says(&waits.await.unwrap().unwrap_err(), &["flags are 0x0"]);
    drop(held);
    consul.shutdown().await;
    assert_eq!(agent.pairs("a/.lock").remove(0).value, "mine");
}

#[tokio::test]
async fn a_wrong_token_says_which_rights_are_needed() {
    let agent = Agent::with().acl().start();
    let with = |token: &str| Consul::builder().url(agent.url()).token(token);
    let unknown = with("b1d7f3a0-0000-0000-0000-000000000000")
        .connect()
        .await
        .unwrap_err();
    says(&unknown, &["ACL not found", "CONSUL_HTTP_TOKEN"]);
    assert!(
        !unknown.to_string().contains(&agent.address()),
        "no address in what may be shown to users"
    );
    assert!(!format!("{unknown:?}").contains("b1d7f3a0"), "and no token");
    // A missing right is reported when it is needed.
    let no_sessions = agent.token(r#"key_prefix "" { policy = "write" }"#);
    let consul = with(&no_sessions).connect_lazy().unwrap();
    says(
        &consul.mutex("a").lock().await.unwrap_err(),
        &["Permission denied", "session_prefix"],
    );
    let no_keys =
        agent.token(r#"session_prefix "" { policy = "write" } key_prefix "" { policy = "read" }"#);
    let consul = with(&no_keys).connect().await.unwrap();
    says(
        &consul.mutex("a").lock().await.unwrap_err(),
        &["Permission denied", "key_prefix"],
    );
    says(
        &consul.semaphore("a", 2).acquire().await.unwrap_err(),
        &["Permission denied", "key_prefix"],
    );
    let no_token = Consul::connect(agent.url()).await;
    if let Ok(consul) = no_token {
        says(
            &consul.mutex("a").lock().await.unwrap_err(),
            &["Permission denied"],
        );
    }
    // These rights are enough.
    let enough = agent
        .token(r#"key_prefix "jobs/" { policy = "write" } session_prefix "" { policy = "write" }"#);
    let consul = with(&enough).connect().await.unwrap();
    let lease = consul.mutex("jobs/a").lock().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    lease.release().await.unwrap();
    let lease = consul.semaphore("jobs/b", 2).acquire().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    lease.release().await.unwrap();
    consul.shutdown().await;
    assert!(!MASTER.is_empty());
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn a_missing_leader_an_absent_agent_and_a_stranger_are_told_apart() {
    let agent = Agent::with().no_leader().start();
    let error = Consul::connect(agent.url()).await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)) && error.is_retryable());
    assert!(error.retry_after().is_some());
    says(&error, &["No cluster leader", "elect"]);
    agent.kill9();
    let error = Consul::connect(agent.url()).await.unwrap_err();
    says(&error, &["unreachable", "refused"]);
    let redis = crate::support::Server::start(crate::support::Kind::Redis);
    let error = Consul::connect(format!("http://127.0.0.1:{}", redis.port()))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let consul = Consul::builder()
        .url(agent.url())
        .datacenter("dc9")
        .connect_lazy()
        .unwrap();
    agent_refuses(&consul).await;
}

async fn agent_refuses(consul: &Consul) {
    assert!(matches!(
        consul.mutex("a").lock().await,
        Err(Error::NoQuorum(_))
    ));
}

#[tokio::test]
async fn a_datacenter_and_a_namespace_that_are_not_there_are_named() {
    let agent = Agent::start();
    let consul = |builder: quorate::consul::Builder| builder.url(agent.url()).connect();
    let error = consul(Consul::builder().datacenter("dc9"))
        .await
        .unwrap_err();
    says(&error, &["No path to datacenter", ".datacenter"]);
    let error = consul(Consul::builder().namespace("team"))
        .await
        .unwrap_err();
    says(&error, &["Enterprise"]);
    let consul = consul(Consul::builder().datacenter("dc1")).await.unwrap();
    consul
        .mutex("a")
        .lock()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    consul.shutdown().await;
}

#[tokio::test]
async fn bad_settings_are_told_without_asking_consul() {
    // No agent is asked.
    let consul = Consul::builder()
        .url("http://127.0.0.1:1")
        .connect_lazy()
        .unwrap();
    let (mutex, pool) = (consul.mutex("a"), |limit| consul.semaphore("a", limit));
    let invalid = |result: Result<(), Error>, words: &[&str]| match result {
        Err(error @ Error::Invalid(_)) => says(&error, words),
        other => panic!("{other:?}"),
    };
    invalid(mutex.clone().ttl(ms(9_999)).validate(), &["9.999s", "10s"]);
    mutex.clone().ttl(ms(10_000)).validate().unwrap();
    mutex
        .clone()
        .ttl(ms(86_400_000))
        .lock_delay(ms(60_000))
        .validate()
        .unwrap();
    invalid(mutex.clone().ttl(ms(86_400_001)).validate(), &["86400s"]);
    invalid(
        mutex.clone().lock_delay(ms(60_001)).validate(),
        &["60.001s", "60s"],
    );
    invalid(pool(0).validate(), &["limit of 0"]);
    invalid(pool(8_001).validate(), &["8001", "8000"]);
    pool(8_000).validate().unwrap();
    invalid(consul.mutex("/a").validate(), &["/a"]);
    invalid(consul.mutex("").validate(), &["empty"]);
    for builder in [
        Consul::builder().url("ftp://h"),
        Consul::builder().prefix("a//b"),
        Consul::builder().label("a b"),
        Consul::builder().token("a\nb"),
        Consul::builder().request_timeout(ms(1)),
    ] {
        assert!(matches!(builder.connect_lazy(), Err(Error::Invalid(_))));
    }
}

/// Consul's own limits are those that the library checks.
#[tokio::test]
async fn eight_thousand_holders_fit_into_a_record() {
    let agent = Agent::start();
    let holders: serde_json::Map<String, serde_json::Value> = (0..7_999)
        .map(|n| (format!("00000000-0000-0000-0000-{n:012}"), true.into()))
        .collect();
    let record = json!({"Limit": 8_000, "Holders": holders}).to_string();
    agent.put("pool/.lock", 0xe0f6_9a2b_aa41_4de0, &record);
    assert_eq!(agent.pairs("pool/.lock")[0].value.len(), record.len());
    let consul = connect(&agent).await;
    // These holders are dead.
    let lease = consul.semaphore("pool", 8_000).acquire().await.unwrap();
    assert!(agent.pairs("pool/.lock")[0].value.len() < 200);
    lease.release().await.unwrap();
    let many = consul
        .semaphore("pool", 8_000)
        .acquire_many(63)
        .await
        .unwrap();
    assert_eq!(agent.sessions().len(), 63);
    many.release().await.unwrap();
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

/// A broken proxy in front of Consul: its answers say nothing about a lease.
#[tokio::test]
async fn a_page_of_a_proxy_is_not_taken_for_an_answer_of_consul() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let page = axum::Router::new().fallback(|| async {
        (
            axum::http::StatusCode::NOT_FOUND,
            "<html>no such page</html>",
        )
    });
    let server = tokio::spawn(async { axum::serve(listener, page).await });
    let error = Consul::connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)));
    says(&error, &["cannot be read", "Consul's HTTP address"]);
    let consul = Consul::builder().url(&url).connect_lazy().unwrap();
    for error in [
        consul.mutex("a").try_lock().await.unwrap_err(),
        consul.semaphore("a", 2).acquire().await.unwrap_err(),
    ] {
        says(&error, &["cannot be read"]);
    }
    server.abort();
}
