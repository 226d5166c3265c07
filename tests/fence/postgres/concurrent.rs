//! Many connections at once. For each resource, the tokens of committed writes never decrease, in the order in which
//! they were written. Nobody reads what a newer holder wrote.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorate::fence::postgres::{ADMIT_SQL, Error, admit};
use rand::random_range;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, IsolationLevel, Transaction};

use super::{connect, start, token};
use crate::support::Postgres;

const RESOURCES: [&str; 3] = ["a", "b", "c"];

/// How a transaction checks whether its token is too old.
#[derive(Clone, Copy)]
enum Fence {
    Admit,
    PlainSql,
    /// A column in the row that is written.
    Column,
    /// Reads the newest token, compares it in the client, and stores its own. This is wrong, and the test must find
    /// that.
    ReadAndCompare,
}

impl Fence {
    async fn admits(
        self,
        transaction: &Transaction<'_>,
        resource: &str,
        number: u64,
    ) -> Result<bool, Error> {
        let mark = i64::try_from(number).unwrap();
        let sql = match self {
            Fence::Admit => {
                return match admit(transaction, resource, token(number)).await {
                    Ok(()) => Ok(true),
                    Err(Error::Stale(stale)) => {
                        assert!(stale.newest > stale.token, "{stale}");
                        Ok(false)
                    }
                    Err(error) => Err(error),
                };
            }
            Fence::PlainSql => ADMIT_SQL,
            Fence::Column => {
                "UPDATE invoice SET status = $2, fence = $2 WHERE id = $1 AND fence <= $2"
            }
            Fence::ReadAndCompare => {
                let sql = "SELECT FROM invoice WHERE id = $1 AND fence <= $2";
                if transaction
                    .query_opt(sql, &[&resource, &mark])
                    .await?
                    .is_none()
                {
                    return Ok(false);
                }
                "UPDATE invoice SET status = $2, fence = $2 WHERE id = $1"
            }
        };
        Ok(transaction.execute(sql, &[&resource, &mark]).await? == 1)
    }
}

#[derive(Default)]
struct Answers {
    committed: u64,
    rolled_back: u64,
    stale: u64,
    /// The number of serialization failures.
    again: u64,
}

/// One transaction. It writes after a while, if it is admitted.
async fn write(
    client: &mut Client,
    fence: Fence,
    isolation: IsolationLevel,
    number: u64,
    answers: &mut Answers,
) -> Result<(), Error> {
    let resource = RESOURCES[random_range(0..RESOURCES.len())];
    let mark = i64::try_from(number).unwrap();
    let transaction = client.build_transaction().isolation_level(isolation);
    let transaction = transaction.start().await?;
    if !fence.admits(&transaction, resource, number).await? {
        answers.stale += 1;
        return Ok(());
    }
    let sql = "SELECT max(token) FROM log WHERE resource = $1";
    let read: Option<i64> = transaction.query_one(sql, &[&resource]).await?.get(0);
    if !matches!(fence, Fence::ReadAndCompare) {
        assert!(read <= Some(mark), "{mark} reads what {read:?} wrote");
    }
    if random_range(0..3) > 0 {
        tokio::time::sleep(Duration::from_micros(random_range(0..3_000))).await;
    }
    let sql = "INSERT INTO log (resource, token) VALUES ($1, $2)";
    transaction.execute(sql, &[&resource, &mark]).await?;
    if random_range(0..5) == 0 {
        transaction.rollback().await?;
        answers.rolled_back += 1;
    } else {
        transaction.commit().await?;
        answers.committed += 1;
    }
    Ok(())
}

/// Runs this many transactions on each of these connections.
async fn load(
    server: &Postgres,
    fence: Fence,
    isolation: IsolationLevel,
    connections: usize,
    transactions: u64,
) -> Answers {
    // Most tokens are about as new as the stored one. So half of them are too old, and every pair can race.
    let started = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    for _ in 0..connections {
        let mut client = connect(server).await;
        let started = started.clone();
        tasks.push(tokio::spawn(async move {
            let mut answers = Answers::default();
            loop {
                let number = started.fetch_add(1, Ordering::Relaxed);
                if number >= transactions {
                    return answers;
                }
                let number = number + random_range(0..100);
                let answer = write(&mut client, fence, isolation, number, &mut answers).await;
                match answer {
                    Ok(()) => {}
                    Err(Error::Postgres(error))
                        if error.code() == Some(&SqlState::T_R_SERIALIZATION_FAILURE) =>
                    {
                        answers.again += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }));
    }
    let mut sum = Answers::default();
    for task in tasks {
        let one = task.await.unwrap();
        sum.committed += one.committed;
        sum.rolled_back += one.rolled_back;
        sum.stale += one.stale;
        sum.again += one.again;
    }
    sum
}

/// How often a token was written after a newer one, and the newest token of each resource.
async fn late_writes(client: &Client, committed: u64) -> (u64, HashMap<String, i64>) {
    let sql = "SELECT resource, token FROM log ORDER BY serial";
    let rows = client.query(sql, &[]).await.unwrap();
    assert_eq!(rows.len() as u64, committed, "what was answered is there");
    let (mut late, mut newest) = (0, HashMap::new());
    for row in rows {
        let (resource, number): (String, i64) = (row.get(0), row.get(1));
        let newest = newest.entry(resource).or_insert(number);
        late += u64::from(number < *newest);
        *newest = number.max(*newest);
    }
    (late, newest)
}

async fn run(
    fence: Fence,
    isolation: IsolationLevel,
    connections: usize,
    transactions: u64,
) -> (Answers, u64) {
    let (server, client) = start().await;
    let table = "CREATE TABLE invoice (id text PRIMARY KEY, status bigint);
        ALTER TABLE invoice ADD COLUMN fence bigint NOT NULL DEFAULT 0;
        INSERT INTO invoice VALUES ('a'), ('b'), ('c')";
    client.batch_execute(table).await.unwrap();
    let answers = load(&server, fence, isolation, connections, transactions).await;
    let (late, newest) = late_writes(&client, answers.committed).await;
    println!(
        "{} committed, {} rolled back, {} stale, {} to do again; {late} late",
        answers.committed, answers.rolled_back, answers.stale, answers.again
    );
    // None of the counts is 0 by chance: the load does what it is meant to do.
    assert!(answers.committed > transactions / 50, "few were committed");
    assert!(answers.rolled_back > 0 && answers.stale > 0);
    if late == 0 {
        let marks = match fence {
            Fence::Admit | Fence::PlainSql => "SELECT resource, token FROM quorate_fence",
            _ => "SELECT id, fence FROM invoice WHERE fence = status",
        };
        let marks = client.query(marks, &[]).await.unwrap();
        let marks: HashMap<String, i64> =
            marks.iter().map(|row| (row.get(0), row.get(1))).collect();
        assert_eq!(marks, newest, "the mark is the newest that was committed");
    }
    (answers, late)
}

#[tokio::test]
async fn sixty_four_connections_never_write_an_older_token_after_a_newer_one() {
    let (_, late) = run(Fence::Admit, IsolationLevel::ReadCommitted, 64, 2_000).await;
    assert_eq!(late, 0);
}

#[tokio::test]
async fn plain_sql_never_writes_an_older_token_after_a_newer_one() {
    let (_, late) = run(Fence::PlainSql, IsolationLevel::ReadCommitted, 64, 1_000).await;
    assert_eq!(late, 0);
}

#[tokio::test]
async fn a_token_column_never_takes_an_older_token_after_a_newer_one() {
    let (_, late) = run(Fence::Column, IsolationLevel::ReadCommitted, 64, 2_000).await;
    assert_eq!(late, 0);
}

#[tokio::test]
async fn the_load_detects_a_wrong_fence() {
    let (_, late) = run(
        Fence::ReadAndCompare,
        IsolationLevel::ReadCommitted,
        64,
        1_000,
    )
    .await;
    assert!(late > 0);
}

#[tokio::test]
async fn stricter_isolation_aborts_some_and_admits_no_older_token() {
    for isolation in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        for fence in [Fence::Admit, Fence::Column] {
            let (answers, late) = run(fence, isolation, 16, 1_000).await;
            assert_eq!(late, 0);
            assert!(answers.again > 0, "nobody was told to do it again");
        }
    }
}
