//! What the protocol does not protect, all rules on: it is found too, so that nobody believes
//! otherwise. Who closes such a hole moves its profile to the others.

use quorate::testing::simulation::{Profile, Rules, run};

use crate::first_seed;

const MOST: u64 = 300;

fn is_left_over(profile: Profile, invariants: &[&str]) {
    let first = first_seed();
    let mut found = (first..first + MOST).filter_map(|seed| run(seed, profile, Rules::ALL).err());
    let failure = found.next().expect("this hole is closed");
    println!("{failure}");
    assert!(invariants.contains(&failure.invariant()), "{failure}");
}

/// A raise, leases of the new length, a power cut, and all masters come back with what they had saved
/// before the raise: nobody sees a voter, and what a disk vouches for is not changed by strangers.
#[test]
fn a_raise_that_the_disks_do_not_know() {
    is_left_over(Profile::RaisedDisk, &["mutual exclusion", "token order"]);
}
