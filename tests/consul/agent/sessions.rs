//! Sessions: when they end, and what happens to the keys that they hold.

use super::*;

#[test]
fn a_session_has_health_checks_unless_they_are_set_to_none() {
    let agent = Agent::start();
    let (ours, theirs) = (session(&agent, "0s"), agent.session(&json!({})));
    let checks_of = |id: &str| {
        let sessions = agent.sessions();
        let of_id = |session: &&Value| session["ID"] == id;
        let session = sessions.iter().find(of_id).expect("a session");
        let list = |word: &str| session[word].as_array().map_or(0, Vec::len);
        (list("Checks") + list("NodeChecks"), list("NodeChecks"))
    };
    assert_eq!(checks_of(&ours).0, 0);
    assert!(checks_of(&theirs).0 > 0);
}

#[test]
fn consul_takes_a_ttl_of_ten_seconds_to_a_day() {
    let agent = Agent::start();
    for (ttl, is_taken) in [
        ("9999ms", false),
        ("10s", true),
        ("86400s", true),
        ("86401s", false),
    ] {
        let body = json!({"TTL": ttl}).to_string();
        let (status, body) = agent.ask("PUT", "/v1/session/create", &body);
        assert_eq!(status == 200, is_taken, "{ttl}: {status} {body}");
        assert!(
            is_taken || body.contains("must be between [10s=24h0m0s]"),
            "{body}"
        );
    }
}

#[test]
fn a_session_ends_not_before_its_ttl_and_soon_after_twice_that() {
    let agent = Agent::start();
    let begun = Instant::now();
    let body = json!({"TTL": "10s", "LockDelay": "0s", "Checks": [], "NodeChecks": []});
    let (left, renewed) = (agent.session(&body), agent.session(&body));
    assert!(acquire(&agent, "left", &left) && acquire(&agent, "renewed", &renewed));
    let mut ended = None;
    while begun.elapsed() < secs(25) {
        agent.json("PUT", &format!("/v1/session/renew/{renewed}"), &json!(null));
        if ended.is_none() && !agent.session_ids().contains(&left) {
            ended = Some(begun.elapsed());
            assert_eq!(agent.pairs("left")[0].session, None);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    let ended = ended.expect("it has ended");
    // Twice the ttl, and 5 s for Consul's own timers and a busy machine.
    assert!(secs(10) <= ended && ended < secs(25), "{ended:?}");
    assert_eq!(agent.pairs("renewed")[0].session, Some(renewed));
}

#[test]
fn renewing_a_destroyed_session_answers_404() {
    let agent = Agent::start();
    let id = session(&agent, "0s");
    let renew = || agent.ask("PUT", &format!("/v1/session/renew/{id}"), "").0;
    assert_eq!(renew(), 200);
    agent.destroy(&id);
    assert_eq!(renew(), 404);
}

#[test]
fn a_key_of_another_is_refused_and_is_free_at_once_when_it_is_released() {
    let agent = Agent::start();
    let (first, second) = (session(&agent, "15s"), session(&agent, "15s"));
    assert!(acquire(&agent, "a", &first) && !acquire(&agent, "a", &second));
    assert!(acquire(&agent, "a", &first), "it is its own");
    let (_, released) = agent.ask("PUT", &format!("/v1/kv/a?release={first}"), "");
    assert_eq!(released.trim(), "true");
    assert!(acquire(&agent, "a", &second));
}

#[test]
fn lock_delay_begins_even_if_a_session_is_destroyed_by_hand() {
    let agent = Agent::start();
    let [holder, other] = [(); 2].map(|()| session(&agent, "3s"));
    assert!(acquire(&agent, "a", &holder));
    let ended = Instant::now();
    agent.destroy(&holder);
    assert_eq!(agent.keys(""), [""; 0], "behavior delete");
    assert!(!acquire(&agent, "a", &other));
    let lock = [
        step("check-not-exists", "a", json!({})),
        step("lock", "a", json!({"Session": other})),
    ];
    let why = txn(&agent, &lock).unwrap_err();
    assert!(why.contains("due to lock delay"), "{why}");
    // A key may be written meanwhile if nobody locks it.
    agent.put("a", 0, "1");
    assert_eq!(agent.keys(""), ["a"]);
    agent.delete("a");
    until("it is free", || txn(&agent, &lock).is_ok());
    // The lock-delay of 3 s has passed.
    let took = ended.elapsed();
    assert!(took > Duration::from_millis(2_990), "{took:?}");
}

#[test]
fn without_lock_delay_a_key_is_free_as_soon_as_its_session_is_destroyed() {
    let agent = Agent::start();
    let [holder, other] = [(); 2].map(|()| session(&agent, "0s"));
    assert!(acquire(&agent, "a", &holder));
    agent.destroy(&holder);
    assert!(acquire(&agent, "a", &other));
}
