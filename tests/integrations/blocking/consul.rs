//! Locks and semaphores of a real Consul, from threads.

use std::{
    fs,
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{RecvTimeoutError, channel},
    },
};

use quorate::{
    Error, LossReason,
    blocking::{Lease, consul::Consul},
};

use super::{
    places::{current_thread, multi_thread},
    *,
};
use crate::support::Agent;

fn connect(agent: &Agent) -> Consul {
    Consul::connect(agent.url()).unwrap()
}

/// Checks that no key and no session is left. This is before the end of any TTL (10 s, which Consul doubles).
#[track_caller]
fn nothing_is_left(agent: &Agent) {
    let end = Instant::now() + ms(9_000);
    let left = || (agent.pairs(""), agent.sessions());
    while !(left().0.is_empty() && left().1.is_empty()) {
        assert!(Instant::now() < end, "left behind: {:#?}", left());
        thread::sleep(ms(10));
    }
}

#[test]
fn threads_exclude_each_other_through_consul() {
    let agent = Agent::start();
    let clients = [connect(&agent), connect(&agent)];
    let dir = tempfile::tempdir().unwrap();
    let counter = dir.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let count_one = || {
        let count: usize = fs::read_to_string(&counter).unwrap().parse().unwrap();
        thread::sleep(ms(1));
        fs::write(&counter, (count + 1).to_string()).unwrap();
    };
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for i in 0..12 {
            let (client, count_one, now, most) = (&clients[i % 2], &count_one, &now, &most);
            scope.spawn(move || {
                let (mutex, pool) = (client.mutex("jobs/count"), client.semaphore("pool", 2));
                for _ in 0..2 {
                    mutex.run(|_| count_one()).unwrap();
                    let lease = mutex.lock().unwrap();
                    count_one();
                    drop(lease);
                    let within = pool.run(|watch| {
                        most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                        // The first of them waits for a second one, which may come late on a busy machine.
                        let start = Instant::now();
                        while most.load(SeqCst) < 2 && start.elapsed() < PATIENCE {
                            thread::sleep(ms(1));
                        }
                        thread::sleep(ms(20));
                        now.fetch_sub(1, SeqCst);
                        watch.token()
                    });
                    within.unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_to_string(&counter).unwrap(), "48");
    assert_eq!(most.into_inner(), 2);
    for client in &clients {
        assert!(client.shutdown().unwrap().is_empty());
        let closed = client.mutex("jobs/count").try_lock();
        assert!(matches!(closed, Err(Error::Closed)), "{closed:?}");
    }
    nothing_is_left(&agent);
}

#[test]
fn every_call_of_consul_works_on_a_thread_without_a_runtime() {
    let test = "consul::every_call_of_consul_works_on_a_thread_without_a_runtime";
    // The test runs in a process of its own. A panic in the background is found in the output of that process.
    alone(test, || {
        let agent = Agent::start();
        let consul = connect(&agent);
        consul.ready().unwrap();
        let (mutex, pool) = (consul.mutex("a"), consul.semaphore("pool", 3));
        mutex.validate().unwrap();
        let first = mutex.lock().unwrap();
        assert!(mutex.try_lock().unwrap().is_none());
        assert!(mutex.try_run(drop).unwrap().is_none());
        first.extend().unwrap();
        let token = first.token();
        let label = consul.mutex("b").label("10.0.0.7:8080").lock().unwrap();
        assert_eq!(agent.pairs("b/.lock")[0].value, "10.0.0.7:8080");
        label.release().unwrap();
        let short = mutex.clone().wait_timeout(ms(100)).lock();
        assert!(matches!(short, Err(Error::Held(_))), "{short:?}");
        first.release().unwrap();
        assert!(mutex.run(|watch| watch.token()).unwrap() > token);
        let two = pool.acquire_many(2).unwrap();
        assert_eq!(pool.available().unwrap(), 1);
        two.extend().unwrap();
        let third = pool.try_acquire().unwrap().unwrap();
        assert!(pool.try_acquire().unwrap().is_none());
        pool.resize(4).unwrap();
        drop(two);
        thread::spawn(move || drop(third)).join().unwrap();
        until("all are free", || pool.available().unwrap() == 4);
        let abandoned = consul.mutex("abandoned").lock().unwrap();
        abandoned.abandon();
        let waited_for = mutex.lock().unwrap();
        let waits = thread::spawn({
            let mutex = mutex.clone();
            move || mutex.lock()
        });
        thread::sleep(ms(200));
        assert!(!waits.is_finished());
        drop(waited_for);
        drop(waits.join().unwrap().unwrap());
        // In async code calls are refused, but a lease may be dropped.
        for runtime in [current_thread, multi_thread] {
            let lease = mutex.clone().wait_timeout(PATIENCE).lock().unwrap();
            runtime().block_on(async {
                let refused = [
                    mutex.lock().map(drop),
                    pool.acquire().map(drop),
                    consul.ready(),
                    consul.shutdown().map(drop),
                    Consul::connect(agent.url()).map(drop),
                    lease.extend(),
                ];
                for refused in refused {
                    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
                }
                drop(lease);
            });
        }
        mutex.clone().wait_timeout(PATIENCE).run(drop).unwrap();
        // Waiting threads learn of the end.
        let held = connect(&agent);
        let held = held.mutex("a").wait_timeout(PATIENCE).lock().unwrap();
        let waits = thread::spawn(move || mutex.lock());
        thread::sleep(ms(200));
        assert!(consul.shutdown().unwrap().is_empty());
        let waited = waits.join().unwrap();
        assert!(matches!(waited, Err(Error::Closed)), "{waited:?}");
        drop(held);
    });
}

#[test]
fn a_loss_in_consul_is_told() {
    let agent = Agent::start();
    let consul = connect(&agent);
    let (lost, given_up) = (consul.mutex("lost"), consul.mutex("given up"));
    let (lost, given_up) = (lost.lock().unwrap(), given_up.lock().unwrap());
    let told = |lease: &Lease, of: Consul| {
        let (tell, told) = channel();
        lease.on_lost(move |reason| {
            // The callback may block.
            of.mutex("another").run(drop).unwrap();
            tell.send(reason).unwrap();
        });
        told
    };
    let (of_lost, of_given_up) = (told(&lost, consul.clone()), told(&given_up, consul.clone()));
    let holder = agent.pairs("lost/").remove(0).session.unwrap();
    agent.destroy(&holder);
    assert_eq!(of_lost.recv_timeout(PATIENCE), Ok(LossReason::Evicted));
    assert!(matches!(lost.release(), Err(Error::Lost(_))));
    given_up.release().unwrap();
    let silence = of_given_up.recv_timeout(PATIENCE);
    assert_eq!(silence, Err(RecvTimeoutError::Disconnected));
    consul.shutdown().unwrap();
    nothing_is_left(&agent);
}

#[test]
fn a_shutdown_of_consul_says_what_is_still_held() {
    let agent = Agent::start();
    let builder = Consul::builder().url(agent.url());
    let consul = builder.shutdown_timeout(ms(300)).connect_lazy().unwrap();
    let lease = consul.mutex("jobs/nightly").lock().unwrap();
    let (tell, told) = channel();
    lease.on_lost(move |reason| tell.send(reason).unwrap());
    assert_eq!(consul.shutdown().unwrap(), ["jobs/nightly"]);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(LossReason::NodesLost));
    assert_eq!(lease.lost().unwrap(), LossReason::NodesLost);
}

#[test]
fn without_a_shutdown_the_sessions_are_destroyed_at_the_end() {
    let test = "consul::without_a_shutdown_the_sessions_are_destroyed_at_the_end";
    alone(test, || {
        let agent = Agent::start();
        let consul = connect(&agent);
        let (lease, permits) = (
            consul.mutex("a").lock().unwrap(),
            consul.semaphore("b", 2).acquire_many(2).unwrap(),
        );
        drop(consul);
        thread::sleep(ms(200));
        assert_eq!((threads_called("quorate"), agent.sessions().len()), (1, 3));
        assert!(lease.is_valid());
        drop(permits);
        lease.release().unwrap();
        until("the thread ends", || threads_called("quorate") == 0);
        // The sessions are gone by now, not only later.
        assert_eq!(agent.sessions().len(), 0);
        assert!(agent.pairs("").is_empty());
        // A client that cannot reach its agent leaves no thread.
        agent.kill9();
        Consul::connect(agent.url()).unwrap_err();
        until("the thread ends", || threads_called("quorate") == 0);
    });
}
