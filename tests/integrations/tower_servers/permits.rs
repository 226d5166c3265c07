//! Permits over two instances, and the release of each permit.

use axum::{error_handling::HandleErrorLayer, routing::get};
use quorate::{
    Semaphore,
    tower::{ConcurrencyLimitLayer, Rejected},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::watch,
};
use tower::ServiceBuilder;

use super::*;

const NAME: &str = "exports";

fn layer<K, C>(
    layer: ConcurrencyLimitLayer<K, C>,
) -> ConcurrencyLimitLayer<K, C, fn(Rejected) -> axum::response::Response> {
    layer.reject_with(Rejected::into_response as fn(Rejected) -> _)
}

async fn available(semaphore: &Semaphore) -> u32 {
    semaphore.available().await.unwrap()
}

/// Checks that all permits are released, although a handler sleeps for a minute.
async fn all_come_back(semaphore: &Semaphore) {
    let all = semaphore.limit();
    until("all permits are free", async || {
        available(semaphore).await == all
    })
    .await;
}

async fn are_inside(witness: &Witness, n: usize) {
    until("the handlers have begun", async || witness.inside() == n).await;
}

// ---- the limit ----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_instances_serve_all_waiters_three_at_a_time() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let mut apps = Vec::new();
    for _ in 0..2 {
        let witness = witness.clone();
        let handler = async move || {
            let _inside = witness.enter();
            tokio::time::sleep(ms(10)).await;
        };
        let limit = ConcurrencyLimitLayer::new(quorum(&fleet).await.semaphore(NAME, 3));
        let router = Router::new().route("/", get(handler));
        apps.push(App::serve(router.layer(layer(limit.wait(2 * PATIENCE)))).await);
    }
    for answer in flood(&client, &apps, 200) {
        answer.await.unwrap().is(200);
    }
    assert_eq!(witness.served(), 200);
    assert_eq!(witness.most(), 3);
    let semaphore = quorum(&fleet).await.semaphore(NAME, 3);
    all_come_back(&semaphore).await;
    let left = fleet.leftover_locks_after(PATIENCE, "quorate");
    assert!(left.is_empty(), "{left:?}");
}

/// Handlers that stay until they are told to end.
struct Stay {
    apps: Vec<App>,
    witness: Witness,
    go: watch::Sender<bool>,
}

impl Stay {
    async fn start(fleet: &Fleet) -> Self {
        let (witness, (go, told)) = (Witness::default(), watch::channel(false));
        let mut apps = Vec::new();
        for _ in 0..2 {
            let (witness, told) = (witness.clone(), told.clone());
            let handler = async move || {
                let _inside = witness.enter();
                told.clone().wait_for(|go| *go).await.unwrap();
            };
            let limit = ConcurrencyLimitLayer::new(quorum(fleet).await.semaphore(NAME, 3));
            let router = Router::new().route("/", get(handler)).layer(layer(limit));
            apps.push(App::serve(router).await);
        }
        Self { apps, witness, go }
    }
}

#[track_caller]
fn is_denied(answer: &Answer) {
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS, "{answer:?}");
    assert_eq!(answer.number("retry-after"), 1);
    assert!(
        !answer.headers.contains_key("ratelimit-limit"),
        "{answer:?}"
    );
    assert!(answer.text.starts_with("too many requests"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_three_are_denied_if_they_may_not_wait() {
    let (fleet, client) = (masters().await, client());
    let Stay { apps, witness, go } = Stay::start(&fleet).await;
    let asked = flood(&client, &apps, 200);
    let is_answered = || asked.iter().filter(|asked| asked.is_finished()).count();
    until("all others are answered", async || {
        is_answered() + witness.inside() == 200
    })
    .await;
    // Two requests for one slot in the same instant may both be refused.
    let inside = witness.inside();
    println!("{inside} inside");
    assert!((1..=3).contains(&inside), "{inside}");

    // A request that asks alone gets each permit that is left, at either instance. After that there are no more.
    let mut more = Vec::new();
    for n in inside..3 {
        more.extend(flood(&client, &apps[n % 2..=n % 2], 1));
        are_inside(&witness, n + 1).await;
    }
    for app in &apps {
        is_denied(&super::get(&client, &app.url).await);
    }
    go.send(true).unwrap();
    let mut served = 0;
    for answer in asked.into_iter().chain(more) {
        let answer = answer.await.unwrap();
        match answer.status {
            StatusCode::OK => served += 1,
            _ => is_denied(&answer),
        }
    }
    assert_eq!((served, witness.served(), witness.most()), (3, 3, 3));
    all_come_back(&quorum(&fleet).await.semaphore(NAME, 3)).await;
}

// ---- the release of permits -------------------------------------------------------------------

/// An instance whose handlers sleep for a minute, or panic when they are told to. Its semaphore is returned too, from
/// another quorum.
async fn sleepy(fleet: &Fleet, wait: Duration) -> (App, Witness, watch::Sender<bool>, Semaphore) {
    let (witness, (panic, told)) = (Witness::default(), watch::channel(false));
    let handler = {
        let witness = witness.clone();
        async move || {
            let _inside = witness.enter();
            let told = tokio::time::timeout(MINUTE, told.clone().wait_for(|told| *told))
                .await
                .is_ok();
            assert!(!told, "as it was told");
        }
    };
    let limit = ConcurrencyLimitLayer::new(quorum(fleet).await.semaphore(NAME, 2));
    let router = Router::new()
        .route("/", get(handler))
        .layer(layer(limit.wait(wait)));
    let semaphore = quorum(fleet).await.semaphore(NAME, 2);
    (App::serve(router).await, witness, panic, semaphore)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_comes_back_when_the_client_hangs_up() {
    let (fleet, client) = (masters().await, client());
    let (app, witness, _told, semaphore) = sleepy(&fleet, Duration::ZERO).await;
    let apps = [app];

    let dropped = flood(&client, &apps, 1).pop().unwrap();
    are_inside(&witness, 1).await;
    let mut socket = TcpStream::connect(apps[0].address()).await.unwrap();
    socket
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    are_inside(&witness, 2).await;
    assert_eq!(available(&semaphore).await, 0);

    dropped.abort();
    are_inside(&witness, 1).await;
    until("one is free", async || available(&semaphore).await == 1).await;
    drop(socket);
    all_come_back(&semaphore).await;
    assert_eq!((witness.inside(), witness.served()), (0, 2));
    let left = fleet.leftover_locks_after(PATIENCE, "quorate");
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_hangs_up_while_waiting_leaves_the_queue() {
    let (fleet, client) = (masters().await, client());
    let (app, witness, _told, semaphore) = sleepy(&fleet, 2 * MINUTE).await;
    let apps = [app];
    let hold = flood(&client, &apps, 2);
    are_inside(&witness, 2).await;
    let waiting = flood(&client, &apps, 50);
    until("they stand in line", async || line(&fleet) >= 50).await;
    for caller in waiting {
        caller.abort();
    }
    until("nobody stands in line", async || line(&fleet) == 0).await;
    assert_eq!((witness.inside(), witness.served()), (2, 2));
    // The requests that hung up keep nothing: both permits can be taken again.
    hold.iter().for_each(JoinHandle::abort);
    all_come_back(&semaphore).await;
    let again = flood(&client, &apps, 2);
    are_inside(&witness, 2).await;
    assert_eq!(witness.served(), 4);
    again.iter().for_each(JoinHandle::abort);
    all_come_back(&semaphore).await;
}

/// The number of waiters in the queue, on the master that has most of them.
fn line(fleet: &Fleet) -> usize {
    let key = format!("quorate:@semaphore-line:{NAME}");
    let of = |server: &crate::support::Server| server.scored(&key, 0).len();
    fleet.iter().map(of).max().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_comes_back_when_the_handler_panics() {
    let (fleet, client) = (masters().await, client());
    let (app, witness, told, semaphore) = sleepy(&fleet, Duration::ZERO).await;
    let ask = |_| tokio::spawn(ask_raw(client.clone(), app.url.clone()));
    let both: Vec<_> = (0..2).map(ask).collect();
    are_inside(&witness, 2).await;
    assert_eq!(available(&semaphore).await, 0);
    told.send(true).unwrap();
    for asked in both {
        assert!(asked.await.unwrap().is_err(), "a panic is no answer");
    }
    all_come_back(&semaphore).await;
    // The service goes on.
    told.send(false).unwrap();
    let again = ask(0);
    are_inside(&witness, 1).await;
    again.abort();
    all_come_back(&semaphore).await;
}

async fn ask_raw(client: Client, url: String) -> reqwest::Result<Answer> {
    ask(&client, Method::GET, &url, &[]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_comes_back_when_a_timeout_drops_the_request() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let handler = {
        let witness = witness.clone();
        async move || {
            let _inside = witness.enter();
            tokio::time::sleep(MINUTE).await;
        }
    };
    let limit = ConcurrencyLimitLayer::new(quorum(&fleet).await.semaphore(NAME, 2)).wait(MINUTE);
    let too_late = |_: tower::BoxError| async { StatusCode::GATEWAY_TIMEOUT };
    // This is long enough for a permit to be granted on a busy machine.
    let stack = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(too_late))
        .timeout(Duration::from_secs(3))
        .layer(layer(limit));
    let apps = [App::serve(Router::new().route("/", get(handler)).layer(stack)).await];
    let asked = flood(&client, &apps, 6);
    are_inside(&witness, 2).await;
    let semaphore = quorum(&fleet).await.semaphore(NAME, 2);
    assert_eq!(available(&semaphore).await, 0);
    for answer in asked {
        answer.await.unwrap().is(504);
    }
    all_come_back(&semaphore).await;
    assert_eq!(witness.inside(), 0);
    assert!(witness.most() <= 2);
    let left = fleet.leftover_locks_after(PATIENCE, "quorate");
    assert!(left.is_empty(), "{left:?}");
}

/// A permit is released in the background. The next request to the same instance gets it all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_after_the_other_needs_one_permit() {
    let (fleet, witness) = (masters().await, Witness::default());
    let handler = {
        let witness = witness.clone();
        async move || drop(witness.enter())
    };
    let limit = ConcurrencyLimitLayer::new(quorum(&fleet).await.semaphore(NAME, 1));
    let app = App::serve(Router::new().route("/", get(handler)).layer(layer(limit))).await;
    let mut socket = TcpStream::connect(app.address()).await.unwrap();
    for n in 1..=200 {
        socket
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .unwrap();
        let mut answer = [0; 1024];
        let read = socket.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.starts_with("HTTP/1.1 200"), "the {n}th: {answer}");
    }
    assert_eq!(witness.served(), 200);
}
