//! The macros for logging. Every event and every span has the target `quorate`, wherever its code is.
//! `src/docs/logs.md` lists all of them.
//!
//! Texts are given as strings, not by their `Display`. So a subscriber quotes and escapes them, and neither a lock's
//! name nor a server's answer can begin a line of its own.

pub(crate) mod budget;

use std::time::Duration;

/// The target of every event and span.
pub(crate) const TARGET: &str = "quorate";

// Not named `warn`, which would be ambiguous with the attribute.
macro_rules! warning {
    ($($what:tt)*) => { ::tracing::warn!(target: $crate::base::logs::TARGET, $($what)*) };
}

macro_rules! info {
    ($($what:tt)*) => { ::tracing::info!(target: $crate::base::logs::TARGET, $($what)*) };
}

macro_rules! debug {
    ($($what:tt)*) => { ::tracing::debug!(target: $crate::base::logs::TARGET, $($what)*) };
}

/// The span of one operation, at DEBUG.
macro_rules! span {
    ($($what:tt)*) => { ::tracing::debug_span!(target: $crate::base::logs::TARGET, $($what)*) };
}

pub(crate) use {debug, info, span, warning as warn};

/// A duration in ms, for a field whose name ends in `_ms`.
pub(crate) fn ms(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
