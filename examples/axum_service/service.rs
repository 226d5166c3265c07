//! The service: its routes, and what stands around them.

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

/// Requests of one customer in any interval.
pub(crate) const LIMIT: u32 = 20;
const INTERVAL: Duration = Duration::from_secs(10);
/// Exports at a time.
pub(crate) const EXPORTS: u32 = 2;

/// Stands for the database that all instances share, and which compares tokens. A gate knows only what has passed it, and
/// instances on several machines have none in common: there let the database itself compare (`quorate::fence`).
#[derive(Default)]
pub(crate) struct Store {
    invoices: Mutex<HashMap<u64, String>>,
    gate: Arc<Gate>,
    exporting: AtomicU32,
    /// Exports at a time, at most.
    pub(crate) most: AtomicU32,
}

fn app(quorum: &Quorum, store: Arc<Store>) -> Result<Router, quorate::Error> {
    let requests = quorum.rate_limiter("requests", Quota::new(LIMIT, INTERVAL));
    let exports = quorum.semaphore("exports", EXPORTS);
    requests.validate()?; // a bad setting is an error now, and not one of each request
    exports.validate()?;

    let exports = ConcurrencyLimitLayer::new(exports)
        .wait(Duration::from_secs(5)) // in line, which is one for all instances
        .reject_with(Rejected::into_response);
    let fence = FenceLayer::new(Arc::clone(&store.gate)).resource(invoice);
    let customers = RateLimitLayer::new(requests)
        .key(customer)
        .reject_with(Rejected::into_response); // 429 with Retry-After

    let app = Router::new()
        .route("/", get(async || "welcome\n"))
        .route("/export", get(export).layer(exports))
        .route(
            "/invoices/{id}",
            put(write).layer(fence).layer(middleware::from_fn(which)),
        )
        .layer(customers); // the last one is the outermost: it is asked first
    Ok(app.with_state(store))
}

/// Who asks. Behind a real service this is who has logged in, and not what anybody may write into a header.
fn customer(request: &Request) -> String {
    match request.headers().get("x-customer") {
        Some(name) => String::from_utf8_lossy(name.as_bytes()).into_owned(),
        None => "nobody".to_owned(),
    }
}

/// What a request is about: one invoice has many paths, as `/invoices/42` and `/invoices/042`.
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
    sleep(Duration::from_millis(100)).await; // expensive
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

/// The service on one address, with a `Quorum` of its own.
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

    /// Requests that have begun are served, and then `shutdown` waits until their permits are back.
    pub(crate) async fn stop(self) -> Result<(), Failure> {
        let _ = self.stop.send(());
        self.server.await??;
        self.quorum.shutdown().await;
        Ok(())
    }
}
