//! HOW MANY UNITS ARE LEFT, as far as one process knows, and whom to ask for some. Pure (protocol §7).

pub(crate) mod plan;
pub(crate) mod view;
pub(crate) mod words;
