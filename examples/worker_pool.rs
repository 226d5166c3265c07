//! At most three workers run at once, on all machines together, and each has a share of the work. The worker with slot
//! `k` of the semaphore works only on the items `i` with `i % 3 == k`.
//!
//!     cargo run --example worker_pool
//!     QUORATE_NODES=redis://.. STORE=redis://127.0.0.1:7001 cargo run --example worker_pool -- ann
//!
//! Without servers the program runs four workers: one of them waits, and one dies. With servers every process is one
//! worker: start as many as you like, in as many terminals. Then stop one of three with `kill -9`. Its slot is free
//! after its ttl, and a waiting worker takes over where the dead one stopped.
//!
//! The store compares tokens for each slot. So a worker that was only paused cannot write when it wakes after another
//! worker got its slot.

use std::{
    convert::Infallible,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use quorate::{
    FencingToken, MemoryNode, Quorum,
    fence::{self, Gate},
    redis,
};
use tokio::{select, sync::Notify, task::JoinHandle, time::sleep};

/// How many workers may run at once. This is the limit of the semaphore and the number of shares.
const SLOTS: u32 = 3;
/// How long the slot of a dead worker stays taken. Short, so that the example runs quickly. The default is 10 s.
const TTL: Duration = Duration::from_secs(1);
const ITEM: Duration = Duration::from_millis(50);

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match std::env::var_os("QUORATE_NODES") {
        Some(_) => one_of_many().await,
        None => story().await,
    }
}

// ---- a worker -------------------------------------------------------------------------------

/// The slot and the token that a worker had when it died.
struct Died {
    slot: u32,
    token: FencingToken,
}

/// Gets a slot and works until the slot is lost, then asks for a slot again.
async fn work(quorum: &Quorum, store: &Store, who: &str, dies: &Notify) -> Result<Died, Failure> {
    let pool = quorum.semaphore("worker-pool", SLOTS).ttl(TTL);
    loop {
        println!("{who} asks for a slot");
        let lease = pool.acquire().await?; // waits in the queue until a slot is free
        let (slot, token) = (lease.slot().unwrap_or(0), lease.token());
        let worked = select! {
            worked = lease.guard(share(store, slot, token, who)) => worked,
            () = dies.notified() => {
                lease.abandon(); // as if the process had died: the lease is neither renewed nor released
                return Ok(Died { slot, token });
            }
        };
        match worked {
            // Another worker may soon have this slot. So stop, and ask for a slot again.
            Err(lost) => println!("{who} has to leave slot {slot}: {lost}"),
            Ok(Err(failure)) => return Err(failure),
            Ok(Ok(no_end)) => match no_end {},
        }
    }
}

/// Works on all items of this slot, starting where the last worker stopped.
async fn share(
    store: &Store,
    slot: u32,
    token: FencingToken,
    who: &str,
) -> Result<Infallible, Failure> {
    let mut item = store.next(slot, token).await?;
    println!("{who} has slot {slot}, with token {token}, and goes on with item {item}");
    loop {
        sleep(ITEM).await; // this stands for the work
        item += u64::from(SLOTS);
        store.set_next(slot, item, token).await?;
    }
}

// ---- the store ------------------------------------------------------------------------------

/// The next item of each slot. Each slot is a resource of its own, so tokens are compared within one slot.
#[derive(Clone)]
enum Store {
    InProcess(Arc<Gate>, Arc<[AtomicU64; SLOTS as usize]>),
    Redis(redis::aio::MultiplexedConnection),
}

impl Store {
    async fn next(&self, slot: u32, token: FencingToken) -> Result<u64, Failure> {
        let (key, first) = (key(slot), u64::from(slot));
        match self {
            Self::InProcess(gate, items) => {
                gate.admit(&key, token)?;
                let item = items.get(slot as usize);
                Ok(item
                    .map_or(0, |item| item.load(Ordering::Relaxed))
                    .max(first))
            }
            Self::Redis(connection) => {
                let mut connection = connection.clone();
                let item: Option<u64> = fence::redis::get(&mut connection, key, token).await?;
                Ok(item.unwrap_or(first))
            }
        }
    }

    async fn set_next(&self, slot: u32, item: u64, token: FencingToken) -> Result<(), Failure> {
        let key = key(slot);
        match self {
            Self::InProcess(gate, items) => {
                gate.admit(&key, token)?;
                if let Some(next) = items.get(slot as usize) {
                    next.store(item, Ordering::Relaxed);
                }
            }
            Self::Redis(connection) => {
                fence::redis::set(&mut connection.clone(), key, item, token).await?;
            }
        }
        Ok(())
    }
}

fn key(slot: u32) -> String {
    format!("worker-pool:next:{slot}")
}

// ---- this process as one worker of many -----------------------------------------------------

async fn one_of_many() -> Result<(), Failure> {
    let quorum = Quorum::from_env().await?;
    let url = std::env::var("STORE")
        .map_err(|_| "name a store that all workers share: STORE=redis://127.0.0.1:7001")?;
    let client = redis::Client::open(url)?;
    let store = Store::Redis(client.get_multiplexed_async_connection().await?);
    let who = std::env::args().nth(1).unwrap_or_else(|| "a worker".into());
    let (never, mut end) = (Notify::new(), std::pin::pin!(tokio::signal::ctrl_c()));
    let ended = select! {
        ended = work(&quorum, &store, &who, &never) => ended.map(drop),
        _ = &mut end => Ok(()),
    };
    quorum.shutdown().await; // when this returns, the slot is free for the next worker
    ended
}

// ---- the example ----------------------------------------------------------------------------

async fn story() -> Result<(), Failure> {
    let masters: Vec<MemoryNode> = (0..5).map(|_| MemoryNode::new()).collect();
    let boss = Quorum::builder().nodes(&masters).connect().await?;
    let items: [AtomicU64; SLOTS as usize] = Default::default();
    let store = Store::InProcess(Arc::default(), Arc::new(items));

    let (anns_end, never) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let ann = start(&masters, &store, "ann", &anns_end).await?;
    let mut others = Vec::new();
    for who in ["bob", "eve", "joe"] {
        others.push(start(&masters, &store, who, &never).await?);
    }
    sleep(Duration::from_millis(400)).await;
    // `quorate inspect worker-pool` prints the same.
    println!("\n{}\n", boss.inspect("worker-pool").await?);

    anns_end.notify_one();
    let Died { slot, token } = ann.await??;
    println!("ann is dead. Her slot is free after {TTL:?}, and joe waits for it");
    let free_again = boss.semaphore("worker-pool", SLOTS);
    sleep(TTL + Duration::from_millis(400)).await;

    // Ann was only paused, and wakes. Her token is older than Joe's, so nothing is written.
    match store.set_next(slot, 0, token).await {
        Err(stale) => println!("ann wakes and writes, and the store refuses: {stale}"),
        Ok(()) => println!("unexpected: the old token passed"),
    }
    for worker in others {
        worker.abort();
        let _ = worker.await;
    }
    while free_again.available().await? < SLOTS {
        sleep(Duration::from_millis(1)).await;
    }
    println!("All go home, and all {SLOTS} slots are free");
    boss.shutdown().await;
    Ok(())
}

/// Starts a worker. Each has a `Quorum` of its own, as every process would.
async fn start(
    masters: &[MemoryNode],
    store: &Store,
    who: &'static str,
    dies: &Arc<Notify>,
) -> Result<JoinHandle<Result<Died, Failure>>, Failure> {
    let quorum = Quorum::builder()
        .nodes(masters)
        .label(who)
        .connect()
        .await?;
    let (store, dies) = (store.clone(), Arc::clone(dies));
    let worker = tokio::spawn(async move { work(&quorum, &store, who, &dies).await });
    sleep(Duration::from_millis(20)).await; // so that every run prints the same
    Ok(worker)
}
