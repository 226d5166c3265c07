//! Transfers between accounts. Each transfer holds the locks of both accounts. No server is needed: `cargo run
//! --example transfer`. To use real masters, put `QUORATE_NODES=URL,URL,URL` before the command.
//!
//! Clerks take two names at once, in any order. A clerk gets both or none, so no two clerks wait for each other for
//! ever. The lease has one token for both accounts. The bank compares it for each account, so a clerk that slept for
//! too long writes to neither.

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use quorate::{
    Builder, FencingToken, MemoryNode, Quorum, Renewal,
    fence::{Gate, StaleToken},
};
use tokio::time::sleep;

const ACCOUNTS: usize = 6;
const EACH: i64 = 100;
const CLERKS: usize = 4;
const TRANSFERS: usize = 25;

type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let masters: Vec<MemoryNode> = (0..5).map(|_| MemoryNode::new()).collect();
    let boss = connect(&masters, "boss").await?;
    let bank = Arc::new(Bank::default());

    println!(
        "{CLERKS} clerks make transfers between {ACCOUNTS} accounts, two names at once, in any order"
    );
    let mut clerks = Vec::new();
    for clerk in 0..CLERKS {
        // Each clerk has a `Quorum` of its own, as every process would.
        let quorum = connect(&masters, &format!("clerk-{clerk}")).await?;
        quorum.voting(Duration::from_secs(60)).await?;
        clerks.push(tokio::spawn(work(quorum, Arc::clone(&bank))));
    }
    for clerk in clerks {
        clerk.await??;
    }
    println!("all {} are done: nobody waits for ever", CLERKS * TRANSFERS);
    balance(&bank);

    // This clerk holds its locks for at most half a second, and sleeps for longer.
    let pair = [4, 1];
    let slow = locks(&boss, pair).ttl(Duration::from_millis(500));
    let slow = slow.renewal(Renewal::off()).lock().await?;
    println!("a clerk has {:?}, reads, and sleeps", slow.name());
    let [from, to] = bank.read(pair, slow.token())?;
    sleep(Duration::from_millis(700)).await;
    transfer(&boss, &bank, [1, 4], 10).await?;
    match bank.write(pair, [from - 50, to + 50], slow.token()) {
        Err(stale) => println!("it wakes and writes, and the bank refuses: {stale}"),
        Ok(()) => println!("unexpected: the old token passed"),
    }
    balance(&bank);
    drop(slow);
    boss.shutdown().await;
    Ok(())
}

async fn connect(masters: &[MemoryNode], who: &str) -> Result<Quorum, quorate::Error> {
    let builder = match std::env::var_os("QUORATE_NODES") {
        Some(_) => Builder::from_env()?,
        None => Quorum::builder().nodes(masters),
    };
    builder.label(who).connect().await
}

/// The work of one clerk.
async fn work(quorum: Quorum, bank: Arc<Bank>) -> Result<(), Failure> {
    for _ in 0..TRANSFERS {
        let from = rand::random_range(0..ACCOUNTS);
        let to = (from + rand::random_range(1..ACCOUNTS)) % ACCOUNTS;
        transfer(&quorum, &bank, [from, to], rand::random_range(1..20)).await?;
    }
    quorum.shutdown().await;
    Ok(())
}

/// Reads both balances, calculates, and writes both. Nobody else may write in between.
async fn transfer(
    quorum: &Quorum,
    bank: &Bank,
    pair: [usize; 2],
    amount: i64,
) -> Result<(), Failure> {
    let lease = locks(quorum, pair).lock().await?;
    let [from, to] = bank.read(pair, lease.token())?;
    sleep(Duration::from_millis(1)).await; // this stands for the calculation
    bank.write(pair, [from - amount, to + amount], lease.token())?;
    lease.release().await?;
    Ok(())
}

/// The locks of both accounts. Their order does not matter.
fn locks(quorum: &Quorum, pair: [usize; 2]) -> quorate::Mutex {
    quorum.mutex_all(pair.map(name))
}

fn name(account: usize) -> String {
    format!("account:{account}")
}

fn balance(bank: &Bank) {
    let sum = bank.sum();
    match i64::try_from(ACCOUNTS).map(|accounts| accounts * EACH) {
        Ok(all) if all == sum => println!("the accounts hold {sum} together, as at first"),
        _ => println!("unexpected: the accounts hold {sum} together"),
    }
}

/// The balance of each account, and the newest token that each account has seen.
struct Bank {
    gate: Gate,
    /// One lock covers the checks and the reads or writes.
    accounts: Mutex<[i64; ACCOUNTS]>,
}

impl Bank {
    fn read(&self, pair: [usize; 2], token: FencingToken) -> Result<[i64; 2], StaleToken> {
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        self.admit(pair, token)?;
        Ok(pair.map(|account| accounts.get(account).copied().unwrap_or_default()))
    }

    fn write(
        &self,
        pair: [usize; 2],
        balances: [i64; 2],
        token: FencingToken,
    ) -> Result<(), StaleToken> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        self.admit(pair, token)?;
        for (account, balance) in pair.into_iter().zip(balances) {
            if let Some(there) = accounts.get_mut(account) {
                *there = balance;
            }
        }
        Ok(())
    }

    /// Checks both accounts before one is written.
    fn admit(&self, pair: [usize; 2], token: FencingToken) -> Result<(), StaleToken> {
        pair.map(name)
            .iter()
            .try_for_each(|account| self.gate.admit(account, token))
    }

    fn sum(&self) -> i64 {
        let accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.iter().sum()
    }
}

impl Default for Bank {
    fn default() -> Self {
        Self {
            gate: Gate::new(),
            accounts: Mutex::new([EACH; ACCOUNTS]),
        }
    }
}
