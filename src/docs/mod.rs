//! The long documents, beside the code that they describe.
//!
//! | page | answers |
//! | --- | --- |
//! | [`guarantees`] | what is promised, under which assumptions, and what is not promised |
//! | [`fencing`] | what the store behind the lock must do |
//! | [`operations`] | servers, rights, first start, choosing N and ttl, changing the fleet, alerts |
//! | [`deployment`] | Kubernetes, systemd, cron |
//! | [`failures`] | what happens when a server, a network, a clock or a client fails |
//! | [`semaphores`] | at most n at a time |
//! | [`rates`] | at most n in any interval |
//! | [`integrations`] | tower layers, streams, threads |
//! | [`consul`] | locks and semaphores in a Consul cluster |
//! | [`shutdown`] | how a program ends, and what remains of its locks |
//! | [`migration`] | from rslock, redlock or `SET NX PX`; managed Redis; N = 1 |
//! | [`upgrading`] | whether two versions may run at once, and in which order to deploy |
//! | [`logs`] | every log event, and what to alert on |
//! | [`numbers`] | how fast it is, and how that was measured |
//! | [`testing`] | how to test your program, how quorate is tested, how to torture your servers |
//! | [`architecture`] | the picture, the walk of a request, and where a change goes |
//! | [`protocol`] | the specification: what stands on a node, and what client and node say to each other |

/// Makes the module of a page.
///
/// The links of a page lead to files, for readers of a checkout. `links.md` defines the same links as modules; it stands first, and
/// the first definition of a link counts.
macro_rules! page {
    ($name:ident, $file:literal) => {
        #[doc = include_str!("links.md")]
        #[doc = include_str!($file)]
        pub mod $name {}
    };
}

page!(architecture, "architecture.md");
page!(consul, "consul.md");
page!(deployment, "deployment.md");
page!(failures, "failures.md");
page!(fencing, "fencing.md");
page!(guarantees, "guarantees.md");
page!(integrations, "integrations.md");
page!(logs, "logs.md");
page!(migration, "migration.md");
page!(numbers, "numbers.md");
page!(operations, "operations.md");
page!(rates, "rates.md");
page!(semaphores, "semaphores.md");
page!(shutdown, "shutdown.md");
page!(testing, "testing.md");
page!(upgrading, "upgrading.md");

#[doc = include_str!("links.md")]
#[doc = include_str!("protocol/README.md")]
pub mod protocol {
    page!(admission, "protocol/admission.md");
    page!(evidence, "protocol/evidence.md");
    page!(mutex, "protocol/mutex.md");
    page!(queue, "protocol/queue.md");
    page!(rates, "protocol/rates.md");
    page!(rwlock, "protocol/rwlock.md");
    page!(semaphore, "protocol/semaphore.md");
    page!(several, "protocol/several.md");
    page!(traps, "protocol/traps.md");
    page!(words, "protocol/words.md");
}
