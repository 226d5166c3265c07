//! Real servers for the integration tests: `Server::start(Kind::Redis)`.
//!
//! | file | what it is |
//! | --- | --- |
//! | `server` | one Redis or Valkey process: started, killed, stopped, restarted with and without its memory |
//! | `fleet` | several servers, and a check for locks that were left behind |
//! | `proxy` | a network between a client and one server that can be slow, cut or silent |
//! | `postgres` | one Postgres |
//! | `consul` | one Consul agent, or a cluster of them |
//! | `tls` | throw-away certificates |
//! | `again` | the test program started again, as a process of its own |
//! | `interval` | the greatest number of instants in any interval |
//! | `stalls` | the times for which this machine gave a process no processor, or a server gave no answer |
//! | `keeper`, `port` | keep processes from outliving their test, and let tests run side by side |
//!
//! Beside this module, for `tests/main.rs` alone:
//!
//! | file | what it is |
//! | --- | --- |
//! | `workers` | processes that work on one file at the same time |
//! | `exclusive` | tests that are written once, and run on a mutex and on a semaphore of one |

// The library's own tests and the benches use this module too, and each uses only a part of it. So the warnings "never
// used" and "not reachable from outside" say nothing here.
#![allow(dead_code, unreachable_pub, unused_imports)]
// A harness that cannot do its work must end the test at once, with the reason. So panics are its error handling.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used
)]

mod again;
mod consul;
mod fleet;
mod interval;
mod keeper;
mod port;
mod postgres;
pub mod proxy;
mod server;
mod stalls;
pub mod tls;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use again::again;
pub use consul::{Agent, AgentOptions, Cluster, MASTER, Pair};
pub use fleet::Fleet;
pub use interval::most_within;
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use server::{Kind, Server, ServerOptions};
pub use stalls::{Slowest, Stalls};

/// A wait of this length is a hang. No promise is measured with it.
pub const HANG: Duration = Duration::from_secs(20);

/// A program that `install-servers.sh` installed, for both packages of the workspace.
fn installed(program: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = package
        .ancestors()
        .find(|folder| folder.join("tests/install-servers.sh").exists());
    let root = root.expect("a checkout of quorate");
    root.join("target/servers").join(program)
}
