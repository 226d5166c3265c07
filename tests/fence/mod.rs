//! Stores that check fencing tokens: nothing older is written after something newer.

#[cfg(all(feature = "consul", feature = "fence-redis", feature = "postgres"))]
mod paused_holders;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "fence-redis")]
mod redis;
