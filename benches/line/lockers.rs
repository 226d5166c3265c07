//! Clients that wait for a lock, each in its own way.

use std::{future::Future, time::Duration};

use quorate::{Lease, Quorum};
use rand::random_range;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Value, aio::MultiplexedConnection};

use crate::{TTL, passes};

const RELEASE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// A client that takes a lock and releases it.
pub trait Locker: Send + 'static {
    type Held: Send;

    fn lock(&mut self, name: &str) -> impl Future<Output = Self::Held> + Send;

    fn free(&mut self, held: Self::Held) -> impl Future<Output = ()> + Send;
}

/// Waits in quorate's queue.
pub struct InLine(pub Quorum);

impl Locker for InLine {
    type Held = Lease;

    async fn lock(&mut self, name: &str) -> Lease {
        self.0.mutex(name).ttl(TTL).lock().await.unwrap()
    }

    async fn free(&mut self, held: Lease) {
        held.release().await.unwrap();
    }
}

/// Plain SET NX PX on all nodes with the `redis` crate. An attempt without a majority is rolled back, and tried again
/// after a random rest. This is as fair as polling can be.
pub struct Polling {
    nodes: Vec<MultiplexedConnection>,
    release: redis::Script,
    rest: std::ops::Range<Duration>,
    last: u64,
    id: u64,
}

impl Polling {
    pub async fn connect(urls: &[String], id: u64, rest: std::ops::Range<Duration>) -> Self {
        let mut nodes = Vec::new();
        for url in urls {
            let info = url.as_str().into_connection_info().unwrap();
            let tcp = info.tcp_settings().clone().set_nodelay(true);
            let client = Client::open(info.set_tcp_settings(tcp)).unwrap();
            let config = AsyncConnectionConfig::new().set_response_timeout(None);
            let node = client.get_multiplexed_async_connection_with_config(&config);
            nodes.push(node.await.unwrap());
        }
        Self {
            nodes,
            release: redis::Script::new(RELEASE),
            rest,
            last: 0,
            id,
        }
    }

    async fn release(&mut self, name: &str, owner: &str) {
        let release = &self.release;
        let freed = self.nodes.iter_mut().map(|node| async move {
            let _: i64 = release
                .key(name)
                .arg(owner)
                .invoke_async(node)
                .await
                .unwrap();
        });
        futures::future::join_all(freed).await;
    }
}

impl Locker for Polling {
    type Held = (String, String);

    async fn lock(&mut self, name: &str) -> Self::Held {
        loop {
            self.last += 1;
            let owner = format!("{:016x}{:016x}", self.id, self.last);
            let (needed, ttl) = (self.nodes.len() / 2 + 1, TTL.as_millis() as u64);
            let owner = &owner;
            let asked = self.nodes.iter_mut().map(|node| async move {
                let mut set = redis::cmd("SET");
                set.arg(name).arg(owner).arg("NX").arg("PX").arg(ttl);
                set.query_async::<Value>(node).await.unwrap() == Value::Okay
            });
            let granted = futures::future::join_all(asked).await;
            if granted.iter().filter(|granted| **granted).count() >= needed {
                return (name.to_owned(), owner.clone());
            }
            self.release(name, owner).await;
            let rest = self.rest.start.as_micros()..self.rest.end.as_micros();
            let rest = random_range(rest.start as u64..rest.end as u64);
            passes(Duration::from_micros(rest)).await;
        }
    }

    async fn free(&mut self, (name, owner): Self::Held) {
        self.release(&name, &owner).await;
    }
}

/// The current release of rslock, which rests for a random time of up to `delay`.
pub struct Rslock(rslock::LockManager);

impl Rslock {
    pub fn new(urls: &[String], delay: Duration) -> Self {
        let mut manager = rslock::LockManager::new(urls.to_vec());
        manager.set_retry(10, delay);
        Self(manager)
    }
}

impl Locker for Rslock {
    type Held = rslock::Lock;

    async fn lock(&mut self, name: &str) -> rslock::Lock {
        self.0.acquire_no_guard(name.as_bytes(), TTL).await.unwrap()
    }

    async fn free(&mut self, held: rslock::Lock) {
        self.0.unlock(&held).await;
    }
}
