//! The number of nodes that decide.

/// Q = floor(N / 2) + 1: any two majorities share a node (protocol §1).
pub(crate) const fn majority(nodes: usize) -> usize {
    nodes / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::majority;

    #[test]
    fn two_majorities_always_share_a_node() {
        for n in 1..100 {
            let q = majority(n);
            assert!(2 * q > n, "{n}");
            assert!(2 * (q - 1) <= n, "{n}: no smaller number would do");
        }
        assert_eq!([1, 2, 3, 4, 5].map(majority), [1, 2, 2, 3, 3]);
    }
}
