//! Faults of servers and connections cost callers as little as possible: nothing if they hit a minority, and one node
//! timeout if they hit a majority. Grants that were made meanwhile are taken back (protocol §2 and §3). The tests run
//! on a mutex, and on a semaphore of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::exclusive::Exclusive;
use crate::support::{Fleet, Kind, Proxy, Server, ServerOptions, Stalls};
use quorate::{Builder, Error, NodeState, Quorum, Renewal, Silence, Vote};
use tokio::time::sleep;

const MAX_TTL: Duration = Duration::from_secs(2);
const NODE_TIMEOUT: Duration = Duration::from_millis(300);
/// The node timeout where all that are left must answer. It is longer than a busy machine keeps a server waiting.
const TIMEOUT: Duration = Duration::from_millis(1_500);
/// The limit for things that happen at once.
const AT_ONCE: Duration = Duration::from_millis(400);
/// The limit for things that need a reconnect, or a quarantine.
const PATIENCE: Duration = Duration::from_secs(10);
const PREFIX: &str = "quorate";

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn builder() -> Builder {
    Quorum::builder()
        .fleet("tests") // some reach the masters through proxies
        .max_ttl(MAX_TTL)
        .restart_margin(ms(100))
        .node_timeout(NODE_TIMEOUT)
}

async fn connect(fleet: &Fleet, node_timeout: Duration) -> Quorum {
    let builder = builder().node_timeout(node_timeout);
    let quorum = builder.nodes(fleet.urls()).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        sleep(ms(2)).await;
    }
}

async fn all_vote(quorum: &Quorum) {
    let votes = || {
        quorum
            .nodes()
            .iter()
            .all(|node| node.state == NodeState::Voting)
    };
    wait_until("all nodes vote", votes).await;
}

fn left_behind(fleet: &Fleet) -> Vec<String> {
    // Half of a ttl, so nothing has expired.
    fleet.leftover_locks_after(MAX_TTL / 2, PREFIX)
}

on_both! {
    threads:
        a_stopped_minority_slows_nobody,
        a_wait_ends_on_time_before_stopped_and_before_slow_nodes,
        at_maxmemory_nothing_is_granted_and_everything_freed,
        a_slow_minority_slows_nobody,
        a_stopped_majority_fails_within_the_node_timeout_and_then_at_once,
        a_late_grant_is_taken_back,
        an_acquire_on_an_older_connection_is_killed_with_it,
        a_server_that_permits_no_client_kill_is_noted,
        a_server_that_restarted_empty_does_not_vote_for_its_quarantine,
        flushed_scripts_are_loaded_again,
        a_killed_connection_of_a_minority_is_not_noticed,
        killed_connections_to_all_are_made_again;
}

// ---- stopped and slow nodes ----------------------------------------------------------------

/// Acquires and releases this many times. Returns the median and the longest time of an acquisition.
async fn measure(mutex: &impl Exclusive, times: usize) -> (Duration, Duration) {
    let mut took = Vec::new();
    for _ in 0..times {
        let start = Instant::now();
        let lease = mutex.lock().await.unwrap();
        took.push(start.elapsed());
        lease.release().await.unwrap();
    }
    took.sort();
    (took[times / 2], took[times - 1])
}

async fn a_stopped_minority_slows_nobody<E: Exclusive>() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(5, kind);
        let quorum = connect(&fleet, TIMEOUT).await;
        let mutex = E::of(&quorum, "a");
        measure(&mutex, 50).await;
        let (before, _) = measure(&mutex, 200).await;
        // Before it is known that a node will not answer, with one and with two of them, and when it is known.
        let mut medians = Vec::new();
        for stopped in [Some(0), Some(1), None] {
            match stopped {
                Some(node) => fleet[node].sigstop(),
                None => wait_until("the silence is known", || quorum.health().voting == 3).await,
            }
            let (median, worst) = measure(&mutex, 200).await;
            assert!(
                worst < TIMEOUT,
                "{kind:?}: somebody waited for it: {worst:?}"
            );
            medians.push(median);
        }
        fleet[0].sigcont();
        fleet[1].sigcont();
        all_vote(&quorum).await;
        assert_eq!(left_behind(&fleet), [""; 0], "{kind:?}");
        // The machine may have become slower meanwhile.
        let (after, _) = measure(&mutex, 200).await;
        let healthy = before.max(after);
        for median in medians {
            // On a busy machine two medians of the same work differ by this much. A wait for a stopped node takes 1.5
            // s.
            assert!(
                median < healthy * 3 + ms(1),
                "{kind:?}: {median:?} instead of {healthy:?}"
            );
        }
    }
}

async fn a_slow_minority_slows_nobody<E: Exclusive>() {
    let fleet = Fleet::start(5, Kind::Valkey);
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
    // The delays are far longer than what a busy machine adds, and this timeout is far longer than the delays.
    let quorum = builder()
        .node_timeout(Duration::from_secs(5))
        .nodes(proxies.iter().map(Proxy::url))
        .connect()
        .await
        .unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let mutex = E::of(&quorum, "a");
    proxies[0].delay(ms(300));
    proxies[1].delay(ms(600));
    let (median, _) = measure(&mutex, 100).await;
    // The faster of the two slow nodes answers after 600 ms.
    assert!(
        median < ms(600 / 4),
        "it waits for the slow ones: {median:?}"
    );
    // The third fastest node decides.
    proxies[2].delay(ms(100));
    let (median, _) = measure(&mutex, 7).await;
    // A round trip to the third node takes 200 ms, and one to the fourth 600 ms.
    assert!(median >= ms(200) && median < ms(540), "{median:?}");
    proxies.iter().for_each(|proxy| proxy.delay(Duration::ZERO));
    assert_eq!(left_behind(&fleet), [""; 0]);
}

async fn a_stopped_majority_fails_within_the_node_timeout_and_then_at_once<E: Exclusive>() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(5, kind);
        let quorum = connect(&fleet, NODE_TIMEOUT).await;
        let mut leases = Vec::new();
        for i in 0..20 {
            leases.push(E::of(&quorum, format!("held {i}")).lock().await.unwrap());
        }
        let machine = Stalls::watch();
        let start = Instant::now();
        fleet[..3].iter().for_each(Server::sigstop);
        for lock in [E::of(&quorum, "a").lock(), E::of(&quorum, "b").lock()] {
            let error = lock.await.unwrap_err();
            assert!(matches!(error, Error::NoQuorum(_)), "{error}");
        }
        let took = start.elapsed();
        assert!(took >= NODE_TIMEOUT - ms(20), "{took:?}");
        assert!(
            took < NODE_TIMEOUT + AT_ONCE + machine.longest() * 4,
            "once, not for each: {took:?}"
        );
        drop(leases);

        // This is longer than the time after which connections are dialled again.
        let memory = resident();
        let (start, mut attempts, mut slow) = (Instant::now(), 0, 0);
        while start.elapsed() < ms(2_800) || attempts <= 2_000 {
            assert!(start.elapsed() < PATIENCE, "{kind:?}: only {attempts}");
            let attempt = Instant::now();
            let error = E::of(&quorum, format!("name {attempts}"))
                .try_lock()
                .await
                .unwrap_err();
            assert!(matches!(error, Error::NoQuorum(_)), "{error}");
            attempts += 1;
            // The attempt did not wait for a node timeout. This bound is a sixth of one.
            slow += usize::from(attempt.elapsed() > NODE_TIMEOUT / 6);
        }
        assert!(
            slow < attempts / 100,
            "{kind:?}: {slow} of {attempts} took long"
        );
        let grown = resident().saturating_sub(memory);
        assert!(
            grown < 8 << 20,
            "{kind:?}: {grown} bytes after {attempts} attempts"
        );

        fleet[..3].iter().for_each(Server::sigcont);
        all_vote(&quorum).await;
        assert_eq!(left_behind(&fleet), [""; 0], "{kind:?}");
        assert!(E::of(&quorum, "a").lock().await.is_ok());
    }
}

/// A wait with an end ends on time, even if it is not known yet that the nodes will not answer.
async fn a_wait_ends_on_time_before_stopped_and_before_slow_nodes<E: Exclusive>() {
    // Nothing vanishes here because it expired.
    let ttl = Duration::from_secs(60);
    let machine = Stalls::watch();
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let proxies: Vec<Proxy> = fleet.iter().map(Proxy::start).collect();
        let urls = proxies.iter().map(Proxy::url);
        // This timeout is far longer than what a busy machine may add to the wait.
        let builder = builder().max_ttl(ttl).node_timeout(2 * PATIENCE);
        let quorum = builder.nodes(urls).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let held = E::of(&quorum, "held").ttl(ttl).lock().await.unwrap();
        let waits = async |name: &str, wait: Duration| {
            let start = Instant::now();
            let error = E::of(&quorum, name).wait_timeout(wait).lock().await;
            let took = start.elapsed();
            let most = wait + AT_ONCE + machine.longest() * 4;
            assert!((wait..most).contains(&took), "{name}: {took:?}");
            error.unwrap_err()
        };
        let silent = |error: &Error| {
            let nodes = error.report().unwrap().nodes().iter();
            let unheard = Vote::None(Silence::WaitOver);
            nodes.filter(|node| node.vote == unheard).count()
        };

        fleet[..2].iter().for_each(Server::sigstop);
        // The third node answers within this time.
        let error = waits("a", ms(1_000)).await;
        assert!(matches!(error, Error::NoQuorum(_)), "{kind:?}: {error}");
        assert_eq!(silent(&error), 2, "{kind:?}: {error:?}");
        fleet[..2].iter().for_each(Server::sigcont);

        // Every node answers, but too late.
        proxies.iter().for_each(|proxy| proxy.delay(ms(500)));
        let error = waits("b", ms(50)).await;
        assert!(matches!(error, Error::NoQuorum(_)), "{kind:?}: {error}");
        assert_eq!(silent(&error), 3, "{kind:?}: {error:?}");
        proxies.iter().for_each(|proxy| proxy.delay(Duration::ZERO));
        // This request is behind all that are late.
        let behind = E::of(&quorum, "behind").lock().await.unwrap();
        behind.release().await.unwrap();

        // The first attempt is refused, and then nobody answers the next attempt.
        let other = E::of(&quorum, "held").wait_timeout(ms(1_500)).lock();
        let line = E::line("held");
        let waits = |server: &Server| server.scored(&line, 0).len() == 1;
        let (refused, ()) = tokio::join!(other, async {
            wait_until("it waits", || fleet.iter().all(waits)).await;
            fleet.iter().for_each(Server::sigstop);
        });
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Held(_)), "{kind:?}: {error}");
        fleet.iter().for_each(Server::sigcont);

        assert_eq!(quorum.health().voting, 3, "{kind:?}: nobody was late");
        held.release().await.unwrap();
        assert_eq!(left_behind(&fleet), [""; 0], "{kind:?}");
    }
}

/// The memory that this process uses.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// A server that is stopped with an unread ACQUIRE grants it when it goes on. Each of twenty clients has one there.
/// Some gave up before they dialled again, some after that, and some were refused.
async fn a_late_grant_is_taken_back<E: Exclusive>() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(5, kind);
        // With this ttl nothing vanishes here because it expired.
        let ttl = Duration::from_secs(60);
        let builder = || {
            let builder = builder().max_ttl(ttl).node_timeout(ms(500));
            builder.nodes(fleet.urls())
        };
        let other = builder().connect().await.unwrap();
        other.bootstrap_forced().await.unwrap();
        let mut clients = Vec::new();
        for _ in 0..20 {
            clients.push(builder().connect().await.unwrap());
        }
        for client in &clients {
            all_vote(client).await;
        }
        let taken = E::of(&other, "taken").ttl(ttl).lock().await.unwrap();
        fleet[0].sigstop();
        let mut early = Vec::new();
        let mut late = Vec::new();
        for (i, client) in clients.iter().enumerate() {
            let mutex = E::of(client, format!("{i}"))
                .ttl(ttl)
                .renewal(Renewal::off());
            let lease = mutex.lock().await.unwrap();
            if i % 2 == 0 {
                early.push(lease)
            } else {
                late.push(lease)
            }
            assert!(!matches!(
                E::of(client, "taken").ttl(ttl).try_lock().await,
                Ok(Some(_))
            ));
        }
        drop(early);
        // The server owes each of them an answer for longer than 2 s, so they dial again.
        sleep(ms(2_600)).await;
        drop(late);
        drop(taken);
        sleep(ms(100)).await;
        fleet[0].sigcont();
        // Time for the back-off of a dial, and for the releases of twenty clients after it.
        let left = fleet.leftover_locks_after(Duration::from_secs(4), PREFIX);
        assert!(left.is_empty(), "{kind:?}: {left:#?}");
        for client in &clients {
            all_vote(client).await;
        }
        assert_eq!(left_behind(&fleet), [""; 0], "{kind:?}");
        assert!(E::of(&other, "1").try_lock().await.unwrap().is_some());
    }
}

/// An ACQUIRE may still be under way when its client has dialled again. It would arrive after its own RELEASE, so the
/// server ends the old connection first.
async fn an_acquire_on_an_older_connection_is_killed_with_it<E: Exclusive>() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(5, kind);
        let proxy = Proxy::start(&fleet[0]);
        let ttl = Duration::from_secs(60);
        let mut urls = fleet.urls();
        urls[0] = proxy.url().to_owned();
        let builder = || {
            let builder = builder().max_ttl(ttl).node_timeout(ms(500));
            builder.nodes(&urls)
        };
        let mut clients = Vec::new();
        for _ in 0..5 {
            let client = builder().connect().await.unwrap();
            client.bootstrap_forced().await.unwrap();
            all_vote(&client).await;
            clients.push(client);
        }
        // Messages that are sent now arrive in 7 s. Later ones arrive at once.
        let delay = Duration::from_secs(7);
        proxy.delay(delay);
        let mut leases = Vec::new();
        for (i, client) in clients.iter().enumerate() {
            let mutex = E::of(client, format!("{i}"))
                .ttl(ttl)
                .renewal(Renewal::off());
            leases.push(mutex.lock().await.unwrap());
        }
        let sent = Instant::now();
        sleep(ms(50)).await;
        proxy.delay(Duration::ZERO);
        // The node timeout ends, so that the node does not vote until it is dialled again.
        sleep(ms(800)).await;
        for client in &clients {
            all_vote(client).await;
        }
        // This is a second before the messages arrive, which leaves time for the check below.
        assert!(
            sent.elapsed() < delay - ms(1_000),
            "dialled anew in time: {:?}",
            sent.elapsed()
        );
        drop(leases);
        assert_eq!(left_behind(&fleet), [""; 0], "{kind:?}: not arrived yet");
        sleep((delay + ms(500)).saturating_sub(sent.elapsed())).await;
        assert_eq!(
            fleet.leftover_locks(PREFIX),
            [""; 0],
            "{kind:?}: granted to nobody"
        );
    }
}

/// Without the permission to end connections everything works, and `nodes()` says what may be left behind.
async fn a_server_that_permits_no_client_kill_is_noted<E: Exclusive>() {
    let user = "locker on >secret ~quorate:* &quorate:* +@all -client|kill";
    let fleet = Fleet::start_with(5, ServerOptions::new(Kind::Redis).acl(user));
    let urls = fleet
        .iter()
        .map(|server| server.url_with("locker", "secret"));
    let quorum = builder().nodes(urls).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let noted = || {
        for node in quorum.nodes() {
            let text = node.to_string();
            assert!(
                text.contains("CLIENT KILL") && text.contains("one ttl"),
                "{text}"
            );
        }
    };
    // The note is there from the start, and also when the permission is needed.
    noted();
    fleet[0].sigstop();
    let lease = E::of(&quorum, "a").lock().await.unwrap();
    sleep(ms(2_600)).await;
    fleet[0].sigcont();
    all_vote(&quorum).await;
    noted();
    lease.release().await.unwrap();
    assert_eq!(left_behind(&fleet), [""; 0]);
}

// ---- restarts ------------------------------------------------------------------------------

/// Z = 1.01 · max_ttl + margin, counted by the clients.
async fn a_server_that_restarted_empty_does_not_vote_for_its_quarantine<E: Exclusive>() {
    let quarantine = MAX_TTL + MAX_TTL / 100 + ms(100);
    for kind in Kind::ALL {
        let fleet = Fleet::start(5, kind);
        let quorum = connect(&fleet, TIMEOUT).await;
        fleet[4].kill9();
        let start = Instant::now();
        fleet[4].start_again();
        fleet[0].kill9();
        fleet[1].kill9();
        let quarantined = || matches!(quorum.nodes()[4].state, NodeState::Quarantined(_));
        wait_until("the restarted one is met", quarantined).await;
        let met = Instant::now();
        let NodeState::Quarantined(left) = quorum.nodes()[4].state else {
            panic!()
        };
        assert!(left <= quarantine, "{left:?}");
        assert!(left + start.elapsed() >= quarantine - ms(2), "{left:?}");

        // Two nodes vote, and this one would make the third vote.
        wait_until("the dead are known", || quorum.health().voting == 2).await;
        let error = E::of(&quorum, "a").try_lock().await.unwrap_err();
        assert!(matches!(error, Error::Quarantined(_)), "{kind:?}: {error}");
        assert!(error.retry_after().is_some_and(|left| left <= quarantine));
        let lease = E::of(&quorum, "a")
            .lock()
            .await
            .unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        let waited = start.elapsed();
        assert!(waited >= quarantine, "{kind:?}: it voted after {waited:?}");
        // A waiter checks every 500 ms. The rest is for a busy machine.
        let met = met.elapsed();
        assert!(
            met < quarantine + ms(1_500),
            "{kind:?}: it did not vote for {met:?}"
        );
        lease.release().await.unwrap();
    }
}

// ---- in use --------------------------------------------------------------------------------

/// Four tasks lock and release, and one lease is held, while `happen` runs.
async fn in_use<E: Exclusive>(
    quorum: &Quorum,
    is_refused: impl Fn(&Error) -> bool,
    happen: impl AsyncFn(usize),
) {
    let kept = E::of(quorum, "kept").ttl(MAX_TTL).lock().await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let tasks: Vec<_> = (0..4)
        .map(|i| {
            let (quorum, over) = (quorum.clone(), Arc::clone(&over));
            tokio::spawn(async move {
                let (mut done, mut errors) = (0, Vec::new());
                while !over.load(SeqCst) {
                    // Two tasks share each name, so it is contended.
                    let mutex = E::of(&quorum, format!("{}", i / 2));
                    match mutex.run(async |_| tokio::task::yield_now().await).await {
                        Ok(()) => done += 1,
                        Err(error) => errors.push(error),
                    }
                }
                (done, errors)
            })
        })
        .collect();
    for round in 0..12 {
        happen(round).await;
        sleep(ms(200)).await;
        assert!(kept.is_valid(), "round {round}");
    }
    assert!(kept.held_for() > MAX_TTL, "it was renewed");
    over.store(true, SeqCst);
    let mut all = 0;
    for task in tasks {
        let (done, errors) = task.await.unwrap();
        all += done;
        let unexpected = errors.iter().find(|error| !is_refused(error));
        assert!(unexpected.is_none(), "{}", unexpected.unwrap());
    }
    assert!(all > 100, "{all}");
    kept.release().await.unwrap();
    all_vote(quorum).await;
}

async fn flushed_scripts_are_loaded_again<E: Exclusive>() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let quorum = connect(&fleet, TIMEOUT).await;
        let flush = || {
            fleet
                .iter()
                .for_each(|server| drop(server.cmd(&["SCRIPT", "FLUSH"])))
        };
        let extended = E::of(&quorum, "extended").lock().await.unwrap();
        in_use::<E>(
            &quorum,
            |_| false,
            async |_| {
                flush();
                extended
                    .extend()
                    .await
                    .expect("an extension may be sent again");
            },
        )
        .await;
        flush();
        let seen = quorum.inspect("extended").await.unwrap();
        assert!(seen.holder().is_some() || !E::EVICTS);
        flush();
        assert!(E::of(&quorum, "a").try_lock().await.unwrap().is_some());
        flush();
        extended.release().await.unwrap();
        assert_eq!(left_behind(&fleet), [""; 0], "{kind:?}");
    }
}

async fn a_killed_connection_of_a_minority_is_not_noticed<E: Exclusive>() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let quorum = connect(&fleet, TIMEOUT).await;
        in_use::<E>(
            &quorum,
            |_| false,
            async |round| {
                all_vote(&quorum).await;
                fleet[round % 3].cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
            },
        )
        .await;
        assert_eq!(left_behind(&fleet), [""; 0], "{kind:?}");
    }
}

async fn killed_connections_to_all_are_made_again<E: Exclusive>() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let quorum = connect(&fleet, TIMEOUT).await;
        in_use::<E>(&quorum, Error::is_retryable, async |_| {
            for server in fleet.iter() {
                server.cmd(&["CLIENT", "KILL", "TYPE", "normal"]);
            }
        })
        .await;
        assert_eq!(left_behind(&fleet), [""; 0], "{kind:?}");
    }
}

/// Full servers grant nothing and say so. Leases that are held can be kept and released.
async fn at_maxmemory_nothing_is_granted_and_everything_freed<E: Exclusive>() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let quorum = connect(&fleet, TIMEOUT).await;
        let held = E::of(&quorum, "held").ttl(MAX_TTL).lock().await.unwrap();
        let evicted = E::of(&quorum, "evicted").lock().await.unwrap();
        let maxmemory =
            |server: &Server, bytes| drop(server.cmd(&["CONFIG", "SET", "maxmemory", bytes]));

        maxmemory(&fleet[0], "1");
        let beside = E::of(&quorum, "a").try_lock().await.unwrap();
        let beside = beside.expect("a minority is full");
        // The release is confirmed, so that no batch begins with it. A full server accepts other writes behind one that
        // frees memory.
        beside.release().await.unwrap();
        fleet.iter().for_each(|server| maxmemory(server, "1"));
        for lock in [
            E::of(&quorum, "b").lock(),
            E::of(&quorum, "c").wait_timeout(ms(1_000)).lock(),
        ] {
            let error = lock.await.unwrap_err();
            assert!(matches!(error, Error::NoQuorum(_)), "{error}");
            let text = error.to_string();
            assert!(text.contains("OOM") && text.contains("maxmemory"), "{text}");
        }
        sleep((MAX_TTL + ms(200)).saturating_sub(held.held_for())).await;
        assert!(held.is_valid(), "{kind:?}: it is renewed");
        held.extend().await.unwrap();
        held.release().await.unwrap();
        assert!(!E::EVICTS || quorum.evict("evicted").await.unwrap());
        drop(evicted);
        assert_eq!(left_behind(&fleet), [""; 0], "{kind:?}");
        let health = quorum.health();
        assert_eq!(
            (health.voting, health.spare),
            (0, 0),
            "no lock can be taken"
        );

        fleet.iter().for_each(|server| maxmemory(server, "0"));
        assert!(E::of(&quorum, "b").try_lock().await.unwrap().is_some());
    }
}
