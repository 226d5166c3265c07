//! The numbered lines of protocol §2 as pure functions. The conformance suite runs the same cases against every kind of
//! node.

use super::*;
use crate::node::admission::cases::{
    lines::{Line, brought, lines},
    modes::{Brought, modes},
};

fn server() -> Server {
    Server {
        run: run("RUN", "0000000000000000", "-1"),
        role: "master".into(),
        mode: "standalone".into(),
        eviction: "noeviction".into(),
        version: "7.0.15".into(),
    }
}

fn text(record: Option<BootRecord>) -> Option<String> {
    record.map(|record| record.to_string())
}

#[test]
fn every_line_of_the_handshake() {
    for Line {
        line,
        boot,
        hello,
        visited,
        after,
    } in lines()
    {
        let met = meet(boot.as_deref(), &server(), &hello, visited, Rules::ALL);
        assert_eq!(text(met), after, "{line}");
    }
}

#[test]
fn every_mode_of_admit() {
    for Brought {
        line,
        boot,
        admit: brought,
        after,
    } in modes()
    {
        let record = boot.parse().ok();
        let admitted = record.and_then(|record: BootRecord| admit(&record, &brought));
        assert_eq!(text(admitted), after, "{line}");
    }
}

/// Line 1.
#[test]
fn nothing_is_written_on_a_replica_or_in_a_cluster() {
    let replica = Server {
        role: "slave".into(),
        ..server()
    };
    let cluster = Server {
        mode: "cluster".into(),
        ..server()
    };
    for server in [replica, cluster] {
        for boot in [
            None,
            Some("garbage"),
            Some("3 3 word 1 0 RUN/x/-1 old 0 0 0"),
        ] {
            let hello = brought("3 word 20000 5000 2 1 0", None);
            assert_eq!(meet(boot, &server, &hello, false, Rules::ALL), None);
        }
    }
}

#[test]
fn a_run_changes_with_the_process_and_after_being_a_replica() {
    let master = run("abc", &"0".repeat(40), "-1");
    assert_eq!(master, "abc/00000000/-1");
    let failback = run("abc", "1234567890", "55");
    assert_eq!(failback, "abc/12345678/55");
    assert!(same_run(&master, &master));
    assert!(!same_run(&master, &failback), "a replica meanwhile");
    assert!(same_run(&failback, &master), "the backlog was freed");
    assert!(!same_run(&failback, &run("abc", "1234567890", "56")));
    assert!(!same_run(&failback, &run("abc", "0000000012", "55")));
    assert!(
        !same_run(&failback, &run("xyz", "00000000", "-1")),
        "another process"
    );
    assert!(!same_run("abc", "abc/00000000/-1"));
}

/// The effect of each trap of §10 when its rule is off.
#[cfg(feature = "test-util")]
mod without {
    use super::*;
    use crate::{base::rules::Rule::*, node::admission::cases::spelled};

    /// Compares the record after a handshake with the rule on and with it off.
    #[track_caller]
    fn case(rule: Rule, boot: &str, hello: &str, with: &str, without: &str) {
        let boot = spelled(boot);
        let hello = brought(hello, Some(&boot));
        for (rules, after) in [(Rules::ALL, with), (Rules::without(rule), without)] {
            let met = text(meet(Some(&boot), &server(), &hello, false, rules));
            let after = (after != "=").then(|| spelled(after));
            assert_eq!(met, after, "{rule:?}");
        }
    }

    #[test]
    fn run_and_record() {
        case(
            RunAndRecord,
            "3 3 word 20000 5000 there old 0 0 25200",
            "3 word 20000 5000 0 0 0",
            "3 3 word 20000 5000 here new 1 1 0",
            "3 3 word 20000 5000 here old 0 0 25200",
        );
    }

    #[test]
    fn run_first() {
        for (boot, u) in [
            ("3 5 word 20000 5000 there old 0 0 0", 0),
            ("3 3 other 20000 5000 there old 0 0 0", 0),
            ("1 3 there old 20000 0 500", 1),
        ] {
            let hello = "3 word 20000 5000 0 0 0";
            let after = format!("3 3 word 20000 5000 here new 0 {u} 0");
            case(RunFirst, boot, hello, &after, "=");
        }
    }

    #[test]
    fn unused_gives_way() {
        case(
            UnusedGivesWay,
            "3 3 other 20000 5000 here old 0 0 25199",
            "3 word 20000 5000 0 0 0",
            "3 3 word 20000 5000 here new 0 0 0",
            "=",
        );
    }

    #[test]
    fn visited_stays() {
        let boot = spelled("3 3 other 20000 5000 here old 0 0 25199");
        let hello = brought("3 word 20000 5000 0 0 0", Some(&boot));
        for (rules, stays) in [(Rules::ALL, true), (Rules::without(VisitedStays), false)] {
            let met = meet(Some(&boot), &server(), &hello, true, rules);
            assert_eq!(met.is_none(), stays);
        }
    }

    #[test]
    fn same_fleet_and_same_list() {
        let hello = "3 word 20000 5000 0 0 0";
        for (rule, boot) in [
            (SameFleet, "3 5 word 20000 5000 here old 0 0 25200"),
            (SameList, "3 3 other 20000 5000 here old 0 0 25200"),
        ] {
            case(rule, boot, hello, "=", boot);
        }
    }

    #[test]
    fn voucher_replaces() {
        let hello = "3 word 20000 5000 1 0 0";
        let new = "3 3 word 20000 5000 here new 1 0 0";
        case(
            VoucherReplaces,
            "3 5 word 20000 5000 here old 0 0 0",
            hello,
            new,
            "=",
        );
        case(
            VoucherReplaces,
            "3 3 word 30000 5000 here old 0 0 0",
            hello,
            new,
            "3 3 word 30000 5000 here old 1 0 0",
        );
    }

    #[test]
    fn lone_voter_lowers() {
        case(
            LoneVoterLowers,
            "3 3 word 30000 5000 here old 1 0 0",
            "3 word 20000 5000 1 0 0",
            "3 3 word 30000 5000 here old 1 0 0",
            "3 3 word 20000 5000 here new 1 0 0",
        );
    }

    #[test]
    fn strangers_change_nothing() {
        case(
            StrangersChangeNothing,
            "3 3 word 20000 5000 here old 1 0 0",
            "3 word 30000 5000 0 0 0",
            "3 3 word 20000 5000 here old 1 0 0",
            "3 3 word 30000 5000 here old 1 0 0",
        );
    }

    #[test]
    fn disk_vouches() {
        case(
            DiskVouches,
            "3 3 word 20000 5000 there old 0 0 25200",
            "3 word 10000 0 0 0 0",
            "3 3 word 20000 5000 here new 1 1 0",
            "3 3 word 10000 0 here new 0 1 0",
        );
    }

    #[test]
    fn margin_in_record() {
        // Without the rule, the record votes for a client with a smaller margin, and is not replaced.
        case(
            MarginInRecord,
            "3 5 word 20000 5000 here old 0 0 21200",
            "3 word 20000 1000 1 0 0",
            "3 3 word 20000 1000 here new 1 0 0",
            "=",
        );
    }

    #[test]
    fn own_guard() {
        let record: BootRecord = "3 3 word 20000 5000 r old 0 0 0".parse().unwrap();
        assert_eq!(record.guard(Rules::ALL), "20000 3 3 word 5000 old");
        assert_eq!(
            record.guard(Rules::without(OwnGuard)),
            "20000 3 3 word 5000 "
        );
    }
}
