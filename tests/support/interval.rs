//! What a rate limit is judged by, from outside.

use std::ops::Add;

/// The most of these instants, which are in order, in any interval of this length.
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
