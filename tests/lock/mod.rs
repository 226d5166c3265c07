//! Mutexes on in-process nodes and on real servers: exclusion, tokens, the queue, holding over time, faults, and the
//! effects of dropped futures.

mod basics;
mod burst;
mod cancellation;
mod clocks;
mod contention;
mod damaged_counter;
mod end_of_main;
mod faults;
mod flood;
mod lease;
mod long_held;
mod queue;
mod reentrant;
mod repair;
mod several;
mod several_servers;
mod shutdown;
mod stalls;
mod waiting;
