//! Promises to operators: admission, settings, rights on the servers, inspection, logs, and texts of errors.

mod admission;
#[cfg(feature = "tls-rustls")]
mod certificates;
#[cfg(feature = "tls-rustls")]
mod client_certificates;
mod credentials;
mod from_env;
mod inspect;
mod logs;
mod refused;
mod rights;
mod secrets;
mod throwaway;
