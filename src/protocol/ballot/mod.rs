//! Many masters, one round: votes in, verdict out.
//!
//! Everything here is pure (protocol §3): the engine brings answers and the time, a ballot says
//! what follows. One file per question that is put to all nodes.

pub(crate) mod acquire;
pub(crate) mod answers;
pub(crate) mod extend;
pub(crate) mod release;
pub(crate) mod validity;
