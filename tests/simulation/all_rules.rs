//! With all rules on, nothing is found.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use quorate::testing::simulation::{Profile, Rules, Stats, run};

use crate::first_seed;

/// The least number of schedules in a run of the tests. `QUORATE_SIM_SCHEDULES` sets a greater one.
const SCHEDULES: u64 = 11_000;
const THREADS: u64 = 2;

#[test]
fn thousands_of_schedules_find_nothing() {
    let wanted = std::env::var("QUORATE_SIM_SCHEDULES").map_or(SCHEDULES, |n| n.parse().unwrap());
    let only = std::env::var("QUORATE_SIM_PROFILE")
        .ok()
        .map(|name| Profile::named(&name).unwrap());
    // Profiles with long schedules are run less often.
    let quick = Profile::ALL
        .into_iter()
        .filter(|profile| !profile.is_long());
    let quick: Vec<_> = quick.collect();
    let in_turn = [&quick[..], &quick, &quick, &Profile::ALL].concat();
    // The test computes for minutes and measures no time, so everything else on the machine has priority.
    #[cfg(unix)]
    rustix::process::nice(19).unwrap();
    let (start, first) = (Instant::now(), first_seed());
    let (next, failures, total) = (
        AtomicU64::new(0),
        Mutex::new(Vec::new()),
        Mutex::new(Stats::default()),
    );
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut sum = Stats::default();
                loop {
                    let n = next.fetch_add(1, Relaxed);
                    if n >= wanted || failures.lock().unwrap().len() >= 10 {
                        break;
                    }
                    let profile =
                        only.unwrap_or(in_turn[usize::try_from(n).unwrap() % in_turn.len()]);
                    match run(first + n, profile, Rules::ALL) {
                        Ok(stats) => sum.add(&stats),
                        Err(failure) => failures.lock().unwrap().push(failure),
                    }
                }
                total.lock().unwrap().add(&sum);
            });
        }
    });
    let (failures, total) = (failures.into_inner().unwrap(), total.into_inner().unwrap());
    println!(
        "{} schedules in {:.1?}: {total:#?}",
        total.schedules,
        start.elapsed()
    );
    for failure in &failures {
        println!("{failure}\n");
    }
    assert!(failures.is_empty(), "{}", failures[0]);
    assert!(
        only.is_some() || total.batched > total.schedules,
        "too little travels in batches"
    );
    assert!(
        only.is_some() || total.downgraded.min(total.sets) > 0 && total.most_readers > 1,
        "nobody read beside another, became a reader, or had several names: {total:?}"
    );
    assert!(
        total.schedules >= wanted,
        "only {} schedules were run",
        total.schedules
    );
}
