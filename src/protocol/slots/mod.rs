//! Getting a slot of a semaphore (protocol §6), pure: seat (one who asks: what nodes say goes in, whom to ask comes
//! out) · view (what it knows of one node) · choose (a slot out of many nodes') · words.

mod choose;
pub(crate) mod seat;
mod view;
pub(crate) mod words;
