//! Waiting in line for something that one holds at a time (protocol §5), pure: what nodes say and the time go in,
//! and what is to be asked of whom comes out.
//!
//! A waiter stands in the same order on every node. A node that becomes free hands over to the head of its line, and
//! what it says is a vote: [`votes`]. When to ask a node again is in [`beats`]. [`place`] is one who waits.

pub(crate) mod beats;
pub(crate) mod place;
pub(crate) mod terms;
pub(crate) mod votes;
