//! The downstream half: what a lock protects refuses tokens that are older than the newest it has seen.
//!
//! A lock alone cannot stop a holder that was paused past its lease (a long garbage collection, a
//! suspended laptop, a slow network) and then writes. Its token can: the next holder's is greater.
//! So check the token where the write happens, and let reads that a later write depends on pass the
//! same check. An equal token passes, so that one holder may write many times.
//!
//! | what is protected | use |
//! | --- | --- |
//! | something in this process: a cache, a file, a device, a service that receives tokens | [`Gate`] |
//! | keys in a Redis or Valkey | [`redis`] (feature `fence-redis`, on by default) |
//! | rows in Postgres | [`postgres`]: SQL for any driver, and `admit` (feature `postgres`) |
//!
//! Everything else, with examples: [`docs::fencing`](crate::docs::fencing).

mod gate;
pub mod postgres;
#[cfg(feature = "fence-redis")]
pub mod redis;
mod stale;

pub use gate::Gate;
pub use stale::StaleToken;
