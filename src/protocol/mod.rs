//! The decisions of the protocol. They are pure: answers and the time go in, and the next step comes out. There is no
//! I/O here, and no task.

pub(crate) mod ballot;
pub(crate) mod queue;
pub(crate) mod rates;
pub(crate) mod slots;
