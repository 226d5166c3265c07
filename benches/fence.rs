//! `cargo bench --bench fence --all-features`: the cost of checking a token, compared with the same write without the
//! check. The rounds are interleaved on one machine, and the figures are medians over the rounds. Only the ratios hold
//! on other machines.

// A holder's number continues from round to round, so it does not count the passes of one loop.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::explicit_counter_loop
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::time::Instant;

use quorate::FencingToken;
use quorate::fence::{Gate, postgres, redis as fence};
use quorate::redis::{Client, aio::MultiplexedConnection, cmd};
use support::{Kind, Postgres, Server};
use tokio_postgres::types::Type;

const ROUNDS: usize = 15;

fn token(number: u64) -> FencingToken {
    FencingToken::try_from(number).unwrap()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn main() {
    gate();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for kind in [Kind::Redis, Kind::Valkey] {
        runtime.block_on(on_redis(kind));
    }
    runtime.block_on(on_postgres());
}

/// One thread, with resources that are already known. There are as many of them as a service may have.
fn gate() {
    const TIMES: u32 = 1_000_000;
    for resources in [1, 1_000, 50_000] {
        let gate = Gate::new();
        let names: Vec<String> = (0..resources).map(|i| format!("invoice:{i}")).collect();
        let mut number = 1;
        for name in &names {
            gate.admit(name, token(number)).unwrap();
        }
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let started = Instant::now();
            for i in 0..TIMES as usize {
                number += 1;
                let name = &names[i.wrapping_mul(7919) % names.len()];
                black_box(gate.admit(black_box(name), token(number)).is_ok());
            }
            rounds.push(started.elapsed().as_secs_f64() * 1e9 / f64::from(TIMES));
        }
        println!(
            "Gate, {resources:>6} resources: {:.0} ns per admit",
            median(rounds)
        );
    }
}

/// Runs it this many times, one after the other. Returns the microseconds for each.
async fn timed<F: AsyncFnMut(u64)>(times: u64, mut f: F) -> f64 {
    let started = Instant::now();
    for i in 0..times {
        f(i).await;
    }
    started.elapsed().as_secs_f64() * 1e6 / times as f64
}

async fn on_redis(kind: Kind) {
    const TIMES: u64 = 2_000;
    let server = Server::start(kind);
    let client = Client::open(server.url()).unwrap();
    let conn = &mut client.get_multiplexed_async_connection().await.unwrap();
    let value = "x".repeat(100);
    let value = value.as_str();
    let bare = async |conn: &mut MultiplexedConnection| {
        cmd("SET")
            .arg("a")
            .arg(value)
            .query_async::<()>(conn)
            .await
            .unwrap();
    };
    let mut number = 0;
    let (mut floor, mut same, mut new) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floor.push(timed(TIMES, async |_| bare(conn).await).await);
        number += 1;
        // One holder that writes again and again, and a new holder for every write.
        same.push(
            timed(TIMES, async |_| {
                fence::set(conn, "a", value, token(number)).await.unwrap()
            })
            .await,
        );
        new.push(
            timed(TIMES, async |_| {
                number += 1;
                fence::set(conn, "a", value, token(number)).await.unwrap();
            })
            .await,
        );
    }
    let (floor, same, new) = (median(floor), median(same), median(new));
    println!(
        "{kind:?}, 100 bytes: SET {floor:.1} µs; fenced, same holder {same:.1} µs ({:.2} x), new holder {new:.1} µs ({:.2} x)",
        same / floor,
        new / floor
    );
}

async fn on_postgres() {
    const TIMES: u64 = 200;
    let server = Postgres::start();
    let (mut client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    client.batch_execute(postgres::SCHEMA).await.unwrap();
    client
        .batch_execute(
            "CREATE TABLE a (id bigint PRIMARY KEY, v bigint); INSERT INTO a VALUES (1, 0)",
        )
        .await
        .unwrap();
    let update = "UPDATE a SET v = $1 WHERE id = 1";
    let mut number = 0_i64;
    let (mut floor, mut pipelined, mut apart) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floor.push(
            timed(TIMES, async |_| {
                number += 1;
                let transaction = client.transaction().await.unwrap();
                transaction
                    .execute_typed(update, &[(&number, Type::INT8)])
                    .await
                    .unwrap();
                transaction.commit().await.unwrap();
            })
            .await,
        );
        pipelined.push(
            timed(TIMES, async |_| {
                number += 1;
                let transaction = client.transaction().await.unwrap();
                let mine = token(number.unsigned_abs());
                tokio::try_join!(
                    biased;
                    postgres::admit(&transaction, "a", mine),
                    async { Ok(transaction.execute_typed(update, &[(&number, Type::INT8)]).await?) },
                )
                .unwrap();
                transaction.commit().await.unwrap();
            })
            .await,
        );
        apart.push(
            timed(TIMES, async |_| {
                number += 1;
                let transaction = client.transaction().await.unwrap();
                postgres::admit(&transaction, "a", token(number.unsigned_abs()))
                    .await
                    .unwrap();
                transaction
                    .execute_typed(update, &[(&number, Type::INT8)])
                    .await
                    .unwrap();
                transaction.commit().await.unwrap();
            })
            .await,
        );
    }
    let (floor, pipelined, apart) = (median(floor), median(pipelined), median(apart));
    println!(
        "Postgres (fsync off): BEGIN, UPDATE, COMMIT {floor:.0} µs; admitted, sent along {pipelined:.0} µs ({:.2} x), one after the other {apart:.0} µs ({:.2} x)",
        pipelined / floor,
        apart / floor
    );
}
