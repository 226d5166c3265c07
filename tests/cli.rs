//! The `quorate` command on real servers.
