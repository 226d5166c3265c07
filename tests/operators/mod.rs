//! Promises to operators: admission, settings, rights on the servers, inspection, logs, and texts of errors.

mod admission;
#[cfg(feature = "tls-rustls")]
mod certificates;
mod from_env;
mod inspect;
mod logs;
mod refused;
mod rights;
mod secrets;
