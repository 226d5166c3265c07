//! What the classic Redis recipes for semaphores do wrong, on a real server, each made to happen; and the same scenario
//! with [`quorate::Semaphore`]. `src/docs/semaphores.md` compares them.
//!
//! The recipes are written here from their descriptions, as small as they go. Their steps are taken by hand, in the
//! order that breaks them.
//!
//! | file | recipe |
//! | --- | --- |
//! | `recipes/clocks` | a sorted set by the clients' clocks |
//! | `recipes/numbers` | a second sorted set, by a counter |
//! | `recipes/locked` | the same, with a lock around it |
//! | `recipes/tokens` | a list of tokens, and BLPOP |
//! | `recipes/majority` | any that counts, on a majority of several masters |

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

/// How many may hold the semaphore, unless a test says otherwise.
const LIMIT: usize = 3;
/// After how long a recipe takes a permit from a holder that it has not heard of, in ms.
const TIMEOUT: u64 = 10_000;
/// What a client's clock says when a test begins, in ms.
const NOON: u64 = 1_700_000_000_000;

/// One command.
fn ask<T: FromRedisValue>(conn: &mut Connection, words: &[&str]) -> T {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query(conn).unwrap()
}

// ---- the same with ours --------------------------------------------------------------------

/// Far more than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Another program, on these masters.
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

/// As `program` has them, each held by a program of its own.
async fn all_held(server: &Server) -> Vec<Lease> {
    let mut held = Vec::new();
    for _ in 0..LIMIT {
        let lease = program([server.url()]).await.try_acquire().await.unwrap();
        held.push(lease.expect("one is free"));
    }
    held
}
