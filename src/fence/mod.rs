//! The check behind the lock: the store that a lock protects refuses tokens that are older than the newest it has seen.
//!
//! A lock alone cannot stop a holder that was paused past its lease (a long garbage collection, a suspended laptop, a
//! slow network) and then writes. Its token can, because the next holder's token is greater. So check the token where
//! the write happens, and let reads that a later write depends on pass the same check. An equal token passes, so that
//! one holder may write many times.
//!
//! | to protect | use |
//! | --- | --- |
//! | something in this process: a cache, a file, a device, a service that receives tokens | [`Gate`] |
//! | keys in a Redis or Valkey | [`redis`] (feature `fence-redis`, on by default) |
//! | rows in Postgres | [`postgres`]: SQL for any driver, and `admit` (feature `postgres`) |
//!
//! [`docs::fencing`](crate::docs::fencing) has examples for everything else.

mod gate;
pub mod postgres;
#[cfg(feature = "fence-redis")]
pub mod redis;
mod stale;

pub use gate::Gate;
pub use stale::StaleToken;
