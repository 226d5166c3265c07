//! Stores that check fencing tokens: they accept no older token after a newer one.

#[cfg(all(feature = "consul", feature = "fence-redis", feature = "postgres"))]
mod paused_holders;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "fence-redis")]
mod redis;
