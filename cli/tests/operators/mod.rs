//! Commands that show and change what stands on the servers, and what scripts rely on.

mod inspect;
mod quarantine;
mod refused_writes;
mod settings;
