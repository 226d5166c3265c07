//! The units of rate limits (protocol §7): how many units are left as one process knows it, and which nodes to ask for
//! some. All of it is pure.

pub(crate) mod plan;
pub(crate) mod view;
pub(crate) mod words;
