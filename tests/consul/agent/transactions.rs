//! Transactions, and queries that wait for their effects.

use super::*;

const HELD: &str = "aGVsZA==";

fn lock(key: &str, session: &str) -> Value {
    step("lock", key, json!({"Session": session, "Value": HELD}))
}

#[test]
fn a_lock_and_a_record_that_are_written_together_have_one_index() {
    let agent = Agent::start();
    let holder = session(&agent, "0s");
    let record = step("cas", "a/.lock", json!({"Value": HELD, "Index": 0}));
    let entry = lock("a/me", &holder);
    let results = txn(&agent, &[entry.clone(), record.clone()]).unwrap();
    let index = |n: usize| results[n]["KV"]["ModifyIndex"].as_u64().unwrap();
    assert!(index(0) > 0 && index(0) == index(1), "{results}");
    let pairs = agent.pairs("a/");
    assert!(pairs.iter().all(|pair| pair.modify_index == index(0)));

    // A transaction does all or nothing: the record already exists.
    let why = txn(&agent, &[lock("a/you", &holder), record]).unwrap_err();
    assert!(why.contains("\"OpIndex\":1"), "{why}");
    assert_eq!(agent.keys("a/"), ["a/.lock", "a/me"]);
}

#[test]
fn a_lock_for_a_session_that_is_not_there_is_refused() {
    let agent = Agent::start();
    let unknown = "11111111-2222-3333-4444-555555555555";
    let steps = [step("set", "b", json!({"Value": HELD})), lock("a", unknown)];
    let why = txn(&agent, &steps).unwrap_err();
    assert!(why.contains("invalid session"), "{why}");
    assert_eq!(agent.keys(""), [""; 0]);
}

#[test]
fn a_lock_of_another_is_refused_as_held_and_one_that_is_there_as_existing() {
    let agent = Agent::start();
    let (first, second) = (session(&agent, "0s"), session(&agent, "0s"));
    let absent = step("check-not-exists", "a", json!({}));
    txn(&agent, &[absent.clone(), lock("a", &first)]).unwrap();
    let why = txn(&agent, &[lock("a", &second)]).unwrap_err();
    assert!(why.contains("already held"), "{why}");
    let why = txn(&agent, &[absent, lock("a", &first)]).unwrap_err();
    assert!(
        why.contains("\"OpIndex\":0") && why.contains("exists"),
        "{why}"
    );
    // A session may lock its own key again. The index grows only if that changes something.
    let index = || agent.pairs("a")[0].modify_index;
    let before = index();
    txn(&agent, &[lock("a", &first)]).unwrap();
    assert_eq!(index(), before);
    let other = step("lock", "a", json!({"Session": first, "Value": ""}));
    txn(&agent, &[other]).unwrap();
    assert!(index() > before);
}

#[test]
fn a_check_answers_with_the_index_that_it_checked_and_a_lock_with_its_own() {
    let agent = Agent::start();
    let holder = session(&agent, "0s");
    agent.put("a", 0, "");
    let before = agent.pairs("a")[0].modify_index;
    let check = step("check-index", "a", json!({"Index": before}));
    let steps = [check, step("delete", "b", json!({})), lock("a", &holder)];
    let results = txn(&agent, &steps).unwrap();
    // A deletion has no result.
    let indexes: Vec<_> = results.as_array().unwrap().iter().collect();
    let indexes = indexes.iter().map(|result| &result["KV"]["ModifyIndex"]);
    let after = agent.pairs("a")[0].modify_index;
    assert!(after > before);
    assert!(indexes.eq([before, after]), "{results}");
}

#[test]
fn an_entry_is_deleted_by_its_own_session_only() {
    let agent = Agent::start();
    let (first, second) = (session(&agent, "0s"), session(&agent, "0s"));
    txn(&agent, &[lock("a", &first)]).unwrap();
    let delete = |session: &str| {
        let own = step("check-session", "a", json!({"Session": session}));
        txn(&agent, &[own, step("delete", "a", json!({}))])
    };
    let why = delete(&second).unwrap_err();
    assert!(why.contains("\"OpIndex\":0"), "{why}");
    assert_eq!(agent.keys(""), ["a"]);
    delete(&first).unwrap();
    assert_eq!(agent.keys(""), [""; 0]);
    delete(&first).unwrap_err();
    // No lock-delay follows a deletion.
    assert!(acquire(&agent, "a", &second));
}

#[test]
fn a_query_that_waits_for_a_prefix_sees_a_key_go() {
    let agent = Agent::start();
    for key in ["a/1", "a/2", "b"] {
        agent.put(key, 0, "");
    }
    let query = |index: u64, wait: &str| format!("/v1/kv/a/?recurse&index={index}&wait={wait}");
    let mut last = agent.index("/v1/kv/a/?recurse");
    // The second key is the last one there. The index does not go back when it is deleted.
    for key in ["a/1", "a/2"] {
        let begun = Instant::now();
        let index = std::thread::scope(|scope| {
            let waits = scope.spawn(|| agent.index(&query(last, "15s")));
            std::thread::sleep(Duration::from_millis(300));
            agent.delete(key);
            waits.join().unwrap()
        });
        let took = begun.elapsed();
        // The key is deleted after 300 ms. The query alone would end after 15 s.
        assert!(
            Duration::from_millis(300) <= took && took < secs(10),
            "{took:?}"
        );
        assert!(index > last, "{key}: {index} after {last}");
        last = index;
    }

    // A change of another key does not end the query.
    let begun = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| agent.index(&query(last, "1s")));
        agent.delete("b");
    });
    assert!(begun.elapsed() >= secs(1));
}
