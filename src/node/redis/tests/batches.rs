//! Batches on real servers: something is wrong with one of the locks, or with the server.

use super::*;
use crate::node::answer::Answered;

fn granted(token: u64) -> Answered {
    Ok(Answer::Granted(token))
}

fn freed(ours: bool) -> Answered {
    Ok(Answer::Released(ours))
}

fn word(answer: &Answered) -> &str {
    match answer {
        Err(Fault::Error(text)) => text.split(' ').next().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_corrupt_counter_is_one_error() {
    on_servers(|real| {
        for (field, counter) in [
            ("@mutex:b", "many"),
            ("@mutex:c", "-1"),
            ("@mutex:d", "1.5"),
        ] {
            real.text(&["HSET", "quorate:c0", field, counter]);
        }
        let names = ["a", "b", "c", "d", "e"];
        let acquires = names.map(|name| acquire(name, 1, secs(10), 5).into());
        let answers = real.together(&acquires);
        assert_eq!([&answers[0], &answers[4]], [&granted(5), &granted(5)]);
        for answer in &answers[1..4] {
            assert_eq!(word(answer), "CORRUPT");
        }
        let releases = names.map(|name| release(name, 1).into());
        let wanted = [true, false, false, false, true].map(freed);
        assert_eq!(real.together(&releases), wanted);
    });
}

#[test]
fn a_key_of_another_type_counts_as_held_by_another() {
    on_servers(|real| {
        real.text(&["RPUSH", "quorate:@mutex:b", "x"]);
        let answers = real.together(&[
            acquire("a", 1, secs(10), 5).into(),
            acquire("b", 1, secs(10), 5).into(),
            raise("b", 1, 5).into(),
            extend("b", 1, secs(10)).into(),
            release("b", 1).into(),
            release("a", 1).into(),
        ]);
        let lost = || Ok(Answer::Lost);
        let held = Ok(Answer::Held {
            which: None,
            remaining: None,
            counter: 0,
            holder: None,
            ticket: 0,
        });
        let wanted = [granted(5), held, lost(), lost(), freed(false), freed(true)];
        assert_eq!(answers, wanted);
        assert_eq!(real.text(&["LLEN", "quorate:@mutex:b"]), "1");
    });
}

/// The counters are in a key of another type. No lock is granted, and none stays behind.
#[test]
fn counters_of_another_type_fail_only_operations_that_need_them() {
    for key in ["quorate:c0", "quorate:c1"] {
        on_servers(|real| {
            real.text(&["DEL", key]);
            real.ok(&["SET", key, "x"]);
            let answers = real.together(&[
                acquire("a", 1, secs(10), 5).into(),
                release("b", 1).into(),
                acquire("c", 1, secs(10), 5).into(),
            ]);
            assert_eq!([word(&answers[0]), word(&answers[2])], ["WRONGTYPE"; 2]);
            assert_eq!(answers[1], freed(false));
            assert_eq!(real.text(&["EXISTS", "quorate:@mutex:a"]), "0");
        });
    }
}

#[test]
fn a_full_server_frees_first_and_then_takes_writes() {
    on_servers(|real| {
        real.say(acquire("a", 1, secs(10), 5));
        real.say(acquire("b", 1, secs(10), 5));
        real.ok(&["CONFIG", "SET", "maxmemory", "1"]);
        let answers = real.together(&[
            acquire("c", 1, secs(10), 5).into(),
            release("a", 1).into(),
            acquire("d", 1, secs(10), 5).into(),
            raise("b", 1, 9).into(),
        ]);
        // A server checks only the first write of a script, and DEL is allowed.
        assert_eq!(word(&answers[0]), "OOM");
        assert_eq!(answers[1..3], [freed(true), granted(5)]);
        assert_eq!(answers[3], Ok(Answer::Raised(9)));
        let answers = real.together(&[
            acquire("e", 1, secs(10), 5).into(),
            raise("b", 1, 10).into(),
            acquire("f", 1, secs(10), 5).into(),
            release("b", 2).into(),
        ]);
        for answer in &answers[..3] {
            assert_eq!(word(answer), "OOM");
        }
        assert_eq!(answers[3], freed(false));
        real.ok(&["CONFIG", "SET", "maxmemory", "0"]);
    });
}

#[test]
fn behind_a_flush_of_the_scripts_nothing_is_done() {
    on_servers(|real| {
        real.ok(&["SCRIPT", "FLUSH"]);
        let both: [Command; 2] = [acquire("a", 1, secs(10), 5).into(), release("b", 1).into()];
        assert_eq!(
            real.together(&both),
            [Err(Fault::NoScript), Err(Fault::NoScript)]
        );
        assert_eq!(
            real.text(&["EXISTS", "quorate:@mutex:a", "quorate:c0"]),
            "0"
        );
        real.say(Command::Server(server::Command::LoadScripts));
        assert_eq!(real.together(&both), [granted(5), freed(false)]);
    });
}

/// A full batch, with the longest names, and with a counter for each.
#[test]
fn sixty_four_operations_are_one_step() {
    on_servers(|real| {
        let names: Vec<String> = (0..64).map(|i| format!("{i:0>512}")).collect();
        let acquires = names
            .iter()
            .map(|name| acquire(name, 1, secs(10), 5).into());
        let answers = real.together(&acquires.collect::<Vec<_>>());
        assert_eq!(answers, vec![granted(5); 64]);
        assert_eq!(real.text(&["HLEN", "quorate:c0"]), "65");
        let releases = names.iter().map(|name| release(name, 1).into());
        let answers = real.together(&releases.collect::<Vec<_>>());
        assert_eq!(answers, vec![freed(true); 64]);
        assert_eq!(real.text(&["DBSIZE"]), "4", "boot, open, time and c0");
    });
}

/// protocol §3: the same ACQUIRE has the same token in any batch.
#[test]
fn each_operation_keeps_its_own_p() {
    let acquires: Vec<Command> = (1..=5)
        .map(|p| acquire(&p.to_string(), 1, secs(10), p * 100).into())
        .collect();
    on_servers(|real| {
        for cut in [5, 2, 1] {
            let mut answers = Vec::new();
            for batch in acquires.chunks(cut) {
                answers.extend(real.together(batch));
            }
            let wanted: Vec<_> = (1..=5).map(|p| granted(p * 100)).collect();
            assert_eq!(answers, wanted, "{cut} at a time");
            real.text(&["DEL", "quorate:c0"]);
            (1..=5).for_each(|p| drop(real.say(release(&p.to_string(), 1))));
        }
    });
}
