//! Masters that are gone, and permits that are lost with them.

use crate::support::{Proxy, Server};
use axum::routing::get;
use quorate::{
    Outage, Quota, Semaphore,
    tower::{ConcurrencyLimitLayer, RateLimitLayer, Rejected},
};

use super::*;

/// With these settings, restarted masters vote again after 3 s.
fn hasty(urls: &[String]) -> Builder {
    builder(urls)
        .max_ttl(Duration::from_secs(2))
        .restart_margin(Duration::from_secs(1))
}

async fn hasty_masters() -> (Fleet, Quorum) {
    let fleet = Fleet::mixed(3);
    let quorum = hasty(&fleet.urls()).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum.voting(PATIENCE).await.unwrap();
    (fleet, quorum)
}

async fn are_up(quorum: &Quorum, n: usize) {
    until("it is known who is up", async || {
        quorum.health().voting == n
    })
    .await;
}

/// A service with units, for each choice about an outage.
async fn limited(quorum: &Quorum, quota: Quota, outage: Outage, witness: &Witness) -> App {
    let witness = witness.clone();
    let handler = async move || drop(witness.enter());
    let limiter = quorum.rate_limiter("api", quota).on_outage(outage);
    limiter.validate().unwrap();
    let layer = RateLimitLayer::new(limiter).reject_with(Rejected::into_response);
    App::serve(Router::new().route("/", get(handler)).layer(layer)).await
}

/// A service with a permit, and a handler that sleeps for a minute.
async fn held(semaphore: Semaphore, wait: Duration, witness: &Witness) -> App {
    let witness = witness.clone();
    let handler = async move || {
        let _inside = witness.enter();
        tokio::time::sleep(MINUTE).await;
    };
    semaphore.validate().unwrap();
    let layer = ConcurrencyLimitLayer::new(semaphore)
        .wait(wait)
        .reject_with(Rejected::into_response);
    App::serve(Router::new().route("/", get(handler)).layer(layer)).await
}

#[track_caller]
fn is_unavailable(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    // The text contains neither a name nor an address.
    assert!(!answer.text.contains("exports"), "{answer:?}");
    assert!(!answer.text.contains("127.0.0.1"), "{answer:?}");
}

#[track_caller]
fn is_an_outage(answer: &Answer) {
    is_unavailable(answer);
    assert!(
        (1..=7).contains(&answer.number("retry-after")),
        "{answer:?}"
    );
}

// ---- units ----------------------------------------------------------------------------------

/// This is not an outage, so all three choices have the same result. A round trip is longer than the longest grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_later_than_the_grace_make_a_request_unavailable() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let word = quorum(&fleet).await.fleet().to_owned();
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    for outage in [Outage::Error, Outage::Deny, Outage::Allow] {
        // Each client has just connected, and has not yet measured how far away the masters are.
        proxies.iter().for_each(|proxy| proxy.delay(ms(0)));
        let quorum = connect(builder(&urls).fleet(&word)).await;
        // The longest grace of a limit per second is 100 ms.
        proxies.iter().for_each(|proxy| proxy.delay(ms(60)));
        let app = limited(&quorum, Quota::per_second(30), outage, &witness).await;
        let answer = super::get(&client, &app.url).await;
        is_an_outage(&answer);
        assert!(answer.text.contains("answer too late"), "{answer:?}");
        assert!(answer.took >= ms(2 * 60), "{answer:?}");
    }
    assert_eq!(witness.served(), 0);
}

/// A limit of 30 in ten seconds is shared out: each master gives a third. A limit of two in a second needs a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_an_outage_a_rate_limit_does_as_it_was_told() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let quorum = quorum(&fleet).await;
    let mut apps = Vec::new();
    for outage in [Outage::Error, Outage::Deny, Outage::Allow] {
        let many = limited(
            &quorum,
            Quota::new(30, Duration::from_secs(10)),
            outage,
            &witness,
        );
        let few = limited(
            &quorum,
            Quota::new(2, Duration::from_secs(1)),
            outage,
            &witness,
        );
        apps.push((outage, many.await, few.await));
    }
    for (_, many, _) in &apps {
        super::get(&client, &many.url).await.is(200);
    }
    fleet[0].kill9();
    fleet[1].kill9();
    are_up(&quorum, 1).await;
    // One master is left and gives its share: ten of 30, some of which may already be used.
    let mut served = 0;
    let (_, many, _) = &apps[0];
    let denied = loop {
        let answer = super::get(&client, &many.url).await;
        match answer.status {
            StatusCode::OK => served += 1,
            _ => break answer,
        }
    };
    denied.is_denied_of(30, 10);
    assert!((7..=10).contains(&served), "{served}");
    let few_are_out = async |by: &str| {
        let before = witness.served();
        for (outage, _, few) in &apps {
            let answer = super::get(&client, &few.url).await;
            println!("{by}: {outage:?}: {answer:?}");
            match outage {
                Outage::Error => is_an_outage(&answer),
                Outage::Deny => {
                    answer.is_denied_of(2, 1);
                    assert_eq!(answer.number("ratelimit-remaining"), 0);
                }
                Outage::Allow => {
                    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
                }
            }
        }
        assert_eq!(witness.served(), before + 1);
    };
    few_are_out("one of three").await;
    fleet[2].kill9();
    are_up(&quorum, 0).await;
    few_are_out("none").await;
    for (outage, many, _) in &apps {
        let answer = super::get(&client, &many.url).await;
        match outage {
            Outage::Error => is_an_outage(&answer),
            Outage::Deny => assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}"),
            Outage::Allow => assert_eq!(answer.status, StatusCode::OK, "{answer:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_requests_are_served_again() {
    let ((fleet, quorum), client) = (hasty_masters().await, client());
    let witness = Witness::default();
    let quota = Quota::new(30, Duration::from_secs(1));
    let units = limited(&quorum, quota, Outage::Error, &witness).await;
    let handler = async || "exported";
    let ttl = Duration::from_secs(1);
    let layer = ConcurrencyLimitLayer::new(quorum.semaphore("exports", 1).ttl(ttl))
        .reject_with(Rejected::into_response);
    let permits = App::serve(Router::new().route("/", get(handler)).layer(layer)).await;
    for app in [&units, &permits] {
        super::get(&client, &app.url).await.is(200);
    }
    fleet.iter().for_each(Server::kill9);
    are_up(&quorum, 0).await;
    for app in [&units, &permits] {
        is_an_outage(&super::get(&client, &app.url).await);
    }
    fleet.iter().for_each(Server::start_again);
    for app in [&units, &permits] {
        until("it is served again", async || {
            let answer = super::get(&client, &app.url).await;
            if answer.status != StatusCode::OK {
                is_an_outage(&answer);
            }
            answer.status == StatusCode::OK
        })
        .await;
    }
}

/// With `Outage::Deny`, a request that may wait waits until the outage is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_may_wait_is_served_after_the_outage() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let limiter = quorum(&fleet)
        .await
        .rate_limiter("api", Quota::per_second(30));
    let layer = RateLimitLayer::new(limiter.on_outage(Outage::Deny))
        .wait(PATIENCE)
        .reject_with(Rejected::into_response);
    let handler = {
        let witness = witness.clone();
        async move || drop(witness.enter())
    };
    let apps = [App::serve(Router::new().route("/", get(handler)).layer(layer)).await];
    fleet.iter().for_each(Server::sigstop);
    let asked = flood(&client, &apps, 5);
    // This is longer than a node may take to answer.
    tokio::time::sleep(ms(2_500)).await;
    assert_eq!(witness.served(), 0);
    fleet.iter().for_each(Server::sigcont);
    for asked in asked {
        asked.await.unwrap().is(200);
    }
    assert_eq!(witness.served(), 5);
}

// ---- permits --------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_nobody_gets_a_permit() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let quorum = quorum(&fleet).await;
    let at_once = held(quorum.semaphore("exports", 3), Duration::ZERO, &witness).await;
    let waits = held(quorum.semaphore("exports", 3), PATIENCE, &witness).await;
    fleet[0].kill9();
    fleet[1].kill9();
    are_up(&quorum, 1).await;
    is_an_outage(&super::get(&client, &at_once.url).await);
    let answer = super::get(&client, &waits.url).await;
    is_an_outage(&answer);
    assert_eq!(witness.served(), 0);
}

/// The ttl of a permit.
const TTL: Duration = Duration::from_secs(5);

async fn is_lost_in_time(befalls: impl Fn(&Server)) {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let quorum = quorum(&fleet).await;
    let semaphore = quorum.semaphore("exports", 1).ttl(TTL);
    let apps = [held(semaphore, Duration::ZERO, &witness).await];
    let asked = flood(&client, &apps, 1).pop().unwrap();
    until("the handler has begun", async || witness.inside() == 1).await;
    // A permit is renewed at a third of its ttl, so the last renewal is older than the outage.
    tokio::time::sleep(TTL / 5).await;
    let gone = Instant::now();
    befalls(&fleet[0]);
    befalls(&fleet[1]);
    let answer = asked.await.unwrap();
    is_unavailable(&answer);
    // It is not known when to try again.
    assert!(!answer.headers.contains_key("retry-after"), "{answer:?}");
    let left = witness.left();
    assert_eq!((left.len(), witness.inside()), (1, 0));
    let after = left[0] - gone;
    println!("dropped after {after:?}");
    assert!(after < TTL, "{after:?}");
    // The permit was not given up before it had to be.
    assert!(after > TTL / 3, "{after:?}");
    // A stopped server would not end by itself.
    fleet
        .iter()
        .filter(|server| server.is_up())
        .for_each(Server::sigcont);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_lost_with_dead_masters_ends_its_request_in_time() {
    is_lost_in_time(Server::kill9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_lost_with_paused_masters_ends_its_request_in_time() {
    is_lost_in_time(Server::sigstop).await;
}

/// One instance is cut off, and the other is not. The other waits for the permit, and gets it after the first has ended
/// its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_cut_network_a_request_ends_before_another_is_served() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let near = quorum(&fleet).await;
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let urls: Vec<String> = proxies.iter().map(|proxy| proxy.url().to_owned()).collect();
    let far = connect(builder(&urls).fleet(near.fleet())).await;
    let app = async |quorum: &Quorum| {
        let semaphore = quorum.semaphore("exports", 1).ttl(TTL);
        [held(semaphore, PATIENCE, &witness).await]
    };
    let (near, far) = (app(&near).await, app(&far).await);
    let first = flood(&client, &far, 1).pop().unwrap();
    until("the first has begun", async || witness.inside() == 1).await;
    let second = flood(&client, &near, 1).pop().unwrap();
    proxies.iter().for_each(Proxy::cut);
    until("the second has begun", async || witness.served() == 2).await;
    assert_eq!((witness.inside(), witness.most()), (1, 1));
    is_unavailable(&first.await.unwrap());
    assert!(!second.is_finished());
    second.abort();
}

/// A shutdown is not an outage, no matter what was chosen for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_shutdown_nothing_is_let_through() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let quorum = quorum(&fleet).await;
    let permits = held(quorum.semaphore("exports", 1), Duration::ZERO, &witness).await;
    let mut apps = vec![permits];
    for outage in [Outage::Error, Outage::Deny, Outage::Allow] {
        apps.push(limited(&quorum, Quota::per_second(30), outage, &witness).await);
    }
    quorum.shutdown().await;
    for app in &apps {
        is_unavailable(&super::get(&client, &app.url).await);
    }
    assert_eq!(witness.served(), 0);
}
