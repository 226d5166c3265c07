//! The end without a shutdown: the thread ends with the last handle and the last lease, and releases before that.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use quorate::{Error, Renewal, blocking::Lease};

use super::{
    places::{current_thread, multi_thread},
    *,
};

/// All threads of this process.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[track_caller]
fn there_is_one_thread() {
    assert_eq!(threads_called("quorate"), 1);
}

#[track_caller]
fn the_thread_ends() {
    until("the thread ends", || threads_called("quorate") == 0);
}

#[test]
fn the_thread_ends_with_the_last_handle_and_the_last_lease() {
    let test = "ending::the_thread_ends_with_the_last_handle_and_the_last_lease";
    alone(test, || {
        let masters = Masters::new();
        the_thread_ends();
        let client = masters.client();
        let clone = client.clone();
        there_is_one_thread();
        drop((client, clone));
        the_thread_ends();
        // A handle keeps the thread alive, and so does a lease.
        let mutex = masters.client().mutex("a").ttl(TTL);
        let lease = mutex.lock().unwrap();
        drop(mutex);
        lease.extend().unwrap();
        there_is_one_thread();
        drop(lease);
        the_thread_ends();
        // The lock was released by now, not only later.
        let other = masters.client();
        let next = other.mutex("a").try_lock().unwrap();
        assert!(next.is_some(), "{}", other.inspect("a").unwrap());
        drop((other, next));
        the_thread_ends();
        // A panic, async code and other threads end it as well.
        let with_lease = || {
            let client = masters.client();
            let lease = client.mutex("a").ttl(TTL).wait_timeout(PATIENCE).lock();
            (lease.unwrap(), client)
        };
        let things = with_lease();
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _things = things;
            std::panic::resume_unwind(Box::new("as a test wants it"));
        }));
        panicked.unwrap_err();
        the_thread_ends();
        for runtime in [current_thread, multi_thread] {
            let (things, runtime) = (with_lease(), runtime());
            runtime.block_on(async { tokio::spawn(async move { drop(things) }).await.unwrap() });
            drop(runtime);
            the_thread_ends();
            let (things, runtime) = (with_lease(), multi_thread());
            runtime.block_on(async move { drop(things) });
            drop(runtime);
            the_thread_ends();
        }
        let things = with_lease();
        thread::spawn(move || drop(things)).join().unwrap();
        the_thread_ends();
        masters.is_freed("a");
    });
}

thread_local! {
    static KEPT: RefCell<Option<(Lease, Quorum)>> = const { RefCell::new(None) };
}

/// A lease in a thread-local is dropped when little of the thread is left, before or after tokio's own thread-locals.
#[test]
fn a_lease_that_a_thread_keeps_ends_with_that_thread() {
    let test = "ending::a_lease_that_a_thread_keeps_ends_with_that_thread";
    alone(test, || {
        let masters = Masters::new();
        the_thread_ends();
        for is_first in [true, false] {
            let client = masters.client();
            let keeps = thread::spawn(move || {
                if is_first {
                    KEPT.with(|_| ());
                }
                let lease = client.mutex("a").ttl(TTL).lock().unwrap();
                lease.on_lost(drop);
                KEPT.set(Some((lease, client)));
            });
            keeps.join().unwrap();
            the_thread_ends();
            masters.is_freed("a");
            the_thread_ends();
        }
    });
}

#[test]
fn a_callback_may_have_the_last_handle() {
    alone("ending::a_callback_may_have_the_last_handle", || {
        let masters = Masters::new();
        the_thread_ends();
        // The callback is never called. It is dropped by the thread that ends with it.
        let client = masters.client();
        let lease = client.mutex("a").ttl(TTL).lock().unwrap();
        lease.on_lost(move |_| drop(client));
        lease.release().unwrap();
        the_thread_ends();
        // The callback is called, and drops the client.
        let client = masters.client();
        let renewal = Renewal::auto().max_hold(ms(400));
        let lease = client
            .mutex("a")
            .ttl(SHORT)
            .renewal(renewal)
            .lock()
            .unwrap();
        lease.on_lost(move |_| {
            let _last = client.mutex("b").ttl(TTL).lock().unwrap();
            thread::sleep(ms(100));
            drop(client);
        });
        until("it is lost", || !lease.is_valid());
        drop(lease);
        the_thread_ends();
        assert!(masters.client().mutex("b").try_lock().unwrap().is_some());
        // The callback has the lease itself.
        let client = masters.client();
        let lease = client
            .mutex("c")
            .ttl(SHORT)
            .renewal(renewal)
            .lock()
            .unwrap();
        let (watch, (give, taken)) = (lease.watch(), std::sync::mpsc::channel());
        lease.on_lost(move |_| drop(taken.recv()));
        give.send((lease, client)).unwrap();
        watch.lost().unwrap();
        drop(watch);
        the_thread_ends();
    });
}

#[test]
fn many_connects_leave_no_threads() {
    alone("ending::many_connects_leave_no_threads", || {
        let masters = Masters::new();
        the_thread_ends();
        let before = threads();
        for i in 0..50 {
            let client = masters.client();
            client.mutex("a").run(drop).unwrap();
            let renewal = Renewal::auto().max_hold(ms(150));
            let mutex = client.mutex("b").ttl(ms(1_000)).renewal(renewal);
            let lease = mutex.wait_timeout(PATIENCE).lock().unwrap();
            lease.on_lost(drop);
            if i % 10 == 0 {
                lease.lost().unwrap();
            }
            Quorum::in_memory(3).unwrap().mutex("a").run(drop).unwrap();
            let lazy = Quorum::builder().nodes(["redis://localhost:1"]);
            drop(lazy.connect_lazy().unwrap());
        }
        for _ in 0..5 {
            let nobody = Quorum::builder().nodes(["redis://localhost:1"]);
            let error = nobody.connect_timeout(ms(100)).connect().unwrap_err();
            assert!(matches!(error, Error::NoQuorum(_)), "{error}");
            let bad = Quorum::builder().nodes(["what is this"]).connect();
            assert!(matches!(bad, Err(Error::Invalid(_))), "{bad:?}");
            let bad = Quorum::builder().nodes(["what is this"]).connect_lazy();
            assert!(matches!(bad, Err(Error::Invalid(_))), "{bad:?}");
        }
        until("all threads are gone", || threads() == before);
    });
}

#[test]
fn a_lease_dropped_just_before_the_end_is_released_on_the_servers() {
    let (fleet, boss) = servers();
    for round in 0..20 {
        let client = builder().nodes(fleet.urls()).connect().unwrap();
        let lease = client.mutex(format!("{round}")).ttl(TTL).lock().unwrap();
        let permit = client.semaphore("pool", 20).ttl(TTL).acquire().unwrap();
        match round % 4 {
            0 => drop((lease, permit, client)),
            1 => drop((client, lease, permit)),
            2 => thread::spawn(move || drop((client, permit)))
                .join()
                .map(|()| drop(lease))
                .unwrap(),
            _ => current_thread().block_on(async move { drop((lease, client, permit)) }),
        }
    }
    let left = fleet.leftover_locks_after(PATIENCE, PREFIX);
    assert!(left.is_empty(), "{left:#?}");
    drop(boss);
}

#[test]
fn a_lease_that_outlives_its_quorum_goes_on_being_renewed() {
    let masters = Masters::new();
    let client = masters.client();
    let lease = client.mutex("a").ttl(SHORT).lock().unwrap();
    let permit = client.semaphore("b", 1).ttl(SHORT).acquire().unwrap();
    drop(client);
    thread::sleep(SHORT * 3 / 2);
    assert!(lease.is_valid() && permit.is_valid());
    let other = masters.client();
    assert!(other.mutex("a").try_lock().unwrap().is_none());
    assert!(other.semaphore("b", 1).try_acquire().unwrap().is_none());
    lease.extend().unwrap();
    lease.release().unwrap();
    assert!(other.mutex("a").try_lock().unwrap().is_some());
    drop(permit);
    let next = other.semaphore("b", 1).ttl(SHORT).wait_timeout(PATIENCE);
    next.acquire().unwrap().release().unwrap();
}

#[test]
fn a_lazy_client_is_there_before_its_masters() {
    let masters = Masters::new();
    for master in &masters.0 {
        master.stop();
    }
    let client = builder().nodes(&masters.0).connect_timeout(ms(200));
    let client = client.connect_lazy().unwrap();
    let error = client.ready().unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    for master in &masters.0 {
        master.start();
    }
    client.voting(PATIENCE).unwrap();
    client.mutex("a").run(drop).unwrap();
}
