//! Tokens of real locks, checked before a handler writes.

use axum::{
    body::Bytes,
    extract::{Request, State},
    routing::any,
};
use quorate::{FencingToken, fence::Gate, tower::FenceLayer};

use super::*;

const TOKEN: &str = "fencing-token";

/// The last body that was written, and the number of writes.
type Store = Arc<Mutex<(Bytes, usize)>>;

async fn write(State(store): State<Store>, method: Method, body: Bytes) -> Bytes {
    let mut store = store.lock().unwrap();
    if method != Method::GET {
        *store = (body, store.1 + 1);
    }
    store.0.clone()
}

/// A service that can be written to at any path.
fn invoices() -> (Router, Store) {
    let store = Store::default();
    let router = Router::new()
        .route("/{*path}", any(write))
        .with_state(Arc::clone(&store));
    (router, store)
}

/// The tokens of several locks, one after the other.
async fn tokens<const N: usize>(name: &str) -> [String; N] {
    let fleet = masters().await;
    let mutex = quorum(&fleet).await.mutex(name);
    let mut tokens = Vec::new();
    for _ in 0..N {
        let lease = mutex.lock().await.unwrap();
        tokens.push(lease.token().to_string());
        lease.release().await.unwrap();
    }
    tokens.try_into().unwrap()
}

/// One service, and a client that writes to it.
struct Desk {
    app: App,
    client: Client,
}

impl Desk {
    async fn open(router: Router) -> Self {
        let app = App::serve(router).await;
        let client = client();
        Self { app, client }
    }

    async fn ask(&self, method: Method, path: &str, token: &str) -> Answer {
        let headers = [(TOKEN, token)];
        let headers = if token.is_empty() { &[][..] } else { &headers };
        ask(&self.client, method, &self.url(path), headers)
            .await
            .unwrap()
    }

    async fn put(&self, path: &str, token: &str) -> Answer {
        self.ask(Method::PUT, path, token).await
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.app.url)
    }
}

#[track_caller]
fn is_stale(answer: Answer) {
    let answer = answer.is(412);
    assert!(answer.text.contains("stale"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_holder_does_not_write() {
    let [first, second, third] = tokens("invoice:42").await;
    let (router, store) = invoices();
    let desk = Desk::open(router.layer(FenceLayer::new(Gate::new()))).await;
    let written = || store.lock().unwrap().1;

    desk.put("/invoices/42", &first).await.is(200);
    desk.put("/invoices/42", &second).await.is(200);
    desk.put("/invoices/42", &second).await.is(200);
    assert_eq!(written(), 3);
    is_stale(desk.put("/invoices/42", &first).await);
    for method in [Method::POST, Method::PATCH, Method::DELETE, Method::GET] {
        is_stale(desk.ask(method, "/invoices/42", &first).await);
    }
    assert_eq!(written(), 3);
    // A read with a token makes it the newest token too.
    desk.ask(Method::GET, "/invoices/42", &third).await.is(200);
    is_stale(desk.put("/invoices/42", &second).await);
    // The query does not belong to the path.
    is_stale(desk.put("/invoices/42?again", &second).await);
    // Another path is another resource.
    desk.put("/invoices/43", &first).await.is(200);
    assert_eq!(written(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_a_token_may_only_read() {
    let [token] = tokens("invoice:42").await;
    let (router, store) = invoices();
    let desk = Desk::open(router.layer(FenceLayer::new(Gate::new()))).await;
    for method in [Method::PUT, Method::POST, Method::PATCH, Method::DELETE] {
        let answer = desk.ask(method, "/invoices/42", "").await.is(428);
        assert!(answer.text.contains("Fencing-Token"), "{answer:?}");
    }
    assert_eq!(store.lock().unwrap().1, 0);
    desk.put("/invoices/42", &token).await.is(200);
    for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
        desk.ask(method, "/invoices/42", "").await.is(200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_token_writes_nothing_and_changes_no_mark() {
    let [first, second] = tokens("invoice:42").await;
    let (router, store) = invoices();
    let desk = Desk::open(router.layer(FenceLayer::new(Gate::new()))).await;
    let two = format!("{first}, {second}");
    let rubbish = [
        "abc",
        "-1",
        "1.5",
        "0x10",
        "1e9",
        "9007199254740992",     // 2^53
        "18446744073709551616", // 2^64
        "99999999999999999999999999999999999999999",
        &two,
        "\u{661}\u{662}", // digits of another script
    ];
    for method in [Method::PUT, Method::GET] {
        for rubbish in rubbish {
            desk.ask(method.clone(), "/invoices/42", rubbish)
                .await
                .is(400);
        }
        let empty = [(TOKEN, "")];
        let twice = [(TOKEN, &*first), (TOKEN, &*second)];
        let same = [(TOKEN, &*first), (TOKEN, &*first)];
        for headers in [&empty[..], &twice[..], &same[..]] {
            let url = desk.url("/invoices/42");
            ask(&desk.client, method.clone(), &url, headers)
                .await
                .unwrap()
                .is(400);
        }
    }
    assert_eq!(store.lock().unwrap().1, 0);
    // The newer of two headers was not taken as the token.
    desk.put("/invoices/42", &first).await.is(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_spellings_of_a_path_are_one_resource_if_configured() {
    let [first, second] = tokens("invoice:42").await;
    let spellings = ["/invoices/42", "/invoices/042", "/invoices/+42"];
    // By default they are different resources.
    let (router, _) = invoices();
    let desk = Desk::open(router.layer(FenceLayer::new(Gate::new()))).await;
    desk.put(spellings[0], &second).await.is(200);
    desk.put(spellings[1], &first).await.is(200);

    let (router, store) = invoices();
    let number = |request: &Request| -> String {
        let last = request.uri().path().rsplit('/').next().unwrap_or_default();
        last.parse::<u64>()
            .map_or_else(|_| String::new(), |n| n.to_string())
    };
    let layer = FenceLayer::new(Gate::new()).resource(number);
    let desk = Desk::open(router.layer(layer)).await;
    desk.put(spellings[0], &second).await.is(200);
    for spelling in spellings {
        is_stale(desk.put(spelling, &first).await);
    }
    desk.put("/invoices/43", &first).await.is(200);
    assert_eq!(store.lock().unwrap().1, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_may_stand_elsewhere() {
    let [first, second] = tokens("invoice:42").await;
    let (router, store) = invoices();
    let of_query = |request: &Request| -> Option<FencingToken> {
        request.uri().query()?.strip_prefix("token=")?.parse().ok()
    };
    let desk = Desk::open(router.layer(FenceLayer::new(Gate::new()).token(of_query))).await;
    let path = |token: &str| format!("/invoices/42?token={token}");
    desk.put(&path(&second), "").await.is(200);
    // The header is not used any more.
    is_stale(desk.put(&path(&first), &second).await);
    desk.put(&path(&second), &first).await.is(200);
    desk.put("/invoices/42", &second).await.is(428);
    assert_eq!(store.lock().unwrap().1, 2);
}

/// Two services of one process write to the same store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_can_be_shared() {
    let [first, second] = tokens("invoice:42").await;
    let gate = Arc::new(Gate::new());
    let (router, store) = invoices();
    let one = Desk::open(router.clone().layer(FenceLayer::new(Arc::clone(&gate)))).await;
    let other = Desk::open(router.layer(FenceLayer::new(gate))).await;
    one.put("/invoices/42", &second).await.is(200);
    is_stale(other.put("/invoices/42", &first).await);
    assert_eq!(store.lock().unwrap().1, 1);
}

/// Old and new holders write at once, through both of two services.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_writes_after_a_newer_token_was_answered() {
    const REQUESTS: usize = 200;
    let mut tokens: Vec<String> = tokens::<20>("invoice:42").await.into();
    let gate = Arc::new(Gate::new());
    let (router, store) = invoices();
    let layered = || router.clone().layer(FenceLayer::new(Arc::clone(&gate)));
    let desks = [Desk::open(layered()).await, Desk::open(layered()).await];
    // The tokens go from the first to the last, so that new and old ones are admitted in between.
    let turns = (0..REQUESTS).map(async |n| {
        tokio::time::sleep(ms(n as u64 + rand::random_range(0..20))).await;
        let nth = n * tokens.len() / REQUESTS;
        let token = &tokens[nth.saturating_sub(rand::random_range(0..4))];
        let began = Instant::now();
        let answer = desks[n % 2].put("/invoices/42", token).await;
        let is_written = match answer.status.as_u16() {
            200 => true,
            _ => {
                is_stale(answer);
                false
            }
        };
        (
            token.parse::<u64>().unwrap(),
            is_written,
            began,
            Instant::now(),
        )
    });
    let all = futures::future::join_all(turns).await;
    let written = all.iter().filter(|(_, is_written, ..)| *is_written);
    assert_eq!(store.lock().unwrap().1, written.clone().count());
    let mut stale = 0;
    for (newer, .., answered) in written {
        for (token, is_written, began, _) in &all {
            if token < newer && began > answered {
                assert!(!is_written, "{token} after {newer}");
                stale += 1;
            }
        }
    }
    println!("{} written, {stale} pairs", store.lock().unwrap().1);
    assert!(stale > 0);
    // After all of them the newest token is in force.
    let newest = tokens.pop().unwrap();
    desks[0].put("/invoices/42", &newest).await.is(200);
    is_stale(desks[1].put("/invoices/42", &tokens[0]).await);
}
