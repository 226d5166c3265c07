//! Semaphores: at most n holders at once.

mod basics;
mod dropped;
mod servers;
mod shrunk;
