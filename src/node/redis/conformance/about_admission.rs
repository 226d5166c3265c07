//! Protocol §2: guard, handshake and bootstrap, on memory and servers.

use super::*;
use crate::node::admission::meet::tests::{AdmitCase, Case, admit_cases, brought, cases};

/// What `open` says of this record.
fn guard_of(record: &str) -> String {
    let words: Vec<&str> = record.split(' ').collect();
    format!("{} {}", words[..5].join(" "), words[6])
}

/// What `open` says where this record votes; reckoned from its words.
fn open_of(record: &str) -> Option<String> {
    let words: Vec<&str> = record.split(' ').collect();
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let (max_ttl, margin, w) = (number(3), number(4), number(9));
    let votes = w >= max_ttl + max_ttl.div_ceil(100) + margin;
    votes.then(|| guard_of(record))
}

/// RUN in what a client read here.
fn here(known: Option<(String, String)>, run_id: &str) -> Option<(String, String)> {
    known.map(|(run, id)| (run.replace("RUN", run_id), id))
}

fn run_id(peer: &mut dyn Peer) -> String {
    let run = peer.meet(&hello()).server.run;
    run.split('/').next().unwrap().to_owned()
}

/// §2 HANDSHAKE, every numbered line: the record and `open` that stand afterwards, and the answer.
#[test]
fn every_line_of_the_handshake() {
    everywhere(|peer| {
        let run_id = run_id(peer);
        for case in cases() {
            let Case {
                line,
                boot,
                hello,
                after,
            } = case;
            let hello = Handshake {
                known: here(hello.known, &run_id),
                ..hello
            };
            // What stood in `open`: nothing, something else, what belongs to the record.
            let stored = boot.as_deref().map(Stored::read);
            let stored = stored.as_ref().and_then(Stored::record);
            let right = stored.map(|record| guard_of(&record.to_string()));
            for open in [None, Some("else"), right.as_deref()] {
                peer.put(Key::Boot, boot.as_deref());
                peer.put(Key::Open, open);
                let meeting = peer.meet(&hello);
                let wanted = match &after {
                    Some(after) => [Some(after.clone()), open_of(after)],
                    None => [boot.clone(), open.map(str::to_owned)],
                };
                let name = peer.name();
                assert_eq!(peer.stands(), wanted, "{name}: {line}, open {open:?}");
                let votes = after.is_some() && wanted[1].is_some();
                assert_eq!(meeting.open, votes, "{name}: {line}");
                let text = wanted[0].as_deref().unwrap().replace("RUN", &run_id);
                assert_eq!(meeting.stored, Stored::read(&text), "{name}: {line}");
            }
        }
    });
}

/// §2 ADMIT, every mode: the record and `open` that stand afterwards.
#[test]
fn every_mode_of_admit() {
    everywhere(|peer| {
        let run_id = run_id(peer);
        for case in admit_cases() {
            let AdmitCase {
                line,
                boot,
                admit,
                after,
            } = case;
            let admit = Admit {
                run: admit.run.replace("RUN", &run_id),
                ..admit
            };
            for open in [None, Some("else")] {
                peer.put(Key::Boot, Some(&boot));
                peer.put(Key::Open, open);
                let said = peer.say(&Command::Admission(admission::Command::Admit(
                    admit.clone(),
                )));
                assert_eq!(
                    said,
                    Reply::Admission(admission::Reply::Admitted(after.is_some())),
                    "{line}"
                );
                let wanted = match &after {
                    Some(after) => [Some(after.clone()), Some(guard_of(after))],
                    None => [Some(boot.clone()), open.map(str::to_owned)],
                };
                assert_eq!(peer.stands(), wanted, "{}: {line}", peer.name());
            }
        }
        peer.flush();
        let nothing = Admit {
            mode: Mode::Forced,
            ..admission_of(&"2 3 word 20000 5000 r i 0 0 0".parse().unwrap())
        };
        assert_eq!(
            peer.say(&Command::Admission(admission::Command::Admit(nothing))),
            Reply::Admission(admission::Reply::Admitted(false))
        );
        assert_eq!(peer.stands(), [None, None]);
    });
}

/// §2 line 9: below Z every handshake is written; beyond it w is, once it has grown by 1 %. The
/// answer says the greater w nevertheless.
#[test]
fn w_is_answered_always_and_written_when_it_is_worth_it() {
    everywhere(|peer| {
        let run_id = run_id(peer);
        for (w, x, written) in [
            (1000, 1001, 1001),
            (25_199, 25_200, 25_200),
            (25_200, 25_201, 25_200),
            (25_200, 25_451, 25_200),
            // 1.01 times 25,200.
            (25_200, 25_452, 25_452),
            (40_000, 40_399, 40_000),
            (40_000, 40_400, 40_400),
            (97_200_000, 98_172_000, 97_200_000),
        ] {
            let boot = format!("2 3 word 20000 5000 RUN/00000000/-1 old 0 0 {w}");
            peer.put(Key::Boot, Some(&boot));
            let hello = brought(&format!("3 word 20000 5000 0 0 {x}"), Some(&boot));
            let hello = Handshake {
                known: here(hello.known, &run_id),
                ..hello
            };
            let (record, _) = peer.record(&hello);
            assert_eq!(record.witnessed, x.min(97_200_000), "{w}, {x}");
            let [stands, _] = peer.stands();
            let wanted = format!("2 3 word 20000 5000 RUN/00000000/-1 old 0 0 {written}");
            assert_eq!(stands, Some(wanted), "{}: {w}, {x}", peer.name());
        }
        // Anything else that changes takes the w with it.
        let boot = "2 3 word 20000 5000 RUN/00000000/-1 old 0 0 25200";
        peer.put(Key::Boot, Some(boot));
        let told = brought("3 word 20000 5000 0 1 25201", Some(boot));
        peer.meet(&Handshake {
            known: here(told.known, &run_id),
            ..told
        });
        let wanted = "2 3 word 20000 5000 RUN/00000000/-1 old 0 1 25201";
        assert_eq!(peer.stands()[0].as_deref(), Some(wanted));
    });
}

/// §2 `Guard`: where `open` is not what the client expects nothing is done; RELEASE alone works.
#[test]
fn a_node_that_may_not_vote_takes_only_releases() {
    everywhere(|peer| {
        peer.say(&acquire("a", 1, secs(10), 0));
        let guarded = [
            acquire("b", 1, secs(10), 0),
            raise("a", 1, 50),
            extend("a", 1, secs(20)),
            inspect("a"),
            evict("a"),
        ];
        for guard in [
            "2 5 word 20000 5000 nonce",
            "2 3 other 20000 5000 nonce",
            "2 3 word 30000 5000 nonce",
            "2 3 word 20000 5001 nonce",
            // `OwnGuard`: the data of another member.
            "2 3 word 20000 5000 theirs",
            "1 3 20000",
            "",
        ] {
            for command in &guarded {
                let answer = peer.ask_with(command, guard);
                assert_eq!(answer, Err(Fault::NotAdmitted), "{guard}: {command:?}");
            }
        }
        assert!(about(remaining(peer, "a").unwrap(), secs(10)));
        assert_eq!(counter(peer, "a"), 1);
        assert_eq!(
            peer.ask_with(&release("a", 1), "else"),
            Ok(Reply::Mutex(mutex::Reply::Released(true)))
        );
        peer.flush();
        for command in &guarded {
            let answer = peer.ask(command);
            assert_eq!(answer, Err(Fault::NotAdmitted), "emptied: {command:?}");
        }
        assert_eq!(
            peer.ask(&release("a", 1)),
            Ok(Reply::Mutex(mutex::Reply::Released(false)))
        );
        let (record, open) = peer.record(&hello());
        assert_eq!((record.witnessed, open), (0, false));
    });
}

/// §2: who the server is comes with every answer.
#[test]
fn a_handshake_says_who_the_server_is() {
    everywhere(|peer| {
        let server = peer.meet(&hello()).server;
        assert_eq!((&*server.role, &*server.mode), ("master", "standalone"));
        assert_eq!(server.eviction, "noeviction");
        let major = server.version.split('.').next().unwrap();
        assert!(major.parse::<u32>().unwrap() >= 7, "{}", server.version);
        assert!(server.run.ends_with("/00000000/-1"), "{}", server.run);
    });
}

/// §2 lines 1 and 2: a replica is refused and writes nothing; a master that was one meanwhile is
/// another memory.
#[test]
fn a_failback_is_another_run() {
    everywhere(|peer| {
        peer.say(&acquire("a", 1, secs(10), 0));
        let before = peer.meet(&hello());
        let stood = peer.stands();
        peer.demote();
        for hello in [hello(), brought("5 other 90000 0 2 1 90000/nobody", None)] {
            let meeting = peer.meet(&hello);
            assert_ne!(meeting.server.role, "master");
            assert_eq!(
                (meeting.stored, meeting.open),
                (before.stored.clone(), false)
            );
            assert_eq!(peer.stands(), stood, "nothing is written");
        }
        let record = before.stored.record().unwrap();
        for command in [
            acquire("b", 1, secs(10), 0),
            extend("a", 1, secs(20)),
            release("a", 1),
            admit(record),
        ] {
            assert_eq!(peer.error(&command), "READONLY", "{command:?}");
        }
        peer.promote();
        let (after, open) = peer.record(&Handshake {
            nonce: "new".into(),
            ..hello()
        });
        assert_ne!(after.run, record.run);
        assert_eq!((after.witnessed, &*after.id, open), (0, "new", false));
        assert!(after.vouched && after.used, "it had voted: its terms stay");
        assert_eq!(peer.ask(&extend("a", 1, secs(20))), Err(Fault::NotAdmitted));
        assert_eq!(
            peer.say(&release("a", 1)),
            Reply::Mutex(mutex::Reply::Released(true))
        );
    });
}

/// §2 bootstrap: every grant leaves a counter, so counters show use, before the node votes too; and
/// one of them names its lock, however old it is.
#[test]
fn a_survey_sees_counters_and_names_a_lock() {
    everywhere(|peer| {
        assert_eq!(
            peer.say(&Command::Admission(admission::Command::Survey)),
            surveyed(false, None)
        );
        peer.say(&acquire("a:b", 1, secs(10), 0));
        peer.say(&release("a:b", 1));
        let used = surveyed(true, Some("a:b"));
        assert_eq!(
            peer.ask_with(&Command::Admission(admission::Command::Survey), "none"),
            Ok(used.clone())
        );

        // The previous counters have no name, then the current ones.
        peer.flush();
        peer.set_age(8 * DAY);
        assert_eq!(
            peer.say(&Command::Admission(admission::Command::Survey)),
            surveyed(true, None)
        );
        peer.admit();
        peer.say(&acquire("a:b", 1, secs(10), 0));
        assert_eq!(
            peer.say(&Command::Admission(admission::Command::Survey)),
            used
        );
        peer.set_age(8 * DAY);
        peer.say(&acquire("c", 1, secs(10), 0));
        assert_eq!(
            peer.say(&Command::Admission(admission::Command::Survey)),
            surveyed(true, Some("c"))
        );

        peer.flush();
        assert_eq!(
            peer.say(&Command::Admission(admission::Command::Survey)),
            surveyed(false, None)
        );
    });
}

/// §1, §2: an error is no answer; a full server writes nothing, and still frees and closes.
#[test]
fn a_full_server_frees_and_grants_nothing() {
    everywhere(|peer| {
        peer.say(&acquire("a", 1, secs(10), 5));
        peer.say(&acquire("b", 1, secs(10), 5));
        peer.set_out_of_memory(true);
        assert_eq!(peer.error(&acquire("c", 1, secs(10), 0)), "OOM");
        assert_eq!(peer.error(&acquire("a", 2, secs(10), 0)), "OOM");
        assert_eq!(peer.error(&raise("a", 1, 9)), "OOM");
        assert_eq!(
            peer.say(&raise("a", 1, 5)),
            Reply::Mutex(mutex::Reply::Raised(5)),
            "nothing to write"
        );
        assert_eq!(
            peer.say(&extend("a", 1, secs(20))),
            Reply::Mutex(mutex::Reply::Extended)
        );
        assert_eq!(
            peer.say(&inspect("c")),
            Reply::Mutex(mutex::Reply::Inspected {
                holder: None,
                counter: 0
            })
        );
        assert_eq!(
            peer.say(&release("a", 1)),
            Reply::Mutex(mutex::Reply::Released(true)),
            "`DeleteFirst`"
        );
        assert_eq!(
            peer.say(&evict("b")),
            Reply::Mutex(mutex::Reply::Evicted(true))
        );
        let (record, open) = peer.record(&hello());
        assert!(open, "nothing to write");
        assert_eq!(peer.error(&admit(&record)), "OOM");
    });
}

/// §2 lines 8 to 10 at maxmemory: `open` is closed, what cannot be written is an error and stays.
#[test]
fn a_full_server_is_closed_and_not_opened() {
    everywhere(|peer| {
        let gone = "2 3 word 20000 5000 eeee/00000000/-1 old 0 0 25200";
        let ripe = "2 3 word 20000 5000 RUN/00000000/-1 old 0 0 25200";
        let guard = "2 3 word 20000 5000 old";
        let met = Command::Admission(admission::Command::Handshake(hello()));
        let mut stands = |boot: &str, open: Option<&str>| {
            peer.set_out_of_memory(false);
            peer.put(Key::Boot, Some(boot));
            peer.put(Key::Open, open);
            peer.set_out_of_memory(true);
            let answer = peer.ask(&met).is_ok();
            let [boot, open] = peer.stands();
            (answer, boot.unwrap(), open)
        };
        // A server stops no script after its first write, and DEL is one.
        let (answered, boot, open) = stands(gone, Some(guard));
        assert!(answered && open.is_none());
        assert_eq!(boot, "2 3 word 20000 5000 RUN/00000000/-1 nonce 1 1 0");
        let refused = |boot: &str| (false, boot.to_owned(), None);
        assert_eq!(stands(gone, None), refused(gone));
        assert_eq!(stands(ripe, None), refused(ripe), "it is not opened");
        let untouched = (true, ripe.to_owned(), Some(guard.to_owned()));
        assert_eq!(stands(ripe, Some(guard)), untouched, "nothing to write");

        // Nor is w, which has grown by 1 %: or all that is held there would be lost.
        peer.set_out_of_memory(false);
        peer.put(Key::Boot, Some(ripe));
        peer.put(Key::Open, Some(guard));
        let known = peer.record(&hello()).0;
        peer.set_out_of_memory(true);
        let later = Handshake {
            known: Some((known.run, known.id)),
            witnessed: 30_000,
            ..hello()
        };
        let (record, open) = peer.record(&later);
        assert!(open && record.witnessed == 30_000);
        assert!(peer.stands()[0].as_deref().unwrap().ends_with(" 25200"));

        peer.set_out_of_memory(false);
        peer.flush();
        peer.set_out_of_memory(true);
        assert_eq!(peer.error(&met), "OOM");
        assert_eq!(peer.stands(), [None, None]);
    });
}
