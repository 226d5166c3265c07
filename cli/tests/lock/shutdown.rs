//! A command that runs under a lock ends without waiting for a master that died.

use std::time::Duration;

use crate::command::{fleet, ms, run};

/// Far below the node timeout, and more than the delays of a busy machine.
const SOON: Duration = Duration::from_secs(8);

#[test]
fn a_command_under_a_lock_does_not_wait_for_a_master_that_died() {
    let fleet = fleet(3);
    let kill = format!("sleep 0.2; kill -9 {}", fleet[0].pid());
    let words = [
        "lock",
        "a",
        "--node-timeout",
        "30s",
        "--",
        "sh",
        "-c",
        &kill,
    ];
    let done = run(&fleet.urls(), &words).is(0);
    assert!(done.took < ms(200) + SOON, "{:?}", done.took);
    assert_eq!(done.err, "");
}
