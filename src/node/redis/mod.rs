//! A real server.
