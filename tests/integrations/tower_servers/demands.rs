//! The key and the cost of a request: headers give both.

use axum::{extract::Request, routing::get};
use quorate::{
    Quota,
    tower::{ConcurrencyLimitLayer, RateLimitLayer, Rejected},
};
use tokio::sync::watch;

use super::*;

const CUSTOMER: &str = "x-customer";
const COST: &str = "x-cost";

fn customer(request: &Request) -> String {
    let customer = request.headers().get(CUSTOMER);
    customer.map_or(String::new(), |customer| {
        String::from_utf8_lossy(customer.as_bytes()).into_owned()
    })
}

fn cost(request: &Request) -> u32 {
    let cost = request.headers().get(COST);
    cost.map_or(1, |cost| cost.to_str().unwrap().parse().unwrap())
}

/// One instance, and a client of it.
struct Desk {
    app: App,
    client: Client,
}

impl Desk {
    async fn ask(&self, customer: &str, cost: u32) -> Answer {
        let headers = [(CUSTOMER, customer), (COST, &cost.to_string())];
        ask(&self.client, Method::GET, &self.app.url, &headers)
            .await
            .unwrap()
    }
}

/// Checks that a demand that can never be met is the client's mistake. The text names the bound, but not the key.
#[track_caller]
fn is_a_mistake(answer: Answer, bound: &str) {
    let answer = answer.is(400);
    assert!(answer.text.contains(bound), "{answer:?}");
    assert!(!answer.text.contains("kkk"), "{answer:?}");
    assert!(!answer.headers.contains_key("retry-after"), "{answer:?}");
}

// ---- units ----------------------------------------------------------------------------------

/// Six units in ten seconds for each customer.
async fn units(fleet: &Fleet, witness: &Witness) -> Desk {
    let witness = witness.clone();
    let handler = async move || drop(witness.enter());
    let quota = Quota::new(6, Duration::from_secs(10));
    let layer = RateLimitLayer::new(quorum(fleet).await.rate_limiter("api", quota))
        .key(customer)
        .cost(cost)
        .reject_with(Rejected::into_response);
    let app = App::serve(Router::new().route("/", get(handler)).layer(layer)).await;
    let client = client();
    Desk { app, client }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_customer_has_all_the_units() {
    let (fleet, witness) = (masters().await, Witness::default());
    let instances = [units(&fleet, &witness).await, units(&fleet, &witness).await];
    for (n, customer) in ["ada", "grace", ""].into_iter().enumerate() {
        for i in 0..6 {
            instances[i % 2].ask(customer, 1).await.is(200);
        }
        for instance in &instances {
            instance.ask(customer, 1).await.is_denied_of(6, 10);
        }
        assert_eq!(witness.served(), 6 * (n + 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_uses_as_many_units_as_it_costs() {
    let (fleet, witness) = (masters().await, Witness::default());
    let desk = units(&fleet, &witness).await;
    desk.ask("ada", 4).await.is(200);
    let denied = desk.ask("ada", 3).await;
    denied.is_denied_of(6, 10);
    assert_eq!(denied.number("ratelimit-remaining"), 2);
    desk.ask("ada", 2).await.is(200);
    desk.ask("ada", 1).await.is_denied_of(6, 10);
    // A demand for the whole limit at once is allowed.
    desk.ask("grace", 6).await.is(200);
    assert_eq!(witness.served(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_costs_no_unit_always_passes() {
    let (fleet, witness) = (masters().await, Witness::default());
    let desk = units(&fleet, &witness).await;
    desk.ask("ada", 6).await.is(200);
    desk.ask("ada", 1).await.is_denied_of(6, 10);
    desk.ask("ada", 0).await.is(200);
    // No master is asked, neither about the key nor about anything in addition.
    desk.ask(&"k".repeat(600), 0).await.is(200);
    fleet.iter().for_each(crate::support::Server::kill9);
    desk.ask("grace", 0).await.is(200);
    assert_eq!(witness.served(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cost_above_the_limit_and_too_long_a_key_are_mistakes() {
    let (fleet, witness) = (masters().await, Witness::default());
    let desk = units(&fleet, &witness).await;
    is_a_mistake(desk.ask("ada", 7).await, "can take (6 of 6 ");
    is_a_mistake(desk.ask("ada", u32::MAX).await, "can take (6 of 6 ");
    is_a_mistake(desk.ask(&"k".repeat(513), 1).await, "at most 512");
    assert_eq!(witness.served(), 0);
    // No unit was used.
    desk.ask("ada", 6).await.is(200);
    // Together with the name of the limit, "3:api:", this key has 512 bytes.
    desk.ask(&"k".repeat(506), 1).await.is(200);
    is_a_mistake(desk.ask(&"k".repeat(507), 1).await, "at most 512");
}

// ---- permits --------------------------------------------------------------------------------

/// Three permits at a time for each customer. The handlers stay until they are told to end.
async fn permits(fleet: &Fleet, witness: &Witness) -> (Desk, watch::Sender<bool>) {
    let (witness, (go, told)) = (witness.clone(), watch::channel(false));
    let handler = async move || {
        let _inside = witness.enter();
        told.clone().wait_for(|go| *go).await.unwrap();
    };
    let layer = ConcurrencyLimitLayer::new(quorum(fleet).await.semaphore("exports", 3))
        .key(customer)
        .cost(cost)
        .reject_with(Rejected::into_response);
    let app = App::serve(Router::new().route("/", get(handler)).layer(layer)).await;
    let client = client();
    (Desk { app, client }, go)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_customer_has_all_the_permits_and_holds_as_many_as_it_costs() {
    let (fleet, witness) = (masters().await, Witness::default());
    let (desk, go) = permits(&fleet, &witness).await;
    let desk = Arc::new(desk);
    let mut served = Vec::new();
    for (customer, cost) in [("ada", 3), ("grace", 2), ("grace", 1), ("", 2)] {
        let asks = Arc::clone(&desk);
        served.push(tokio::spawn(async move { asks.ask(customer, cost).await }));
        let n = served.len();
        until("it is served", async || witness.inside() == n).await;
    }
    for (customer, cost) in [("ada", 1), ("ada", 2), ("grace", 1), ("", 2)] {
        let denied = desk.ask(customer, cost).await.is(429);
        assert_eq!(denied.number("retry-after"), 1);
        assert!(denied.text.starts_with("too many requests"), "{denied:?}");
    }
    go.send(true).unwrap();
    for served in served {
        served.await.unwrap().is(200);
    }
    assert_eq!((witness.served(), witness.most()), (4, 4));
    // All permits of a request are released, and a denied request kept none.
    let semaphore = quorum(&fleet).await.semaphore("exports", 3);
    for customer in ["ada", "grace", ""] {
        let keyed = semaphore.keyed(customer);
        until("all permits are free", async || {
            keyed.available().await.unwrap() == 3
        })
        .await;
    }
    let left = fleet.leftover_locks_after(PATIENCE, "quorate");
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_permit_counts_are_mistakes_and_zero_always_passes() {
    let (fleet, witness) = (masters().await, Witness::default());
    let (desk, go) = permits(&fleet, &witness).await;
    go.send(true).unwrap();
    is_a_mistake(desk.ask("ada", 4).await, "3");
    is_a_mistake(desk.ask("ada", u32::MAX).await, "3");
    is_a_mistake(desk.ask(&"k".repeat(513), 1).await, "at most 512");
    is_a_mistake(desk.ask(&"k".repeat(513), 2).await, "at most 512");
    assert_eq!(witness.served(), 0);
    fleet.iter().for_each(crate::support::Server::kill9);
    desk.ask("ada", 0).await.is(200);
}

/// The next request gets the permits that the last one released, also if there are several.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_in_turn_each_get_all_permits() {
    let (fleet, witness) = (masters().await, Witness::default());
    let (desk, go) = permits(&fleet, &witness).await;
    go.send(true).unwrap();
    for n in 0..100 {
        let answer = desk.ask("ada", 3).await;
        assert_eq!(answer.status, StatusCode::OK, "the {n}th: {answer:?}");
    }
}

/// Many clients ask for several permits and hang up at any time. None of them keeps a permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_crowd_that_hangs_up_no_permit_is_lost() {
    let (fleet, witness) = (masters().await, Witness::default());
    let mut desks = Vec::new();
    for _ in 0..2 {
        let witness = witness.clone();
        let handler = async move |request: Request| {
            // One witness for each permit of the request.
            let _inside: Vec<_> = (0..cost(&request)).map(|_| witness.enter()).collect();
            tokio::time::sleep(ms(5)).await;
        };
        let layer = ConcurrencyLimitLayer::new(quorum(&fleet).await.semaphore("exports", 3))
            .cost(cost)
            .wait(PATIENCE)
            .reject_with(Rejected::into_response);
        let app = App::serve(Router::new().route("/", get(handler)).layer(layer)).await;
        let client = client();
        desks.push(Arc::new(Desk { app, client }));
    }
    let caller = |n: usize| {
        let desk = Arc::clone(&desks[n % 2]);
        tokio::spawn(async move {
            let (mut served, mut gone) = (0, 0);
            for _ in 0..30 {
                let (cost, soon) = (rand::random_range(1..=3), ms(rand::random_range(1..400)));
                match tokio::time::timeout(soon, desk.ask("", cost)).await {
                    Ok(answer) => {
                        answer.is(200);
                        served += 1;
                    }
                    Err(_) => gone += 1,
                }
            }
            (served, gone)
        })
    };
    let callers: Vec<_> = (0..50).map(caller).collect();
    let (mut served, mut gone) = (0, 0);
    for caller in callers {
        let (s, g) = caller.await.unwrap();
        (served, gone) = (served + s, gone + g);
    }
    println!(
        "{served} served, {gone} hung up, at most {} permits",
        witness.most()
    );
    assert!(served > 0 && gone > 0, "{served}, {gone}");
    assert!(witness.most() <= 3, "{}", witness.most());
    let semaphore = quorum(&fleet).await.semaphore("exports", 3);
    until("all permits are free", async || {
        semaphore.available().await.unwrap() == 3
    })
    .await;
    let left = fleet.leftover_locks_after(PATIENCE, "quorate");
    assert!(left.is_empty(), "{left:?}");
    // All permits can be taken together once more.
    desks[0].ask("", 3).await.is(200);
}
