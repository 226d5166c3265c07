//! Semaphores: at most n holders at once.

mod basics;
mod dropped;
mod rolled;
mod servers;
mod shrunk;
