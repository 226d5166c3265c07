//! Read-write locks: many readers or one writer.

mod basics;
mod servers;
