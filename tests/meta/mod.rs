//! The project itself: its layers, pages and examples; the conformance of every kind of node; the test harness.

#[cfg(feature = "test-util")]
mod conformance;
mod english;
#[cfg(all(feature = "fence-redis", feature = "postgres"))]
mod examples;
mod layers;
mod pages;
mod recipes;
mod support_selftest;
