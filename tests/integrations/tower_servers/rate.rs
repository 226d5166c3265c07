//! Units over two instances.

use axum::routing::get;
use quorate::{
    Quota, RateLimiter,
    tower::{RateLimitLayer, Rejected},
};

use super::*;

const NAME: &str = "api";

/// A service that answers at once.
fn router(limiter: RateLimiter, wait: Duration, witness: &Witness) -> Router {
    limiter.validate().unwrap();
    let witness = witness.clone();
    let handler = async move || drop(witness.enter());
    let layer = RateLimitLayer::new(limiter)
        .wait(wait)
        .reject_with(Rejected::into_response);
    Router::new().route("/", get(handler)).layer(layer)
}

// ---- a flood --------------------------------------------------------------------------------

/// Two seconds, so that the grace is longer than the pauses of a busy machine.
const PERIOD: Duration = Duration::from_secs(2);
const LIMIT: u32 = 600;
const GRACE: Duration = ms(200);
const CALLERS: usize = 200;
const FLOOD: Duration = Duration::from_secs(6);

/// Sends requests until the time is over. Returns how often it was served and denied.
async fn call(client: Client, url: String, end: Instant) -> (usize, usize) {
    let (mut served, mut denied) = (0, 0);
    while Instant::now() < end {
        let answer = super::get(&client, &url).await;
        if answer.status == StatusCode::OK {
            served += 1;
            continue;
        }
        answer.is_denied_of(LIMIT.into(), PERIOD.as_secs());
        denied += 1;
        // Without this rest, 200 clients would keep the machine busy with refusals.
        tokio::time::sleep(ms(20)).await;
    }
    (served, denied)
}

async fn two_share(settings: impl Fn(RateLimiter) -> RateLimiter) {
    let (fleet, client) = (masters().await, client());
    let witnesses = [Witness::default(), Witness::default()];
    let both = Witness::default();
    let mut apps = Vec::new();
    for witness in &witnesses {
        let limiter = quorum(&fleet)
            .await
            .rate_limiter(NAME, Quota::new(LIMIT, PERIOD));
        let (both, witness) = (both.clone(), witness.clone());
        let handler = async move || drop((both.enter(), witness.enter()));
        let layer = RateLimitLayer::new(settings(limiter.grace(GRACE)))
            .reject_with(Rejected::into_response);
        apps.push(App::serve(Router::new().route("/", get(handler)).layer(layer)).await);
    }
    let end = Instant::now() + FLOOD;
    let caller = |n: usize| tokio::spawn(call(client.clone(), apps[n % 2].url.clone(), end));
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    let (mut served, mut denied) = (0, 0);
    for caller in callers {
        let (s, d) = caller.await.unwrap();
        (served, denied) = (served + s, denied + d);
    }
    let each = witnesses.map(|witness| witness.served());
    let most = both.most_within(PERIOD);
    println!("{served} served ({each:?}), {denied} denied, at most {most} in {PERIOD:?}");
    assert!(most <= LIMIT as usize, "{most} in {PERIOD:?}");
    // Each unit is one request that was served, and no other request reached a handler.
    assert_eq!(both.served(), served);
    let full = LIMIT as usize * FLOOD.as_millis() as usize / PERIOD.as_millis() as usize;
    assert!(served >= full / 2, "{served} of {full}");
    assert!(each.iter().all(|served| *served > 0), "{each:?}");
    assert!(denied > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_share_one_limit() {
    two_share(|limiter| limiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_share_one_limit_in_blocks() {
    two_share(|limiter| limiter.block(20)).await;
}

// ---- waiting --------------------------------------------------------------------------------

/// Sends `n` requests at once, which may wait. Two instances serve all of them, and never more than the limit.
async fn all_are_served(n: usize, quota: (u32, Duration), block: Option<u32>) {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let (limit, period) = quota;
    let mut apps = Vec::new();
    for _ in 0..2 {
        let limiter = quorum(&fleet)
            .await
            .rate_limiter(NAME, Quota::new(limit, period));
        let limiter = limiter.grace(period / 10);
        let limiter = match block {
            Some(block) => limiter.block(block),
            None => limiter,
        };
        apps.push(App::serve(router(limiter, PATIENCE, &witness)).await);
    }
    for answer in flood(&client, &apps, n) {
        answer.await.unwrap().is(200);
    }
    assert_eq!(witness.served(), n);
    let most = witness.most_within(period);
    assert!(most <= limit as usize, "{most}");
}

/// Some requests wait for two more intervals.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_may_wait_are_served_instead_of_denied() {
    all_are_served(150, (60, PERIOD), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_may_wait_for_a_block_are_served_too() {
    all_are_served(150, (60, PERIOD), Some(5)).await;
}

/// There are fewer units than masters, so each unit is a slot on a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_may_wait_are_served_one_at_a_time() {
    all_are_served(4, (1, PERIOD / 2), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_known_to_be_too_long_is_not_begun() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    // A used unit counts for about 11 s.
    let limiter = quorum(&fleet)
        .await
        .rate_limiter(NAME, Quota::new(6, Duration::from_secs(10)));
    let wait = Duration::from_secs(5);
    let app = App::serve(router(limiter, wait, &witness)).await;
    for _ in 0..6 {
        get_ok(&client, &app).await;
    }
    let answer = super::get(&client, &app.url).await;
    answer.is_denied_of(6, 10);
    assert!(answer.number("retry-after") >= 5, "{answer:?}");
    // The request did not begin to wait.
    assert!(answer.took < wait, "{answer:?}");
    assert_eq!(witness.served(), 6);
}

async fn get_ok(client: &Client, app: &App) {
    super::get(client, &app.url).await.is(200);
}

/// At first it seemed that each request could be served in time. Then others were served instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_whose_wait_runs_out_is_denied() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let limiter = quorum(&fleet)
        .await
        .rate_limiter(NAME, Quota::new(6, PERIOD));
    let wait = ms(2_700);
    let apps = [App::serve(router(limiter.grace(GRACE), wait, &witness)).await];
    let (mut served, mut denied) = (0, 0);
    for answer in flood(&client, &apps, 100) {
        let answer = answer.await.unwrap();
        if answer.status == StatusCode::OK {
            served += 1;
            continue;
        }
        answer.is_denied_of(6, 2);
        assert!(answer.took >= wait, "{answer:?}");
        denied += 1;
    }
    println!("{served} served, {denied} denied");
    assert_eq!(witness.served(), served);
    let most = witness.most_within(PERIOD);
    assert!(most <= 6, "{most}");
    // The units of the first interval, and those of the second.
    assert!(served >= 12, "{served}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_while_waiting_uses_no_unit() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let period = Duration::from_secs(6);
    let limiter = quorum(&fleet)
        .await
        .rate_limiter(NAME, Quota::new(6, period));
    let apps = [App::serve(router(limiter.clone(), PATIENCE, &witness)).await];
    assert!(limiter.check_n(6).await.unwrap().is_allowed());
    let gone = flood(&client, &apps, 20);
    tokio::time::sleep(ms(500)).await;
    for caller in gone {
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled(), "it was served");
    }
    // This request is behind the others in the queue, unless they have left.
    get_ok(&client, &apps[0]).await;
    let served = Instant::now();
    // The units of the other masters are free a little later. A unit that somebody took would count for the whole
    // interval.
    let left = async || limiter.check_n(0).await.unwrap().remaining();
    until("five are left", async || left().await >= 5).await;
    assert!(served.elapsed() < period / 2, "{:?}", served.elapsed());
    assert_eq!(witness.served(), 1);
}

/// The longest possible wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_without_an_end_is_allowed() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let limiter = quorum(&fleet)
        .await
        .rate_limiter(NAME, Quota::new(6, PERIOD));
    let apps = [App::serve(router(limiter.grace(GRACE), Duration::MAX, &witness)).await];
    for answer in flood(&client, &apps, 12) {
        answer.await.unwrap().is(200);
    }
    assert!(witness.most_within(PERIOD) <= 6);
}
