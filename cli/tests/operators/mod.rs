//! Commands that show and change the state of the servers, and behaviour that scripts rely on.

mod config;
#[cfg(feature = "conformance")]
mod conformance;
mod inspect;
mod login;
mod quarantine;
mod refused_writes;
mod settings;
