//! The requirements of tower on a layer: readiness without effect, clones, back-pressure, and no permit held by a
//! future that was dropped. These tests use memory. tests/integrations/tower_servers.rs has a real server and a real
//! client.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{FutureExt as _, future::join_all};
use http::{Request, Response, StatusCode};
use quorate::{
    FencingToken, Quorum, Quota, RateLimiter, Semaphore,
    fence::Gate,
    tower::{ConcurrencyLimitLayer, Denied, Error, FenceLayer, RateLimitLayer, Rejected},
};
use tokio::time::{Instant, sleep, timeout};
use tower::{BoxError, Layer as _, Service, ServiceBuilder, ServiceExt as _, service_fn};
use tower_test::{assert_request_eq, mock};

const PERIOD: Duration = Duration::from_secs(10);

fn limiter(limit: u32) -> RateLimiter {
    Quorum::in_memory(3).rate_limiter("api", Quota::new(limit, PERIOD))
}

fn semaphore(limit: u32) -> Semaphore {
    Quorum::in_memory(3).semaphore("exports", limit)
}

async fn left(limiter: &RateLimiter) -> u32 {
    limiter.check_n(0).await.unwrap().remaining()
}

/// Waits until this many permits are free, because they are released in the background.
async fn free(semaphore: &Semaphore, permits: u32) {
    let all_there = async {
        while semaphore.available().await.unwrap() != permits {
            sleep(Duration::from_millis(5)).await;
        }
    };
    // This is half of the default ttl, so the permits were released and have not expired.
    timeout(Duration::from_secs(5), all_there)
        .await
        .expect("the permits come back");
}

fn denied<T: std::fmt::Debug, E: std::fmt::Debug>(result: Result<T, Error<E>>) -> Denied {
    match result {
        Err(Error::Denied(denied)) => denied,
        other => panic!("{other:?} in place of a denial"),
    }
}

// ---- headers ---------------------------------------------------------------------------------

async fn send<S: Service<Request<()>, Error = Infallible>>(service: &mut S) -> S::Response {
    let ready = service.ready().await.unwrap();
    ready.call(Request::new(())).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_response_has_the_headers_of_the_limit_if_they_are_asked_for() {
    type Answer = Response<String>;
    let inner =
        || service_fn(async |_: Request<()>| Ok::<_, Infallible>(Answer::new("done".into())));
    let headers = |response: &Answer| {
        let of = |name: &str| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        (
            of("ratelimit-limit"),
            of("ratelimit-remaining"),
            of("retry-after").is_some(),
        )
    };
    let said = |left: u32, denied| (Some("3".to_owned()), Some(left.to_string()), denied);
    let layer = RateLimitLayer::new(limiter(3))
        .reject_with(Rejected::into_response)
        .with_headers();
    let mut limited = layer.layer(inner());
    for (left, denied) in [(2, false), (1, false), (0, false), (0, true)] {
        let response = send(&mut limited).await;
        assert_eq!(headers(&response), said(left, denied));
    }
    // A denial that is an error has none, and neither has a request that costs nothing.
    let layer = RateLimitLayer::new(limiter(3))
        .cost(|_: &Request<()>| 0)
        .with_headers();
    let response = layer
        .layer(inner())
        .oneshot(Request::new(()))
        .await
        .unwrap();
    assert_eq!(headers(&response), (None, None, false));
    // Units of a block, and a response of the program's own for a denial.
    let block = Quorum::in_memory(3)
        .rate_limiter("api", Quota::new(30, PERIOD))
        .block(2);
    let own = |_: Rejected| Answer::new("come back later".into());
    let layer = RateLimitLayer::new(block)
        .cost(|_: &Request<()>| 1)
        .reject_with(own)
        .with_headers();
    let mut limited = layer.layer(inner());
    for left in ["1", "0"] {
        let response = send(&mut limited).await;
        assert_eq!(response.headers()["ratelimit-remaining"], left);
    }
    let layer = RateLimitLayer::new(limiter(1))
        .reject_with(own)
        .with_headers();
    let mut limited = layer.layer(inner());
    for answer in ["done", "come back later"] {
        let response = send(&mut limited).await;
        assert_eq!(response.headers()["ratelimit-remaining"], "0");
        assert_eq!(response.body(), answer);
    }
}

#[tokio::test(start_paused = true)]
async fn no_header_is_a_guess_and_none_of_an_inner_limit_is_replaced() {
    type Answer = Response<String>;
    let inner =
        || service_fn(async |_: Request<()>| Ok::<_, Infallible>(Answer::new("done".into())));
    let nodes = [(); 3].map(|()| quorate::MemoryNode::new());
    let quorum = Quorum::builder().nodes(&nodes).connect().await.unwrap();
    let open = quorum
        .rate_limiter("api", Quota::new(20, PERIOD))
        .on_outage(quorate::Outage::Allow);
    nodes.iter().for_each(quorate::MemoryNode::stop);
    let layer = RateLimitLayer::new(open)
        .reject_with(Rejected::into_response)
        .with_headers();
    let response = layer
        .layer(inner())
        .oneshot(Request::new(()))
        .await
        .unwrap();
    assert_eq!(
        (response.body().as_str(), response.headers().len()),
        ("done", 0)
    );
    // The outer limit has many units left, and the inner one has denied.
    let layer = |limit| {
        RateLimitLayer::new(limiter(limit))
            .reject_with(Rejected::into_response)
            .with_headers()
    };
    let mut both = layer(100).layer(layer(1).layer(inner()));
    for (status, left) in [(StatusCode::OK, "0"), (StatusCode::TOO_MANY_REQUESTS, "0")] {
        let response = send(&mut both).await;
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["ratelimit-remaining"], left);
        assert_eq!(response.headers()["ratelimit-limit"], "1");
    }
}

// ---- readiness -------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn readiness_takes_nothing_and_follows_the_inner_service() {
    let (limiter, semaphore) = (limiter(5), semaphore(2));
    let both = ServiceBuilder::new()
        .layer(ConcurrencyLimitLayer::new(semaphore.clone()))
        .layer(RateLimitLayer::new(limiter.clone()))
        .into_inner();
    let (mut service, mut handle) = mock::spawn_layer::<&str, &str, _>(both);
    handle.allow(0);
    for _ in 0..3 {
        assert!(service.poll_ready().is_pending());
    }
    handle.allow(1);
    for _ in 0..3 {
        assert!(service.poll_ready().is_ready(), "again and again");
    }
    assert_eq!(left(&limiter).await, 5);
    assert_eq!(semaphore.available().await.unwrap(), 2);

    let response = tokio::spawn(service.call("hello"));
    assert_request_eq!(handle, "hello").send_response("world");
    assert_eq!(response.await.unwrap().unwrap(), "world");
    assert_eq!(left(&limiter).await, 4);
    free(&semaphore, 2).await;
    assert!(
        service.poll_ready().is_pending(),
        "the clone is not ready because the other one was"
    );
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_fails_keeps_its_errors() {
    let (mut service, mut handle) = mock::spawn_layer::<(), (), _>(RateLimitLayer::new(limiter(5)));
    handle.allow(1);
    assert!(service.poll_ready().is_ready());
    let response = tokio::spawn(service.call(()));
    let (_, answer) = handle.next_request().await.unwrap();
    answer.send_error("it burns");
    match response.await.unwrap() {
        Err(Error::Inner(error)) => assert_eq!(error.to_string(), "it burns"),
        other => panic!("{other:?}"),
    }
    handle.send_error("it is gone");
    match service.poll_ready() {
        std::task::Poll::Ready(Err(Error::Inner(error))) => {
            assert_eq!(error.to_string(), "it is gone");
        }
        other => panic!("{other:?}"),
    }
}

/// Boxed errors of other layers pass through, so that this layer can be used among them.
#[tokio::test(start_paused = true)]
async fn the_layers_compose_with_the_layers_of_tower() {
    let service = ServiceBuilder::new()
        .buffer(8)
        .layer(RateLimitLayer::new(limiter(1)))
        .timeout(Duration::from_secs(1))
        .layer(ConcurrencyLimitLayer::new(semaphore(1)))
        .concurrency_limit(1)
        .service(service_fn(async |n: u32| Ok::<_, BoxError>(n + 1)));
    let (first, second) = (service.clone(), service);
    assert_eq!(first.oneshot(1).await.unwrap(), 2);
    let error = second.oneshot(1).await.unwrap_err();
    assert!(error.to_string().contains("too many requests"), "{error}");
}

// ---- clones ----------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn clones_share_the_limit() {
    let layer = RateLimitLayer::new(limiter(6));
    let echo = service_fn(async |n: u32| Ok::<_, Infallible>(n));
    let services = [layer.layer(echo), layer.clone().layer(echo)];
    let calls = (0..20).map(|n| services[n % 2].clone().oneshot(1));
    let done = join_all(calls).await;
    assert_eq!(done.iter().filter(|result| result.is_ok()).count(), 6);
    for result in done.into_iter().filter(Result::is_err) {
        let denied = denied(result);
        assert!(!denied.retry_after().is_zero());
        assert_eq!(denied.limit(), 6);
        assert_eq!(denied.decision().unwrap().limit(), 6);
    }
}

#[tokio::test(start_paused = true)]
async fn clones_share_the_permits() {
    let semaphore = semaphore(3);
    let now = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let counts = (Arc::clone(&now), Arc::clone(&most));
    let service = ConcurrencyLimitLayer::new(semaphore.clone())
        .wait(Duration::from_secs(60))
        .layer(service_fn(move |(): ()| {
            let (now, most) = counts.clone();
            async move {
                most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                sleep(Duration::from_millis(20)).await;
                now.fetch_sub(1, SeqCst);
                Ok::<_, Infallible>(())
            }
        }));
    let done = join_all((0..30).map(|_| service.clone().oneshot(()))).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    assert_eq!(most.load(SeqCst), 3);
    free(&semaphore, 3).await;
}

// ---- dropped calls ----------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_polled_or_dropped_in_any_moment_holds_nothing() {
    let semaphore = semaphore(2);
    let layer = ConcurrencyLimitLayer::new(semaphore.clone()).wait(Duration::from_secs(60));
    let service = layer.layer(service_fn(async |(): ()| {
        std::future::pending::<Result<(), Infallible>>().await
    }));
    drop(service.clone().oneshot(()));
    assert_eq!(semaphore.available().await.unwrap(), 2);
    // The call is dropped after every number of polls, until it is inside.
    for polls in 0..40 {
        let mut call = Box::pin(service.clone().oneshot(()));
        for _ in 0..polls {
            assert!((&mut call).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        drop(call);
    }
    free(&semaphore, 2).await;
    // Two calls are inside and one is in the queue. All of them are dropped.
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(service.clone().oneshot(())))
        .collect();
    free(&semaphore, 0).await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    free(&semaphore, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_gives_its_permit_back() {
    let semaphore = semaphore(1);
    let service =
        ConcurrencyLimitLayer::new(semaphore.clone()).layer(service_fn(async |bad: bool| {
            tokio::task::yield_now().await;
            assert!(!bad, "on purpose");
            Ok::<_, Infallible>(())
        }));
    let gone = tokio::spawn(service.clone().oneshot(true)).await;
    assert!(gone.unwrap_err().is_panic());
    free(&semaphore, 1).await;
    service.oneshot(false).await.unwrap();
}

/// The permit is released before the future is dropped.
#[tokio::test(start_paused = true)]
async fn the_permit_is_free_when_the_response_is_there() {
    let semaphore = semaphore(1);
    let mut service = ConcurrencyLimitLayer::new(semaphore.clone())
        .layer(service_fn(async |(): ()| Ok::<_, Infallible>(())));
    let mut call = Box::pin(service.ready().await.unwrap().call(()));
    (&mut call).await.unwrap();
    free(&semaphore, 1).await;
    drop(call);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_lost_drops_the_work_and_is_an_error() {
    let quorum = Quorum::in_memory(3);
    let semaphore = quorum
        .semaphore("exports", 1)
        .renewal(quorate::Renewal::auto().max_hold(Duration::from_secs(2)));
    let dropped = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&dropped);
    let service = ConcurrencyLimitLayer::new(semaphore).layer(service_fn(move |(): ()| {
        struct Counts(Arc<AtomicUsize>);
        impl Drop for Counts {
            fn drop(&mut self) {
                self.0.fetch_add(1, SeqCst);
            }
        }
        let counts = Counts(Arc::clone(&seen));
        async move {
            sleep(Duration::from_secs(60)).await;
            drop(counts);
            Ok::<_, Infallible>(())
        }
    }));
    let start = Instant::now();
    let answers = service.clone().reject_answer(()).await;
    // The longest hold.
    assert!(start.elapsed() <= Duration::from_secs(2), "before its end");
    assert_eq!(dropped.load(SeqCst), 1);
    let response: Response<String> = answers.into_response();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        response.body().contains("in part or completely"),
        "{response:?}"
    );
}

/// The rejection of a call.
trait Answer<Req> {
    async fn reject_answer(self, request: Req) -> Rejected;
}

impl<S, Req> Answer<Req> for S
where
    S: Service<Req, Error = Error<Infallible>>,
    S::Response: std::fmt::Debug,
{
    async fn reject_answer(self, request: Req) -> Rejected {
        let error = self.oneshot(request).await.expect_err("a rejection");
        error.into_rejected().unwrap()
    }
}

// ---- waits -----------------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_units_only_if_its_wait_can_suffice() {
    let limiter = limiter(3);
    let echo = service_fn(async |(): ()| Ok::<_, Infallible>(()));
    let short = RateLimitLayer::new(limiter.clone())
        .wait(PERIOD / 10)
        .layer(echo);
    let long = RateLimitLayer::new(limiter.clone())
        .wait(2 * PERIOD)
        .layer(echo);
    for _ in 0..3 {
        short.clone().oneshot(()).await.unwrap();
    }
    let start = Instant::now();
    let wait = denied(short.clone().oneshot(()).await).retry_after();
    assert!(start.elapsed() < PERIOD / 100, "it is known to be in vain");
    assert!(wait > PERIOD / 2, "{wait:?}");
    long.oneshot(()).await.unwrap();
    assert!(start.elapsed() >= PERIOD - PERIOD / 100);
    // A unit counts for 10.1 s and its grace. The rest is for the intervals at which a wait looks again.
    assert!(
        start.elapsed() < PERIOD + PERIOD / 4,
        "{:?}",
        start.elapsed()
    );
}

/// Others take the unit that was waited for. At the end of the wait the answer is a denial, which says how long to wait
/// from then on.
#[tokio::test(start_paused = true)]
async fn a_wait_that_runs_out_is_denied_and_leaves_the_queue() {
    let quorum = Quorum::in_memory(1);
    let limiter = quorum.rate_limiter("api", Quota::new(1, PERIOD));
    let echo = service_fn(async |(): ()| Ok::<_, Infallible>(()));
    let service = RateLimitLayer::new(limiter.clone())
        .wait(PERIOD + PERIOD / 5)
        .layer(echo);
    limiter.until_ready().await.unwrap();
    // This waiter is in front, and gets the next unit.
    let first = tokio::spawn(limiter.until_ready());
    sleep(Duration::from_millis(10)).await;
    let start = Instant::now();
    let wait = denied(service.clone().oneshot(()).await).retry_after();
    let took = start.elapsed();
    // The wait of 12 s, and the time of its last look.
    assert!(took <= PERIOD + PERIOD / 4, "{took:?}");
    assert!(wait > PERIOD / 2, "{wait:?} after {took:?}");
    first.await.unwrap().unwrap();
    // Nobody is in front any more.
    timeout(2 * PERIOD, limiter.until_ready())
        .await
        .expect("its turn comes")
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_queues_for_permits_until_its_wait_ends() {
    let semaphore = semaphore(1);
    let echo = service_fn(async |(): ()| Ok::<_, Infallible>(()));
    let service = ConcurrencyLimitLayer::new(semaphore.clone())
        .wait(Duration::from_secs(2))
        .layer(echo);
    let elsewhere = semaphore.acquire().await.unwrap();
    let start = Instant::now();
    let denied = denied(service.clone().oneshot(()).await);
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert_eq!(
        (denied.limit(), denied.retry_after()),
        (1, Duration::from_secs(1))
    );
    assert!(denied.decision().is_none());
    let waits = tokio::spawn(service.oneshot(()));
    sleep(Duration::from_millis(200)).await;
    elsewhere.release().await.unwrap();
    waits.await.unwrap().unwrap();
}

/// The first of two permits is lost before the second one is granted. Nothing was served, so the answer is a denial.
#[tokio::test(start_paused = true)]
async fn permits_that_are_lost_before_all_are_there_are_denied() {
    let all = semaphore(2);
    let short = quorate::Renewal::auto().max_hold(Duration::from_secs(1));
    let served = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&served);
    let service = ConcurrencyLimitLayer::new(all.clone().renewal(short))
        .cost(|(): &()| 2)
        .wait(Duration::from_secs(60))
        .layer(service_fn(move |(): ()| {
            counts.fetch_add(1, SeqCst);
            async { Ok::<_, Infallible>(()) }
        }));
    let elsewhere = all.acquire().await.unwrap();
    let asks = tokio::spawn(service.oneshot(()));
    free(&all, 0).await;
    sleep(Duration::from_secs(3)).await;
    elsewhere.release().await.unwrap();
    denied(asks.await.unwrap());
    assert_eq!(served.load(SeqCst), 0);
    free(&all, 2).await;
}

// ---- keys and costs --------------------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn each_key_has_the_whole_limit_and_each_request_its_cost() {
    let limiter = limiter(6);
    let service = RateLimitLayer::new(limiter.clone())
        .key(|request: &(&'static str, u32)| request.0)
        .cost(|request: &(&'static str, u32)| request.1)
        .layer(service_fn(async |_: (&str, u32)| Ok::<_, Infallible>(())));
    let ask = |who, cost| service.clone().oneshot((who, cost));
    for who in ["ann", "bob"] {
        ask(who, 4).await.unwrap();
        denied(ask(who, 3).await);
        ask(who, 2).await.unwrap();
        denied(ask(who, 1).await);
        ask(who, 0).await.unwrap();
    }
    assert_eq!(left(&limiter).await, 6, "without a key it is another limit");
    let never = ask("eve", 7).await;
    let Err(Error::Quorum(quorate::Error::Invalid(why))) = never else {
        panic!("{never:?}");
    };
    assert!(why.contains("can take (6 of 6 "), "{why}");
}

#[tokio::test(start_paused = true)]
async fn permits_have_keys_and_costs_too() {
    let semaphore = semaphore(3);
    let service = ConcurrencyLimitLayer::new(semaphore.clone())
        .key(|request: &(String, u32)| request.0.clone())
        .cost(|request: &(String, u32)| request.1)
        .layer(service_fn(async |_: (String, u32)| {
            std::future::pending::<Result<(), Infallible>>().await
        }));
    let ask = |who: &str, cost| service.clone().oneshot((who.to_owned(), cost));
    let _ann = tokio::spawn(ask("ann", 2));
    let _bob = tokio::spawn(ask("bob", 3));
    free(&semaphore.keyed("ann"), 1).await;
    free(&semaphore.keyed("bob"), 0).await;
    assert_eq!(semaphore.available().await.unwrap(), 3);
    denied(ask("ann", 2).await);
    denied(ask("bob", 1).await);
    let never = ask("eve", 4).await;
    let Err(Error::Quorum(quorate::Error::Invalid(_))) = never else {
        panic!("{never:?}");
    };
}

// ---- decisions without a request --------------------------------------------------------------

/// Only the first request of a block asks a master. The others need no poll.
#[tokio::test(start_paused = true)]
async fn requests_within_a_block_are_decided_at_once() {
    let limiter = limiter(600).block(50);
    let service =
        RateLimitLayer::new(limiter).layer(service_fn(async |(): ()| Ok::<_, Infallible>(())));
    service.clone().oneshot(()).await.unwrap();
    for _ in 1..50 {
        let at_once = service.clone().oneshot(()).now_or_never();
        at_once.expect("nobody is asked").unwrap();
    }
    assert!(
        service.oneshot(()).now_or_never().is_none(),
        "the next block"
    );
}

// ---- responses instead of errors --------------------------------------------------------------

#[tokio::test(start_paused = true)]
async fn a_rejection_is_a_response_if_that_is_wanted() {
    let layer = RateLimitLayer::new(limiter(1)).reject_with(Rejected::into_response);
    let service = layer.layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new("fine".to_owned()))
    }));
    let ask = || service.clone().oneshot(Request::new(()));
    assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    let response = ask().await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let header = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    let wait: u64 = header("retry-after").parse().unwrap();
    assert!((1..=11).contains(&wait), "{wait}");
    assert_eq!(header("ratelimit-limit"), "1");
    assert_eq!(header("ratelimit-remaining"), "0");
    assert_eq!(header("ratelimit-policy"), "1;w=10");
    assert_eq!(header("ratelimit-reset"), wait.to_string());
    assert!(header("content-type").starts_with("text/plain"));
    assert!(
        response
            .body()
            .starts_with("too many requests: try again in ")
    );
}

#[test]
fn an_error_of_the_quorum_becomes_its_http_status() {
    let status = |error| Rejected::Quorum(error).into_response::<String>();
    for (error, code, text) in [
        (
            quorate::Error::Closed,
            503,
            "the limit cannot be checked now: this service is shutting down\n",
        ),
        (
            quorate::Error::Invalid("a bad key".into()),
            400,
            "a bad key\n",
        ),
        (
            quorate::Error::System("no bits".into()),
            500,
            "the limit cannot be checked\n",
        ),
        (
            quorate::Error::RuntimeGone,
            500,
            "the limit cannot be checked\n",
        ),
    ] {
        let response = status(error);
        assert_eq!(response.status().as_u16(), code);
        assert_eq!(response.body(), text);
        assert!(response.headers().get("retry-after").is_none());
    }
}

// ---- fencing tokens --------------------------------------------------------------------------

fn write(token: u64) -> Request<()> {
    let token = FencingToken::try_from(token).unwrap();
    let request = Request::put("/invoices/42").header("fencing-token", token.to_string());
    request.body(()).unwrap()
}

#[tokio::test]
async fn a_stale_token_does_not_reach_the_service() {
    let gate = Arc::new(Gate::new());
    let layer = FenceLayer::new(Arc::clone(&gate));
    let (mut service, mut handle) =
        mock::spawn_layer::<Request<()>, Response<String>, _>(layer.clone());
    handle.allow(8);
    for (token, is_admitted) in [(7, true), (7, true), (6, false), (9, true), (8, false)] {
        assert!(service.poll_ready().is_ready());
        let response = tokio::spawn(service.call(write(token)));
        if is_admitted {
            let (_, answer) = handle.next_request().await.unwrap();
            answer.send_response(Response::new("written".into()));
        }
        let response = response.await.unwrap().unwrap();
        let expected = match is_admitted {
            true => StatusCode::OK,
            false => StatusCode::PRECONDITION_FAILED,
        };
        assert_eq!(response.status(), expected, "{token}");
    }
    let stale = gate.admit("/invoices/42", FencingToken::try_from(8).unwrap());
    assert!(stale.is_err(), "the gate may be asked beside it");
}

#[tokio::test]
async fn without_a_token_only_reads_pass_and_bad_tokens_are_refused() {
    let service = FenceLayer::new(Gate::new()).layer(service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new("fine".to_owned()))
    }));
    let ask = |method: &str, tokens: &[&str]| {
        let mut request = Request::builder().method(method).uri("/invoices/42");
        for token in tokens {
            request = request.header("Fencing-Token", *token);
        }
        service.clone().oneshot(request.body(()).unwrap())
    };
    for (method, tokens, status) in [
        ("GET", &[][..], 200),
        ("HEAD", &[], 200),
        ("OPTIONS", &[], 200),
        ("PUT", &[], 428),
        ("DELETE", &[], 428),
        ("POST", &[], 428),
        ("PUT", &["seven"], 400),
        ("GET", &["-1"], 400),
        ("PUT", &["9007199254740992"], 400),
        ("PUT", &["7", "8"], 400),
        ("PUT", &[" 7 "], 200),
        ("GET", &["6"], 412),
    ] {
        let response = ask(method, tokens).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{method} {tokens:?}");
        assert!(!response.body().is_empty());
    }
}

#[tokio::test]
async fn a_token_may_be_anywhere_and_a_resource_has_one_name() {
    let layer = FenceLayer::new(Gate::new())
        .token(|request: &Request<u64>| FencingToken::try_from(*request.body()).ok())
        .resource(|request: &Request<u64>| request.uri().path().to_lowercase());
    let service = layer.layer(service_fn(async |_: Request<u64>| {
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let ask = |path: &str, token| {
        let request = Request::put(path).body(token).unwrap();
        let response = service.clone().oneshot(request);
        async move { response.await.unwrap().status().as_u16() }
    };
    assert_eq!(ask("/a", 7).await, 200);
    assert_eq!(ask("/A", 6).await, 412);
    assert_eq!(ask("/b", 6).await, 200);
    assert_eq!(ask("/a", u64::MAX).await, 428);
}

/// Services are sent to other threads.
#[test]
fn services_and_their_futures_can_be_sent() {
    fn is_send<T: Send>(_: &T) {}
    fn of<S: Service<()> + Send + Sync + Clone>(mut service: S)
    where
        S::Future: Send,
    {
        is_send(&service);
        is_send(&service.call(()));
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _entered = runtime.enter();
    let echo = service_fn(async |(): ()| Ok::<_, Infallible>(()));
    of(RateLimitLayer::new(limiter(1)).layer(echo));
    of(ConcurrencyLimitLayer::new(semaphore(1)).layer(echo));
}
