//! The measure by which a rate limit is judged from outside.

use std::ops::Add;

/// The greatest number of these instants, which must be sorted, in any interval of this length.
pub fn most_within<T, D>(used: &[T], period: D) -> usize
where
    T: Copy + Ord + Add<D, Output = T>,
    D: Copy,
{
    let from = |(i, first): (usize, &T)| {
        let end = *first + period;
        used.partition_point(|at| *at < end) - i
    };
    used.iter().enumerate().map(from).max().unwrap_or(0)
}
