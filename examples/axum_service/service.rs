//! The service: its routes and the layers around them.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::Response,
    routing::{get, put},
};
use quorate::{
    Quorum, Quota,
    fence::Gate,
    tower::{ConcurrencyLimitLayer, FenceLayer, RateLimitLayer, Rejected},
};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle, time::sleep};

use crate::Failure;

/// The number of requests that one customer may make in any interval.
pub(crate) const LIMIT: u32 = 20;
const INTERVAL: Duration = Duration::from_secs(10);
/// The number of exports that may run at the same time.
pub(crate) const EXPORTS: u32 = 2;

/// Stands for the database that all instances share, which compares tokens. A gate only knows the tokens that have
/// passed through it, and instances on several machines do not share one. There, let the database itself compare the
/// tokens (`quorate::fence`).
#[derive(Default)]
pub(crate) struct Store {
    invoices: Mutex<HashMap<u64, String>>,
    gate: Arc<Gate>,
    exporting: AtomicU32,
    /// The most exports that ran at the same time.
    pub(crate) most: AtomicU32,
}

fn app(quorum: &Quorum, store: Arc<Store>) -> Result<Router, quorate::Error> {
    let requests = quorum.rate_limiter("requests", Quota::new(LIMIT, INTERVAL));
    let exports = quorum.semaphore("exports", EXPORTS);
    requests.validate()?; // a bad setting is an error now, not an error of each request
    exports.validate()?;

    let exports = ConcurrencyLimitLayer::new(exports)
        .wait(Duration::from_secs(5)) // waits in one queue for all instances
        .reject_with(Rejected::into_response);
    let fence = FenceLayer::new(Arc::clone(&store.gate)).resource(invoice);
    let customers = RateLimitLayer::new(requests)
        .key(customer)
        .reject_with(Rejected::into_response); // answers 429 with Retry-After

    let app = Router::new()
        .route("/", get(async || "welcome\n"))
        .route("/export", get(export).layer(exports))
        .route(
            "/invoices/{id}",
            put(write).layer(fence).layer(middleware::from_fn(which)),
        )
        .layer(customers); // the last layer is the outermost one, so it is asked first
    Ok(app.with_state(store))
}

/// The customer who sends the request. In a real service this is the user who has logged in, not a header that anybody
/// can set.
fn customer(request: &Request) -> String {
    match request.headers().get("x-customer") {
        Some(name) => String::from_utf8_lossy(name.as_bytes()).into_owned(),
        None => "nobody".to_owned(),
    }
}

/// The invoice that a request is about. One invoice has several paths, such as `/invoices/42` and `/invoices/042`.
#[derive(Clone)]
struct Invoice(u64);

async fn which(Path(id): Path<u64>, mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert(Invoice(id));
    next.run(request).await
}

fn invoice(request: &Request) -> String {
    match request.extensions().get::<Invoice>() {
        Some(Invoice(id)) => id.to_string(),
        None => request.uri().path().to_owned(),
    }
}

async fn export(State(store): State<Arc<Store>>) -> &'static str {
    let now = store.exporting.fetch_add(1, Ordering::Relaxed) + 1;
    store.most.fetch_max(now, Ordering::Relaxed);
    sleep(Duration::from_millis(100)).await; // the expensive work
    store.exporting.fetch_sub(1, Ordering::Relaxed);
    "exported\n"
}

async fn write(State(store): State<Arc<Store>>, Path(id): Path<u64>, text: String) -> StatusCode {
    let mut invoices = store
        .invoices
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    invoices.insert(id, text);
    StatusCode::NO_CONTENT
}

/// One instance of the service: it listens on one address and has a `Quorum` of its own.
pub(crate) struct Instance {
    pub(crate) url: String,
    quorum: Quorum,
    stop: oneshot::Sender<()>,
    server: JoinHandle<std::io::Result<()>>,
}

impl Instance {
    pub(crate) async fn start(
        address: &str,
        quorum: Quorum,
        store: Arc<Store>,
    ) -> Result<Self, Failure> {
        let app = app(&quorum, store)?;
        let listener = TcpListener::bind(address).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = axum::serve(listener, app).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let server = tokio::spawn(server.into_future());
        Ok(Self {
            url,
            quorum,
            stop,
            server,
        })
    }

    /// Finishes the requests that have begun. `shutdown` then waits until their permits are released.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        let _ = self.stop.send(());
        self.server.await??;
        self.quorum.shutdown().await;
        Ok(())
    }
}
