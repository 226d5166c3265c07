//! The library on virtual time. With all rules on, thousands of schedules find nothing. With any one rule off, they
//! find what protocol §10 says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic
)]

#[path = "simulation/all_rules.rs"]
mod all_rules;
#[path = "simulation/each_rule.rs"]
mod each_rule;
#[path = "simulation/left_over.rs"]
mod left_over;
#[path = "simulation/out_of_bounds.rs"]
mod out_of_bounds;
#[path = "simulation/replay.rs"]
mod replay;
#[path = "simulation/rolling.rs"]
mod rolling;

/// The first seed of a run. It is fixed, or given by `QUORATE_SIM_SEED` (a number, or `random`).
fn first_seed() -> u64 {
    match std::env::var("QUORATE_SIM_SEED").as_deref() {
        Ok("random") => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let seed = u64::try_from(now.unwrap().as_nanos()).unwrap();
            println!("QUORATE_SIM_SEED={seed}");
            seed
        }
        Ok(seed) => seed
            .parse()
            .expect("QUORATE_SIM_SEED: a number, or `random`"),
        Err(_) => 1,
    }
}
