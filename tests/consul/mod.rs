//! Locks and semaphores in Consul, and the agents that the tests use.

mod agent;
mod locks;
