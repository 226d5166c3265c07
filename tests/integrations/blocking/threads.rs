//! Many threads of several clients on real servers, with witnesses outside of the library.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc::channel,
    },
};

use quorate::{FencingToken, Owner, Quota, blocking};

use super::*;

const CLIENTS: usize = 4;
const THREADS: usize = 64;

/// Connects the clients, each of which has a thread of its own.
fn clients(fleet: &Fleet) -> Vec<Quorum> {
    let connect = |_| builder().nodes(fleet.urls()).connect().unwrap();
    (0..CLIENTS).map(connect).collect()
}

/// Runs 64 threads, each with its client and its number.
fn sixty_four(clients: &[Quorum], work: impl Fn(&Quorum, usize) + Sync) {
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (work, client) = (&work, &clients[i % clients.len()]);
            scope.spawn(move || work(client, i));
        }
    });
}

/// Reads, waits and writes. Two threads that did this at once would lose a count.
fn count_one(counter: &Path) {
    let count: usize = fs::read_to_string(counter).unwrap().parse().unwrap();
    thread::sleep(Duration::from_micros(200));
    fs::write(counter, (count + 1).to_string()).unwrap();
}

#[test]
fn a_mutex_has_one_holder_at_a_time_and_tokens_that_grow() {
    const ROUNDS: usize = 4;
    let (fleet, _boss) = servers();
    let clients = clients(&fleet);
    let dir = tempfile::tempdir().unwrap();
    let counter = dir.path().join("counter");
    fs::write(&counter, "0").unwrap();
    let tokens: Mutex<Vec<FencingToken>> = Mutex::default();
    let section = |token| {
        tokens.lock().unwrap().push(token);
        count_one(&counter);
    };
    sixty_four(&clients, |client, i| {
        let mutex = client.mutex("counter").ttl(TTL);
        for round in 0..ROUNDS {
            if (i + round) % 3 == 0 {
                mutex.run(|watch| section(watch.token())).unwrap();
                continue;
            }
            let lease = mutex.lock().unwrap();
            section(lease.token());
            assert!(lease.is_valid());
            if (i + round) % 3 == 1 {
                lease.release().unwrap();
            }
        }
    });
    let count = fs::read_to_string(&counter).unwrap();
    assert_eq!(count, (THREADS * ROUNDS).to_string());
    let tokens = tokens.into_inner().unwrap();
    assert_eq!(tokens.len(), THREADS * ROUNDS);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    for client in clients {
        assert!(client.shutdown().unwrap().is_empty());
    }
    let left = fleet.leftover_locks_after(PATIENCE, PREFIX);
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn eight_read_beside_each_other_and_two_write_alone() {
    const ROUNDS: usize = 20;
    let (fleet, _boss) = servers();
    let clients = clients(&fleet);
    let (reading, writing) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (most, written) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let read = |epoch: FencingToken, newest: &Mutex<Option<FencingToken>>| {
        most.fetch_max(reading.fetch_add(1, SeqCst) + 1, SeqCst);
        assert!(Some(epoch) >= *newest.lock().unwrap());
        let before = written.load(SeqCst);
        thread::sleep(ms(5));
        assert_eq!((writing.load(SeqCst), written.load(SeqCst)), (0, before));
        reading.fetch_sub(1, SeqCst);
    };
    let write = |token: FencingToken, newest: &Mutex<Option<FencingToken>>| {
        assert_eq!(writing.fetch_add(1, SeqCst), 0, "two write");
        assert!(newest.lock().unwrap().replace(token) < Some(token));
        thread::sleep(ms(2));
        assert_eq!(reading.load(SeqCst), 0, "somebody reads");
        written.fetch_add(1, SeqCst);
        writing.fetch_sub(1, SeqCst);
    };
    let newest = Mutex::default();
    thread::scope(|scope| {
        for i in 0..10 {
            let lock = clients[i % CLIENTS].rwlock("index").ttl(TTL);
            let (read, write, newest) = (&read, &write, &newest);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    match (i < 8, round % 2) {
                        (true, 0) => lock.run_read(|watch| read(watch.token(), newest)).unwrap(),
                        (false, 0) => lock
                            .run_write(|watch| write(watch.token(), newest))
                            .unwrap(),
                        (true, _) => {
                            let lease = lock.read().unwrap();
                            read(lease.token(), newest);
                            drop(lease);
                        }
                        (false, _) => {
                            let lease = lock.write().unwrap();
                            write(lease.token(), newest);
                            lease.release().unwrap();
                        }
                    }
                }
            });
        }
    });
    assert_eq!(written.into_inner(), 2 * ROUNDS);
    assert!(most.into_inner() > 1, "nobody reads beside another");
    for client in clients {
        assert!(client.shutdown().unwrap().is_empty());
    }
    let left = fleet.leftover_locks_after(PATIENCE, PREFIX);
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn sets_that_overlap_exclude_each_other_and_all_get_in() {
    const ROUNDS: usize = 4;
    let (fleet, _boss) = servers();
    let clients = clients(&fleet);
    let dir = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"];
    let counter = |name: &str| dir.path().join(name);
    for name in names {
        fs::write(counter(name), "0").unwrap();
    }
    thread::scope(|scope| {
        for i in 0..9 {
            // Each pair in both orders, and single names.
            let (one, other) = (names[i % 3], names[(i + 1 + i / 3) % 3]);
            let (client, counter) = (&clients[i % CLIENTS], &counter);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let all = client.mutex_all([one, other]).ttl(TTL);
                    let work = || {
                        count_one(&counter(one));
                        if one != other {
                            count_one(&counter(other));
                        }
                    };
                    all.run(|_| work()).unwrap();
                }
            });
        }
    });
    for name in names {
        let count = fs::read_to_string(counter(name)).unwrap();
        // Each name is in two pairs, in each order, and once on its own.
        assert_eq!(count, (5 * ROUNDS).to_string(), "{name}");
    }
    for client in clients {
        assert!(client.shutdown().unwrap().is_empty());
    }
    let left = fleet.leftover_locks_after(PATIENCE, PREFIX);
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn a_semaphore_of_three_has_three_holders_and_never_four() {
    let (fleet, _boss) = servers();
    let clients = clients(&fleet);
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let slots: Mutex<BTreeSet<u32>> = Mutex::default();
    sixty_four(&clients, |client, _| {
        let semaphore = client.semaphore("pool", 3).ttl(TTL);
        for _ in 0..2 {
            let permit = semaphore.acquire().unwrap();
            slots.lock().unwrap().insert(permit.slot().unwrap());
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            thread::sleep(ms(2));
            now.fetch_sub(1, SeqCst);
            drop(permit);
        }
    });
    assert_eq!(most.into_inner(), 3);
    assert_eq!(slots.into_inner().unwrap(), BTreeSet::from([0, 1, 2]));
    let semaphore = clients[0].semaphore("pool", 3);
    until("all are free", || semaphore.available().unwrap() == 3);
}

#[test]
fn a_rate_limit_holds_in_any_interval() {
    const LIMIT: u32 = 60;
    let period = Duration::from_secs(3);
    let (fleet, _boss) = servers();
    let clients = clients(&fleet);
    let (used, denied) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    let end = Instant::now() + period * 5 / 2;
    sixty_four(&clients, |client, i| {
        // The grace is as long as allowed. A thread that is delayed between its turn and the stamp stamps too late.
        let limiter = client
            .rate_limiter("supplier", Quota::new(LIMIT, period))
            .grace(period / 10);
        while Instant::now() < end {
            let may = match i % 3 {
                0 => limiter.until_ready().map(|()| true),
                1 => limiter.run(|| true),
                _ => limiter.check().map(|decision| decision.is_allowed()),
            };
            match may.unwrap() {
                true => used.lock().unwrap().push(Instant::now()),
                false => {
                    denied.store(true, Relaxed);
                    thread::sleep(ms(20));
                }
            }
        }
    });
    let mut used = used.into_inner().unwrap();
    used.sort_unstable();
    assert!(denied.into_inner(), "the limit was never reached");
    assert!(used.len() > LIMIT as usize, "only {}", used.len());
    let most = most_within(&used, period);
    assert!(most <= LIMIT as usize, "{most} of {}", used.len());
}

#[test]
fn a_reentrant_mutex_lets_its_owner_in_from_any_thread_and_nobody_else() {
    let (fleet, boss) = servers();
    let clients = clients(&fleet);
    let dir = tempfile::tempdir().unwrap();
    let counter = dir.path().join("counter");
    fs::write(&counter, "0").unwrap();
    sixty_four(&clients, |client, _| {
        let (mutex, owner) = (client.reentrant_mutex("account:7").ttl(TTL), Owner::new());
        let outer = mutex.lock(&owner).unwrap();
        assert!(mutex.try_lock(&Owner::new()).unwrap().is_none());
        // The owner moves into another thread.
        thread::scope(|scope| {
            let inner = scope.spawn(|| {
                let within = mutex.try_run(&owner, |watch| {
                    count_one(&counter);
                    watch.token()
                });
                within.unwrap().expect("it holds the lock")
            });
            assert_eq!(inner.join().unwrap(), outer.token());
        });
        mutex.run(&owner, |_| count_one(&counter)).unwrap();
        assert!(outer.is_valid());
        outer.release().unwrap();
    });
    let count = fs::read_to_string(&counter).unwrap();
    assert_eq!(count, (2 * THREADS).to_string());
    let holder = || boss.inspect("account:7").unwrap().holder().cloned();
    until("it is free", || holder().is_none());
}

#[test]
fn a_thread_that_waits_uses_no_time_of_a_processor() {
    let masters = Masters::new();
    let (client, other) = (masters.client(), masters.client());
    let held = client.mutex("a").ttl(TTL).lock().unwrap();
    let (tell, told) = channel();
    let waits = thread::spawn(move || {
        let here = fs::read_link("/proc/thread-self").unwrap();
        tell.send(here).unwrap();
        let lease = other.mutex("a").ttl(TTL).lock().unwrap();
        lease.release().unwrap();
    });
    let its = Path::new("/proc").join(told.recv().unwrap());
    let spent = || {
        let text = fs::read_to_string(its.join("schedstat")).unwrap();
        Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
    };
    until("it waits", || {
        !client.inspect("a").unwrap().line().is_empty()
    });
    let before = spent();
    thread::sleep(Duration::from_secs(1));
    let spent = spent() - before;
    assert!(spent < ms(50), "{spent:?} of a second");
    held.release().unwrap();
    waits.join().unwrap();
}

#[test]
fn everything_may_go_to_other_threads() {
    fn may<T: Send + Sync + 'static>() {}
    may::<blocking::Builder>();
    may::<blocking::Lease>();
    may::<blocking::LeaseWatch>();
    may::<blocking::Mutex>();
    may::<blocking::Quorum>();
    may::<blocking::RateLimiter>();
    may::<blocking::ReentrantMutex>();
    may::<blocking::RwLock>();
    may::<blocking::Semaphore>();
    may::<blocking::consul::Consul>();
    may::<blocking::consul::Mutex>();
    may::<blocking::consul::Semaphore>();
    // A lease that one thread took is released by another.
    let masters = Masters::new();
    let client = masters.client();
    let lease = client.mutex("a").ttl(TTL).lock().unwrap();
    let released = thread::spawn(move || lease.release());
    released.join().unwrap().unwrap();
    masters.is_freed("a");
}
