//! The search for a slot of a semaphore (protocol §6). It is pure. A [`seat`] is one search: the nodes' answers go in,
//! and the requests to send come out. `view` is what a search knows of one node, `choose` picks a slot, and `words` has
//! the types.

mod choose;
pub(crate) mod seat;
mod view;
pub(crate) mod words;
