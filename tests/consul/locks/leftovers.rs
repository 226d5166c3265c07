//! A record that a killed `consul lock` has left: the key exists, and no session has locked it.

use quorate::consul::Consul;
use serde_json::json;

use super::{slow::Slow, *};

const LOCK: u64 = 0x2ddc_cbc0_58a5_0c18;

#[tokio::test]
async fn a_lock_taken_over_a_leftover_record_has_the_index_of_its_own_write() {
    let agent = Agent::start();
    let slow = Slow::start(&agent).await;
    let consul = Consul::connect(slow.url()).await.unwrap();
    // When this session ends, Consul unlocks the record and keeps it.
    let killed = agent.session(
        &json!({"TTL": "60s", "LockDelay": "0s", "Behavior": "release", "NodeChecks": []}),
    );
    let locks = format!("/v1/kv/m/.lock?acquire={killed}&flags={LOCK}");
    assert_eq!(agent.ask("PUT", &locks, "").1.trim(), "true");
    let first = tokio::spawn(consul.mutex("m").lock());
    let in_line = async |n: usize| agent.pairs("m/").len() == 1 + n;
    until("the first stands in line", SOON, async || in_line(1).await).await;
    let second = tokio::spawn(consul.mutex("m").lock());
    until("the second stands in line", SOON, async || in_line(2).await).await;
    tokio::time::sleep(ms(200)).await;

    // The query that waits for changes learns of the grant only after the lease has begun to watch.
    slow.delay("GET /v1/kv/", ms(500));
    tokio::time::sleep(ms(200)).await;
    agent.put(
        "m/note",
        0,
        "any change, so that the next query is a slow one",
    );
    tokio::time::sleep(ms(200)).await;
    agent.destroy(&killed);
    let lease = first.await.unwrap().unwrap();
    let record = agent.pairs("m/.lock").remove(0);
    assert!(record.session.is_some());
    assert_eq!(lease.token().as_u64(), record.modify_index);
    tokio::time::sleep(ms(400)).await;
    assert!(
        lease.is_valid(),
        "the lock is held, but the lease was told of its loss"
    );
    lease.release().await.unwrap();
    slow.heal();
    second.await.unwrap().unwrap().release().await.unwrap();
    agent.delete("m/note");
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}
