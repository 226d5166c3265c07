//! The same primitives without async, as a stream, and as tower layers.

#[cfg(all(feature = "blocking", feature = "consul"))]
mod blocking;
mod stream;
#[cfg(feature = "tower")]
mod tower;
#[cfg(feature = "tower")]
mod tower_servers;
