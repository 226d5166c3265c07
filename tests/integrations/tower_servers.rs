//! The tower layers around axum servers, over real masters, with a real HTTP client.
//!
//! An instance is an axum server with a quorum of its own. The instances of one test share the masters. The handlers of
//! all instances together count the admitted requests, and know nothing of limits.
//!
//! | file | tests |
//! | --- | --- |
//! | `tower_servers/rate` | units over two instances, and waits for units |
//! | `tower_servers/permits` | permits over two instances, and their release |
//! | `tower_servers/demands` | keys and costs |
//! | `tower_servers/outage` | masters that are gone, and permits that are lost |
//! | `tower_servers/fence` | tokens of real locks |
//! | `tower_servers/shutdown` | the end of a service that holds leases |

mod demands;
mod fence;
mod outage;
mod permits;
mod rate;
mod shutdown;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::support::{Fleet, most_within};
use axum::Router;
use http::{HeaderMap, Method, StatusCode};
use quorate::{Builder, Quorum};
use reqwest::Client;
use tokio::{net::TcpListener, task::JoinHandle};

/// Far more than anything here takes: a wait of this length hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// A handler that nobody ends sleeps for this long.
const MINUTE: Duration = Duration::from_secs(60);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Waits until the condition holds.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so().await {
        assert!(Instant::now() < deadline, "it does not come: {what}");
        tokio::time::sleep(ms(10)).await;
    }
}

// ---- the masters ----------------------------------------------------------------------------

/// The timeouts are long, because a busy machine is not an outage.
fn builder(urls: &[String]) -> Builder {
    Quorum::builder()
        .nodes(urls)
        .max_ttl(Duration::from_secs(10))
        .node_timeout(Duration::from_secs(2))
}

async fn connect(builder: Builder) -> Quorum {
    let quorum = builder.connect().await.expect("a majority answers");
    quorum.voting(PATIENCE).await.unwrap();
    quorum
}

/// Three masters that vote.
async fn masters() -> Fleet {
    let fleet = Fleet::mixed(3);
    let quorum = builder(&fleet.urls()).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum.voting(PATIENCE).await.unwrap();
    quorum.shutdown().await;
    fleet
}

/// The quorum of one instance.
async fn quorum(fleet: &Fleet) -> Quorum {
    connect(builder(&fleet.urls())).await
}

// ---- a service and its clients ----------------------------------------------------------------

/// An axum server on a port of its own.
struct App {
    url: String,
    task: JoinHandle<()>,
}

impl App {
    async fn serve(router: Router) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serve = async move { axum::serve(listener, router).await.unwrap() };
        let task = tokio::spawn(serve);
        Self { url, task }
    }

    fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn client() -> Client {
    // With this feature reqwest also speaks TLS, with the provider of the process.
    #[cfg(feature = "consul")]
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

/// The answer to a client.
#[derive(Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    text: String,
    took: Duration,
}

impl Answer {
    /// The value of a header that appears once, as a number.
    #[track_caller]
    fn number(&self, name: &str) -> u64 {
        let all: Vec<_> = self.headers.get_all(name).iter().collect();
        assert_eq!(all.len(), 1, "{name} of {self:?}");
        all[0].to_str().unwrap().parse().unwrap()
    }

    #[track_caller]
    fn is(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    /// Checks that the request was denied by a rate limit of `limit` units in `period` seconds.
    #[track_caller]
    fn is_denied_of(&self, limit: u64, period: u64) {
        assert_eq!(self.status, StatusCode::TOO_MANY_REQUESTS, "{self:?}");
        let retry_after = self.number("retry-after");
        // The interval and the time that is added to it, rounded up.
        assert!(
            (1..=period * 12 / 10 + 1).contains(&retry_after),
            "{self:?}"
        );
        assert_eq!(self.number("ratelimit-reset"), retry_after);
        assert_eq!(self.number("ratelimit-limit"), limit);
        assert!(self.number("ratelimit-remaining") <= limit, "{self:?}");
        assert_eq!(
            self.headers["ratelimit-policy"],
            format!("{limit};w={period}")
        );
        let text = format!("too many requests: try again in {retry_after} s\n");
        assert_eq!(self.text, text);
    }
}

/// Sends a request with these headers. Returns an error if the connection ends without an answer.
async fn ask(
    client: &Client,
    method: Method,
    url: &str,
    headers: &[(&'static str, &str)],
) -> reqwest::Result<Answer> {
    let mut request = client.request(method, url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let began = Instant::now();
    let response = request.send().await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let text = response.text().await?;
    let took = began.elapsed();
    Ok(Answer {
        status,
        headers,
        text,
        took,
    })
}

async fn get(client: &Client, url: &str) -> Answer {
    ask(client, Method::GET, url, &[]).await.unwrap()
}

/// Sends `n` requests at once, to the instances in turn.
fn flood(client: &Client, apps: &[App], n: usize) -> Vec<JoinHandle<Answer>> {
    let urls = apps.iter().map(|app| app.url.clone()).cycle();
    let request = |url: String| {
        let client = client.clone();
        tokio::spawn(async move { get(&client, &url).await })
    };
    urls.take(n).map(request).collect()
}

// ---- the witness --------------------------------------------------------------------------------

/// Counts what the handlers of all instances do.
#[derive(Clone, Default)]
struct Witness(Arc<Seen>);

#[derive(Default)]
struct Seen {
    inside: AtomicUsize,
    most: AtomicUsize,
    began: Mutex<Vec<Instant>>,
    left: Mutex<Vec<Instant>>,
}

/// A request inside a handler, until this is dropped.
struct Inside(Witness);

impl Witness {
    fn enter(&self) -> Inside {
        self.0.began.lock().unwrap().push(Instant::now());
        let inside = self.0.inside.fetch_add(1, SeqCst) + 1;
        self.0.most.fetch_max(inside, SeqCst);
        Inside(self.clone())
    }

    /// The number of requests inside handlers now.
    fn inside(&self) -> usize {
        self.0.inside.load(SeqCst)
    }

    /// The greatest number of requests that were inside at the same time.
    fn most(&self) -> usize {
        self.0.most.load(SeqCst)
    }

    /// The number of handlers that have begun.
    fn served(&self) -> usize {
        self.0.began.lock().unwrap().len()
    }

    /// When handlers began, in order.
    fn began(&self) -> Vec<Instant> {
        let mut began = self.0.began.lock().unwrap().clone();
        began.sort_unstable();
        began
    }

    /// When handlers ended or were dropped.
    fn left(&self) -> Vec<Instant> {
        self.0.left.lock().unwrap().clone()
    }

    /// The greatest number that began in any interval of this length.
    fn most_within(&self, period: Duration) -> usize {
        most_within(&self.began(), period)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.0.inside.fetch_sub(1, SeqCst);
        self.0.0.left.lock().unwrap().push(Instant::now());
    }
}
