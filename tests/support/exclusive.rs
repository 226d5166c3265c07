//! Locks with one holder at a time. Tests of what a caller may rely on are written once, and run on a
//! [`quorate::Mutex`] and on a semaphore of one. [`on_both!`] makes two tests of each.

#![allow(unreachable_pub)]

use std::future::Future;
use std::time::Duration;

use quorate::{Error, Lease, LeaseWatch, Mutex, Quorum, Renewal, Semaphore};
use redis::FromRedisValue;

use crate::support::{Fleet, Server};

/// The first part of all keys.
const PREFIX: &str = "quorate";

type Got = Result<Lease, Error>;
type Tried = Result<Option<Lease>, Error>;

/// A mutex, or something that behaves like one.
pub trait Exclusive: Clone + Send + Sync + 'static {
    /// The module in which [`on_both!`] puts its tests.
    const MODULE: &str;
    /// Of this many waiters at the head of the queue any one may be next (guarantees, "The order of waiting").
    const WIDTH: usize;
    /// True if operators see its holder by name, and can evict it.
    const EVICTS: bool;

    fn of(quorum: &Quorum, name: impl Into<String>) -> Self;

    fn ttl(self, d: Duration) -> Self;
    fn wait_timeout(self, d: Duration) -> Self;
    fn renewal(self, renewal: Renewal) -> Self;
    fn lock_delay(self, d: Duration) -> Self;

    fn lock(&self) -> impl Future<Output = Got> + Send + 'static + use<Self>;
    fn try_lock(&self) -> impl Future<Output = Tried> + Send + 'static + use<Self>;

    fn run<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static + use<Self, F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static;

    fn try_run<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<Option<T>, Error>> + Send + 'static + use<Self, F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static;

    /// Takes it from its holder on all servers.
    fn take_away(by: &Quorum, fleet: &Fleet, name: &str) -> impl Future<Output = ()> + Send;
    /// The holder that a refusal names now, and the beginning of its text.
    fn refusal(asks: &Quorum, name: &str) -> impl Future<Output = (Option<String>, String)> + Send;

    // ---- the content of a server ------------------------------------------------------------------

    /// The entry of its holder.
    fn holder(server: &Server, name: &str) -> Option<String>;
    /// For how much longer the server keeps it for its holder. Zero if nobody holds it.
    fn kept(server: &Server, name: &str) -> Duration;
    /// The counter of its tokens.
    fn counter(server: &Server, name: &str) -> Option<u64>;
    /// The key of the sorted set of its waiters.
    fn line(name: &str) -> String;
    /// S, as this waiter has registered it. `None` if it is not registered.
    fn term(server: &Server, name: &str, waiter: &str) -> Option<Duration>;
    /// Deletes the entry of its holder. Waiters and counters stay.
    fn forget(server: &Server, name: &str);
}

fn ask<T: FromRedisValue>(server: &Server, words: &[&str]) -> T {
    T::from_redis_value(server.cmd(words)).unwrap()
}

fn count(server: &Server, field: &str) -> Option<u64> {
    ask(server, &["HGET", &format!("{PREFIX}:c0"), field])
}

/// S stands there in both kinds of registration.
fn third_word(server: &Server, key: &str, waiter: &str) -> Option<Duration> {
    let place: Option<String> = ask(server, &["HGET", key, waiter]);
    let term = place?.split(' ').nth(2).unwrap().parse().unwrap();
    Some(Duration::from_millis(term))
}

impl Exclusive for Mutex {
    const MODULE: &str = "mutex";
    const WIDTH: usize = 1;
    const EVICTS: bool = true;

    fn of(quorum: &Quorum, name: impl Into<String>) -> Self {
        quorum.mutex(name)
    }

    fn ttl(self, d: Duration) -> Self {
        Mutex::ttl(self, d)
    }

    fn wait_timeout(self, d: Duration) -> Self {
        Mutex::wait_timeout(self, d)
    }

    fn renewal(self, renewal: Renewal) -> Self {
        Mutex::renewal(self, renewal)
    }

    fn lock_delay(self, d: Duration) -> Self {
        Mutex::lock_delay(self, d)
    }

    fn lock(&self) -> impl Future<Output = Got> + Send + 'static + use<> {
        Mutex::lock(self)
    }

    fn try_lock(&self) -> impl Future<Output = Tried> + Send + 'static + use<> {
        Mutex::try_lock(self)
    }

    fn run<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        Mutex::run(self, work)
    }

    fn try_run<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<Option<T>, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        Mutex::try_run(self, work)
    }

    async fn take_away(by: &Quorum, _: &Fleet, name: &str) {
        assert!(by.evict(name).await.unwrap());
    }

    async fn refusal(asks: &Quorum, name: &str) -> (Option<String>, String) {
        let seen = asks.inspect(name).await.unwrap();
        let label = seen.holder().unwrap().label.clone();
        let text = format!("{name:?} is held by {label} (for another ");
        (Some(label), text)
    }

    fn holder(server: &Server, name: &str) -> Option<String> {
        ask(server, &["GET", &format!("{PREFIX}:@mutex:{name}")])
    }

    fn kept(server: &Server, name: &str) -> Duration {
        let left: i64 = ask(server, &["PTTL", &format!("{PREFIX}:@mutex:{name}")]);
        Duration::from_millis(left.try_into().unwrap_or(0))
    }

    fn counter(server: &Server, name: &str) -> Option<u64> {
        count(server, &format!("@mutex:{name}"))
    }

    fn line(name: &str) -> String {
        format!("{PREFIX}:@mutex-line:{name}")
    }

    fn term(server: &Server, name: &str, waiter: &str) -> Option<Duration> {
        third_word(server, &format!("{PREFIX}:@mutex-waiters:{name}"), waiter)
    }

    fn forget(server: &Server, name: &str) {
        server.cmd(&["DEL", &format!("{PREFIX}:@mutex:{name}")]);
    }
}

/// A semaphore of one.
#[derive(Clone)]
pub struct OneSlot(Semaphore);

impl Exclusive for OneSlot {
    const MODULE: &str = "semaphore_of_one";
    const WIDTH: usize = 2;
    const EVICTS: bool = false;

    fn of(quorum: &Quorum, name: impl Into<String>) -> Self {
        Self(quorum.semaphore(name, 1))
    }

    fn ttl(self, d: Duration) -> Self {
        Self(self.0.ttl(d))
    }

    fn wait_timeout(self, d: Duration) -> Self {
        Self(self.0.wait_timeout(d))
    }

    fn renewal(self, renewal: Renewal) -> Self {
        Self(self.0.renewal(renewal))
    }

    fn lock_delay(self, d: Duration) -> Self {
        Self(self.0.lock_delay(d))
    }

    fn lock(&self) -> impl Future<Output = Got> + Send + 'static + use<> {
        self.0.acquire()
    }

    fn try_lock(&self) -> impl Future<Output = Tried> + Send + 'static + use<> {
        self.0.try_acquire()
    }

    fn run<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<T, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.0.run(work)
    }

    fn try_run<F, W, T>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<Option<T>, Error>> + Send + 'static + use<F, W, T>
    where
        F: FnOnce(LeaseWatch) -> W + Send + 'static,
        W: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.0.try_run(work)
    }

    /// Stands for an eviction: all servers forget the holder at once.
    async fn take_away(_: &Quorum, fleet: &Fleet, name: &str) {
        fleet.iter().for_each(|server| Self::forget(server, name));
    }

    /// A full semaphore names no holder, because there may be thousands.
    async fn refusal(_: &Quorum, name: &str) -> (Option<String>, String) {
        let text = format!("{name:?}: all 1 slots are taken (one for another ");
        (None, text)
    }

    fn holder(server: &Server, name: &str) -> Option<String> {
        let key = format!("{PREFIX}:@semaphore:{name}");
        ask(server, &["HGET", &key, "0"])
    }

    fn kept(server: &Server, name: &str) -> Duration {
        let key = format!("{PREFIX}:@semaphore-ends:{name}");
        let end: Option<f64> = ask(server, &["ZSCORE", &key, "0"]);
        let left = end.map_or(0, |end| (end as u64).saturating_sub(server.wall_ms()));
        Duration::from_millis(left)
    }

    fn counter(server: &Server, name: &str) -> Option<u64> {
        count(server, &format!("@semaphore:0:{name}"))
    }

    fn line(name: &str) -> String {
        format!("{PREFIX}:@semaphore-line:{name}")
    }

    fn term(server: &Server, name: &str, waiter: &str) -> Option<Duration> {
        third_word(server, &format!("{PREFIX}:@semaphore:{name}"), waiter)
    }

    fn forget(server: &Server, name: &str) {
        for key in ["@semaphore", "@semaphore-ends"] {
            server.cmd(&["DEL", &format!("{PREFIX}:{key}:{name}")]);
        }
    }
}

/// Makes the tests `mutex::name` and `semaphore_of_one::name` of each `async fn name<E: Exclusive>()`. The word in
/// front chooses the runtime: `threads` is one with two threads, `thread` one with a single thread, and `paused` one
/// with a clock that jumps. With `processes` the tests are plain functions.
macro_rules! on_both {
    (@threads $test:ident $held:ty) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            super::$test::<$held>().await;
        }
    };
    (@thread $test:ident $held:ty) => {
        #[tokio::test]
        async fn $test() {
            super::$test::<$held>().await;
        }
    };
    (@paused $test:ident $held:ty) => {
        #[tokio::test(start_paused = true)]
        async fn $test() {
            super::$test::<$held>().await;
        }
    };
    (@processes $test:ident $held:ty) => {
        #[test]
        fn $test() {
            super::$test::<$held>();
        }
    };
    ($($runs:ident: $($test:ident),+ $(,)?;)+) => {
        mod mutex {
            $($(on_both!(@$runs $test quorate::Mutex);)+)+
        }
        mod semaphore_of_one {
            $($(on_both!(@$runs $test crate::exclusive::OneSlot);)+)+
        }
    };
}
