//! A price list under a read-write lock: many tasks read it, and one rebuilds it now and then. No server is needed:
//! `cargo run --example rwlock`. To use real masters, put `QUORATE_NODES=URL,URL,URL` before the command.
//!
//! A reader never sees a half-written list. The writer stays on as a reader when it has finished (`downgrade`). So it
//! can check its work while others read beside it and nobody writes. A reader's token is an epoch: it tells how new the
//! data is that was read. It must not be used to write.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use quorate::{Builder, FencingToken, MemoryNode, Quorum, fence::Gate};
use tokio::{sync::watch, time::sleep};

const ARTICLES: usize = 5;
const READERS: usize = 8;
const EDITIONS: u64 = 3;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let masters: Vec<MemoryNode> = (0..5).map(|_| MemoryNode::new()).collect();
    // The office and the shop each have a `Quorum` of their own, as every process would.
    let office = connect(&masters, "office").await?;
    let shop = connect(&masters, "shop").await?;
    shop.voting(Duration::from_secs(60)).await?;
    let list = Arc::new(List::default());

    let (close, closed) = watch::channel(());
    let readers: Vec<_> = (0..READERS)
        .map(|_| tokio::spawn(read(shop.clone(), Arc::clone(&list), closed.clone())))
        .collect();
    for edition in 1..=EDITIONS {
        sleep(Duration::from_millis(150)).await;
        rebuild(&office, &list, edition).await?;
    }
    sleep(Duration::from_millis(150)).await;
    close.send_replace(());

    let (mut reads, mut epochs) = (0, BTreeMap::<u64, Vec<FencingToken>>::new());
    for reader in readers {
        for (edition, epoch) in reader.await?? {
            reads += 1;
            epochs.entry(edition).or_default().push(epoch);
        }
    }
    println!("{READERS} readers have read {reads} times, and never half of a list");
    let mut newest = None;
    for (edition, epochs) in &epochs {
        let (first, last) = (epochs.iter().min(), epochs.iter().max());
        if let (Some(first), Some(last)) = (first, last) {
            println!("edition {edition} was read in epochs {first} to {last}");
        }
        // The epoch tells which results were made from an older edition.
        if newest >= first {
            println!("unexpected: the epoch of edition {edition} is not newer");
        }
        newest = last;
    }
    shop.shutdown().await;
    office.shutdown().await;
    Ok(())
}

async fn connect(masters: &[MemoryNode], who: &str) -> Result<Quorum, quorate::Error> {
    let builder = match std::env::var_os("QUORATE_NODES") {
        Some(_) => Builder::from_env()?,
        None => Quorum::builder().nodes(masters),
    };
    builder.label(who).connect().await
}

/// The result of a read: the edition, and the epoch in which it was read.
type Read = (u64, FencingToken);

/// Reads again and again, beside other readers, until the shop closes.
async fn read(
    shop: Quorum,
    list: Arc<List>,
    closed: watch::Receiver<()>,
) -> Result<Vec<Read>, Failure> {
    let lock = shop.rwlock("prices");
    let mut reads = Vec::new();
    while !closed.has_changed().unwrap_or(true) {
        let lease = lock.read().await?;
        let first = list.edition(0);
        for article in 1..ARTICLES {
            sleep(Duration::from_millis(1)).await;
            if list.edition(article) != first {
                println!("unexpected: half of a list");
            }
        }
        // A read counts only if the lock was held the whole time.
        if lease.is_valid() {
            reads.push((first, lease.token()));
        }
        lease.release().await?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok(reads)
}

/// Writes alone, article by article. Then checks the whole list as one reader among others.
async fn rebuild(office: &Quorum, list: &List, edition: u64) -> Result<(), Failure> {
    let lease = office.rwlock("prices").write().await?; // new readers are kept out while this waits
    for article in 0..ARTICLES {
        list.write(article, edition, lease.token())?;
        sleep(Duration::from_millis(5)).await;
    }
    println!("edition {edition} is built, with token {}", lease.token());

    lease.downgrade().await?; // keeps the token, and nobody writes in between
    sleep(Duration::from_millis(60)).await;
    let whole = (0..ARTICLES).all(|article| list.edition(article) == edition);
    // `quorate inspect prices` shows this too.
    let seen = office.inspect("prices").await?;
    match (whole, seen.writer()) {
        (true, None) => println!(
            "  and checked under a read lock: {} read now",
            seen.reading()
        ),
        other => println!("unexpected: {other:?}"),
    }
    lease.release().await?;
    Ok(())
}

/// The price list. For each article it stores the edition of the price. It refuses a stale writer.
#[derive(Default)]
struct List {
    gate: Gate,
    editions: Mutex<[u64; ARTICLES]>,
}

impl List {
    fn edition(&self, article: usize) -> u64 {
        let editions = self.editions.lock().unwrap_or_else(PoisonError::into_inner);
        editions.get(article).copied().unwrap_or_default()
    }

    fn write(&self, article: usize, edition: u64, token: FencingToken) -> Result<(), Failure> {
        // One lock covers the check and the write.
        let mut editions = self.editions.lock().unwrap_or_else(PoisonError::into_inner);
        self.gate.admit("prices", token)?;
        if let Some(there) = editions.get_mut(article) {
            *there = edition;
        }
        Ok(())
    }
}
