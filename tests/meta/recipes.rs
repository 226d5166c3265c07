//! The mistakes of the classic Redis recipes for semaphores, each made to happen on a real server. The same scenario
//! with [`quorate::Semaphore`] follows each. `src/docs/semaphores.md` compares them.
//!
//! The recipes are written here from their descriptions, as small as possible. The tests execute their steps one by
//! one, in the order that breaks them.
//!
//! | file | recipe |
//! | --- | --- |
//! | `recipes/clocks` | a sorted set, ordered by the clients' clocks |
//! | `recipes/numbers` | a second sorted set, ordered by a counter |
//! | `recipes/locked` | the same, with a lock around it |
//! | `recipes/tokens` | a list of tokens, and BLPOP |
//! | `recipes/majority` | any recipe that counts holders, on a majority of several masters |

mod clocks;
mod locked;
mod majority;
mod numbers;
mod tokens;

use std::time::Duration;

use crate::support::{Fleet, Kind, Proxy, Server};
use quorate::{IntoNode, Lease, Quorum, Renewal, Semaphore, fence::Gate};
use redis::{Connection, FromRedisValue};
use tokio::time::{sleep, timeout};

/// The number of holders that the semaphore allows, unless a test uses another one.
const LIMIT: usize = 3;
/// The time after which a recipe takes a permit from a silent holder, in ms.
const TIMEOUT: u64 = 10_000;
/// The time on a client's clock when a test begins, in ms.
const NOON: u64 = 1_700_000_000_000;

/// Sends one command.
fn ask<T: FromRedisValue>(conn: &mut Connection, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query(conn).unwrap()
}

// ---- the same with quorate's semaphore ------------------------------------------------------

/// Far more than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The semaphore of another program, on these masters.
async fn program(urls: impl IntoIterator<Item = impl IntoNode>) -> Semaphore {
    let quorum = Quorum::builder()
        .fleet("tests") // some reach the masters through proxies
        .nodes(urls)
        .connect()
        .await
        .unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum.semaphore("a", 3).ttl(Duration::from_secs(5))
}

/// All permits of [`program`], each held by a program of its own.
async fn all_held(server: &Server) -> Vec<Lease> {
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        let lease = program([server.url()]).await.try_acquire().await.unwrap();
        held.push(lease.expect("one is free"));
    }
    held
}
