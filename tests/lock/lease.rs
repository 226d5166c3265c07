//! Holding over time: renewal, extension, loss in time, and release (protocol §3, client steps 4, 7 and 8; api:
//! `Lease`). The tests run on a mutex, and on a semaphore of one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::exclusive::Exclusive;
use crate::support::{Fleet, HANG, Kind, Proxy, Server, Stalls};
use quorate::{Builder, Error, Lease, LossReason, Quorum, Renewal, Vote};
use tokio::time::{sleep, timeout};

const MAX_TTL: Duration = Duration::from_secs(2);
const MARGIN: Duration = Duration::from_millis(100);
/// The limit for things that happen at once. [`at_once`] adds what a busy machine needs.
const AT_ONCE: Duration = Duration::from_millis(400);
const NODE_TIMEOUT: Duration = Duration::from_millis(400);
const PREFIX: &str = "quorate";
/// Watches this process from its first client on.
static MACHINE: LazyLock<Stalls> = LazyLock::new(Stalls::watch);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The limit for things that happen at once, on this machine. They need a processor a few times.
fn at_once() -> Duration {
    AT_ONCE + MACHINE.longest() * 4
}

fn builder() -> Builder {
    LazyLock::force(&MACHINE);
    Quorum::builder()
        .fleet("tests") // some reach the masters through proxies
        .max_ttl(MAX_TTL)
        .restart_margin(MARGIN)
        .node_timeout(NODE_TIMEOUT)
}

async fn connect(fleet: &Fleet) -> Quorum {
    let quorum = builder().nodes(fleet.urls()).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

/// A fleet that votes, and two clients of it.
async fn two_clients(n: usize, kind: Kind) -> (Fleet, Quorum, Quorum) {
    let fleet = Fleet::start(n, kind);
    let (ours, other) = (connect(&fleet).await, connect(&fleet).await);
    (fleet, ours, other)
}

/// Waits until the lease is lost for good. Returns the time until then, and the reason.
async fn lost(lease: &Lease) -> (Duration, LossReason) {
    let start = Instant::now();
    // This is far beyond the end of every lease here. Only a hang takes this long.
    let reason = timeout(5 * MAX_TTL, lease.lost())
        .await
        .expect("it is lost");
    assert!(!lease.is_valid() && lease.validity().is_zero());
    (start.elapsed(), reason)
}

/// Checks that it took the whole time and not much longer.
fn assert_took(took: Duration, least: Duration, most: Duration) {
    assert!(
        took >= least && took <= most,
        "{took:?} is not between {least:?} and {most:?}"
    );
}

/// The same for a time that began somewhere between a request and its answer. `least` counts from before the request,
/// and is 2 ms shorter because servers count in whole milliseconds. `most` counts from the answer.
fn assert_over(asked: Instant, answered: Instant, least: Duration, most: Duration) {
    let (at_most, at_least) = (asked.elapsed(), answered.elapsed());
    assert!(
        at_most >= least - ms(2) && at_least <= most,
        "between {at_least:?} and {at_most:?}, not between {least:?} and {most:?}"
    );
}

/// Awaits something that ends within `time`, or at once after it.
async fn within<T>(time: Duration, future: impl Future<Output = T>) -> T {
    let start = Instant::now();
    let output = timeout(HANG, future).await.expect("it ends");
    assert_took(start.elapsed(), Duration::ZERO, time + at_once());
    output
}

/// For promises about a few tens of ms. A failure shows nothing if this process or a server got no processor for longer
/// than that. So it is tried again.
async fn calmly(test: impl AsyncFn(&mut Calm) -> Result<(), String>) {
    let mut failures = Vec::new();
    for _ in 0..4 {
        let mut calm = Calm {
            is_over: Arc::default(),
            listener: None,
        };
        let Err(why) = test(&mut calm).await else {
            return;
        };
        calm.is_over.store(true, SeqCst);
        let gap = calm
            .listener
            .take()
            .map_or(Duration::ZERO, |l| l.join().unwrap());
        failures.push(format!("{why} (longest stall {gap:?})"));
        // The closest of these promises allows 20 ms.
        if gap < ms(20) {
            break;
        }
    }
    panic!("{failures:#?}");
}

struct Calm {
    is_over: Arc<AtomicBool>,
    listener: Option<std::thread::JoinHandle<Duration>>,
}

impl Calm {
    /// Pings the server every 5 ms and measures the longest stall.
    fn listen_to(&mut self, server: &Server) {
        let (is_over, mut conn) = (Arc::clone(&self.is_over), server.conn());
        self.listener = Some(std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !is_over.load(SeqCst) {
                let start = Instant::now();
                let Ok(()) = redis::cmd("PING").query::<()>(&mut conn) else {
                    break;
                };
                std::thread::sleep(ms(5));
                longest = longest.max(start.elapsed());
            }
            longest
        }));
    }
}

impl Drop for Calm {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
    }
}

on_both! {
    threads:
        renewal_keeps_a_short_lease_for_seconds,
        renewal_off_ends_with_the_first_ttl_unless_extended,
        max_hold_bounds_a_healthy_lease,
        max_renewals_counts_renewals,
        a_lease_is_lost_when_its_heartbeats_stop,
        an_extension_that_fails_changes_nothing,
        a_lease_shorter_than_the_node_timeout_survives_a_lost_answer,
        an_extension_that_completes_late_revives_nothing,
        a_lock_delay_keeps_others_out_until_the_lost_lease_is_dropped,
        an_abandoned_lease_is_left_to_its_ttl,
        a_guard_drops_the_work_when_the_lease_is_lost,
        watches_see_the_lease_and_do_not_keep_it,
        a_wait_that_runs_out_names_the_holder_and_the_remaining_time,
        contention_with_a_dead_minority_is_reported_as_held,
        lock_waits_out_a_quarantine,
        shutdown_names_what_is_held_and_closes_waiters,
        a_loss_is_announced_before_the_validity_ends_and_is_final;
    paused:
        the_watch_keeps_a_heartbeat_going,
        the_guard_of_a_watch_ends_with_the_lease_and_does_not_keep_it,
        a_paused_clock_moves_ttl_renewal_and_validity_together;
    thread:
        a_guard_looks_at_the_clock_on_every_poll;
}

// ---- renewal -------------------------------------------------------------------------------

async fn renewal_keeps_a_short_lease_for_seconds<E: Exclusive>() {
    for kind in Kind::ALL {
        calmly(async |calm| {
            let (fleet, ours, other) = two_clients(3, kind).await;
            calm.listen_to(&fleet[2]);
            let lease = E::of(&ours, "a").ttl(ms(1_000)).lock().await.unwrap();
            let start = Instant::now();
            while start.elapsed() < ms(3_500) {
                assert!(lease.validity() <= ms(1_000));
                let taken = E::of(&other, "a").try_lock().await;
                // It was valid during the attempt if it still is.
                if !lease.is_valid() {
                    return Err(format!("{kind:?}: lost after {:?}", start.elapsed()));
                }
                assert!(!matches!(taken, Ok(Some(_))), "{kind:?}");
                sleep(ms(20)).await;
            }
            assert!(lease.held_for() >= ms(3_500));
            lease.release().await.map_err(|error| error.to_string())?;
            let next = within(Duration::ZERO, E::of(&other, "a").lock()).await;
            drop(next.map_err(|error| format!("{kind:?}: free at once, but {error}"))?);
            assert_eq!(fleet.leftover_locks_after(AT_ONCE, PREFIX), [""; 0]);
            Ok(())
        })
        .await;
    }
}

async fn renewal_off_ends_with_the_first_ttl_unless_extended<E: Exclusive>() {
    let (_fleet, ours, other) = two_clients(3, Kind::Valkey).await;
    let mutex = E::of(&ours, "a").renewal(Renewal::off());
    let asked = Instant::now();
    let lease = mutex.clone().ttl(ms(600)).lock().await.unwrap();
    let granted = Instant::now();
    let (_, reason) = lost(&lease).await;
    assert_eq!(reason, LossReason::Expired);
    // The drift is 8 ms, and the loss is announced 30 ms before the end.
    let whole = ms(600 - 8 - 30);
    assert_over(asked, granted, whole, whole + at_once());

    let lease = mutex.ttl(MAX_TTL).lock().await.unwrap();
    for _ in 0..4 {
        sleep(ms(550)).await;
        let asked = Instant::now();
        lease.extend().await.unwrap();
        let left = lease.validity();
        // The drift is 22 ms.
        assert!(left + asked.elapsed() >= MAX_TTL - ms(22), "{left:?}");
    }
    assert!(E::of(&other, "a").try_lock().await.unwrap().is_none());
    let (_, reason) = lost(&lease).await;
    assert_eq!(reason, LossReason::Expired);
    let late = lease.extend().await;
    assert!(
        matches!(late, Err(Error::Lost(l)) if l.reason == LossReason::Expired),
        "{late:?}"
    );
}

async fn max_hold_bounds_a_healthy_lease<E: Exclusive>() {
    let (_fleet, ours, _) = two_clients(3, Kind::Redis).await;
    let most = ms(3_500);
    let mutex = E::of(&ours, "a")
        .ttl(MAX_TTL)
        .renewal(Renewal::auto().max_hold(most));
    let asked = Instant::now();
    let lease = mutex.lock().await.unwrap();
    let granted = Instant::now();
    while lease.is_valid() {
        // In this order the time between the two readings cannot add to the sum.
        let held = lease.held_for();
        assert!(held + lease.validity() <= most + ms(1), "beyond max_hold");
        sleep(ms(10)).await;
        // Only a hang takes twice `max_hold`.
        assert!(granted.elapsed() < most * 2);
    }
    // The loss is announced a twentieth of the ttl before the end.
    assert_over(asked, granted, most - MAX_TTL / 20, most + at_once());
    assert_eq!(lease.lost().await, LossReason::MaxHold);
}

async fn max_renewals_counts_renewals<E: Exclusive>() {
    let (_fleet, ours, _) = two_clients(3, Kind::Redis).await;
    let mutex = E::of(&ours, "a")
        .ttl(MAX_TTL)
        .renewal(Renewal::auto().max_renewals(2));
    let asked = Instant::now();
    let lease = mutex.lock().await.unwrap();
    let granted = Instant::now();
    let (_, reason) = lost(&lease).await;
    assert_eq!(reason, LossReason::Expired);
    // It is renewed twice, each time after a third of the ttl, less a random time of up to a twentieth of the ttl and a
    // step of a 600th. Then it is good for the ttl, less the drift of 22 ms and the notice.
    let last = MAX_TTL - ms(22) - MAX_TTL / 20;
    let least = (MAX_TTL / 3 - MAX_TTL / 20 - MAX_TTL / 600) * 2 + last;
    assert_over(asked, granted, least, MAX_TTL / 3 * 2 + last + at_once());
}

async fn a_lease_is_lost_when_its_heartbeats_stop<E: Exclusive>() {
    let (_fleet, ours, _) = two_clients(3, Kind::Redis).await;
    let mutex = E::of(&ours, "a")
        .ttl(MAX_TTL)
        .renewal(Renewal::auto().heartbeat(ms(1_500)));
    let lease = mutex.lock().await.unwrap();
    let mut before = Instant::now();
    for _ in 0..10 {
        sleep(ms(200)).await;
        before = Instant::now();
        lease.beat();
    }
    let beaten = Instant::now();
    assert!(lease.is_valid(), "beaten often enough");
    let (_, reason) = lost(&lease).await;
    assert_eq!(reason, LossReason::NoHeartbeat);
    assert_over(before, beaten, ms(1_500), ms(1_500) + at_once());
    lease.beat();
    assert!(!lease.is_valid(), "a late beat revives nothing");
}

/// The work that `run` runs has only a watch.
async fn the_watch_keeps_a_heartbeat_going<E: Exclusive>() {
    let quorum = Quorum::in_memory(3);
    let mutex = E::of(&quorum, "a").renewal(Renewal::auto().heartbeat(ms(500)));
    let run = mutex.run(|watch| async move {
        assert_eq!(watch.name(), "a");
        for _ in 0..20 {
            sleep(ms(400)).await;
            watch.beat();
        }
        watch.is_valid()
    });
    assert!(run.await.unwrap(), "beaten often enough");
    let start = tokio::time::Instant::now();
    let run = mutex.run(|watch| async move {
        watch.beat();
        sleep(ms(9_000)).await;
    });
    let Err(Error::Lost(lost)) = run.await else {
        panic!("not beaten, and not lost")
    };
    assert_eq!(lost.reason, LossReason::NoHeartbeat);
    // The heartbeat is 500 ms. The clock is paused, so a tenth is enough for rounding.
    assert_took(start.elapsed(), ms(450), ms(550));
    assert!(mutex.try_lock().await.unwrap().is_some(), "released");
}

// ---- extension -----------------------------------------------------------------------------

async fn an_extension_that_fails_changes_nothing<E: Exclusive>() {
    let (fleet, ours, _) = two_clients(3, Kind::Valkey).await;
    let lease = E::of(&ours, "a")
        .ttl(MAX_TTL)
        .renewal(Renewal::off())
        .lock()
        .await
        .unwrap();
    fleet[0].sigstop();
    fleet[1].sigstop();
    sleep(ms(50)).await;
    let before = lease.validity();
    let start = Instant::now();
    let failed = lease.extend().await;
    assert!(matches!(failed, Err(Error::NoQuorum(_))), "{failed:?}");
    assert_took(start.elapsed(), Duration::ZERO, NODE_TIMEOUT + at_once());
    assert!(lease.is_valid(), "the old validity stands");
    // In this order the time between the two readings cannot add to the sum.
    let passed = start.elapsed();
    assert!(
        lease.validity() + passed <= before + ms(1),
        "and is no longer"
    );
    fleet[0].sigcont();
    fleet[1].sigcont();
    // A node timeout has already passed, so this is still within the old validity.
    let deadline = Instant::now() + MAX_TTL / 2;
    while lease.extend().await.is_err() {
        assert!(Instant::now() < deadline, "the nodes answer again");
        sleep(ms(5)).await;
    }
    assert!(lease.validity() > before);
}

/// A third of 1,800 ms has passed when the renewal is sent, and a silent node is given up 1,500 ms later. There is a
/// second attempt all the same.
async fn a_lease_shorter_than_the_node_timeout_survives_a_lost_answer<E: Exclusive>() {
    calmly(async |calm| {
        let fleet = Fleet::start(3, Kind::Redis);
        calm.listen_to(&fleet[0]);
        let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
        let ours = builder()
            .node_timeout(ms(1_500))
            .nodes(proxies.iter().map(Proxy::url))
            .connect()
            .await
            .unwrap();
        ours.bootstrap().await.unwrap();
        let lease = E::of(&ours, "a").ttl(ms(1_800)).lock().await.unwrap();
        let start = Instant::now();
        proxies[1].hold_replies(true);
        proxies[2].blackhole(true);
        sleep(ms(690)).await;
        // The renewal has been sent, and its answer from the second node is lost for good.
        proxies[1].cut();
        sleep(ms(10)).await;
        proxies[1].heal();
        while start.elapsed() < ms(2_700) {
            if !lease.is_valid() {
                return Err(format!("lost after {:?}", start.elapsed()));
            }
            sleep(ms(5)).await;
        }
        Ok(())
    })
    .await;
}

/// A majority acknowledges the extension, but after the old validity had ended. A token from the past would be accepted
/// (protocol §10).
async fn an_extension_that_completes_late_revives_nothing<E: Exclusive>() {
    let fleet = Fleet::start(3, Kind::Redis);
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    let ours = builder()
        .nodes(proxies.iter().map(Proxy::url))
        .connect()
        .await
        .unwrap();
    ours.bootstrap_forced().await.unwrap();
    let lease = E::of(&ours, "a")
        .ttl(ms(1_000))
        .renewal(Renewal::off())
        .lock()
        .await
        .unwrap();
    // The lease is lost at 938 ms.
    sleep(ms(750)).await;
    proxies[..2]
        .iter()
        .for_each(|proxy| proxy.hold_replies(true));
    let extension = tokio::spawn(lease.extend());
    lost(&lease).await;
    proxies.iter().for_each(Proxy::heal);
    let extended = within(NODE_TIMEOUT, extension).await.unwrap();
    assert!(
        matches!(extended, Err(Error::Lost(_) | Error::NoQuorum(_))),
        "{extended:?}"
    );
    for _ in 0..20 {
        assert!(!lease.is_valid(), "revived");
        sleep(ms(5)).await;
    }
}

// ---- loss ----------------------------------------------------------------------------------

/// The loss is announced max(20 ms, ttl/20) before the end, and the holder has that notice left.
async fn a_loss_is_announced_before_the_validity_ends_and_is_final<E: Exclusive>() {
    for kind in Kind::ALL {
        calmly(async |calm| a_majority_stops::<E>(kind, calm).await).await;
    }
}

async fn a_majority_stops<E: Exclusive>(kind: Kind, calm: &mut Calm) -> Result<(), String> {
    let (fleet, ours, other) = two_clients(3, kind).await;
    calm.listen_to(&fleet[2]);
    let margin = MAX_TTL / 20;
    let lease = E::of(&ours, "a").ttl(MAX_TTL).lock().await.unwrap();
    fleet[0].sigstop();
    fleet[1].sigstop();
    sleep(ms(100)).await;
    let watch = lease.watch();
    let told = tokio::spawn(async move { (watch.lost().await, Instant::now()) });
    let mut end = Instant::now();
    loop {
        let (now, left) = (Instant::now(), lease.validity());
        if left.is_zero() {
            break;
        }
        assert!(left >= margin - ms(1), "announced late: {left:?} left");
        end = now + left;
        sleep(ms(2)).await;
    }
    let (reason, at) = told.await.unwrap();
    assert_eq!(reason, LossReason::NodesLost, "{kind:?}");
    let left = end.saturating_duration_since(at);
    if left < margin * 4 / 5 || left > margin + ms(5) {
        return Err(format!(
            "{kind:?}: told {left:?} before the end, not {margin:?}"
        ));
    }

    fleet[0].sigcont();
    fleet[1].sigcont();
    for _ in 0..20 {
        assert!(!lease.is_valid(), "no late answer revives it");
        assert!(lease.extend().await.is_err());
        sleep(ms(10)).await;
    }
    // A renewal that waited in the socket of a stopped master keeps the lock for a whole ttl from now on. A waiter may
    // need one more term to find out.
    let next = E::of(&other, "a")
        .wait_timeout(MAX_TTL * 2)
        .lock()
        .await
        .map_err(|e| e.to_string())?;
    let released = lease.release().await;
    assert!(matches!(released, Err(Error::Lost(l)) if l.reason == LossReason::NodesLost));
    assert!(next.is_valid(), "a lost lease frees nobody else's");
    Ok(())
}

// For the mutex alone: an operator evicts the slots of a semaphore one by one, by their numbers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_evicted_holder_is_told_at_its_next_renewal() {
    let (_fleet, ours, other) = two_clients(5, Kind::Redis).await;
    let lease = ours.mutex("a").ttl(MAX_TTL).lock().await.unwrap();
    assert!(other.evict("a").await.unwrap(), "somebody held it");
    assert!(!other.evict("a").await.unwrap(), "nobody does any more");
    let next = other
        .mutex("a")
        .try_lock()
        .await
        .unwrap()
        .expect("free at once");
    assert!(next.token() > lease.token());
    let (took, reason) = lost(&lease).await;
    assert_eq!(reason, LossReason::Evicted);
    // The lease is renewed after a third of the ttl.
    assert_took(took, Duration::ZERO, MAX_TTL / 3 + at_once());
    drop(lease);
    sleep(ms(50)).await;
    assert!(
        ours.mutex("a").try_lock().await.unwrap().is_none(),
        "the next one holds it"
    );

    let off = ours
        .mutex("b")
        .ttl(MAX_TTL)
        .renewal(Renewal::off())
        .lock()
        .await
        .unwrap();
    other.evict("b").await.unwrap();
    // The wait is a quarter of the ttl, so the lease does not expire.
    assert!(
        timeout(MAX_TTL / 4, off.lost()).await.is_err(),
        "nobody has told it"
    );
    let extended = off.extend().await;
    assert!(matches!(extended, Err(Error::Lost(l)) if l.reason == LossReason::Evicted));
    assert_eq!(off.lost().await, LossReason::Evicted);
}

/// A lost lease stays on the nodes until it expires or is dropped. Within a lock-delay nobody gets the lock, and a drop
/// ends that.
async fn a_lock_delay_keeps_others_out_until_the_lost_lease_is_dropped<E: Exclusive>() {
    let (fleet, ours, other) = two_clients(3, Kind::Valkey).await;
    let delay = ms(1_500);
    let mutex = E::of(&ours, "a")
        .ttl(ms(500))
        .lock_delay(delay)
        .renewal(Renewal::off());
    let whole = ms(500) + delay;
    let asked = Instant::now();
    let lease = mutex.lock().await.unwrap();
    assert!(
        lease.validity() <= ms(500),
        "its holder does not count on the delay"
    );
    // A minority may not have granted it yet.
    let kept = fleet.iter().map(|server| E::kept(server, "a")).max();
    let kept = kept.unwrap();
    assert!(kept + asked.elapsed() >= whole - ms(2), "{kept:?}");
    lost(&lease).await;
    // The loss was announced 32 ms before the ttl ends on the servers.
    sleep(ms(100)).await;
    assert!(
        E::of(&other, "a").try_lock().await.unwrap().is_none(),
        "the delay keeps it"
    );
    drop(lease);
    let next = within(Duration::ZERO, E::of(&other, "a").lock()).await;
    next.expect("a drop frees at once").release().await.unwrap();

    let asked = Instant::now();
    let lease = mutex.lock().await.unwrap();
    let granted = Instant::now();
    lease.abandon();
    let next = E::of(&other, "a").lock().await.unwrap();
    assert_over(asked, granted, whole, whole + at_once());
    next.release().await.unwrap();

    mutex.lock().await.unwrap().release().await.unwrap();
    assert!(
        E::of(&other, "a").try_lock().await.unwrap().is_some(),
        "a release frees at once"
    );
}

async fn an_abandoned_lease_is_left_to_its_ttl<E: Exclusive>() {
    let (_fleet, ours, other) = two_clients(3, Kind::Redis).await;
    let ttl = MAX_TTL;
    let asked = Instant::now();
    let lease = E::of(&ours, "a").ttl(ttl).lock().await.unwrap();
    let granted = Instant::now();
    let watch = lease.watch();
    lease.abandon();
    assert_eq!(watch.lost().await, LossReason::Released);
    sleep(ttl / 4).await;
    assert!(E::of(&other, "a").try_lock().await.unwrap().is_none());
    let next = E::of(&other, "a").lock().await.unwrap();
    assert_over(asked, granted, ttl, ttl + at_once());
    drop(next);
}

// ---- guard and watch -----------------------------------------------------------------------

struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

async fn a_guard_drops_the_work_when_the_lease_is_lost<E: Exclusive>() {
    let (fleet, ours, other) = two_clients(3, Kind::Redis).await;
    let lease = E::of(&ours, "a").ttl(MAX_TTL).lock().await.unwrap();
    assert_eq!(lease.guard(async { 7 }).await.unwrap(), 7);

    let dropped = Arc::new(AtomicBool::new(false));
    let work = Dropped(Arc::clone(&dropped));
    E::take_away(&other, &fleet, "a").await;
    let guarded = lease.guard(async move {
        sleep(Duration::from_secs(60)).await;
        drop(work);
    });
    // The lease is renewed after a third of the ttl.
    let lost = within(MAX_TTL / 3, guarded).await.unwrap_err();
    assert_eq!(lost.reason, LossReason::Evicted);
    assert!(dropped.load(SeqCst));
    assert!(
        lease.guard(async {}).await.is_err(),
        "nothing begins on a lost lease"
    );

    let ttl = ms(1_000);
    let run = E::of(&ours, "b").ttl(ttl).renewal(Renewal::off());
    let run = run.run(|_| sleep(Duration::from_secs(60)));
    let run = within(ttl, run).await;
    assert!(
        matches!(run, Err(Error::Lost(l)) if l.reason == LossReason::Expired),
        "{run:?}"
    );
}

async fn the_guard_of_a_watch_ends_with_the_lease_and_does_not_keep_it<E: Exclusive>() {
    let quorum = Quorum::in_memory(3);
    let mutex = E::of(&quorum, "a");
    let lease = mutex.lock().await.unwrap();
    let watch = lease.watch();
    assert_eq!(watch.guard(async { 7 }).await.unwrap(), 7);
    let dropped = Arc::new(AtomicBool::new(false));
    let work = Dropped(Arc::clone(&dropped));
    let guarding = watch.clone();
    let guarded = tokio::spawn(async move {
        let work = async move {
            std::future::pending::<()>().await;
            drop(work);
        };
        guarding.guard(work).await
    });
    sleep(ms(60_000)).await;
    assert!(lease.is_valid() && !dropped.load(SeqCst), "it is renewed");
    drop(lease);
    let lost = timeout(AT_ONCE, guarded).await.expect("at once").unwrap();
    assert_eq!(lost.unwrap_err().reason, LossReason::Released);
    assert!(dropped.load(SeqCst));
    assert!(
        watch.guard(async {}).await.is_err(),
        "nothing begins on a lease that is over"
    );
    sleep(ms(10)).await;
    assert!(mutex.try_lock().await.unwrap().is_some());
}

/// On a runtime that is kept busy no task announces the loss in time, so the guard checks the clock itself.
async fn a_guard_looks_at_the_clock_on_every_poll<E: Exclusive>() {
    let fleet = Fleet::start(1, Kind::Redis);
    let quorum = connect(&fleet).await;
    let lease = E::of(&quorum, "a").ttl(ms(1_000)).lock().await.unwrap();
    let polls = AtomicUsize::new(0);
    let busy = std::future::poll_fn::<(), _>(|cx| {
        polls.fetch_add(1, SeqCst);
        std::thread::sleep(ms(1_050));
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    });
    assert!(lease.guard(busy).await.is_err());
    assert_eq!(
        polls.load(SeqCst),
        1,
        "it was not polled beyond the validity"
    );
}

async fn watches_see_the_lease_and_do_not_keep_it<E: Exclusive>() {
    let (_fleet, ours, other) = two_clients(3, Kind::Redis).await;
    let lease = E::of(&ours, "a").lock().await.unwrap();
    let (one, two) = (lease.watch(), lease.watch().clone());
    assert_eq!((one.token(), one.is_valid()), (lease.token(), true));
    assert!(one.validity() > Duration::ZERO);
    let waiting = tokio::spawn(async move { two.lost().await });
    drop(lease);
    let told = within(Duration::ZERO, waiting).await.unwrap();
    assert_eq!(told, LossReason::Released);
    assert_eq!(one.lost().await, LossReason::Released);
    assert!(!one.is_valid());
    let next = within(Duration::ZERO, E::of(&other, "a").lock()).await;
    let next = next.unwrap();
    assert!(
        next.token() > one.token(),
        "one watch lives, and the lock is free"
    );
}

// ---- waiting -------------------------------------------------------------------------------

async fn a_wait_that_runs_out_names_the_holder_and_the_remaining_time<E: Exclusive>() {
    let (fleet, ours, other) = two_clients(3, Kind::Valkey).await;
    let lease = E::of(&other, "a").ttl(MAX_TTL).lock().await.unwrap();
    let (start, wait) = (Instant::now(), ms(400));
    let error = E::of(&ours, "a")
        .wait_timeout(wait)
        .lock()
        .await
        .unwrap_err();
    assert_took(start.elapsed(), wait, wait + at_once());
    let Error::Held(report) = &error else {
        panic!("{error}")
    };
    assert_eq!((report.subject(), report.needed()), ("a", 2));
    let held = |left: &Option<Duration>| left.is_some_and(|left| left <= MAX_TTL && left > ms(500));
    let votes: Vec<&Vote> = report.nodes().iter().map(|node| &node.vote).collect();
    let refused = votes
        .iter()
        .filter(|v| matches!(v, Vote::Held(left) if held(left)))
        .count();
    assert!(refused >= 2, "{votes:?}");
    let left = error.retry_after().expect("known from the nodes");
    assert!(left <= MAX_TTL && left > ms(500), "{left:?}");
    assert!(error.is_retryable());
    let (text, told) = (error.to_string(), report.to_string());
    let (holder, refusal) = E::refusal(&ours, "a").await;
    assert_eq!(report.holder(), holder.as_deref());
    assert!(
        text.starts_with(&refusal) && !text.contains("127.0.0.1"),
        "{text}"
    );
    for server in fleet.iter() {
        let node = format!("127.0.0.1:{}: ", server.port());
        assert!(told.contains(&node), "{told}");
    }
    assert!(lease.is_valid());
}

async fn contention_with_a_dead_minority_is_reported_as_held<E: Exclusive>() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(5, kind);
        // All remaining nodes must answer in time. A dead node is noticed by its connection.
        let client = async || {
            let builder = builder().node_timeout(Duration::from_secs(5));
            let quorum = builder.nodes(fleet.urls()).connect().await.unwrap();
            quorum.bootstrap_forced().await.unwrap();
            quorum
        };
        let (ours, other) = (client().await, client().await);
        let lease = E::of(&other, "a").lock().await.unwrap();
        fleet[0].kill9();
        fleet[1].kill9();
        for _ in 0..10 {
            let tried = E::of(&ours, "a").try_lock().await;
            assert!(matches!(tried, Ok(None)), "{kind:?}: {tried:?}");
        }
        let waited = E::of(&ours, "a").wait_timeout(ms(1_000)).lock().await;
        assert!(
            matches!(waited, Err(Error::Held(_))),
            "{kind:?}: {waited:?}"
        );
        lease.release().await.unwrap();
        assert!(
            E::of(&ours, "a").try_lock().await.unwrap().is_some(),
            "{kind:?}"
        );
    }
}

async fn lock_waits_out_a_quarantine<E: Exclusive>() {
    // 1.01 max_ttl + margin.
    let quarantine = MAX_TTL + MAX_TTL / 100 + MARGIN;
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let start = Instant::now();
        let quorum = builder().nodes(fleet.urls()).connect().await.unwrap();
        let tried = E::of(&quorum, "a").try_lock().await.unwrap_err();
        assert!(matches!(tried, Error::Quarantined(_)), "{kind:?}: {tried}");
        let left = tried.retry_after().unwrap();
        assert!(left <= quarantine, "{left:?}");
        assert!(left + start.elapsed() >= quarantine - ms(2), "{left:?}");
        assert!(tried.to_string().contains("bootstrap"), "{tried}");
        let short = E::of(&quorum, "a").wait_timeout(ms(200)).lock().await;
        assert!(
            matches!(short, Err(Error::Quarantined(_))),
            "{kind:?}: {short:?}"
        );
        let health = quorum.health();
        assert_eq!((health.voting, health.needed), (0, 2));
        assert!(health.votes_in.is_some_and(|left| left <= quarantine));

        let lease = E::of(&quorum, "a").lock().await.unwrap();
        // A waiter checks every 500 ms while the nodes are in quarantine.
        let most = quarantine + ms(500) + at_once();
        assert_took(start.elapsed(), quarantine, most);
        assert!(lease.is_valid());
    }
}

// ---- the end -------------------------------------------------------------------------------

async fn shutdown_names_what_is_held_and_closes_waiters<E: Exclusive>() {
    let (fleet, ours, other) = two_clients(3, Kind::Redis).await;
    let shutdown = ms(300);
    let quorum = builder()
        .shutdown_timeout(shutdown)
        .nodes(fleet.urls())
        .connect()
        .await
        .unwrap();
    let held = E::of(&quorum, "held").lock().await.unwrap();
    let theirs = E::of(&other, "theirs").lock().await.unwrap();
    let waiter = tokio::spawn(E::of(&quorum, "theirs").lock());
    sleep(ms(50)).await;
    let start = Instant::now();
    assert_eq!(quorum.clone().shutdown().await, ["held"]);
    assert_took(start.elapsed(), shutdown - ms(10), shutdown + at_once());
    let waited = within(Duration::ZERO, waiter).await.unwrap();
    assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
    for _ in 0..2 {
        assert!(matches!(
            E::of(&quorum, "b").lock().await,
            Err(Error::Closed)
        ));
        assert!(matches!(
            E::of(&quorum, "b").try_lock().await,
            Err(Error::Closed)
        ));
        assert!(matches!(quorum.inspect("b").await, Err(Error::Closed)));
    }
    assert!(
        E::of(&ours, "held").try_lock().await.unwrap().is_none(),
        "left to its ttl"
    );
    let next = within(MAX_TTL, E::of(&ours, "held").lock()).await;
    drop(next.expect("and not renewed"));
    drop((held, theirs));

    // The lease is dropped in time. Nothing is held, and the release is confirmed when shutdown returns.
    let lease = E::of(&ours, "c").lock().await.unwrap();
    let held_for = ms(100);
    let start = Instant::now();
    let dropper = tokio::spawn(async move {
        sleep(held_for).await;
        drop(lease);
    });
    assert_eq!(ours.shutdown().await, [""; 0]);
    assert_took(start.elapsed(), held_for, held_for + at_once());
    assert!(E::of(&other, "c").try_lock().await.unwrap().is_some());
    dropper.await.unwrap();
}

// ---- in memory, with a paused clock ----------------------------------------------------------

async fn a_paused_clock_moves_ttl_renewal_and_validity_together<E: Exclusive>() {
    let quorum = Quorum::in_memory(3);
    let mutex = E::of(&quorum, "a").ttl(Duration::from_secs(10));
    let once = mutex.clone().renewal(Renewal::off());

    let lease = once.lock().await.unwrap();
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(lease.validity() > ms(800) && lease.validity() <= ms(898));
    assert!(mutex.try_lock().await.unwrap().is_none(), "nodes keep it");
    tokio::time::advance(ms(500)).await;
    assert_eq!(lease.validity(), Duration::ZERO, "announced 500 ms early");
    assert_eq!(lease.lost().await, LossReason::Expired);
    assert!(
        mutex.try_lock().await.unwrap().is_none(),
        "and still kept by the nodes"
    );
    tokio::time::advance(ms(501)).await;
    let next = mutex
        .try_lock()
        .await
        .unwrap()
        .expect("over on the nodes too");

    let start = tokio::time::Instant::now();
    sleep(Duration::from_secs(3_600)).await;
    assert!(next.is_valid(), "renewed for an hour");
    assert_eq!(next.held_for(), start.elapsed());
    assert!(once.try_lock().await.unwrap().is_none());
    next.release().await.unwrap();
    assert!(once.try_lock().await.unwrap().is_some());
}
