//! Masters that restart one after the other while leases are held all the time.

use quorate::testing::simulation::{Profile, Rules, Stats, run};

use crate::first_seed;

const SCHEDULES: u64 = 60;

/// Without REPAIR, a lease on three nodes outlives one restart, and a lease on five nodes outlives two.
#[test]
fn a_lease_outlives_every_master_it_began_with() {
    let first = first_seed();
    let mut total = Stats::default();
    for seed in first..first + SCHEDULES {
        match run(seed, Profile::Rolling, Rules::ALL) {
            Ok(stats) => total.add(&stats),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!(
        "{} restarts, {} leases, {} repairs; one lease outlived {} restarts",
        total.restarts, total.granted, total.repaired, total.outlived
    );
    assert_eq!(total.outlived, 5, "{total:?}");
}
