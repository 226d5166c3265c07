//! Runs one schedule again and prints everything that happened. The last line of a failure calls this.

use quorate::testing::simulation::{Profile, Rule, Rules, replay};

#[test]
fn replay_the_schedule_that_the_environment_names() {
    let Ok(what) = std::env::var("QUORATE_SIM_REPLAY") else {
        return;
    };
    let mut words = what.split(':');
    let profile = words
        .next()
        .and_then(Profile::named)
        .expect("the name of a profile");
    let seed = words
        .next()
        .and_then(|seed| seed.parse().ok())
        .expect("a seed");
    let rules = match words.next() {
        None => Rules::ALL,
        Some(off) => {
            let rule = Rule::EVERY
                .into_iter()
                .find(|rule| format!("{rule:?}") == off);
            Rules::without(rule.expect("the name of a rule"))
        }
    };
    let (outcome, trace) = replay(seed, profile, rules);
    for line in trace {
        println!("{line}");
    }
    match outcome {
        Ok(stats) => println!("nothing was found: {stats:?}"),
        Err(failure) => panic!("{failure}"),
    }
}
