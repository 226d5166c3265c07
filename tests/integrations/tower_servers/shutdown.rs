//! The end of a service that holds a lease for its life, and locks in its handlers.

use axum::{
    extract::{Path, State},
    routing::post,
};
use quorate::{Lease, LeaseWatch};
use tokio::sync::{oneshot, watch};

use super::*;

const KEY: &str = "signer:key-1";

#[derive(Clone)]
struct Signer {
    quorum: Quorum,
    key: watch::Receiver<Option<LeaseWatch>>,
    may_end: watch::Receiver<bool>,
    witness: Witness,
}

/// Signs under the lock of one invoice, and only while the service has the key.
async fn sign(State(signer): State<Signer>, Path(invoice): Path<String>) -> StatusCode {
    let Signer {
        quorum,
        key,
        mut may_end,
        witness,
    } = signer;
    let work = quorum.mutex(invoice).run(async move |_| {
        let inside = witness.enter();
        may_end.wait_for(|may| *may).await.unwrap();
        drop(inside);
        let key = key.borrow();
        key.as_ref().is_some_and(LeaseWatch::is_valid)
    });
    match work.await {
        Ok(true) => StatusCode::OK,
        Ok(false) => StatusCode::INTERNAL_SERVER_ERROR,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Owns the key until the quorum closes.
async fn keep(quorum: Quorum, lease: Lease, key: watch::Sender<Option<LeaseWatch>>) {
    key.send_replace(Some(lease.watch()));
    quorum.closing().await;
    key.send_replace(None);
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_ends_with_its_handlers_done_and_its_key_free() {
    let (fleet, client, witness) = (masters().await, client(), Witness::default());
    let (other, quorum) = (quorum(&fleet).await, quorum(&fleet).await);
    let (holds, key) = watch::channel(None);
    let (let_end, may_end) = watch::channel(false);
    // This is longer than the test: only a release makes the key free.
    let lease = quorum.mutex(KEY).ttl(Duration::from_secs(10));
    let lease = lease.lock().await.unwrap();
    let keeper = tokio::spawn(keep(quorum.clone(), lease, holds));
    let signer = Signer {
        quorum: quorum.clone(),
        key,
        may_end,
        witness: witness.clone(),
    };
    let router = Router::new()
        .route("/{invoice}", post(sign))
        .with_state(signer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/invoice-1", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(async move {
        let server = axum::serve(listener, router);
        let server = server.with_graceful_shutdown(async { stopped.await.unwrap() });
        server.await.unwrap();
        quorum.shutdown().await
    });
    let request = {
        let client = client.clone();
        tokio::spawn(async move { ask(&client, Method::POST, &url, &[]).await.unwrap() })
    };
    until("the handler has begun", async || witness.inside() == 1).await;
    stop.send(()).unwrap();
    // The handler holds its lock, and the key is kept for it.
    assert!(other.mutex(KEY).try_lock().await.unwrap().is_none());
    assert!(other.mutex("invoice-1").try_lock().await.unwrap().is_none());
    let_end.send_replace(true);
    request.await.unwrap().is(200);
    assert_eq!(server.await.unwrap(), [""; 0]);
    keeper.await.unwrap();
    for name in [KEY, "invoice-1"] {
        let lease = other.mutex(name).try_lock().await.unwrap();
        assert!(lease.is_some(), "{name} is free");
    }
}
