//! Tests of Consul itself: the agents of `support` do what the tests ask of them, and Consul behaves as
//! `src/integrations/consul/` relies on.

mod harness;
mod its_own_lock;
mod sessions;
mod transactions;

use std::time::{Duration, Instant};

use crate::support::Agent;
use serde_json::{Value, json};

/// The limit for things that must happen, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes a session as the library does: it is bound to no health checks. The lock-delay is an argument.
fn session(agent: &Agent, delay: &str) -> String {
    agent.session(&json!({
        "TTL": "60s", "LockDelay": delay, "Behavior": "delete", "Checks": [], "NodeChecks": [],
    }))
}

/// Returns true if the session got the key.
fn acquire(agent: &Agent, key: &str, session: &str) -> bool {
    let (status, body) = agent.ask("PUT", &format!("/v1/kv/{key}?acquire={session}"), "");
    assert_eq!(status, 200, "{body}");
    body.trim() == "true"
}

/// One step of a transaction.
fn step(verb: &str, key: &str, more: Value) -> Value {
    let mut step = json!({"Verb": verb, "Key": key});
    for (word, value) in more.as_object().unwrap() {
        step[word] = value.clone();
    }
    json!({"KV": step})
}

/// The results of a transaction, or the reason why it failed. (All failures have the status 409.)
fn txn(agent: &Agent, steps: &[Value]) -> Result<Value, String> {
    let (status, body) = agent.ask("PUT", "/v1/txn", &json!(steps).to_string());
    let answer: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{status}: {body}"));
    match status {
        200 => Ok(answer["Results"].clone()),
        409 => Err(answer["Errors"].to_string()),
        _ => panic!("{status}: {body}"),
    }
}
