//! The nodes on which one lease is missing or has too small a counter. They are to be repaired. This file is pure.

/// How often a node that refuses the repair of a slot is asked again before the next extension.
const INSISTS: usize = 8;

#[derive(Debug)]
pub(super) struct Lacks {
    pub(super) token: u64,
    /// Nodes that granted with a counter smaller than the token.
    behind: Vec<usize>,
    /// Nodes whose repair is not answered yet.
    under_way: Vec<usize>,
    /// Nodes that were tried again since the last extension, once for each time.
    again: Vec<usize>,
}

impl Lacks {
    pub(super) fn new(token: u64) -> Self {
        Self {
            token,
            behind: Vec::new(),
            under_way: Vec::new(),
            again: Vec::new(),
        }
    }

    /// The lease stands on this node, with this counter.
    pub(super) fn granted(&mut self, node: usize, counter: u64) {
        self.behind.retain(|other| *other != node);
        if counter < self.token {
            self.behind.push(node);
        }
    }

    /// The nodes to repair, now that a majority has extended the lease and these nodes have lost it. A node that is
    /// being repaired is not among them.
    pub(super) fn due(&self, lost: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut due: Vec<usize> = lost.chain(self.behind.iter().copied()).collect();
        due.sort_unstable();
        due.dedup();
        self.idle(due.into_iter())
    }

    /// The nodes among these that are not being repaired.
    pub(super) fn idle(&self, nodes: impl Iterator<Item = usize>) -> Vec<usize> {
        nodes
            .filter(|node| !self.under_way.contains(node))
            .collect()
    }

    /// Returns true if the repair that this node has just refused should be tried again at once, and counts it.
    pub(super) fn insists(&mut self, node: usize) -> bool {
        let before = self.again.iter().filter(|other| **other == node).count();
        let again = before < INSISTS;
        if again {
            self.again.push(node);
        }
        again
    }

    /// The lease was extended.
    pub(super) fn extended(&mut self) {
        self.again.clear();
    }

    pub(super) fn sent(&mut self, node: usize) {
        debug_assert!(!self.under_way.contains(&node), "two repairs at a time");
        self.under_way.push(node);
    }

    /// The repair was answered, or will not be.
    pub(super) fn ended(&mut self, node: usize, stands: bool) {
        self.under_way.retain(|other| *other != node);
        if stands {
            self.behind.retain(|other| *other != node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(lacks: &Lacks, lost: &[usize]) -> Vec<usize> {
        lacks.due(lost.iter().copied())
    }

    #[test]
    fn a_node_that_lost_the_lease_or_is_behind_has_one_repair_at_a_time() {
        let mut lacks = Lacks::new(7);
        for (node, counter) in [(0, 7), (1, 6), (2, 8)] {
            lacks.granted(node, counter);
        }
        assert_eq!(due(&lacks, &[]), [1]);
        assert_eq!(due(&lacks, &[3, 1]), [1, 3]);
        lacks.sent(1);
        lacks.sent(3);
        assert_eq!(due(&lacks, &[3, 4]), [4], "they are being repaired");
        lacks.ended(1, false);
        lacks.ended(3, true);
        assert_eq!(due(&lacks, &[]), [1], "it was not done there");
        assert_eq!(due(&lacks, &[3]), [1, 3], "lost again");
        lacks.sent(1);
        lacks.ended(1, true);
        assert_eq!(due(&lacks, &[]), [0; 0]);
    }

    #[test]
    fn a_refused_repair_is_retried_eight_times_per_extension() {
        let mut lacks = Lacks::new(7);
        let tries = |lacks: &mut Lacks, node| (0..20).filter(|_| lacks.insists(node)).count();
        assert_eq!(tries(&mut lacks, 1), 8);
        assert_eq!(tries(&mut lacks, 1), 0);
        assert_eq!(tries(&mut lacks, 2), 8, "each node for itself");
        lacks.extended();
        assert_eq!(tries(&mut lacks, 1), 8);
    }

    #[test]
    fn a_raised_node_is_no_longer_behind() {
        let mut lacks = Lacks::new(7);
        lacks.granted(1, 6);
        lacks.granted(1, 7);
        assert_eq!(due(&lacks, &[]), [0; 0]);
    }
}
