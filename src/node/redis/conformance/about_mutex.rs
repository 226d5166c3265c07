//! Protocol §3: the lock and its counter, on memory and servers.

use super::*;

/// §3: granted where free, refused where held, by each name's own counter.
#[test]
fn a_lock_is_granted_once_and_its_counter_grows() {
    everywhere(|peer| {
        assert_eq!(
            peer.say(&acquire("a", 1, secs(10), 0)),
            Reply::Mutex(mutex::Reply::Granted(1))
        );
        let (left, c, who) = held(peer.say(&acquire("a", 2, secs(5), 100)));
        assert!(about(left, secs(10)), "{left:?}");
        assert_eq!(c, 1, "the counter is raised only under one's own lock");
        assert_eq!(who.as_deref(), Some(entry(1).as_str()));
        assert_eq!(
            peer.say(&acquire("b", 2, secs(10), 40)),
            Reply::Mutex(mutex::Reply::Granted(40))
        );
        assert_eq!(
            peer.say(&release("a", 2)),
            Reply::Mutex(mutex::Reply::Released(false))
        );
        assert_eq!(
            peer.say(&release("a", 1)),
            Reply::Mutex(mutex::Reply::Released(true))
        );
        assert_eq!(
            peer.say(&release("a", 1)),
            Reply::Mutex(mutex::Reply::Released(false))
        );
        assert_eq!(
            peer.say(&acquire("a", 3, secs(10), 0)),
            Reply::Mutex(mutex::Reply::Granted(2))
        );
        let holder = Some(entry(3).as_str().to_owned());
        match peer.say(&inspect("a")) {
            Reply::Mutex(mutex::Reply::Inspected {
                holder: Some((who, Some(left))),
                counter: 2,
            }) => {
                assert_eq!(Some(who), holder);
                assert!(about(left, secs(10)), "{left:?}");
            }
            other => panic!("{other:?}"),
        }
        let nobody = Reply::Mutex(mutex::Reply::Inspected {
            holder: None,
            counter: 0,
        });
        assert_eq!(peer.say(&inspect("never held")), nobody);
    });
}

/// §1: a name is free text.
#[test]
fn a_name_may_hold_any_character() {
    everywhere(|peer| {
        for n in ["\r\n$5\r\n", "_", "ä ö", ":@mutex:", "*", "\0"] {
            assert_eq!(
                peer.say(&acquire(n, 1, secs(10), 7)),
                Reply::Mutex(mutex::Reply::Granted(7)),
                "{n:?}"
            );
            assert_eq!(counter(peer, n), 7, "{n:?}");
        }
    });
}

/// §3 RAISE: only the holder, only upward.
#[test]
fn a_raise_needs_the_lock_and_never_lowers() {
    everywhere(|peer| {
        assert_eq!(
            peer.say(&raise("a", 1, 5)),
            Reply::Mutex(mutex::Reply::Lost)
        );
        peer.say(&acquire("a", 1, secs(10), 10));
        assert_eq!(
            peer.say(&raise("a", 2, 50)),
            Reply::Mutex(mutex::Reply::Lost)
        );
        assert_eq!(
            peer.say(&raise("a", 1, 10)),
            Reply::Mutex(mutex::Reply::Raised(10))
        );
        assert_eq!(
            peer.say(&raise("a", 1, 9)),
            Reply::Mutex(mutex::Reply::Raised(10))
        );
        assert_eq!(
            peer.say(&raise("a", 1, 11)),
            Reply::Mutex(mutex::Reply::Raised(11))
        );
        assert_eq!(counter(peer, "a"), 11);
    });
}

/// §3 EXTEND, §10: it never shortens and never re-creates.
#[test]
fn an_extension_only_prolongs() {
    everywhere(|peer| {
        assert_eq!(
            peer.say(&extend("a", 1, secs(10))),
            Reply::Mutex(mutex::Reply::Lost)
        );
        assert_eq!(remaining(peer, "a"), None, "re-created");
        peer.say(&acquire("a", 1, secs(10), 0));
        assert_eq!(
            peer.say(&extend("a", 2, secs(20))),
            Reply::Mutex(mutex::Reply::Lost)
        );
        assert_eq!(
            peer.say(&extend("a", 1, secs(5))),
            Reply::Mutex(mutex::Reply::Extended)
        );
        assert!(about(remaining(peer, "a").unwrap(), secs(10)), "shortened");
        assert_eq!(
            peer.say(&extend("a", 1, secs(20))),
            Reply::Mutex(mutex::Reply::Extended)
        );
        assert!(about(remaining(peer, "a").unwrap(), secs(20)));
    });
}

/// §3: what has expired is free, and is nobody's any more.
#[test]
fn an_entry_ends_with_its_ttl() {
    everywhere(|peer| {
        peer.say(&acquire("a", 1, Duration::from_millis(20), 0));
        sleep(Duration::from_millis(40));
        assert_eq!(
            peer.say(&extend("a", 1, secs(10))),
            Reply::Mutex(mutex::Reply::Lost)
        );
        assert_eq!(
            peer.say(&raise("a", 1, 10)),
            Reply::Mutex(mutex::Reply::Lost)
        );
        assert_eq!(
            peer.say(&release("a", 1)),
            Reply::Mutex(mutex::Reply::Released(false))
        );
        assert_eq!(
            peer.say(&evict("a")),
            Reply::Mutex(mutex::Reply::Evicted(false))
        );
        assert_eq!(
            peer.say(&inspect("a")),
            Reply::Mutex(mutex::Reply::Inspected {
                holder: None,
                counter: 1
            })
        );
        assert_eq!(
            peer.say(&acquire("a", 2, secs(10), 0)),
            Reply::Mutex(mutex::Reply::Granted(2))
        );
    });
}

/// `break`: the lock is freed whoever holds it, and its counter stays.
#[test]
fn an_eviction_frees_and_forgets_no_counter() {
    everywhere(|peer| {
        assert_eq!(
            peer.say(&evict("a")),
            Reply::Mutex(mutex::Reply::Evicted(false))
        );
        peer.say(&acquire("a", 1, secs(10), 0));
        assert_eq!(
            peer.say(&evict("a")),
            Reply::Mutex(mutex::Reply::Evicted(true))
        );
        assert_eq!(
            peer.say(&extend("a", 1, secs(10))),
            Reply::Mutex(mutex::Reply::Lost)
        );
        assert_eq!(
            peer.say(&acquire("a", 2, secs(10), 0)),
            Reply::Mutex(mutex::Reply::Granted(2))
        );
    });
}

/// §3, §10 `ProposalCapped`: p far ahead is cut to TIME + max_ttl, never ignored.
#[test]
fn a_floor_far_ahead_is_capped() {
    everywhere(|peer| {
        for floor in [wall_us() + 1_000_000_000, u64::MAX] {
            let n = floor.to_string();
            let from = wall_us() + 20_000_000;
            let Reply::Mutex(mutex::Reply::Granted(token)) =
                peer.say(&acquire(&n, 1, secs(10), floor))
            else {
                panic!()
            };
            assert!(
                (from..wall_us() + 20_000_000 + 1000).contains(&token),
                "{token} from {from}"
            );
            peer.say(&release(&n, 1));
            let next = peer.say(&acquire(&n, 2, secs(10), 0));
            assert_eq!(
                next,
                Reply::Mutex(mutex::Reply::Granted(token + 1)),
                "{}",
                peer.name()
            );
        }
        let below = wall_us() + 19_000_000;
        assert_eq!(
            peer.say(&acquire("below", 1, secs(10), below)),
            Reply::Mutex(mutex::Reply::Granted(below))
        );
    });
}

/// §2, §3: what one damaged counter says does not travel: no raise goes further than a minute beyond
/// where an ACQUIRE may.
#[test]
fn a_raise_far_ahead_is_capped() {
    everywhere(|peer| {
        let ahead = 60_000_000 + 20_000_000;
        peer.say(&acquire("a", 1, secs(10), 0));
        let below = wall_us() + ahead - 1_000_000;
        assert_eq!(
            peer.say(&raise("a", 1, below)),
            Reply::Mutex(mutex::Reply::Raised(below))
        );
        for token in [wall_us() + ahead + 1_000_000, MAX_TOKEN, u64::MAX] {
            let from = wall_us() + ahead;
            let Reply::Mutex(mutex::Reply::Raised(raised)) = peer.say(&raise("a", 1, token)) else {
                panic!()
            };
            assert!((from..=wall_us() + ahead).contains(&raised), "{raised}");
            assert_eq!(counter(peer, "a"), raised);
        }
    });
}

/// §10 `NumericCounters`: "9" is less than "10".
#[test]
fn counters_are_numbers() {
    everywhere(|peer| {
        assert_eq!(
            peer.say(&acquire("a", 1, secs(10), 9)),
            Reply::Mutex(mutex::Reply::Granted(9))
        );
        assert_eq!(
            peer.say(&raise("a", 1, 10)),
            Reply::Mutex(mutex::Reply::Raised(10))
        );
        assert_eq!(
            peer.say(&raise("a", 1, 9)),
            Reply::Mutex(mutex::Reply::Raised(10))
        );
        peer.say(&release("a", 1));
        assert_eq!(
            peer.say(&acquire("a", 2, secs(10), 9)),
            Reply::Mutex(mutex::Reply::Granted(11))
        );
    });
}

/// §3, §10 `AllDigits`: counters keep every digit up to 2^53 - 1.
#[test]
fn counters_keep_all_digits() {
    everywhere(|peer| {
        for (i, c) in [
            1_760_000_000_123_457,
            99_999_999_999_999_999 >> 4,
            MAX_TOKEN - 2,
        ]
        .into_iter()
        .enumerate()
        {
            let n = i.to_string();
            peer.set_counter(&n, c);
            assert_eq!(counter(peer, &n), c);
            assert_eq!(
                peer.say(&acquire(&n, 2, secs(10), 0)),
                Reply::Mutex(mutex::Reply::Granted(c + 1))
            );
            assert_eq!(counter(peer, &n), c + 1);
        }
    });
}

/// §3: refused at 2^53 - 1, where a double cannot count on; a holder is still named.
#[test]
fn an_exhausted_counter_grants_nothing() {
    everywhere(|peer| {
        peer.set_counter("a", MAX_TOKEN - 1);
        assert_eq!(
            peer.say(&acquire("a", 2, secs(10), 0)),
            Reply::Mutex(mutex::Reply::Granted(MAX_TOKEN))
        );
        let (_, c, who) = held(peer.say(&acquire("a", 3, secs(10), 0)));
        assert_eq!((c, who), (MAX_TOKEN, Some(entry(2).text())));
        peer.say(&release("a", 2));
        assert_eq!(peer.error(&acquire("a", 3, secs(10), 0)), "EXHAUSTED");
        assert_eq!(remaining(peer, "a"), None, "written before it was refused");
        assert_eq!(counter(peer, "a"), MAX_TOKEN);
    });
}

/// §3 `RotateByAge`: counters older than 7 days become the previous ones and still count; those
/// that were the previous ones are forgotten.
#[test]
fn counters_rotate_by_age() {
    everywhere(|peer| {
        let take = |peer: &mut dyn Peer, n: &str| {
            let token = peer.say(&acquire(n, 1, secs(10), 0));
            peer.say(&release(n, 1));
            match token {
                Reply::Mutex(mutex::Reply::Granted(token)) => token,
                other => panic!("{other:?}"),
            }
        };
        for n in ["a", "b", "c"] {
            assert_eq!(take(peer, n), 1);
        }
        peer.set_age(7 * DAY - secs(60));
        assert_eq!(take(peer, "a"), 2, "too young to rotate");
        peer.set_age(7 * DAY + secs(1));
        assert_eq!(take(peer, "a"), 3);
        assert_eq!(counter(peer, "b"), 1, "previous counters count");
        assert_eq!(take(peer, "b"), 2);
        peer.say(&acquire("c", 9, secs(10), 0));
        assert_eq!(
            peer.say(&raise("c", 9, 30)),
            Reply::Mutex(mutex::Reply::Raised(30))
        );
        peer.say(&release("c", 9));
        peer.set_age(8 * DAY);
        assert_eq!(take(peer, "z"), 1);
        assert_eq!(
            (take(peer, "a"), take(peer, "b"), take(peer, "c")),
            (4, 3, 31)
        );
        peer.set_age(8 * DAY);
        take(peer, "a");
        peer.set_age(8 * DAY);
        take(peer, "a");
        assert_eq!(counter(peer, "b"), 0, "forgotten");
        assert_eq!(counter(peer, "a"), 6);
    });
}
