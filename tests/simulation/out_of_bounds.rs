//! Clocks beyond the assumptions for exclusion. Exclusion breaks, but a store that checks tokens loses no update all
//! the same.

use quorate::testing::simulation::{Profile, Rules, Stats, run};

use crate::first_seed;

const SCHEDULES: u64 = 600;

#[test]
fn exclusion_breaks_and_no_fenced_update_is_lost() {
    let first = first_seed();
    let mut total = Stats::default();
    for seed in first..first + SCHEDULES {
        match run(seed, Profile::OutOfBounds, Rules::ALL) {
            Ok(stats) => total.add(&stats),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!(
        "{} grants, {} of them while another held, {} fenced writes, {} stale ones refused, 0 lost; without the check {} lost",
        total.granted, total.overlaps, total.written, total.fenced_off, total.lost_unfenced
    );
    assert!(total.overlaps > 50, "exclusion has to break: {total:?}");
    assert!(total.fenced_off > 50 && total.written > 1_000, "{total:?}");
    assert!(total.lost_unfenced > 0, "nothing was at stake: {total:?}");
}
