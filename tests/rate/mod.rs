//! Rate limits: at most n units in any interval.

mod basics;
mod servers;
