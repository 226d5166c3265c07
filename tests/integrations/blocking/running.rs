//! `run`: the work runs on the calling thread.

use std::panic::{AssertUnwindSafe, catch_unwind};

use quorate::{Error, LossReason, Owner, Quota, Renewal};

use super::*;

#[test]
fn run_returns_the_result_of_the_work() {
    let masters = Masters::new();
    let client = masters.client();
    let (mutex, semaphore) = (client.mutex("a"), client.semaphore("a", 1));
    let here = thread::current().id();
    let on = mutex.run(|watch| {
        assert!(watch.is_valid() && watch.name() == "a");
        thread::current().id()
    });
    assert_eq!(on.unwrap(), here);
    // The work may borrow, and its result need not be `Send`.
    let mut list = vec![1];
    let returned = semaphore.run(|_| {
        list.push(2);
        std::rc::Rc::new(list.len())
    });
    assert_eq!(*returned.unwrap(), 2);
    let failed: Result<Result<(), &str>, Error> = mutex.run(|_| Err("no paper"));
    assert_eq!(failed.unwrap(), Err("no paper"));
    let limiter = client.rate_limiter("a", Quota::new(2, LONG));
    assert_eq!(limiter.run(|| list.pop()).unwrap(), Some(2));
    assert_eq!(limiter.check_n(0).unwrap().remaining(), 1);
    // Everything is released when it returns.
    assert_eq!(mutex.try_run(|_| 5).unwrap(), Some(5));
    assert_eq!(semaphore.try_run(|_| 6).unwrap(), Some(6));
    let held = (mutex.lock().unwrap(), semaphore.acquire().unwrap());
    assert!(mutex.try_run(|_| panic!("it runs")).unwrap().is_none());
    assert!(semaphore.try_run(|_| panic!("it runs")).unwrap().is_none());
    let short = mutex.wait_timeout(ms(50)).run(|_| panic!("it runs"));
    assert!(matches!(short, Err(Error::Held(_))), "{short:?}");
    drop(held);
}

#[test]
fn a_handle_has_a_label_of_its_own() {
    const LABEL: &str = "http://10.0.0.7:8080/";
    let client = Masters::new().client();
    let holder = || client.inspect("a").unwrap().holder().unwrap().label.clone();
    let seen = client.mutex("a").label(LABEL).run(|_| holder());
    assert_eq!(seen.unwrap(), LABEL);
    let again = client.reentrant_mutex("a").label(LABEL);
    assert_eq!(again.run(&Owner::new(), |_| holder()).unwrap(), LABEL);
    let seen = client.rwlock("a").label(LABEL).run_write(|_| {
        let seen = client.inspect("a").unwrap();
        seen.writer().unwrap().label.clone()
    });
    assert_eq!(seen.unwrap(), LABEL);
    let seen = client.semaphore("a", 1).label(LABEL).run(|_| {
        let seen = client.inspect("a").unwrap();
        seen.slots()[0].holder.label.clone()
    });
    assert_eq!(seen.unwrap(), LABEL);
    let refused = client.mutex("a").label("a b").lock();
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
}

#[test]
fn work_that_lost_its_lease_is_lost() {
    let masters = Masters::new();
    let (client, other) = (masters.client(), masters.client());
    let mutex = client.mutex("a").ttl(SHORT);
    let mut seen = None;
    let lost = mutex.run(|watch| {
        assert!(other.evict("a").unwrap());
        seen = Some(watch.lost().unwrap());
        assert!(!watch.is_valid());
    });
    assert_eq!(seen, Some(LossReason::Evicted));
    let is_lost = |lost: Result<(), Error>, why| match lost {
        Err(Error::Lost(lost)) => assert_eq!(lost.reason, why),
        other => panic!("{other:?}"),
    };
    is_lost(lost, LossReason::Evicted);
    let renewal = Renewal::auto().max_hold(ms(400));
    let semaphore = client.semaphore("a", 1).ttl(SHORT).renewal(renewal);
    is_lost(
        semaphore.run(|_| thread::sleep(ms(500))),
        LossReason::MaxHold,
    );
    let reentrant = client.reentrant_mutex("b").ttl(SHORT).renewal(renewal);
    let owner = Owner::new();
    let work = reentrant.run(&owner, |_| thread::sleep(ms(500)));
    is_lost(work, LossReason::MaxHold);
    // Another caller can lock next.
    mutex.run(drop).unwrap();
}

#[test]
fn work_that_panics_releases_what_it_held() {
    let masters = Masters::new();
    let client = masters.client();
    let (mutex, reentrant) = (
        client.mutex("a").ttl(TTL),
        client.reentrant_mutex("b").ttl(TTL),
    );
    let semaphore = client.semaphore("c", 1).ttl(TTL);
    let owner = Owner::new();
    let panics = |work: &dyn Fn()| {
        let panicked = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
        assert_eq!(*panicked.downcast::<&str>().unwrap(), "as a test wants it");
    };
    panics(&|| mutex.run(|_| panic!("as a test wants it")).unwrap());
    panics(&|| {
        let work = |_| panic!("as a test wants it");
        reentrant.run(&owner, work).unwrap();
    });
    panics(&|| semaphore.run(|_| panic!("as a test wants it")).unwrap());
    masters.is_freed("a");
    masters.is_freed("b");
    let permit = semaphore.wait_timeout(PATIENCE).acquire();
    permit.unwrap().release().unwrap();
}

#[test]
fn a_read_write_lock_and_several_names_run_work_too() {
    let masters = Masters::new();
    let client = masters.client();
    let (lock, all) = (client.rwlock("a"), client.mutex_all(["b", "a"]));
    let here = thread::current().id();
    let on = |watch: quorate::blocking::LeaseWatch| {
        assert!(watch.is_valid());
        (watch.name().to_owned(), thread::current().id())
    };
    assert_eq!(lock.run_read(on).unwrap(), ("a".to_owned(), here));
    assert_eq!(lock.run_write(on).unwrap(), ("a".to_owned(), here));
    assert_eq!(all.run(on).unwrap(), ("a, b".to_owned(), here));
    // Readers run beside each other, and a writer does not.
    assert!(lock.try_run_write(on).unwrap().is_some());
    let beside = lock.run_read(|outer| {
        assert!(lock.try_write().unwrap().is_none());
        assert!(lock.try_run_write(|_| panic!("it runs")).unwrap().is_none());
        assert!(lock.try_run_read(drop).unwrap().is_some());
        lock.run_read(|inner| outer.is_valid() && inner.is_valid())
    });
    assert!(beside.unwrap().unwrap());
    let short = lock.clone().wait_timeout(ms(50));
    let within = lock.run_write(|_| {
        assert!(lock.try_run_read(|_| panic!("it runs")).unwrap().is_none());
        [
            short.run_read(|_| panic!("it runs")),
            short.run_write(|_| panic!("it runs")),
        ]
    });
    for within in within.unwrap() {
        assert!(matches!(within, Err(Error::Held(_))), "{within:?}");
    }
    assert!(all.run(|_| all.try_run(drop).unwrap()).unwrap().is_none());
    // Work that panics releases its lock, and work that lost its lease returns the loss.
    let panics = |work: &dyn Fn()| {
        let panicked = catch_unwind(AssertUnwindSafe(work)).unwrap_err();
        assert_eq!(*panicked.downcast::<&str>().unwrap(), "as a test wants it");
    };
    panics(&|| lock.run_read(|_| panic!("as a test wants it")).unwrap());
    panics(&|| lock.run_write(|_| panic!("as a test wants it")).unwrap());
    panics(&|| all.run(|_| panic!("as a test wants it")).unwrap());
    drop(lock.clone().wait_timeout(PATIENCE).write().unwrap());
    masters.is_freed("a");
    masters.is_freed("b");
    let renewal = Renewal::auto().max_hold(ms(400));
    let lock = lock.ttl(SHORT).renewal(renewal).wait_timeout(PATIENCE);
    let lost = lock.run_write(|_| thread::sleep(ms(500)));
    assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
    lock.run_read(drop).unwrap();
}

#[test]
fn a_writer_becomes_a_reader() {
    let masters = Masters::new();
    let (client, other) = (masters.client(), masters.client());
    let lease = client.rwlock("a").ttl(TTL).write().unwrap();
    let theirs = other.rwlock("a").ttl(TTL);
    assert!(theirs.try_read().unwrap().is_none());
    lease.downgrade().unwrap();
    let beside = theirs.try_read().unwrap().expect("it is only read");
    assert_eq!(beside.token(), lease.token());
    assert!(theirs.try_write().unwrap().is_none());
    let mutex = client.mutex("a").ttl(TTL).lock().unwrap();
    assert!(matches!(mutex.downgrade(), Err(Error::Invalid(_))));
    assert!(mutex.is_valid());
    lease.release().unwrap();
    drop(beside);
    let alone = theirs.wait_timeout(PATIENCE).write().unwrap();
    assert!(alone.is_valid());
}

#[test]
fn runs_can_be_nested() {
    let masters = Masters::new();
    let client = masters.client();
    let (outer, inner) = (client.mutex("a"), client.mutex("b"));
    let (pool, limiter) = (
        client.semaphore("a", 2),
        client.rate_limiter("a", Quota::new(9, LONG)),
    );
    let deepest = outer.run(|a| {
        inner.run(|b| {
            pool.run(|c| {
                let all = || a.is_valid() && b.is_valid() && c.is_valid();
                limiter.run(all)
            })
        })
    });
    assert!(deepest.unwrap().unwrap().unwrap().unwrap());
    // A mutex does not know who asks, but a reentrant mutex does.
    let within = outer.run(|_| outer.try_run(|_| panic!("it runs")));
    assert!(within.unwrap().unwrap().is_none());
    let (reentrant, owner) = (client.reentrant_mutex("a"), Owner::new());
    let within = reentrant.run(&owner, |outer| {
        reentrant.run(&owner, |inner| inner.token() == outer.token())
    });
    assert!(within.unwrap().unwrap());
    assert!(client.inspect("a").unwrap().holder().is_none());
}
