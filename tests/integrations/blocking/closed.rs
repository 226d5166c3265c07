//! Calls after a shutdown, and calls that wait during one.

use std::sync::mpsc::channel;

use quorate::{
    Error, LossReason, Owner, Quota,
    blocking::{Lease, RateLimiter},
};

use super::*;

#[track_caller]
fn is_closed<T>(call: &str, answer: Result<T, Error>) {
    match answer {
        Err(Error::Closed) => {}
        Err(error) => panic!("{call}: {error}"),
        Ok(_) => panic!("{call} does something"),
    }
}

#[test]
fn after_a_shutdown_every_call_answers_that_it_is_closed() {
    let masters = Masters::new();
    let client = builder().nodes(&masters.0).shutdown_timeout(ms(200));
    let client = client.connect().unwrap();
    let (mutex, owner) = (client.mutex("a").ttl(TTL), Owner::new());
    let (reentrant, semaphore) = (client.reentrant_mutex("b"), client.semaphore("c", 1));
    let limiter = client.rate_limiter("d", Quota::new(9, LONG));
    let (rwlock, all) = (client.rwlock("e"), client.mutex_all(["f", "g"]));
    let [lease, permit] = [mutex.lock().unwrap(), semaphore.acquire().unwrap()];
    let [writer, set] = [rwlock.write().unwrap(), all.lock().unwrap()];
    let watch = lease.watch();
    limiter.until_ready().unwrap();
    let clone = client.clone();
    assert_eq!(client.shutdown().unwrap(), ["a", "c", "e", "f, g"]);
    is_closed("lock", mutex.lock());
    is_closed("try_lock", mutex.try_lock());
    is_closed("run", mutex.run(drop));
    is_closed("try_run", mutex.try_run(drop));
    is_closed("reentrant lock", reentrant.lock(&owner));
    is_closed("reentrant try_lock", reentrant.try_lock(&owner));
    is_closed("reentrant run", reentrant.run(&owner, drop));
    is_closed("read", rwlock.read());
    is_closed("try_read", rwlock.try_read());
    is_closed("run_read", rwlock.run_read(drop));
    is_closed("try_run_read", rwlock.try_run_read(drop));
    is_closed("write", rwlock.write());
    is_closed("try_write", rwlock.try_write());
    is_closed("run_write", rwlock.run_write(drop));
    is_closed("try_run_write", rwlock.try_run_write(drop));
    is_closed("lock of several", all.lock());
    is_closed("try_lock of several", all.try_lock());
    is_closed("acquire", semaphore.acquire());
    is_closed("try_acquire", semaphore.try_acquire());
    is_closed("acquire_many", semaphore.acquire_many(1));
    is_closed("available", semaphore.available());
    is_closed("resize", semaphore.resize(2));
    is_closed("check", limiter.check());
    is_closed("until_ready", limiter.until_ready());
    is_closed("limiter run", limiter.run(|| ()));
    is_closed("lock of a new handle", clone.mutex("new").lock());
    is_closed("inspect", clone.inspect("a"));
    is_closed("evict", clone.evict("a"));
    is_closed("ready", clone.ready());
    is_closed("voting", clone.voting(PATIENCE));
    is_closed("bootstrap", clone.bootstrap());
    is_closed("bootstrap_forced", clone.bootstrap_forced());
    is_closed("raise_terms", clone.raise_terms());
    // Leases that it still held are lost.
    assert_eq!(watch.lost().unwrap(), LossReason::NodesLost);
    let [downgraded, extended] = [writer.downgrade(), lease.extend()];
    let released = [lease, permit, writer, set].map(Lease::release);
    for answer in released.into_iter().chain([downgraded, extended]) {
        let is_lost = |lost: &Error| matches!(lost, Error::Lost(lost) if lost.reason == LossReason::NodesLost);
        assert!(answer.as_ref().is_err_and(is_lost), "{answer:?}");
    }
    clone.shutdown().unwrap();
}

/// A call on which a thread waits.
type Wait = Box<dyn FnOnce(&Quorum) -> Result<(), Error> + Send>;

#[test]
fn threads_that_wait_are_told_of_a_shutdown() {
    let masters = Masters::new();
    let (holder, client) = (masters.client(), masters.client());
    let held: [Lease; 5] = [
        holder.mutex("a").ttl(TTL).lock().unwrap(),
        holder.mutex("b").ttl(TTL).lock().unwrap(),
        holder.semaphore("c", 1).ttl(TTL).acquire().unwrap(),
        holder.rwlock("e").ttl(TTL).write().unwrap(),
        holder.rwlock("f").ttl(TTL).read().unwrap(),
    ];
    let limiter = |of: &Quorum| -> RateLimiter { of.rate_limiter("d", Quota::new(1, LONG)) };
    limiter(&holder).until_ready().unwrap();
    let unborn = [(); 3].map(|()| MemoryNode::new());
    // These masters do not vote, because they have restarted.
    unborn.iter().for_each(MemoryNode::restart_empty);
    let unborn = builder().nodes(&unborn).connect().unwrap();
    let waits: Vec<(&str, Wait)> = vec![
        (
            "lock",
            Box::new(|client| client.mutex("a").lock().map(drop)),
        ),
        ("run", Box::new(|client| client.mutex("a").run(drop))),
        (
            "with a limit",
            Box::new(|client| client.mutex("a").wait_timeout(TTL).lock().map(drop)),
        ),
        (
            "reentrant",
            Box::new(|client| client.reentrant_mutex("b").lock(&Owner::new()).map(drop)),
        ),
        (
            "several",
            Box::new(|client| client.mutex_all(["b", "free"]).lock().map(drop)),
        ),
        (
            "read",
            Box::new(|client| client.rwlock("e").read().map(drop)),
        ),
        (
            "write",
            Box::new(|client| client.rwlock("e").write().map(drop)),
        ),
        (
            "run_write beside a reader",
            Box::new(|client| client.rwlock("f").run_write(drop)),
        ),
        (
            "acquire",
            Box::new(|client| client.semaphore("c", 1).acquire().map(drop)),
        ),
        (
            "until_ready",
            Box::new(move |client| limiter(client).until_ready()),
        ),
        (
            "voting",
            Box::new({
                let unborn = unborn.clone();
                move |_| unborn.voting(TTL)
            }),
        ),
    ];
    let count = waits.len();
    let (tell, told) = channel();
    for (what, wait) in waits {
        let (tell, client) = (tell.clone(), client.clone());
        thread::spawn(move || tell.send((what, wait(&client))).unwrap());
    }
    until("they stand in line", || {
        let line = |name| holder.inspect(name).unwrap();
        line("a").line().len() == 3
            && line("b").line().len() == 1
            && line("c").waiting_for_slots() == 1
    });
    // For the other calls it cannot be seen that they wait.
    thread::sleep(ms(300));
    assert!(told.try_recv().is_err(), "all of them wait");
    assert!(client.shutdown().unwrap().is_empty());
    unborn.shutdown().unwrap();
    for _ in 0..count {
        let (what, answer) = told.recv_timeout(PATIENCE).unwrap();
        is_closed(what, answer);
    }
    until("they left the lines", || {
        holder.inspect("a").unwrap().line().is_empty()
    });
    // A writer that has stopped waiting keeps no reader out.
    let beside = holder.rwlock("f").ttl(TTL).wait_timeout(PATIENCE).read();
    drop((beside.unwrap(), held));
}

#[test]
fn a_shutdown_waits_for_what_other_threads_hold() {
    let (fleet, client) = servers();
    let leases: Vec<Lease> = (0..10)
        .map(|i| client.mutex(format!("{i}")).ttl(TTL).lock().unwrap())
        .collect();
    let (drops, closes) = (client.clone(), channel());
    let ends = thread::spawn(move || {
        until("new calls are refused", || {
            matches!(drops.mutex("new").try_lock(), Err(Error::Closed))
        });
        closes.0.send(Instant::now()).unwrap();
        thread::sleep(ms(100));
        for (i, lease) in leases.into_iter().enumerate() {
            assert!(lease.is_valid());
            if i % 2 == 0 {
                lease.release().unwrap();
            }
        }
    });
    let others: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            thread::spawn(move || client.shutdown())
        })
        .collect();
    assert!(client.shutdown().unwrap().is_empty());
    assert!(closes.1.recv().unwrap().elapsed() >= ms(100));
    for other in others {
        assert!(other.join().unwrap().unwrap().is_empty());
    }
    ends.join().unwrap();
    let left = fleet.leftover_locks_after(PATIENCE, PREFIX);
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn a_process_that_ends_with_a_shutdown_leaves_nothing_behind() {
    let test = "closed::a_process_that_ends_with_a_shutdown_leaves_nothing_behind";
    if let Some(urls) = given() {
        let client = builder().nodes(urls.split(',')).connect().unwrap();
        let lock = |i| client.mutex(format!("{i}")).ttl(TTL).lock().unwrap();
        let mut leases: Vec<Lease> = (0..20).map(lock).collect();
        let elsewhere: Vec<Lease> = leases.drain(..10).collect();
        let dropped = thread::spawn(move || drop(elsewhere));
        drop(leases);
        drop(
            client
                .semaphore("pool", 3)
                .ttl(TTL)
                .acquire_many(2)
                .unwrap(),
        );
        dropped.join().unwrap();
        assert!(client.shutdown().unwrap().is_empty());
        println!("all is released");
        // Returning from `main` does the same: it waits for no thread.
        std::process::exit(0);
    }
    let (fleet, client) = servers();
    client.shutdown().unwrap();
    let said = in_a_process(test, &fleet.urls().join(","));
    assert!(said.contains("all is released"), "{said}");
    let left = fleet.leftover_locks_after(PATIENCE, PREFIX);
    assert!(left.is_empty(), "{left:#?}");
}
