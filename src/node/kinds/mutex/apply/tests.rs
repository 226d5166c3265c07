mod line;

use std::cell::Cell;

use super::*;
use crate::{
    base::{owner::Label, rules::Rules},
    node::{
        Command,
        kinds::{air::Air, moment::Writes},
        mutex::cases::{acquires, extends, raises, releases},
        request::{Question, Target},
    },
};

/// The longest lease is 30 s.
const GUARD: &str = "30000 3 3 word 5000 nonce";
/// A TIME in the middle of a period and of a ms.
const T: u64 = 1_760_000_000_000_500;
const TWO_DAYS_US: u64 = 2 * 24 * 3600 * 1_000_000;

fn name() -> Name {
    Name::new("a").unwrap()
}

fn entry(owner: u128) -> Entry {
    Entry::new(uuid::Uuid::from_u128(owner), &Label::new("test").unwrap())
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn request(owner: u128, verb: Verb) -> Command {
    Command::Request(Request {
        target: Target::mutex(name()),
        entry: entry(owner),
        verb,
    })
}

fn acquire(owner: u128, ttl: u64, floor: u64) -> Command {
    request(owner, acquires(ms(ttl), floor))
}

fn raise(owner: u128, token: u64) -> Command {
    request(owner, raises(token))
}

fn extend(owner: u128, ttl: u64) -> Command {
    request(owner, extends(ms(ttl)))
}

fn repair(owner: u128, ttl: u64, token: u64) -> Command {
    let ttl = ms(ttl);
    request(owner, Verb::Repair { ttl, token })
}

fn release(owner: u128) -> Command {
    request(owner, releases(0))
}

fn evict() -> Command {
    Question::EvictMutex(name()).into()
}

fn inspect() -> Command {
    Question::InspectMutex(name()).into()
}

struct Node {
    memory: Memory,
    counters: Counters,
    rules: Rules,
    air: Air,
}

impl Node {
    fn new(rules: Rules) -> Self {
        Self {
            memory: Memory::default(),
            counters: Counters::default(),
            rules,
            air: Air::default(),
        }
    }

    fn try_ask(&mut self, command: &Command, time: u64, writes: Writes) -> Result<Answer, Fault> {
        let at = Moment {
            time,
            guard: GUARD,
            rules: self.rules,
            admitted: true,
            writes,
            wrote: &Cell::new(false),
            air: &self.air,
        };
        let counters = &mut self.counters;
        match command {
            Command::Request(request) => {
                let names = Names::from(name());
                self.memory.obey(&names, request, counters, at)
            }
            Command::Question(Question::InspectMutex(name)) => {
                Ok(self.memory.inspect(name, counters, at))
            }
            Command::Question(Question::EvictMutex(name)) => self.memory.evict(name, at),
            other => panic!("{other:?}"),
        }
    }

    fn ask(&mut self, command: &Command, time: u64) -> Answer {
        self.try_ask(command, time, Writes::All).unwrap()
    }

    fn counter(&mut self, time: u64) -> u64 {
        match self.ask(&inspect(), time) {
            Answer::InspectedMutex(it) => it.counter,
            other => panic!("{other:?}"),
        }
    }

    fn left(&self, time: u64) -> Duration {
        self.memory.locks(time).next().unwrap().2
    }
}

#[test]
fn a_lock_is_held_to_the_end_of_its_last_ms() {
    let node = &mut Node::new(Rules::ALL);
    assert_eq!(node.ask(&acquire(1, 10, 0), T), Answer::Granted(1));
    let held = |left| Answer::Held {
        which: None,
        remaining: Some(ms(left)),
        counter: 1,
        holder: Some(entry(1).text()),
        ticket: 0,
    };
    assert_eq!(node.ask(&acquire(2, 10, 0), T), held(10));
    assert_eq!(node.ask(&acquire(2, 10, 0), T + 10_000), held(0));
    assert_eq!(node.ask(&acquire(2, 10, 0), T + 10_499), held(0));
    assert_eq!(node.memory.locks(T + 10_499).count(), 1);
    assert_eq!(node.memory.locks(T + 10_500).count(), 0);
    assert_eq!(node.ask(&extend(1, 10), T + 10_500), Answer::Lost);
    assert_eq!(node.ask(&acquire(2, 10, 0), T + 10_500), Answer::Granted(2));
}

#[test]
fn an_extension_keeps_the_longer_of_both() {
    let node = &mut Node::new(Rules::ALL);
    node.ask(&acquire(1, 100, 0), T);
    for (ttl, wanted) in [(99, 100), (100, 100), (101, 101)] {
        assert_eq!(node.ask(&extend(1, ttl), T), Answer::Extended);
        assert_eq!(node.left(T), ms(wanted));
    }
}

#[test]
fn a_floor_is_capped_at_time_and_max_ttl() {
    for over in [0, 1, u64::MAX - T - 30_000_000] {
        let node = &mut Node::new(Rules::ALL);
        let cap = T + 30_000_000;
        let granted = node.ask(&acquire(1, 10, cap + over), T);
        assert_eq!(granted, Answer::Granted(cap));
    }
}

#[test]
fn a_raise_is_capped_a_minute_further() {
    let cap = T + 90_000_000;
    for (token, raised) in [
        (cap - 1, cap - 1),
        (cap, cap),
        (cap + 1, cap),
        (MAX_TOKEN, cap),
    ] {
        let node = &mut Node::new(Rules::ALL);
        node.ask(&acquire(1, 10, 0), T);
        assert_eq!(node.ask(&raise(1, token), T), Answer::Raised(raised));
    }
    // A counter that is greater already is not lowered.
    let node = &mut Node::new(Rules::ALL);
    node.ask(&acquire(1, 10, 0), T);
    node.counters.set(counted(&name()), 1 << 53);
    assert_eq!(node.ask(&raise(1, 9), T), Answer::Raised(1 << 53));
}

#[test]
fn a_repair_goes_as_far_as_a_raise_and_no_further() {
    let cap = T + 90_000_000;
    let node = &mut Node::new(Rules::ALL);
    assert_eq!(node.ask(&repair(1, 10, cap), T), Answer::Repaired(true));
    assert_eq!(node.counter(T), cap);
    let beyond = node.try_ask(&repair(1, 10, cap + 1), T, Writes::All);
    assert!(matches!(beyond, Err(Fault::Error(_))), "{beyond:?}");
    assert_eq!(node.counter(T), cap);
    // A counter that is far enough already does not fail.
    node.counters.set(counted(&name()), cap + 5);
    assert_eq!(node.ask(&repair(1, 10, cap + 5), T), Answer::Repaired(true));
}

#[test]
fn an_eviction_lasts_to_the_end_of_two_max_ttl() {
    let node = &mut Node::new(Rules::ALL);
    node.ask(&evict(), T);
    let last = T + 60_000_499;
    assert_eq!(node.ask(&repair(1, 10, 7), last), Answer::Repaired(false));
    assert_eq!(
        node.ask(&repair(1, 10, 7), last + 1),
        Answer::Repaired(true)
    );
}

#[test]
fn counters_rotate_after_two_days_to_the_microsecond() {
    for (age, rotated) in [(TWO_DAYS_US, false), (TWO_DAYS_US + 1, true)] {
        let node = &mut Node::new(Rules::ALL);
        node.ask(&acquire(1, 10, 0), T);
        node.ask(&acquire(1, 10, 0), T + age);
        let generations = node.counters.generations().count();
        assert_eq!(generations == 2, rotated, "{age}");
        assert_eq!(node.counter(T + age), 2);
    }
}

/// The effect of each trap of §10 when its rule is off.
#[cfg(feature = "test-util")]
mod without {
    use super::*;

    fn node(rule: Rule) -> Node {
        Node::new(Rules::without(rule))
    }

    #[test]
    fn never_shorten() {
        let node = &mut node(Rule::NeverShorten);
        node.ask(&acquire(1, 100, 0), T);
        node.ask(&extend(1, 10), T);
        assert_eq!(node.left(T), ms(10));
    }

    #[test]
    fn never_recreate() {
        let node = &mut node(Rule::NeverRecreate);
        assert_eq!(node.ask(&extend(1, 10), T), Answer::Extended);
        assert_eq!(node.memory.locks(T).count(), 1);
        assert_eq!(node.ask(&extend(2, 10), T), Answer::Lost);
    }

    #[test]
    fn eviction_lasts() {
        let node = &mut node(Rule::EvictionLasts);
        node.ask(&evict(), T);
        assert_eq!(node.ask(&repair(1, 10, 7), T), Answer::Repaired(true));
    }

    #[test]
    fn proposal_capped() {
        let node = &mut node(Rule::ProposalCapped);
        let granted = node.ask(&acquire(1, 10, T + 30_000_001), T);
        assert_eq!(granted, Answer::Granted(1));
    }

    #[test]
    fn numeric_counters() {
        let node = &mut node(Rule::NumericCounters);
        node.ask(&acquire(1, 10, 9), T);
        assert_eq!(node.ask(&raise(1, 10), T), Answer::Raised(9));
    }

    #[test]
    fn all_digits() {
        let node = &mut node(Rule::AllDigits);
        let granted = node.ask(&acquire(1, 10, T + 49), T);
        assert_eq!(granted, Answer::Granted(T + 49));
        assert_eq!(node.counter(T), T, "1.7600000000005e+15");
    }

    #[test]
    fn rotate_by_age() {
        let edge = T / TWO_DAYS_US * TWO_DAYS_US;
        for rules in [Rules::ALL, Rules::without(Rule::RotateByAge)] {
            let node = &mut Node::new(rules);
            node.ask(&acquire(1, 10, 50), edge);
            node.ask(&release(1), edge);
            let lost = !rules.hold(Rule::RotateByAge);
            let wanted = if lost { 0 } else { 50 };
            assert_eq!(
                node.counter(edge - 2_000_000),
                wanted,
                "the clock went 2 s back"
            );
            assert_eq!(node.counter(edge + TWO_DAYS_US), 50);
        }
    }

    #[test]
    fn delete_first() {
        let node = &mut node(Rule::DeleteFirst);
        node.ask(&acquire(1, 10, 0), T);
        let refused = node.try_ask(&release(1), T, Writes::Small);
        assert!(refused.is_err(), "{refused:?}");
    }
}
