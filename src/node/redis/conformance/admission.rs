//! Protocol §2: guard, handshake and bootstrap, on memory and servers.

use super::*;

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
        for guard in ["1 5 20000", "1 3 30000", "2 3 20000", ""] {
            for command in &guarded {
                assert_eq!(
                    peer.ask_with(command, guard),
                    Err(Fault::NotAdmitted),
                    "{command:?}"
                );
            }
        }
        assert!(about(remaining(peer, "a").unwrap(), secs(10)));
        assert_eq!(counter(peer, "a"), 1);
        assert_eq!(
            peer.ask_with(&release("a", 1), "1 5 20000"),
            Ok(Reply::Released(true))
        );
        peer.flush();
        for command in &guarded {
            assert_eq!(
                peer.ask(command),
                Err(Fault::NotAdmitted),
                "after FLUSHALL: {command:?}"
            );
        }
        assert_eq!(peer.ask(&release("a", 1)), Ok(Reply::Released(false)));
        let meeting = peer.meet(&hello());
        assert_eq!(
            (meeting.record.unwrap().witnessed, meeting.open),
            (0, false)
        );
    });
}

/// §2: w grows only by who knows this run and this record, and only up to where the node votes.
#[test]
fn a_memory_votes_once_it_was_witnessed_for_z() {
    everywhere(|peer| {
        peer.flush();
        let first = peer.meet(&hello());
        let record = first.record.unwrap();
        assert!(!first.open);
        assert_eq!(
            (record.witnessed, &*record.id, record.fleet),
            (0, "nonce", 3)
        );
        assert_eq!((record.max_ttl, &record.run), (MAX_TTL, &first.server.run));
        assert!(record.since.abs_diff(wall_us()) < 5_000_000);
        assert_eq!(
            (&*first.server.role, &*first.server.mode),
            ("master", "standalone")
        );
        assert_eq!(first.server.eviction, "noeviction");
        assert!(
            first
                .server
                .version
                .split('.')
                .next()
                .unwrap()
                .parse::<u32>()
                .unwrap()
                >= 7
        );

        let strangers = [
            Handshake {
                witnessed: Z,
                ..hello()
            },
            Handshake {
                known: Some((record.run.clone(), "other".into())),
                ..knowing(&record, Z)
            },
            Handshake {
                known: Some(("other".into(), record.id.clone())),
                ..knowing(&record, Z)
            },
        ];
        for stranger in &strangers {
            let meeting = peer.meet(stranger);
            assert_eq!(meeting.record.as_ref(), Some(&record), "{stranger:?}");
            assert!(!meeting.open);
        }
        let w = |peer: &mut dyn Peer, x: u64| {
            let meeting = peer.meet(&knowing(&record, x));
            (meeting.record.unwrap().witnessed, meeting.open)
        };
        assert_eq!(w(peer, 1000), (1000, false));
        assert_eq!(w(peer, 400), (1000, false), "it never shrinks");
        assert_eq!(peer.ask(&inspect("a")), Err(Fault::NotAdmitted));
        assert_eq!(w(peer, Z - 1), (Z - 1, false));
        assert_eq!(w(peer, Z), (Z, true), "the quarantine ends at Z exactly");
        assert_eq!(peer.say(&acquire("a", 1, secs(10), 0)), Reply::Granted(1));
        assert_eq!(w(peer, 10 * Z), (Z, true));
    });
}

/// §2 `SameFleet`: a client of another N, of another format, or of a longer max_ttl is refused and
/// nothing is written.
#[test]
fn who_disagrees_is_refused() {
    everywhere(|peer| {
        let before = peer.meet(&hello()).record.unwrap();
        let known = knowing(&before, 90_000);
        let others = [
            Handshake {
                fleet: 5,
                ..known.clone()
            },
            Handshake {
                max_ttl: MAX_TTL + Duration::from_millis(1),
                ..known.clone()
            },
        ];
        for other in &others {
            let meeting = peer.meet(other);
            assert_eq!(meeting.record.as_ref(), Some(&before), "{other:?}");
            assert!(!meeting.open, "not for this client");
        }
        assert_eq!(
            peer.say(&inspect("a")),
            Reply::Inspected {
                holder: None,
                counter: 0
            }
        );
        let shorter = Handshake {
            max_ttl: secs(1),
            ..known
        };
        assert!(peer.meet(&shorter).open, "who asks for less is welcome");

        let foreign = BootRecord {
            format: 2,
            ..before
        };
        peer.set_boot(&foreign);
        let meeting = peer.meet(&hello());
        assert_eq!(meeting.record.unwrap().format, 2);
        assert!(!meeting.open);
        assert_eq!(peer.say(&admit(&foreign)), Reply::Admitted(false));
    });
}

/// §2: the longest max_ttl of the fleet is learned again, and a node waits for as long as that asks.
#[test]
fn a_longer_max_ttl_in_the_fleet_closes_the_node_until_it_is_ripe() {
    everywhere(|peer| {
        let longer = Handshake {
            fleet_max_ttl: secs(40),
            ..hello()
        };
        let meeting = peer.meet(&longer);
        let record = meeting.record.unwrap();
        assert_eq!(
            (record.max_ttl, record.witnessed, meeting.open),
            (secs(40), Z, false)
        );
        assert_eq!(peer.ask(&inspect("a")), Err(Fault::NotAdmitted));
        let z = 40_400 + 5_000;
        let meeting = peer.meet(&Handshake {
            fleet_max_ttl: secs(40),
            ..knowing(&record, z)
        });
        assert!(meeting.open);
        let empty = Reply::Inspected {
            holder: None,
            counter: 0,
        };
        assert_eq!(peer.ask_with(&inspect("a"), "1 3 40000"), Ok(empty));

        peer.flush();
        let meeting = peer.meet(&longer);
        assert_eq!(
            meeting.record.unwrap().max_ttl,
            secs(40),
            "an emptied node learns it again"
        );
    });
}

/// §2 `RunAndRecord`: a record of another process is a new memory, whatever stands in `open`.
#[test]
fn a_record_of_another_run_starts_again() {
    everywhere(|peer| {
        let old = peer.meet(&hello()).record.unwrap();
        for run in [
            format!("{}/00000000/-1", "e".repeat(40)),
            old.run.replace("/00000000/-1", "/00000000/7"),
        ] {
            let foreign = BootRecord {
                run,
                witnessed: 90_000,
                ..old.clone()
            };
            peer.set_boot(&foreign);
            if foreign.run.starts_with("eee") {
                let meeting = peer.meet(&Handshake {
                    nonce: "new".into(),
                    ..knowing(&foreign, 90_000)
                });
                let record = meeting.record.unwrap();
                assert_eq!(
                    (record.witnessed, &*record.id, meeting.open),
                    (0, "new", false)
                );
                assert_eq!(record.run, meeting.server.run);
                assert_eq!(peer.ask(&inspect("a")), Err(Fault::NotAdmitted));
            } else {
                // Its replid2 turned to zeros: the backlog was freed, the memory is the same.
                let meeting = peer.meet(&hello());
                assert_eq!(meeting.record.unwrap().witnessed, 90_000);
                assert!(meeting.open);
            }
        }
    });
}

/// §2: a replica is refused and writes nothing; a master that was one meanwhile is another memory.
#[test]
fn a_failback_is_another_run() {
    everywhere(|peer| {
        peer.say(&acquire("a", 1, secs(10), 0));
        let before = peer.meet(&hello());
        peer.demote();
        let meeting = peer.meet(&knowing(before.record.as_ref().unwrap(), 90_000));
        assert_ne!(meeting.server.role, "master");
        assert_eq!(
            (meeting.record, meeting.open),
            (before.record.clone(), false)
        );
        for command in [
            acquire("b", 1, secs(10), 0),
            extend("a", 1, secs(20)),
            release("a", 1),
        ] {
            assert_eq!(peer.error(&command), "READONLY", "{command:?}");
        }
        peer.promote();
        let meeting = peer.meet(&Handshake {
            nonce: "new".into(),
            ..hello()
        });
        let record = meeting.record.unwrap();
        assert_ne!(record.run, before.record.unwrap().run);
        assert_eq!(
            (record.witnessed, &*record.id, meeting.open),
            (0, "new", false)
        );
        assert_eq!(peer.ask(&extend("a", 1, secs(20))), Err(Fault::NotAdmitted));
        assert_eq!(peer.say(&release("a", 1)), Reply::Released(true));
    });
}

/// §2 bootstrap: only the surveyed run and record, and never a shorter max_ttl.
#[test]
fn a_bootstrap_admits_what_was_surveyed() {
    everywhere(|peer| {
        peer.flush();
        let nothing = Command::Admit {
            run: "r".into(),
            id: "i".into(),
            max_ttl: MAX_TTL,
            witnessed: Z,
        };
        assert_eq!(peer.say(&nothing), Reply::Admitted(false));
        let record = peer.meet(&hello()).record.unwrap();
        let wrong = [
            BootRecord {
                run: "other".into(),
                ..record.clone()
            },
            BootRecord {
                id: "other".into(),
                ..record.clone()
            },
            BootRecord {
                max_ttl: MAX_TTL - Duration::from_millis(1),
                ..record.clone()
            },
        ];
        for wrong in &wrong {
            assert_eq!(peer.say(&admit(wrong)), Reply::Admitted(false), "{wrong:?}");
        }
        assert_eq!(peer.ask(&inspect("a")), Err(Fault::NotAdmitted));
        assert_eq!(peer.say(&admit(&record)), Reply::Admitted(true));
        assert_eq!(peer.say(&admit(&record)), Reply::Admitted(true));
        let meeting = peer.meet(&hello());
        assert_eq!(
            meeting.record,
            Some(BootRecord {
                witnessed: Z,
                ..record.clone()
            })
        );
        assert!(meeting.open);

        let longer = BootRecord {
            max_ttl: secs(40),
            ..record
        };
        assert_eq!(peer.say(&admit(&longer)), Reply::Admitted(true));
        let empty = Reply::Inspected {
            holder: None,
            counter: 0,
        };
        assert_eq!(peer.ask_with(&inspect("a"), "1 3 40000"), Ok(empty));
    });
}

/// §2 bootstrap: a held lock under the prefix is seen, before the node votes too.
#[test]
fn a_survey_sees_locks() {
    everywhere(|peer| {
        assert_eq!(peer.say(&Command::Survey), Reply::Surveyed(false));
        peer.say(&acquire("a", 1, secs(10), 0));
        assert_eq!(peer.say(&Command::Survey), Reply::Surveyed(true));
        assert_eq!(
            peer.ask_with(&Command::Survey, "none"),
            Ok(Reply::Surveyed(true))
        );
        peer.say(&release("a", 1));
        assert_eq!(
            peer.say(&Command::Survey),
            Reply::Surveyed(false),
            "counters are no locks"
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
            Reply::Raised(5),
            "nothing to write"
        );
        assert_eq!(peer.say(&extend("a", 1, secs(20))), Reply::Extended);
        assert_eq!(
            peer.say(&inspect("c")),
            Reply::Inspected {
                holder: None,
                counter: 0
            }
        );
        assert_eq!(
            peer.say(&release("a", 1)),
            Reply::Released(true),
            "`DeleteFirst`"
        );
        assert_eq!(peer.say(&evict("b")), Reply::Evicted(true));
        assert!(peer.meet(&hello()).open, "nothing to write");
        let record = peer.meet(&hello()).record.unwrap();
        assert_eq!(peer.error(&admit(&record)), "OOM");

        // `open` of a memory that may not vote is closed nevertheless.
        peer.set_out_of_memory(false);
        let run = format!("{}/00000000/-1", "e".repeat(40));
        peer.set_boot(&BootRecord { run, ..record });
        peer.set_out_of_memory(true);
        let _ = peer.ask(&Command::Handshake(hello()));
        assert_eq!(peer.ask(&inspect("a")), Err(Fault::NotAdmitted));

        peer.set_out_of_memory(false);
        peer.flush();
        peer.set_out_of_memory(true);
        assert_eq!(peer.error(&Command::Handshake(hello())), "OOM");
    });
}
