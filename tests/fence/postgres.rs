//! `fence::postgres` on a real Postgres: an older token never writes after a newer one, no matter what the connections
//! do.

mod admit;
mod concurrent;
mod isolation;
mod model;
mod names;
mod plain_sql;
mod round_trips;
mod server;

use std::time::{Duration, Instant};

use crate::support::Postgres;
use quorate::FencingToken;
use quorate::fence::StaleToken;
use quorate::fence::postgres::{Error, SCHEMA, admit};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};

/// The limit for things that must happen, on a busy machine too.
const PATIENCE: Duration = Duration::from_secs(20);

/// The fence, and a log of the writes in their order.
const TABLES: &str = "CREATE TABLE log (serial bigserial, resource text, token bigint)";

fn token(number: u64) -> FencingToken {
    FencingToken::try_from(number).unwrap()
}

async fn connect(server: &Postgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A server with [`SCHEMA`] and [`TABLES`].
async fn start() -> (Postgres, Client) {
    let server = Postgres::start();
    let client = connect(&server).await;
    client.batch_execute(SCHEMA).await.unwrap();
    client.batch_execute(TABLES).await.unwrap();
    (server, client)
}

/// Admits the token in a transaction of its own, and commits.
async fn admit_alone(client: &mut Client, resource: &str, number: u64) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    admit(&transaction, resource, token(number)).await?;
    Ok(transaction.commit().await?)
}

/// The newest token that was committed.
async fn newest(client: &Client, resource: &str) -> Option<i64> {
    let sql = "SELECT token FROM quorate_fence WHERE resource = $1";
    let row = client.query_opt(sql, &[&resource]).await.unwrap();
    row.map(|row| row.get(0))
}

async fn logged(client: &Client) -> Vec<i64> {
    let sql = "SELECT token FROM log ORDER BY serial";
    let rows = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The write of a transaction.
const WRITE: &str = "INSERT INTO log (resource, token) VALUES ('a', $1)";

/// Returns when this many connections wait for a lock.
async fn until_waiting(client: &Client, connections: i64) {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let deadline = Instant::now() + PATIENCE;
    while client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) != connections {
        assert!(Instant::now() < deadline, "nobody waits");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn stale(answer: Result<(), Error>) -> StaleToken {
    match answer {
        Err(Error::Stale(stale)) => stale,
        other => panic!("{other:?}"),
    }
}

fn database_error(answer: Result<(), Error>) -> SqlState {
    match answer {
        Err(Error::Postgres(error)) => error.code().expect("an error of the database").clone(),
        other => panic!("{other:?}"),
    }
}
