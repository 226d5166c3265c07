//! The records that `consul lock` writes, which the library has to read.

use std::process::{Child, Stdio};

use super::*;
use crate::support::Pair;

const LOCK: u64 = 0x2ddc_cbc0_58a5_0c18;
const SEMAPHORE: u64 = 0xe0f6_9a2b_aa41_4de0;

/// Holds the lock until its standard input ends. That is at the end of this test at the latest.
fn holder(agent: &Agent, options: &[&str]) -> Child {
    let words = [&["lock", "-pass-stdin"], options, &["jobs", "cat"]].concat();
    let mut command = agent.consul(&words);
    command.stdin(Stdio::piped()).spawn().unwrap()
}

fn end(mut holder: Child) {
    drop(holder.stdin.take());
    assert!(holder.wait().unwrap().success());
}

/// `consul lock` ends its session from a thread that it does not wait for. If that was not done, the session ends after
/// two ttls of 15 s.
fn is_cleaned_up(agent: &Agent) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !(agent.keys("").is_empty() && agent.sessions().is_empty()) {
        let left = (agent.keys(""), agent.sessions());
        assert!(Instant::now() < deadline, "{left:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn session_of(agent: &Agent, pair: &Pair) -> Value {
    let id = pair.session.as_deref().expect("a session");
    let mut sessions = agent.sessions();
    sessions.retain(|session| session["ID"] == id);
    sessions.remove(0)
}

#[test]
fn consul_lock_puts_one_key_with_its_session() {
    let agent = Agent::start();
    let first = holder(&agent, &[]);
    until("it is held", || !agent.pairs("").is_empty());
    let pairs = agent.pairs("");
    assert_eq!(pairs.len(), 1, "{pairs:?}");
    assert_eq!(pairs[0].key, "jobs/.lock");
    assert_eq!((pairs[0].flags, pairs[0].value.as_str()), (LOCK, ""));
    let session = session_of(&agent, &pairs[0]);
    assert_eq!(session["TTL"], "15s");
    assert_eq!(session["Behavior"], "release");
    assert_eq!(session["LockDelay"], 15_000_000_000_u64);
    assert_eq!(session["Name"], "Consul lock for 'cat' at 'jobs'");
    end(first);
    is_cleaned_up(&agent);
}

#[test]
fn consul_lock_of_several_puts_a_record_and_one_entry_for_each() {
    let agent = Agent::start();
    let holders = [(); 2].map(|()| holder(&agent, &["-n", "3"]));
    let record = || {
        let mut pairs = agent.pairs("jobs/.lock");
        let record = pairs.pop()?;
        let value: Value = serde_json::from_str(&record.value).unwrap();
        Some((record, value))
    };
    until("both hold", || {
        record().is_some_and(|(_, value)| {
            value["Holders"]
                .as_object()
                .is_some_and(|all| all.len() == 2)
        })
    });
    let (record, value) = record().unwrap();
    assert_eq!((record.flags, record.session), (SEMAPHORE, None));
    let entries = agent.pairs("jobs/");
    let entries: Vec<_> = entries
        .iter()
        .filter(|pair| pair.key != "jobs/.lock")
        .collect();
    let ids: Vec<_> = entries
        .iter()
        .map(|pair| pair.session.as_deref().unwrap())
        .collect();
    assert_eq!(
        value,
        json!({"Limit": 3, "Holders": {ids[0]: true, ids[1]: true}})
    );
    for pair in entries {
        let id = pair.session.as_deref().unwrap();
        assert_eq!(
            (pair.key.as_str(), pair.flags),
            (format!("jobs/{id}").as_str(), SEMAPHORE)
        );
        let session = session_of(&agent, pair);
        assert_eq!(session["TTL"], "15s");
        assert_eq!(session["Behavior"], "delete");
    }
    holders.into_iter().for_each(end);
    is_cleaned_up(&agent);
}
