//! Readers or a writer: no node has both for one read-write lock.

use super::{Held, Violation};

/// Checks the holders of a read-write lock on a node.
pub(crate) fn check(node: usize, writer: Option<&str>, readers: &[&str]) -> Held {
    let (Some(writer), Some(reader)) = (writer, readers.first()) else {
        return Ok(());
    };
    let what = format!(
        "on node {node} {writer} writes, and {reader} reads, {} in all",
        readers.len()
    );
    Err(Violation::new("readers or a writer", what, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_beside_readers_is_found() {
        assert_eq!(check(0, None, &["a", "b"]), Ok(()));
        assert_eq!(check(0, Some("a"), &[]), Ok(()));
        assert!(check(0, Some("a"), &["b"]).is_err());
    }
}
