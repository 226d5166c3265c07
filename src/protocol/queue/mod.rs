//! The queue for something that one owner holds at a time (protocol §5). It is pure: the nodes' answers and the time go
//! in, and the requests to send come out.
//!
//! A waiter has the same position in the queues of all nodes. A node that becomes free hands over to the first waiter
//! in its queue, and that hand-over is a vote: see [`votes`]. When to ask a node again is in [`beats`]. One waiter is a
//! [`place`].

pub(crate) mod beats;
pub(crate) mod place;
pub(crate) mod terms;
pub(crate) mod votes;
