//! One rule off: the simulation finds it.
