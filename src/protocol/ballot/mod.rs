//! Ballots: one round over all masters. Votes go in, and a verdict comes out.
//!
//! Everything here is pure (protocol §3). The engine passes in answers and the time, and a ballot says what follows.
//! There is one file for each request that is put to all nodes.

pub(crate) mod acquire;
pub(crate) mod answers;
pub(crate) mod extend;
pub(crate) mod release;
pub(crate) mod validity;
