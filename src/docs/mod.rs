//! The long documents, beside the code that they describe.
//!
//! | read | to learn |
//! | --- | --- |
//! | [`guarantees`] | what is promised, under which assumptions, and what is not |
//! | [`fencing`] | how the thing behind the lock checks a token |
//! | [`consul`] | locks and semaphores in a Consul cluster: when to choose it, what it promises, what stands there |
//! | [`semaphores`] | at most L at once: what a semaphore is here, and what the Redis recipes for one get wrong |
//! | [`rates`] | at most L in any interval: what a rate limit promises, what it costs, what others get wrong |
//! | [`faces`] | tower layers, streams, threads: which face for which program, statuses, deadlines, outages |
//! | [`shutdown`] | graceful shutdown, handlers with deadlines, and what remains of a lock however a program ends |
//! | [`migration`] | coming from rslock, redlock or `SET NX PX`; managed Redis; N = 1 |
//! | [`failures`] | what happens when a server, a network or a client fails, and what you see of it |
//! | [`operations`] | first start, states of nodes, changing the fleet, rights, settings of the servers |
//! | [`numbers`] | how fast it is, and how that was measured |
//! | [`logs`] | every event with its level and fields, how to switch them on, how much an outage writes |
//! | [`testing`] | how it is tested, and how to torture your own servers |
//! | [`protocol`] | what stands on a node and what client and node say to each other |
//! | [`architecture`] | the picture, the boundary, the walk of a request, and where a change goes |

#[doc = include_str!("architecture.md")]
pub mod architecture {}

#[doc = include_str!("consul.md")]
pub mod consul {}

#[doc = include_str!("faces.md")]
pub mod faces {}

#[doc = include_str!("failures.md")]
pub mod failures {}

#[doc = include_str!("fencing.md")]
pub mod fencing {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("logs.md")]
pub mod logs {}

#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = include_str!("numbers.md")]
pub mod numbers {}

#[doc = include_str!("operations.md")]
pub mod operations {}

#[doc = include_str!("protocol.md")]
pub mod protocol {}

#[doc = include_str!("rates.md")]
pub mod rates {}

#[doc = include_str!("semaphores.md")]
pub mod semaphores {}

#[doc = include_str!("shutdown.md")]
pub mod shutdown {}

#[doc = include_str!("testing.md")]
pub mod testing {}
