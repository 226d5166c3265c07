//! Values that every other room may use: names, owners, tokens, clocks, quotas, logs. Nothing here knows of nodes.

pub(crate) mod clock;
pub(crate) mod ending;
pub(crate) mod files;
pub(crate) mod ids;
pub(crate) mod limit;
pub(crate) mod logs;
pub(crate) mod majority;
pub(crate) mod name;
pub(crate) mod owner;
pub(crate) mod printable;
pub(crate) mod quota;
pub(crate) mod rules;
pub(crate) mod runtime;
pub(crate) mod shrink;
pub(crate) mod sweep;
pub(crate) mod taken;
pub(crate) mod text;
#[cfg(any(feature = "consul", feature = "tls-rustls"))]
pub(crate) mod tls;
pub(crate) mod token;
