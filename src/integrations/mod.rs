//! The same primitives in other surroundings: on Consul, without async, as a stream, as tower layers.

#[cfg(feature = "blocking")]
pub mod blocking;
#[cfg(feature = "consul")]
pub mod consul;
pub mod stream;
#[cfg(feature = "tower")]
pub mod tower;
