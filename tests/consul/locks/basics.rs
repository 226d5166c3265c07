//! Locks and semaphores without faults.

use std::time::Duration;

use crate::support::Stalls;
use quorate::{Error, LossReason, Renewal, fence::Gate};
use serde_json::Value;

use super::*;

#[tokio::test]
async fn a_lock_has_one_holder_and_tokens_that_grow() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let mutex = consul.mutex("jobs/nightly");
    let asked = Instant::now();
    let first = mutex.lock().await.unwrap();
    assert!(first.is_valid());
    // The ttl of 10 s, less its drift of 0.1 s. It began while the lock was asked for.
    let (validity, since) = (first.validity(), asked.elapsed());
    assert!(validity + since > ms(9_800), "{validity:?} after {since:?}");
    assert_eq!((first.name(), first.slot()), ("jobs/nightly", None));
    assert!(mutex.try_lock().await.unwrap().is_none());
    let record = agent.pairs("jobs/nightly/");
    assert_eq!(record.len(), 1, "{record:?}");
    assert_eq!(record[0].key, "jobs/nightly/.lock");
    assert_eq!(record[0].modify_index, first.token().as_u64());
    assert_eq!(record[0].flags, 0x2ddc_cbc0_58a5_0c18);
    let mut second = tokio::spawn(mutex.lock());
    assert!(still_waits(&mut second, ms(200)).await);
    let token = first.token();
    first.release().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.token() > token);
    let gate = Gate::new();
    gate.admit("jobs/nightly", second.token()).unwrap();
    gate.admit("jobs/nightly", token).unwrap_err();
    drop(second);
    let third = mutex.wait_timeout(ms(2_000)).lock().await.unwrap();
    assert!(consul.shutdown().now_or_never_held(third).await.is_empty());
    nothing_is_left(&agent).await;
}

/// The end of a program that drops its last lease while it shuts down.
trait Ends {
    async fn now_or_never_held(self, lease: quorate::Lease) -> Vec<String>;
}

impl<F: Future<Output = Vec<String>>> Ends for F {
    async fn now_or_never_held(self, lease: quorate::Lease) -> Vec<String> {
        let drops = async {
            tokio::time::sleep(ms(100)).await;
            drop(lease);
        };
        futures::join!(self, drops).0
    }
}

#[tokio::test]
async fn a_semaphore_has_as_many_holders_as_its_limit() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let semaphore = consul.semaphore("pool", 2);
    assert_eq!(semaphore.available().await.unwrap(), 2);
    let first = semaphore.acquire().await.unwrap();
    let second = semaphore.try_acquire().await.unwrap().unwrap();
    assert!(second.token() > first.token());
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(semaphore.available().await.unwrap(), 0);
    let sessions = agent.session_ids();
    assert_eq!(sessions.len(), 2, "one for each permit");
    let record = agent.pairs("pool/.lock");
    assert_eq!(record[0].flags, 0xe0f6_9a2b_aa41_4de0);
    let record: Value = serde_json::from_str(&record[0].value).unwrap();
    assert_eq!(record["Limit"], 2);
    for session in &sessions {
        assert_eq!(record["Holders"][session], true);
        assert!(agent.keys("pool/").contains(&format!("pool/{session}")));
    }
    let mut third = tokio::spawn(semaphore.acquire());
    assert!(still_waits(&mut third, ms(200)).await);
    first.release().await.unwrap();
    let third = third.await.unwrap().unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 0);
    third.release().await.unwrap();
    second.release().await.unwrap();
    assert!(
        agent.keys("").is_empty(),
        "the record goes with the last holder"
    );
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn several_permits_are_taken_at_once_and_are_one_lease() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let semaphore = consul.semaphore("gpus", 4);
    let many = semaphore.acquire_many(3).await.unwrap();
    assert_eq!(agent.sessions().len(), 3);
    assert_eq!(semaphore.available().await.unwrap(), 1);
    let mut two = tokio::spawn(semaphore.acquire_many(2));
    assert!(still_waits(&mut two, ms(200)).await);
    many.extend().await.unwrap();
    many.release().await.unwrap();
    let two = two.await.unwrap().unwrap();
    assert_eq!(semaphore.available().await.unwrap(), 2);
    for n in [0, 5, 64] {
        assert!(
            matches!(semaphore.acquire_many(n).await, Err(Error::Invalid(_))),
            "{n}"
        );
    }
    // One of its sessions is destroyed, and the lease loses all its permits.
    let holder = agent.pairs("gpus/.lock").remove(0).value;
    let session = agent
        .session_ids()
        .into_iter()
        .find(|id| holder.contains(id));
    agent.destroy(&session.unwrap());
    assert_eq!(two.lost().await, LossReason::Evicted);
    drop(two);
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

#[tokio::test]
async fn a_limit_change_applies_to_holders_and_waiters() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let semaphore = consul.semaphore("pool", 1);
    let first = semaphore.acquire().await.unwrap();
    let second = tokio::spawn(semaphore.acquire());
    tokio::time::sleep(ms(200)).await;
    semaphore.resize(2).await.unwrap();
    let second = second.await.unwrap().unwrap();
    semaphore.resize(1).await.unwrap();
    assert!(
        first.is_valid() && second.is_valid(),
        "nothing is taken away"
    );
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    first.release().await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    second.release().await.unwrap();
    // Nothing is left of the semaphore once nobody holds it, so it can have another limit.
    let other = consul.semaphore("pool", 7).acquire().await.unwrap();
    other.release().await.unwrap();
    consul.shutdown().await;
}

#[tokio::test]
async fn run_guards_the_work_and_releases() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let mutex = consul.mutex("report");
    let token = mutex
        .run(|watch| async move { watch.token() })
        .await
        .unwrap();
    assert!(token.as_u64() > 0);
    let held = mutex.lock().await.unwrap();
    assert_eq!(mutex.try_run(|_| async {}).await.unwrap(), None);
    held.release().await.unwrap();
    assert_eq!(mutex.try_run(|_| async { 7 }).await.unwrap(), Some(7));
    let pool = consul.semaphore("pool", 2);
    assert_eq!(pool.run(|_| async { 8 }).await.unwrap(), 8);
    assert_eq!(pool.try_run(|_| async { 9 }).await.unwrap(), Some(9));
    consul.shutdown().await;
    nothing_is_left(&agent).await;
}

pub(super) async fn a_lease_is_renewed_for_longer_than_its_ttl_and_ends_when_it_is_not() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let renewed = consul.mutex("renewed").lock().await.unwrap();
    let bounded = consul
        .mutex("bounded")
        .renewal(Renewal::auto().max_hold(ms(1_500)));
    let bounded = bounded.lock().await.unwrap();
    let quiet = consul
        .mutex("quiet")
        .renewal(Renewal::auto().heartbeat(ms(1_000)));
    let quiet = quiet.lock().await.unwrap();
    let short = consul
        .mutex("short")
        .renewal(Renewal::off())
        .lock()
        .await
        .unwrap();
    let left = consul
        .mutex("left")
        .renewal(Renewal::off())
        .lock()
        .await
        .unwrap();
    assert_eq!(bounded.lost().await, LossReason::MaxHold);
    assert_eq!(quiet.lost().await, LossReason::NoHeartbeat);
    left.abandon();
    tokio::time::sleep(ms(4_000)).await;
    let machine = Stalls::watch();
    let asked = short.held_for();
    short.extend().await.unwrap();
    let validity = short.validity();
    let extended = short.held_for();
    assert!(validity + extended > asked + ms(9_800), "{validity:?}");
    assert_eq!(short.lost().await, LossReason::Expired);
    let held_for = short.held_for();
    // It was extended by 10 s, less the drift of 0.1 s and the notice of 0.5 s.
    let end = extended + ms(10_000) + machine.longest() * 4;
    assert!(
        (asked + ms(9_300)..end).contains(&held_for),
        "{held_for:?}: {asked:?}, {extended:?}"
    );
    // Consul keeps a session for one to two TTLs.
    until("Consul frees what nobody renews", ms(25_000), async || {
        consul.mutex("left").try_lock().await.unwrap().is_some()
    })
    .await;
    assert!(renewed.is_valid() && renewed.held_for() > Duration::from_secs(10));
    renewed.release().await.unwrap();
    assert!(matches!(short.release().await, Err(Error::Lost(_))));
    drop((bounded, quiet));
    consul.shutdown().await;
}

#[tokio::test]
async fn a_thousand_rounds_leave_nothing() {
    let agent = Agent::start();
    let consul = connect(&agent).await;
    let (mutex, semaphore) = (consul.mutex("m"), consul.semaphore("s", 3));
    for round in 0..1_000 {
        let lease = match round % 2 {
            0 => mutex.lock().await.unwrap(),
            _ => semaphore.acquire().await.unwrap(),
        };
        match round % 10 {
            // The next round waits for this permit, or takes another one.
            7 => drop(lease),
            _ => lease.release().await.unwrap(),
        }
    }
    assert!(agent.sessions().len() <= 4, "they are used again");
    // Nothing is left even while the program runs on.
    nothing_is_left(&agent).await;
    assert!(consul.shutdown().await.is_empty());
}

#[tokio::test]
async fn the_end_waits_for_leases_and_names_what_is_held() {
    let agent = Agent::start();
    let consul = Consul::builder()
        .url(agent.url())
        .shutdown_timeout(ms(500))
        .connect()
        .await
        .unwrap();
    let held = consul.mutex("held").lock().await.unwrap();
    let waits = tokio::spawn(consul.mutex("held").lock());
    tokio::time::sleep(ms(200)).await;
    assert_eq!(consul.shutdown().await, ["held"]);
    assert!(matches!(waits.await.unwrap(), Err(Error::Closed)));
    assert!(matches!(
        consul.mutex("other").lock().await,
        Err(Error::Closed)
    ));
    assert_eq!(held.lost().await, LossReason::NodesLost);
    assert!(matches!(held.extend().await, Err(Error::Lost(_))));
    // This lease is left to its TTL. Nothing is left of the waiter.
    let left = agent.pairs("held/");
    assert_eq!((left.len(), left[0].key.as_str()), (1, "held/.lock"));
    assert_eq!(agent.session_ids(), [left[0].session.clone().unwrap()]);
}

#[tokio::test]
async fn handles_may_go_anywhere_and_show_no_secret() {
    fn anywhere<T: Clone + Send + Sync + std::fmt::Debug + 'static>() {}
    anywhere::<quorate::consul::Mutex>();
    anywhere::<quorate::consul::Semaphore>();
    anywhere::<quorate::consul::Builder>();
    anywhere::<quorate::consul::Tls>();
    let builder = quorate::consul::Consul::builder()
        .url("http://me:pw1@127.0.0.1:1")
        .token("s3cret");
    let consul = builder.clone().connect_lazy().unwrap();
    for shown in [format!("{builder:?}"), format!("{consul:?}")] {
        assert!(
            !shown.contains("pw1") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
    fn sent<T: Send + 'static>(_: T) {}
    sent(consul.mutex("a").lock());
    sent(consul.semaphore("a", 2).acquire_many(2));
    sent(consul.closing());
    sent(consul.shutdown());
}
