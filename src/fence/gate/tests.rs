use super::*;

fn token(number: u64) -> FencingToken {
    FencingToken::try_from(number).unwrap()
}

#[test]
fn equal_and_newer_tokens_pass_and_older_ones_do_not() {
    let gate = Gate::new();
    assert_eq!(gate.admit("a", token(5)), Ok(()));
    assert_eq!(
        gate.admit("a", token(5)),
        Ok(()),
        "one holder writes many times"
    );
    assert!(gate.admit("a", token(4)).is_err());
    assert_eq!(gate.admit("a", token(6)), Ok(()));
    assert!(
        gate.admit("a", token(5)).is_err(),
        "what passed once does not pass for ever"
    );
}

#[test]
fn a_refused_token_changes_nothing() {
    let gate = Gate::new();
    gate.admit("a", token(5)).unwrap();
    let _ = gate.admit("a", token(1));
    assert!(gate.admit("a", token(4)).is_err());
    assert_eq!(gate.admit("a", token(5)), Ok(()));
}

#[test]
fn resources_are_independent() {
    let gate = Gate::new();
    gate.admit("a", token(9)).unwrap();
    assert_eq!(gate.admit("b", token(1)), Ok(()));
}

#[test]
fn the_error_says_the_resource_and_both_tokens() {
    let gate = Gate::default();
    gate.admit("invoice:42", token(9)).unwrap();
    let stale = gate.admit("invoice:42", token(7)).unwrap_err();
    assert_eq!((stale.token, stale.newest), (token(7), token(9)));
    let text = stale.to_string();
    assert!(
        text.contains("invoice:42") && text.contains('7') && text.contains('9'),
        "{text}"
    );
}

#[test]
fn the_newest_token_wins_among_many_threads() {
    let gate = Gate::new();
    std::thread::scope(|scope| {
        for start in 0..4_u64 {
            let gate = &gate;
            scope.spawn(move || {
                let mut last = None;
                for number in (start..4_000).step_by(4) {
                    if gate.admit("a", token(number)).is_ok() {
                        assert!(last < Some(number));
                        last = Some(number);
                    }
                }
            });
        }
    });
    assert!(gate.admit("a", token(3_998)).is_err());
    assert_eq!(gate.admit("a", token(3_999)), Ok(()));
}

#[test]
fn a_full_gate_forgets_the_oldest_and_lets_nothing_older_in() {
    for room in [1, 8, 1000, 1200, 4096, 10_000] {
        let gate = Gate::with_room(room);
        for number in 0..5 * room as u64 {
            gate.admit(&format!("r{number}"), token(1000 + number))
                .unwrap();
        }
        let known: usize = gate
            .shards
            .iter()
            .map(|shard| shard.0.lock().unwrap().newest.len())
            .sum();
        assert!(known <= room + room / 4, "{known} of {room}");
        let newest = 5 * room as u64 - 1;
        let of_the_newest = format!("r{newest}");
        assert!(gate.admit(&of_the_newest, token(999 + newest)).is_err());
        assert_eq!(gate.admit(&of_the_newest, token(1000 + newest)), Ok(()));
        // It was forgotten. A token older than it is refused for any resource that is not known.
        let stale = gate.admit("r0", token(999)).unwrap_err();
        assert!(
            stale.forgotten && stale.to_string().contains("more room"),
            "{stale}"
        );
        assert_eq!(gate.admit("new", token(10_000_000)), Ok(()));
    }
}

#[test]
fn resources_within_the_room_are_not_forgotten() {
    for room in [1, 1024, 1200, 9600] {
        for _ in 0..50 {
            let gate = Gate::with_room(room);
            for number in 0..room as u64 {
                // Newest first: the floor of a forgotten resource would refuse the next token.
                let token = token(1_000_000 - number);
                assert_eq!(gate.admit(&number.to_string(), token), Ok(()), "{room}");
            }
            for shard in &gate.shards {
                assert_eq!(shard.0.lock().unwrap().floor, None, "{room}");
            }
        }
    }
}

#[test]
fn a_room_is_never_exceeded_by_more_than_a_quarter() {
    let rooms = (1..100_000).chain((17..40).map(|bits| 1 << bits));
    for room in rooms {
        let gate_shards = (room / PER_SHARD).clamp(1, SHARDS);
        let most = share(room, gate_shards) * gate_shards;
        assert!((room..=room + room / 4).contains(&most), "{most} of {room}");
    }
}

/// For any calls and any room: a token below one that was admitted for the resource is refused. If nothing was
/// forgotten, no other token is refused.
#[test]
fn a_gate_never_admits_a_token_that_a_boundless_gate_refuses() {
    use proptest::prelude::*;
    let asked = proptest::collection::vec((0..12_u8, 0..40_u64), 0..200);
    proptest!(|(asked in asked, room in 1..16_usize)| {
        let gate = Gate::with_room(room);
        let mut model = std::collections::HashMap::<u8, u64>::new();
        for (resource, number) in asked {
            let newest = model.get(&resource).copied().unwrap_or(0);
            let admitted = gate.admit(&resource.to_string(), token(number));
            match admitted {
                Ok(()) => {
                    prop_assert!(number >= newest);
                    model.insert(resource, number);
                }
                Err(stale) => prop_assert!(number < newest || stale.forgotten && room < 12),
            }
        }
    });
}

/// The same for a gate of several shards, with more resources than it has room for and with fewer.
#[test]
fn a_large_gate_never_admits_a_token_that_a_boundless_one_refuses() {
    use proptest::prelude::*;
    let tokens = prop_oneof![0..2_000_u64, 0..=FencingToken::MAX];
    let asked = proptest::collection::vec((0..4_000_u16, tokens), 0..10_000);
    let config = ProptestConfig {
        max_shrink_iters: 2_000,
        ..ProptestConfig::with_cases(24)
    };
    proptest!(config, |(asked in asked, room in prop_oneof![1_024..3_000_usize, 4_000..10_000_usize])| {
        let gate = Gate::with_room(room);
        let mut model = std::collections::HashMap::<u16, u64>::new();
        for (resource, number) in asked {
            let newest = model.get(&resource).copied().unwrap_or(0);
            match gate.admit(&resource.to_string(), token(number)) {
                Ok(()) => {
                    prop_assert!(number >= newest);
                    model.insert(resource, number);
                }
                Err(stale) => prop_assert!(number < newest || stale.forgotten && room < 4_000),
            }
        }
    });
}

#[test]
fn gates_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Gate>();
    shared::<StaleToken>();
}
