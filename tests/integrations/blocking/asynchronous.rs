//! In async code a call is refused. Where tokio lets a thread wait, it works.

use std::{
    future::pending,
    sync::mpsc::{Sender, channel},
    task::{Context, Poll, Waker},
};

use quorate::{
    Error, Owner, Quota,
    blocking::{
        Lease, LeaseWatch, Mutex, RateLimiter, ReentrantMutex, RwLock, Semaphore, consul::Consul,
    },
};
use tokio::task::coop;

use super::{
    places::{ASYNC, BLOCKING, current_thread, multi_thread},
    *,
};

/// Handles, and leases.
struct Things {
    masters: Masters,
    quorum: Quorum,
    free: Mutex,
    held: Mutex,
    reentrant: ReentrantMutex,
    owner: Owner,
    rwlock: RwLock,
    writer: Lease,
    several: Mutex,
    semaphore: Semaphore,
    limiter: RateLimiter,
    lease: Lease,
    watch: LeaseWatch,
    released: Lease,
    dropped: Lease,
}

impl Things {
    fn new() -> Self {
        let masters = Masters::new();
        let quorum = masters.client();
        let lock = |name: &str| quorum.mutex(name).ttl(TTL).lock().unwrap();
        let lease = lock("held");
        Self {
            free: quorum.mutex("free").ttl(TTL),
            held: quorum.mutex("held").ttl(TTL),
            reentrant: quorum.reentrant_mutex("reentrant").ttl(TTL),
            owner: Owner::new(),
            rwlock: quorum.rwlock("rwlock").ttl(TTL),
            writer: quorum.rwlock("written").ttl(TTL).write().unwrap(),
            several: quorum.mutex_all(["one", "other"]).ttl(TTL),
            semaphore: quorum.semaphore("semaphore", 1).ttl(TTL),
            limiter: quorum.rate_limiter("limiter", Quota::new(3, LONG)),
            watch: lease.watch(),
            lease,
            released: lock("released"),
            dropped: lock("dropped"),
            masters,
            quorum,
        }
    }

    /// Checks that every call is refused. Each name is free, or it is held, so that a call that is not refused would
    /// hang.
    fn are_refused(self) -> Masters {
        let (quorum, free, owner) = (&self.quorum, &self.free, &self.owner);
        is_refused("lock", self.held.lock());
        is_refused("lock of what is free", free.lock());
        is_refused("try_lock", free.try_lock());
        is_refused("run", free.run(drop));
        is_refused("try_run", free.try_run(drop));
        is_refused("reentrant lock", self.reentrant.lock(owner));
        is_refused("reentrant try_lock", self.reentrant.try_lock(owner));
        is_refused("reentrant run", self.reentrant.run(owner, drop));
        is_refused("reentrant try_run", self.reentrant.try_run(owner, drop));
        is_refused("read", self.rwlock.read());
        is_refused("try_read", self.rwlock.try_read());
        is_refused("run_read", self.rwlock.run_read(drop));
        is_refused("try_run_read", self.rwlock.try_run_read(drop));
        is_refused("write", self.rwlock.write());
        is_refused("try_write", self.rwlock.try_write());
        is_refused("run_write", self.rwlock.run_write(drop));
        is_refused("try_run_write", self.rwlock.try_run_write(drop));
        is_refused("downgrade", self.writer.downgrade());
        is_refused("lock of several", self.several.lock());
        is_refused("try_lock of several", self.several.try_lock());
        is_refused("acquire", self.semaphore.acquire());
        is_refused("acquire_many", self.semaphore.acquire_many(1));
        is_refused("try_acquire", self.semaphore.try_acquire());
        is_refused("semaphore run", self.semaphore.run(drop));
        is_refused("semaphore try_run", self.semaphore.try_run(drop));
        is_refused("available", self.semaphore.available());
        is_refused("resize", self.semaphore.resize(2));
        is_refused("check", self.limiter.check());
        is_refused("until_ready", self.limiter.until_ready());
        is_refused("limiter run", self.limiter.run(|| ()));
        is_refused("connect", builder().nodes(&self.masters.0).connect());
        is_refused("inspect", quorum.inspect("held"));
        is_refused("evict", quorum.evict("held"));
        is_refused("ready", quorum.ready());
        is_refused("voting", quorum.voting(PATIENCE));
        is_refused("bootstrap", quorum.bootstrap());
        is_refused("bootstrap_forced", quorum.bootstrap_forced());
        is_refused("raise_terms", quorum.raise_terms());
        is_refused("extend", self.lease.extend());
        is_refused("lost", self.lease.lost());
        is_refused("lost of a watch", self.watch.lost());
        is_refused("release", self.released.release());
        is_refused("shutdown", quorum.shutdown());
        // These calls do not wait.
        assert!(self.lease.is_valid() && quorum.health().voting == 3);
        free.validate().unwrap();
        self.rwlock.validate().unwrap();
        drop(self.dropped);
        self.lease.abandon();
        self.writer.abandon();
        self.masters
    }

    /// Checks that no call had an effect, except for the end of leases.
    fn were_not_touched(masters: &Masters) {
        for name in ["free", "reentrant", "semaphore", "one", "other"] {
            masters.is_untouched(name);
        }
        masters.is_freed("released");
        masters.is_freed("dropped");
        let client = masters.client();
        let abandoned = client.mutex("held").try_lock().unwrap();
        assert!(abandoned.is_none(), "it was evicted or released");
        let read = |name: &str| client.rwlock(name).try_read().unwrap();
        assert!(read("written").is_none(), "it was downgraded or released");
        let free = client.rwlock("rwlock").try_write().unwrap();
        assert!(free.is_some(), "somebody reads, or writes");
        let limiter = client.rate_limiter("limiter", Quota::new(3, LONG));
        assert_eq!(limiter.check_n(0).unwrap().remaining(), 3);
        assert_eq!(client.semaphore("semaphore", 1).available().unwrap(), 1);
    }
}

#[track_caller]
fn is_refused<T>(call: &str, answer: Result<T, Error>) {
    match answer {
        Err(Error::Invalid(why)) if why.contains("spawn_blocking") && why.contains(".await") => {}
        Err(error) => panic!("{call}: {error}"),
        Ok(_) => panic!("{call} is not refused"),
    }
}

/// Runs it on a thread, and fails if it is not done within the patience. The closure reports when it is done.
#[track_caller]
fn within_the_patience(what: &str, does: impl FnOnce(Sender<()>) + Send + 'static) {
    let (tell, told) = channel();
    thread::spawn(move || does(tell));
    let done = told.recv_timeout(PATIENCE);
    assert!(done.is_ok(), "{what}: it panicked or hangs: {done:?}");
}

/// Checks that timers and other tasks still wake this task.
async fn goes_on() {
    let (tell, told) = tokio::sync::oneshot::channel();
    let other = tokio::spawn(async move {
        tokio::time::sleep(ms(1)).await;
        tell.send(()).unwrap();
    });
    told.await.unwrap();
    other.await.unwrap();
}

#[test]
fn in_async_code_every_call_is_refused_at_once_and_does_nothing() {
    for (what, place) in ASYNC {
        within_the_patience(what, move |tell| {
            let things = Things::new();
            let (give, taken) = channel();
            place(Box::pin(async move {
                let masters = things.are_refused();
                goes_on().await;
                give.send(masters).unwrap();
            }));
            Things::were_not_touched(&taken.recv().unwrap());
            tell.send(()).unwrap();
        });
    }
}

#[test]
fn in_async_code_no_client_is_made_and_no_thread_started() {
    let test = "asynchronous::in_async_code_no_client_is_made_and_no_thread_started";
    alone(test, || {
        multi_thread().block_on(async {
            let builder = || Quorum::builder().nodes(["redis://127.0.0.1:1"]);
            is_refused("connect", builder().connect());
            is_refused("connect_lazy", builder().connect_lazy());
            is_refused("Quorum::connect", Quorum::connect(["redis://127.0.0.1:1"]));
            is_refused("in_memory", Quorum::in_memory(3));
            is_refused("Consul", Consul::connect("http://127.0.0.1:1"));
            assert_eq!(threads_called("quorate"), 0);
        });
    });
}

/// The number of steps that this task may still make before it must let others run. 200 stands for no bound.
fn budget() -> usize {
    let mut cx = Context::from_waker(Waker::noop());
    let mut steps = Vec::new();
    while steps.len() < 200
        && let Poll::Ready(step) = coop::poll_proceed(&mut cx)
    {
        steps.push(step);
    }
    let count = steps.len();
    // Each step restores the budget that it found.
    while steps.pop().is_some() {}
    count
}

#[test]
fn a_refused_call_uses_nothing_of_its_tasks_budget() {
    let quorum = Quorum::in_memory(3).unwrap();
    assert_eq!(budget(), 200);
    current_thread().block_on(async move {
        let mutex = quorum.mutex("a");
        let whole = budget();
        assert!(whole > 0 && whole < 200, "{whole}");
        for left in (0..whole).rev() {
            match coop::poll_proceed(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(step) => step.made_progress(),
                Poll::Pending => panic!("none is left, of {left}"),
            }
            is_refused("lock", mutex.lock());
            assert_eq!(budget(), left);
        }
        assert!(!coop::has_budget_remaining());
        goes_on().await;
        tokio::task::yield_now().await;
        assert_eq!(budget(), whole);
    });
}

/// Makes every kind of call, where blocking is allowed.
fn works() {
    let masters = Masters::new();
    let (quorum, other) = (masters.client(), masters.client());
    let mutex = quorum.mutex("a").ttl(TTL).wait_timeout(PATIENCE);
    let lease = mutex.lock().unwrap();
    assert!(other.mutex("a").try_lock().unwrap().is_none());
    lease.extend().unwrap();
    assert!(quorum.inspect("a").unwrap().holder().is_some());
    lease.release().unwrap();
    assert_eq!(mutex.run(|_| 7).unwrap(), 7);
    let owner = Owner::new();
    let outer = quorum.reentrant_mutex("b").lock(&owner).unwrap();
    quorum.reentrant_mutex("b").run(&owner, drop).unwrap();
    drop(outer);
    let permit = quorum.semaphore("c", 2).acquire().unwrap();
    permit.release().unwrap();
    let writer = quorum.rwlock("e").write().unwrap();
    writer.downgrade().unwrap();
    quorum.rwlock("e").run_read(drop).unwrap();
    drop(writer);
    let all = quorum.mutex_all(["a", "b"]).wait_timeout(PATIENCE);
    assert_eq!(all.run(|_| 8).unwrap(), 8);
    let limiter = quorum.rate_limiter("d", Quota::new(9, LONG));
    limiter.until_ready().unwrap();
    assert!(limiter.check().unwrap().is_allowed());
    // This call really waits, for a lock that another thread holds.
    let held = other.mutex("a").ttl(TTL).lock().unwrap();
    let inspector = masters.client();
    let frees = thread::spawn(move || {
        until("somebody waits", || {
            !inspector.inspect("a").unwrap().line().is_empty()
        });
        drop(held);
    });
    mutex.lock().unwrap().release().unwrap();
    frees.join().unwrap();
    assert!(quorum.shutdown().unwrap().is_empty());
    Quorum::in_memory(3).unwrap().shutdown().unwrap();
}

#[test]
fn blocking_calls_work_wherever_tokio_lets_a_thread_wait() {
    for (what, place) in BLOCKING {
        within_the_patience(what, move |tell| {
            place(Box::new(works));
            tell.send(()).unwrap();
        });
    }
}

/// Calls the function when it is dropped, wherever that is.
struct AtTheEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtTheEnd<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Tokio does not count the work of a task there, and would panic.
#[test]
fn a_call_while_a_runtime_drops_its_tasks_does_not_panic() {
    for runtime in [current_thread, multi_thread] {
        within_the_patience("dropped with its runtime", move |tell| {
            let (things, runtime) = (Things::new(), runtime());
            let mutex = things.held.clone().wait_timeout(ms(50));
            let end = AtTheEnd(move || match mutex.lock() {
                // The thread that drops a current-thread runtime may wait.
                Err(Error::Held(_) | Error::Invalid(_)) => tell.send(()).unwrap(),
                other => panic!("{other:?}"),
            });
            runtime.block_on(async {
                tokio::spawn(async move {
                    let _end = end;
                    pending::<()>().await;
                });
                tokio::time::sleep(ms(10)).await;
            });
            drop(runtime);
        });
    }
}

#[test]
fn a_call_in_an_unconstrained_task_is_refused_too() {
    within_the_patience("unconstrained", |tell| {
        let things = Things::new();
        current_thread().block_on(coop::unconstrained(async {
            is_refused("lock", things.held.lock());
            goes_on().await;
        }));
        tell.send(()).unwrap();
    });
}
