//! Where a lease does not stand as it should: who is to be repaired. Pure.

/// A node that refuses a lease is asked again so often before the next extension.
const INSISTS: usize = 8;

/// Of one lease.
#[derive(Debug)]
pub(super) struct Lacks {
    pub(super) token: u64,
    /// Granted with a smaller token.
    behind: Vec<usize>,
    /// Repairs that are not answered yet.
    under_way: Vec<usize>,
    /// Each node, as often as it was tried again since the last extension.
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

    /// It stands there, with this counter.
    pub(super) fn granted(&mut self, node: usize, counter: u64) {
        self.behind.retain(|other| *other != node);
        if counter < self.token {
            self.behind.push(node);
        }
    }

    /// Who is to be repaired now that a majority has extended the lease, these having lost it: nobody twice at
    /// a time.
    pub(super) fn due(&self, lost: impl Iterator<Item = usize>) -> Vec<usize> {
        let mut due: Vec<usize> = lost.chain(self.behind.iter().copied()).collect();
        due.sort_unstable();
        due.dedup();
        self.idle(due.into_iter())
    }

    /// Those of them that are not being repaired.
    pub(super) fn idle(&self, nodes: impl Iterator<Item = usize>) -> Vec<usize> {
        nodes
            .filter(|node| !self.under_way.contains(node))
            .collect()
    }

    /// Whether what this node has just refused is tried again at once.
    pub(super) fn insists(&mut self, node: usize) -> bool {
        let before = self.again.iter().filter(|other| **other == node).count();
        let again = before < INSISTS;
        if again {
            self.again.push(node);
        }
        again
    }

    /// It was extended.
    pub(super) fn extended(&mut self) {
        self.again.clear();
    }

    pub(super) fn sent(&mut self, node: usize) {
        self.under_way.push(node);
    }

    /// It was answered, or will not be.
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
    fn who_lost_it_and_who_is_behind_is_repaired_once_at_a_time() {
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
    fn what_is_refused_is_tried_again_so_often_for_each_extension() {
        let mut lacks = Lacks::new(7);
        let tries = |lacks: &mut Lacks, node| (0..20).filter(|_| lacks.insists(node)).count();
        assert_eq!(tries(&mut lacks, 1), 8);
        assert_eq!(tries(&mut lacks, 1), 0);
        assert_eq!(tries(&mut lacks, 2), 8, "each node for itself");
        lacks.extended();
        assert_eq!(tries(&mut lacks, 1), 8);
    }

    #[test]
    fn who_was_raised_is_behind_no_more() {
        let mut lacks = Lacks::new(7);
        lacks.granted(1, 6);
        lacks.granted(1, 7);
        assert_eq!(due(&lacks, &[]), [0; 0]);
    }
}
