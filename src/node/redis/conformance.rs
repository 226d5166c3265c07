//! The same cases on memory and on real servers.
