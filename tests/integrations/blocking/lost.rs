//! `on_lost`: a holder is told of a loss on a thread that may block.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use quorate::{
    LossReason::{self, Evicted, MaxHold, NoHeartbeat, NodesLost},
    Renewal,
    blocking::Lease,
};

use super::*;

/// Receives the reason if this lease is lost. It is disconnected when the callback was dropped.
fn told(lease: &Lease) -> Receiver<LossReason> {
    let (tell, told) = channel();
    lease.on_lost(move |reason| tell.send(reason).unwrap());
    told
}

#[track_caller]
fn is_told(told: &Receiver<LossReason>, reason: LossReason) {
    assert_eq!(told.recv_timeout(PATIENCE), Ok(reason));
    let again = told.recv_timeout(PATIENCE);
    assert_eq!(again, Err(RecvTimeoutError::Disconnected), "once");
}

#[track_caller]
fn is_never_told(told: &Receiver<LossReason>) {
    let told = told.recv_timeout(PATIENCE);
    assert_eq!(told, Err(RecvTimeoutError::Disconnected));
}

#[test]
fn on_lost_reports_an_eviction_and_dead_servers() {
    let (fleet, client) = servers();
    let other = builder().nodes(fleet.urls()).connect().unwrap();
    let lock = |name: &str| client.mutex(name).ttl(SHORT).lock().unwrap();
    let (evicted, outlived) = (lock("evicted"), lock("outlived"));
    let permit = client.semaphore("pool", 1).ttl(SHORT).acquire().unwrap();
    let of_evicted = told(&evicted);
    let of_others = [told(&outlived), told(&permit)];
    assert!(other.evict("evicted").unwrap());
    is_told(&of_evicted, Evicted);
    assert!(!evicted.is_valid());
    thread::sleep(SHORT + SHORT / 3);
    for others in &of_others {
        assert!(others.try_recv().is_err(), "they are renewed");
    }
    fleet[0].kill9();
    fleet[1].kill9();
    for others in &of_others {
        is_told(others, NodesLost);
    }
    assert!(!outlived.is_valid() && !permit.is_valid());
}

#[test]
fn on_lost_reports_max_hold_and_a_missing_heartbeat() {
    let masters = Masters::new();
    let client = masters.client();
    let bounds = [
        (Renewal::auto().max_hold(ms(400)), MaxHold),
        (Renewal::auto().heartbeat(ms(400)), NoHeartbeat),
    ];
    for (renewal, reason) in bounds {
        let mutex = client.mutex("a").ttl(SHORT).renewal(renewal);
        let lease = mutex.lock().unwrap();
        is_told(&told(&lease), reason);
        assert_eq!(lease.lost().unwrap(), reason);
        // A callback that is registered too late is called at once.
        is_told(&told(&lease), reason);
        assert!(!lease.is_valid());
    }
}

#[test]
fn on_lost_is_silent_when_the_holder_gives_the_lease_up() {
    let masters = Masters::new();
    let client = masters.client();
    let ends: [fn(Lease); 4] = [
        |lease| lease.release().unwrap(),
        drop,
        Lease::abandon,
        |lease| thread::spawn(move || drop(lease)).join().unwrap(),
    ];
    for (i, end) in ends.into_iter().enumerate() {
        let lease = client.mutex(format!("{i}")).lock().unwrap();
        let told = [told(&lease), told(&lease)];
        end(lease);
        told.iter().for_each(is_never_told);
    }
    // A share of a reentrant lock is over only for its own callback.
    let (mutex, owner) = (client.reentrant_mutex("shared"), quorate::Owner::new());
    let shares = [mutex.lock(&owner).unwrap(), mutex.lock(&owner).unwrap()];
    let both = shares.each_ref().map(told);
    let [first, second] = shares;
    first.release().unwrap();
    is_never_told(&both[0]);
    assert!(masters.client().evict("shared").unwrap());
    second.extend().unwrap_err();
    is_told(&both[1], Evicted);
}

/// A lease that will be lost soon.
fn short_lived(client: &Quorum) -> Lease {
    let renewal = Renewal::auto().max_hold(ms(400));
    let mutex = client.mutex("short").ttl(SHORT).renewal(renewal);
    mutex.lock().unwrap()
}

#[test]
fn a_callback_may_block_and_call_anything() {
    let masters = Masters::new();
    let client = masters.client();
    let held = client.mutex("held").ttl(TTL).lock().unwrap();
    let lease = short_lived(&client);
    let (tell, told) = channel();
    let (within, here) = (client.clone(), thread::current().id());
    lease.on_lost(move |reason| {
        assert_ne!(thread::current().id(), here);
        assert_eq!(thread::current().name(), Some("quorate-aside"));
        within.mutex("free").run(drop).unwrap();
        tell.send(reason).unwrap();
        // Another thread releases the lock that this waits for. That thread holds what keeps the lock alive.
        let lease = within.mutex("held").wait_timeout(PATIENCE).lock();
        let lease = lease.unwrap();
        let once_more = short_lived(&within);
        let (tell_more, told) = channel();
        once_more.on_lost(move |reason| tell_more.send(reason).unwrap());
        tell.send(told.recv().unwrap()).unwrap();
        lease.release().unwrap();
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(MaxHold));
    drop(held);
    is_told(&told, MaxHold);
}

#[test]
fn a_callback_that_panics_or_never_ends_harms_nobody() {
    let masters = Masters::new();
    let client = masters.client();
    let lease = short_lived(&client);
    let (hang, hangs) = channel::<()>();
    let first = told(&lease);
    lease.on_lost(|_| panic!("as a test wants it"));
    lease.on_lost(move |_| hangs.recv().unwrap_or_default());
    let last = told(&lease);
    is_told(&first, MaxHold);
    is_told(&last, MaxHold);
    is_told(&told(&lease), MaxHold);
    client.mutex("a").run(drop).unwrap();
    drop(lease);
    assert!(client.shutdown().unwrap().is_empty());
    drop(hang);
}

#[test]
fn on_lost_reports_a_lease_left_behind_by_a_shutdown() {
    let masters = Masters::new();
    let client = builder().nodes(&masters.0).shutdown_timeout(ms(200));
    let client = client.connect().unwrap();
    let lease = client.mutex("held").ttl(TTL).lock().unwrap();
    let told = told(&lease);
    assert_eq!(client.shutdown().unwrap(), ["held"]);
    is_told(&told, NodesLost);
    assert_eq!(lease.lost().unwrap(), NodesLost);
}

/// The client ends as soon as the loss is seen. The callback is called all the same.
#[test]
fn a_loss_is_told_at_the_end_too() {
    const CLIENTS: usize = 16;
    const LEASES: usize = 150;
    let one = || {
        let client = Quorum::in_memory(3).unwrap();
        let renewal = Renewal::auto().max_hold(Duration::from_secs(1));
        let permits = client.semaphore("short", LEASES as u32).renewal(renewal);
        let leases = (0..LEASES).map(|_| permits.acquire().unwrap());
        let leases: Vec<Lease> = leases.collect();
        let (tell, told) = channel();
        for lease in &leases {
            let tell = tell.clone();
            lease.on_lost(move |reason| tell.send(reason).unwrap());
        }
        drop(tell);
        while leases.iter().any(Lease::is_valid) {
            thread::yield_now();
        }
        drop((leases, client, permits));
        let told: Vec<LossReason> = told.iter().collect();
        assert!(told.iter().all(|reason| *reason == MaxHold));
        assert_eq!(told.len(), LEASES);
    };
    thread::scope(|scope| {
        let all: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(one)).collect();
        for one in all {
            one.join().unwrap();
        }
    });
}
