//! Fencing from end to end, on real masters. Holders are stopped for longer than their lease, and then write late to a
//! real Redis and a real Postgres. Where tokens are checked, no late write is accepted. Where they are not checked, all
//! late writes are accepted.
//!
//! The holders are processes of their own. Each is this test program, started again as a worker.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use crate::fence::patient;
use crate::support::{Fleet, Kind, Postgres, Server, again};
use quorate::fence::{postgres, redis as fence};
use quorate::{FencingToken, Lease, Quorum, Renewal, redis};
use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::types::{ToSql, Type};

const WORK: &str = "QUORATE_FENCING_WORK";
const URLS: &str = "QUORATE_FENCING_URLS";
const STORE: &str = "QUORATE_FENCING_STORE";
const DATABASE: &str = "QUORATE_FENCING_DATABASE";

/// As long as the masters allow, because a slow machine needs a while for this many locks at once.
const TTL: Duration = Duration::from_secs(2);
/// The pause is longer than any lease.
const PAUSE: Duration = Duration::from_millis(2_150);
/// Each worker holds this many locks at once. Each lock counts as one round.
const NAMES: usize = 125;
const WORKERS: usize = 4;
/// 4 × 125 × 2 = 1,000 rounds.
const TIMES: usize = 2;

/// For the stores with a check: how many late writes they accepted, as they told their writers. For those without a
/// check: how many values of newer holders were overwritten, as the data show.
#[derive(Debug, Default, PartialEq, Eq)]
struct Late {
    redis_checked: usize,
    redis_plain: usize,
    postgres_checked: usize,
    postgres_plain: usize,
}

fn quorum_of(urls: &str) -> quorate::Builder {
    let urls: Vec<String> = urls.split(',').map(str::to_owned).collect();
    Quorum::builder()
        .fleet("tests") // some reach the masters through proxies
        .nodes(urls)
        .max_ttl(TTL)
}

/// Both stores, as one client sees them.
struct Stores {
    redis: redis::aio::MultiplexedConnection,
    database: tokio_postgres::Client,
}

impl Stores {
    async fn connect(url: &str, database: &str) -> Self {
        let client = redis::Client::open(url).unwrap();
        let (postgres, connection) = tokio_postgres::connect(database, tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        Self {
            redis: patient(&client).await,
            database: postgres,
        }
    }

    /// Reads both through the check, because later writes depend on these reads.
    async fn read(&mut self, name: &str, token: FencingToken) {
        let _: Option<u64> = fence::get(&mut self.redis, name, token)
            .await
            .expect("nobody newer");
        let transaction = self.database.transaction().await.unwrap();
        postgres::admit(&transaction, name, token)
            .await
            .expect("nobody newer");
        transaction.commit().await.unwrap();
    }

    /// Writes to every store, with the check and without it. Returns whether Redis and Postgres accepted the checked
    /// writes.
    async fn write(&mut self, name: &str, token: FencingToken) -> (bool, bool) {
        let number = token.as_u64();
        let by_redis = match fence::set(&mut self.redis, name, number, token).await {
            Ok(()) => true,
            Err(error) => {
                assert!(error.stale().is_some(), "{error}");
                false
            }
        };
        let plain = redis::cmd("SET")
            .arg(format!("plain:{name}"))
            .arg(number)
            .query_async(&mut self.redis)
            .await;
        let () = plain.unwrap();

        let mine = i64::try_from(number).unwrap();
        let transaction = self.database.transaction().await.unwrap();
        let update = "UPDATE balance SET last = $2 WHERE name = $1";
        // This is as in the documentation: the write is sent along with the admission, and undone if the admission is
        // refused.
        let done = tokio::try_join!(
            biased;
            postgres::admit(&transaction, name, token),
            async {
                let parameters: [(&(dyn ToSql + Sync), Type); 2] =
                    [(&name, Type::TEXT), (&mine, Type::INT8)];
                Ok(transaction.execute_typed(update, &parameters).await?)
            },
        );
        let by_postgres = match done {
            Ok(((), rows)) => {
                assert_eq!(rows, 1);
                transaction.commit().await.unwrap();
                true
            }
            Err(error) => {
                assert!(error.stale().is_some(), "{error}");
                drop(transaction);
                false
            }
        };
        let plain = "UPDATE plain SET last = $2 WHERE name = $1";
        assert_eq!(
            self.database.execute(plain, &[&name, &mine]).await.unwrap(),
            1
        );
        (by_redis, by_postgres)
    }

    /// Reads the values in Redis and in Postgres, where tokens are checked and where they are not.
    async fn look(&mut self, name: &str) -> Standing {
        let (checked, plain): (u64, u64) = redis::cmd("MGET")
            .arg(name)
            .arg(format!("plain:{name}"))
            .query_async(&mut self.redis)
            .await
            .unwrap();
        let sql =
            "SELECT balance.last, plain.last FROM balance JOIN plain USING (name) WHERE name = $1";
        let row = self.database.query_one(sql, &[&name]).await.unwrap();
        let number = |column| u64::try_from(row.get::<_, i64>(column)).unwrap();
        Standing {
            checked: [checked, number(0)],
            plain: [plain, number(1)],
        }
    }
}

/// The tokens of the values in Redis and in Postgres.
struct Standing {
    checked: [u64; 2],
    plain: [u64; 2],
}

async fn lock_all(quorum: &Quorum, names: &[String]) -> Vec<Lease> {
    let locks = names
        .iter()
        .map(|name| quorum.mutex(name).ttl(TTL).renewal(Renewal::off()).lock());
    let locks = futures::future::try_join_all(locks).await;
    locks.expect("the masters are well")
}

/// The worker: it locks, reads, and reports this. It is stopped, and then writes, no matter what has become of its
/// leases.
fn worked() -> bool {
    let Some(work) = std::env::var_os(WORK) else {
        return false;
    };
    let var = |name| std::env::var(name).unwrap();
    let first: usize = work.to_str().unwrap().parse().unwrap();
    let names = names_of(first);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let quorum = quorum_of(&var(URLS)).connect().await.unwrap();
        let mut stores = Stores::connect(&var(STORE), &var(DATABASE)).await;
        let mut orders = std::io::stdin().lines();
        for _ in 0..TIMES {
            orders.next();
            let leases = lock_all(&quorum, &names).await;
            for lease in &leases {
                stores.read(lease.name(), lease.token()).await;
            }
            say("held");
            // The worker is stopped here. The order that it reads next was sent after it was continued.
            orders.next();
            let (mut by_redis, mut by_postgres) = (0, 0);
            for lease in &leases {
                let accepted = stores.write(lease.name(), lease.token()).await;
                by_redis += usize::from(accepted.0);
                by_postgres += usize::from(accepted.1);
            }
            drop(leases);
            say(&format!("{by_redis} {by_postgres}"));
        }
    });
    true
}

/// Prints past the test harness, which captures standard output.
fn say(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "@{line}").unwrap();
    out.flush().unwrap();
}

fn names_of(first: usize) -> Vec<String> {
    (first..first + NAMES)
        .map(|i| format!("account:{i}"))
        .collect()
}

struct Worker {
    child: Child,
    orders: ChildStdin,
    says: std::io::Lines<BufReader<ChildStdout>>,
    names: Vec<String>,
}

impl Worker {
    fn start(index: usize, urls: &str, store: &str, database: &str) -> Self {
        let mut child = again(module_path!(), "a_thousand_paused_holders_write_late")
            .env(WORK, (index * NAMES).to_string())
            .env(URLS, urls)
            .env(STORE, store)
            .env(DATABASE, database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("setpriv (Debian: util-linux)");
        Self {
            orders: child.stdin.take().unwrap(),
            says: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
            names: names_of(index * NAMES),
        }
    }

    fn go_on(&mut self) {
        self.orders.write_all(b"\n").unwrap();
    }

    fn said(&mut self) -> String {
        loop {
            let line = self.says.next().expect("the worker lives").unwrap();
            // The test harness may have begun the line.
            if let Some((_, said)) = line.split_once('@') {
                return said.to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_thousand_paused_holders_write_late() {
    if worked() {
        return;
    }
    let fleet = Fleet::start(3, Kind::Redis);
    let store = Server::start(Kind::Valkey);
    let database = Postgres::start();
    let urls = fleet.urls().join(",");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (quorum, mut stores) = runtime.block_on(async {
        let quorum = quorum_of(&urls).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let stores = Stores::connect(&store.url(), &database.url()).await;
        stores
            .database
            .batch_execute(postgres::SCHEMA)
            .await
            .unwrap();
        for table in ["balance", "plain"] {
            let names = NAMES * WORKERS;
            let schema = format!(
                "CREATE TABLE {table} (name text PRIMARY KEY, last bigint NOT NULL);
                 INSERT INTO {table} SELECT 'account:' || i, 0 FROM generate_series(0, {names}) i"
            );
            stores.database.batch_execute(&schema).await.unwrap();
        }
        (quorum, stores)
    });
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|i| Worker::start(i, &urls, &store.url(), &database.url()))
        .collect();
    let (mut rounds, mut late) = (0, Late::default());
    for _ in 0..TIMES {
        for worker in &mut workers {
            worker.go_on();
        }
        for worker in &mut workers {
            assert_eq!(worker.said(), "held");
            worker.signal(Signal::STOP);
        }
        std::thread::sleep(PAUSE);
        // Other holders take over, and write.
        let mut newest = Vec::new();
        for worker in &workers {
            runtime.block_on(async {
                for lease in lock_all(&quorum, &worker.names).await {
                    stores.read(lease.name(), lease.token()).await;
                    let (name, token) = (lease.name(), lease.token());
                    assert_eq!(stores.write(name, token).await, (true, true));
                    let standing = stores.look(name).await;
                    let mine = [token.as_u64(); 2];
                    assert_eq!((standing.checked, standing.plain), (mine, mine));
                    newest.push((name.to_owned(), token.as_u64()));
                    let _ = lease.release().await;
                }
            });
        }
        for worker in &mut workers {
            worker.signal(Signal::CONT);
            worker.go_on();
        }
        for worker in &mut workers {
            let said = worker.said();
            let (by_redis, by_postgres) = said.split_once(' ').unwrap();
            late.redis_checked += by_redis.parse::<usize>().unwrap();
            late.postgres_checked += by_postgres.parse::<usize>().unwrap();
            rounds += worker.names.len();
        }
        // With the check, the value of the newest holder still stands. Without it, an older holder's value does.
        runtime.block_on(async {
            for (name, token) in &newest {
                let standing = stores.look(name).await;
                assert_eq!(standing.checked, [*token; 2], "{name}");
                late.redis_plain += usize::from(standing.plain[0] < *token);
                late.postgres_plain += usize::from(standing.plain[1] < *token);
            }
        });
    }
    println!("{rounds} paused holders wrote late: {late:?}");
    assert_eq!(rounds, 1_000);
    assert_eq!((late.redis_checked, late.postgres_checked), (0, 0));
    assert_eq!((late.redis_plain, late.postgres_plain), (rounds, rounds));
}
