//! The numbered lines of protocol §2, one case each and more. `redis/conformance` runs the same
//! cases on memory and on real servers.

use std::time::Duration;

use super::*;
use crate::node::admission::Terms;

/// What stands, what a client brings, and what then stands. `RUN` is the server's run id.
pub(crate) struct Case {
    /// Line of the protocol, and what it says.
    pub(crate) line: String,
    pub(crate) boot: Option<String>,
    pub(crate) hello: Handshake,
    /// None: nothing may be written.
    pub(crate) after: Option<String>,
}

/// One ADMIT: what stands, and what then stands. None: refused.
pub(crate) struct AdmitCase {
    pub(crate) line: String,
    pub(crate) boot: String,
    pub(crate) admit: Admit,
    pub(crate) after: Option<String>,
}

/// In the texts: the run of the server, that of another process, and that of the server before it
/// freed its backlog.
fn spelled(text: &str) -> String {
    let words = text.split(' ').map(|word| match word {
        "here" => "RUN/00000000/-1",
        "there" => "eeee/00000000/-1",
        "freed" => "RUN/12345678/7",
        word => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn terms(max_ttl: &str, margin: &str) -> Terms {
    let ms = |text: &str| Duration::from_millis(text.parse().unwrap());
    Terms {
        max_ttl: ms(max_ttl),
        margin: ms(margin),
    }
}

/// "N list max_ttl M v u x", with x as `2000`, or `2000/nobody`, `2000/run`, `2000/id` of one who
/// has not read what stands, or read another run or id.
pub(crate) fn brought(text: &str, boot: Option<&str>) -> Handshake {
    let words: Vec<&str> = text.split(' ').collect();
    let [masters, list, max_ttl, margin, v, u, x] = words[..] else {
        panic!("{text}")
    };
    let (x, knows) = x.split_once('/').unwrap_or((x, ""));
    let stored: Option<BootRecord> = boot.and_then(|boot| boot.parse().ok());
    let known = stored.map(|record| (record.run, record.id));
    Handshake {
        masters: masters.parse().unwrap(),
        list: list.into(),
        terms: terms(max_ttl, margin),
        vouch: match v {
            "0" => Vouch::Stranger,
            "1" => Vouch::Voter,
            _ => Vouch::Majority,
        },
        used: u == "1",
        known: match knows {
            "nobody" => None,
            "run" => known.map(|(_, id)| ("other".into(), id)),
            "id" => known.map(|(run, _)| (run, "other".into())),
            _ => known,
        },
        witnessed: x.parse().unwrap(),
        nonce: "new".into(),
    }
}

#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    /// `boot` "-": none stands. `after` "=": nothing is written.
    fn add(&mut self, line: &str, boot: &str, hello: &str, after: &str) {
        let boot = (boot != "-").then(|| spelled(boot));
        let hello = brought(hello, boot.as_deref());
        self.0.push(Case {
            line: format!("{line}: {boot:?}, {hello:?}"),
            boot,
            hello,
            after: (after != "=").then(|| spelled(after)),
        });
    }
}

// Z of 20000 5000: 25200.

/// Every line of HANDSHAKE but the first.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Cases::default();
    no_record(&mut cases);
    another_run(&mut cases);
    another_format(&mut cases);
    who_vouches_replaces(&mut cases);
    terms_grow(&mut cases);
    used_and_witnessed(&mut cases);
    cases.0
}

fn no_record(cases: &mut Cases) {
    let line = "2 no record: what was brought, and w = 0";
    for (hello, after) in [
        (
            "3 word 20000 5000 0 0 90000",
            "2 3 word 20000 5000 here new 0 0 0",
        ),
        (
            "3 word 20000 5000 1 0 90000",
            "2 3 word 20000 5000 here new 1 0 0",
        ),
        ("5 list 1 0 2 1 0", "2 5 list 1 0 here new 1 1 0"),
    ] {
        cases.add(line, "-", hello, after);
    }
    let line = "3 what does not parse is no record";
    for bad in [
        "",
        "garbage",
        "garbage here",
        "2",
        "02 3 word 20000 5000 here old 1 1 90000",
        " 2 3 word 20000 5000 here old 1 1 90000",
        "2 3 word 20000 5000 here old 1 1 90000 ",
        "2 3 word 20000 5000 here old 1 1",
        "2 3  20000 5000 here old 1 1 90000",
        "2 3 word 20000 5000 here old 2 1 90000",
        "2 3 word 20000 5000 here old 1 x 90000",
        "2 3 word 20000 5000 here old 1 1 -90000",
        "2 3 word 20000 5000 here old 1 1 9e4",
        "2 3 word 20000 5000 here old 1 1 1000000000000000",
        "2 1000000000000000 word 20000 5000 here old 1 1 0",
        // Above 24 h.
        "2 3 word 86400001 5000 here old 1 1 90000",
        "2 3 word 20000 86400001 here old 1 1 90000",
    ] {
        let hello = "3 word 20000 5000 0 0 90000";
        cases.add(line, bad, hello, "2 3 word 20000 5000 here new 0 0 0");
    }
    for day in [
        "2 3 word 86400000 5000 here old 0 0 7",
        "2 3 word 20000 86400000 here old 0 0 7",
    ] {
        let line = "3 24 h is a record";
        cases.add(line, day, "3 word 20000 5000 0 0 0", day);
    }
}

fn another_run(cases: &mut Cases) {
    let line = "2 another run, that did not vote: what was brought";
    for (boot, hello, after) in [
        // Whatever N and list.
        (
            "2 3 word 30000 6000 there old 0 0 36299",
            "3 word 20000 5000 0 0 90000",
            "2 3 word 20000 5000 here new 0 0 0",
        ),
        (
            "2 5 word 20000 5000 there old 1 0 25199",
            "3 word 20000 5000 0 0 90000",
            "2 3 word 20000 5000 here new 0 0 0",
        ),
        (
            "2 3 other 20000 5000 there old 1 0 25199",
            "3 word 20000 5000 1 0 90000",
            "2 3 word 20000 5000 here new 1 0 0",
        ),
        // u is remembered.
        (
            "2 3 word 20000 5000 there old 0 1 0",
            "3 word 20000 5000 0 0 0",
            "2 3 word 20000 5000 here new 0 1 0",
        ),
        (
            "2 3 word 20000 5000 there old 0 0 0",
            "3 word 20000 5000 0 1 0",
            "2 3 word 20000 5000 here new 0 1 0",
        ),
    ] {
        cases.add(line, boot, hello, after);
    }
    let line = "NEW of what had voted, or was vouched for: its terms";
    for old in [
        "there old 0 0 25200",
        "there old 1 0 25199",
        "there old 1 0 0",
    ] {
        let boot = format!("2 3 word 20000 5000 {old}");
        // 1 if it had voted.
        let u = u8::from(old.ends_with("25200"));
        for (hello, stored) in [
            // v = 0: the old ones, whatever is brought.
            (
                "3 word 10000 9000 0 0 0",
                format!("20000 5000 here new 1 {u} 0"),
            ),
            ("3 word 90000 0 0 1 0", "20000 5000 here new 1 1 0".into()),
            // v = 1: the greater of each.
            (
                "3 word 10000 9000 1 0 0",
                format!("20000 9000 here new 1 {u} 0"),
            ),
            (
                "3 word 30000 0 1 0 0",
                format!("30000 5000 here new 1 {u} 0"),
            ),
            // v = 2: as brought.
            (
                "3 word 10000 9000 2 0 0",
                format!("10000 9000 here new 1 {u} 0"),
            ),
        ] {
            cases.add(line, &boot, hello, &format!("2 3 word {stored}"));
        }
        let hello = "3 other 10000 9000 0 0 0";
        let after = format!("2 3 other 10000 9000 here new 0 {u} 0");
        cases.add("NEW of another list: as brought", &boot, hello, &after);
        let hello = "5 word 10000 9000 1 0 0";
        let after = format!("2 5 word 10000 9000 here new 1 {u} 0");
        cases.add("NEW of another N: as brought", &boot, hello, &after);
    }
    let line = "2 replid2 turned to zeros: the same memory, under its new name";
    let boot = "2 3 word 20000 5000 freed old 0 0 1000";
    for (x, w) in [("2000", 2000), ("2000/run", 1000), ("2000/nobody", 1000)] {
        let hello = format!("3 word 20000 5000 0 0 {x}");
        let after = format!("2 3 word 20000 5000 here old 0 0 {w}");
        cases.add(line, boot, &hello, &after);
    }
}

fn another_format(cases: &mut Cases) {
    for boot in [
        "1 3 here old 20000 1000 500",
        "3 RUN",
        "77 what:RUN:ever",
        "0 here",
        "99999999999999999999999 RUN",
    ] {
        for hello in ["3 word 20000 5000 0 0 0", "3 word 20000 5000 2 1 0"] {
            cases.add("3 another format, of this run", boot, hello, "=");
        }
    }
    for boot in ["1 3 there old 20000 90000 500", "3", "0", "77 whatever"] {
        let line = "3 another format, of another run";
        let hello = "3 word 20000 5000 1 0 0";
        cases.add(line, boot, hello, "2 3 word 20000 5000 here new 1 0 0");
    }
}

/// Lines 4 and 5, and 6 where 4 does not apply: v brought × v stored × w at Z − 1 and Z.
fn who_vouches_replaces(cases: &mut Cases) {
    for v in 0..=2 {
        for stored in 0..=1 {
            for w in [25_199, 25_200] {
                let unripe = w == 25_199;
                // u is told to a memory that goes on.
                let hello = format!("3 word 20000 5000 {v} 0 0");
                for fleet in ["5 word", "3 other"] {
                    let boot = format!("2 {fleet} 20000 5000 here old {stored} 1 {w}");
                    let after = match v >= 1 && unripe {
                        true => "2 3 word 20000 5000 here new 1 1 0",
                        false => "=",
                    };
                    cases.add("4, 5 another N or list", &boot, &hello, after);
                }
                // Z is the same: 10 s more margin, 10.1 s less max_ttl.
                for (max_ttl, margin) in [(20_001, 4998), (9900, 15_201)] {
                    let old = format!("2 3 word {max_ttl} {margin} here old {stored} 0 {w}");
                    let z = Terms {
                        max_ttl: Duration::from_millis(max_ttl),
                        margin: Duration::from_millis(margin),
                    }
                    .quarantine();
                    assert_eq!(z, 25_200);
                    let joined = (max_ttl.max(20_000), margin.max(5000));
                    let after = match (v, stored, unripe) {
                        (1 | 2, 0, true) | (2, 1, true) => {
                            "2 3 word 20000 5000 here new 1 0 0".to_owned()
                        }
                        // 6
                        (1 | 2, ..) | (0, 0, true) => {
                            let (max_ttl, margin) = joined;
                            let v = stored.max(v.min(1));
                            format!("2 3 word {max_ttl} {margin} here old {v} 0 {w}")
                        }
                        _ => old.clone(),
                    };
                    cases.add("4, 6 greater stored", &old, &hello, &after);
                }
            }
        }
    }
}

/// Line 6 where what stands is not greater.
fn terms_grow(cases: &mut Cases) {
    for v in 0..=2 {
        for stored in 0..=1 {
            for w in [25_199, 25_200] {
                let changes = v >= 1 || (stored == 0 && w == 25_199);
                let boot = format!("2 3 word 20000 5000 here old {stored} 0 {w}");
                let now = stored.max(v.min(1));
                for (max_ttl, margin) in [(20_000, 5000), (20_001, 5000), (20_000, 5001)] {
                    let hello = format!("3 word {max_ttl} {margin} {v} 0 0");
                    let after = match changes {
                        true => format!("2 3 word {max_ttl} {margin} here old {now} 0 {w}"),
                        false => boot.clone(),
                    };
                    cases.add("6 equal or greater brought", &boot, &hello, &after);
                }
            }
        }
    }
}

fn used_and_witnessed(cases: &mut Cases) {
    for (stored, told, after) in [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)] {
        // Of a voter too, and from a stranger that may change nothing else.
        for w in [25_199, 25_200] {
            let boot = format!("2 3 word 20000 5000 here old 1 {stored} {w}");
            let hello = format!("3 word 10000 5000 0 {told} 0");
            let after = format!("2 3 word 20000 5000 here old 1 {after} {w}");
            cases.add("6a u is never taken back", &boot, &hello, &after);
        }
    }
    let line = "7 w grows by who knows run and id";
    for (w, x, after) in [
        (1000, "999", 1000),
        (1000, "1001", 1001),
        (1000, "9000/nobody", 1000),
        (1000, "9000/run", 1000),
        (1000, "9000/id", 1000),
        (1000, "25199", 25_199),
        (1000, "25200", 25_200),
        (25_200, "26000", 26_000),
        // At most 27 h.
        (25_200, "97199999", 97_199_999),
        (25_200, "97200000", 97_200_000),
        (25_200, "97200001", 97_200_000),
        (25_200, "18446744073709551615", 97_200_000),
    ] {
        let boot = format!("2 3 word 20000 5000 here old 0 0 {w}");
        let hello = format!("3 word 20000 5000 0 0 {x}");
        let after = format!("2 3 word 20000 5000 here old 0 0 {after}");
        cases.add(line, &boot, &hello, &after);
    }
    let line = "7 at most Z, where that is more than 27 h, and it is that of what now stands";
    for x in [173_663_999, 173_664_000, 173_664_001] {
        let w = x.min(173_664_000);
        let boot = "2 3 word 86400000 86400000 here old 0 0 0";
        let hello = format!("3 word 20000 5000 0 0 {x}");
        let after = format!("2 3 word 86400000 86400000 here old 0 0 {w}");
        cases.add(line, boot, &hello, &after);
        let boot = "2 3 word 20000 5000 here old 0 0 0";
        let hello = format!("3 word 86400000 86400000 1 0 {x}");
        let after = format!("2 3 word 86400000 86400000 here old 1 0 {w}");
        cases.add(line, boot, &hello, &after);
    }
}

/// Every mode of ADMIT.
pub(crate) fn admit_cases() -> Vec<AdmitCase> {
    let mut cases = Vec::new();
    let mut add = |line: &str, boot: &str, brought: &str, after: &str| {
        let (boot, brought) = (spelled(boot), spelled(brought));
        let words: Vec<&str> = brought.split(' ').collect();
        let [masters, list, max_ttl, margin, run, id, w, mode] = words[..] else {
            panic!("{brought}")
        };
        let admit = Admit {
            masters: masters.parse().unwrap(),
            list: list.into(),
            run: run.into(),
            id: id.into(),
            terms: terms(max_ttl, margin),
            witnessed: w.parse().unwrap(),
            mode: match mode {
                "new" => Mode::New,
                "raise" => Mode::Raise,
                _ => Mode::Forced,
            },
        };
        cases.push(AdmitCase {
            line: format!("{line}: {boot:?}, {admit:?}"),
            boot,
            admit,
            after: (after != "=").then(|| spelled(after)),
        });
    };
    let boot = "2 3 word 20000 5000 here old 0 0 25200";
    for mode in ["new", "raise", "forced"] {
        for brought in [
            "5 word 20000 5000 here old 25200",
            "3 other 20000 5000 here old 25200",
            "3 word 20000 5000 there old 25200",
            "3 word 20000 5000 here other 25200",
            "3 word 19999 5000 here old 25200",
            "3 word 20000 4999 here old 25200",
        ] {
            let line = "another record, or greater terms stored";
            add(line, boot, &format!("{brought} {mode}"), "=");
        }
        let brought = format!("3 word 30000 6000 here old 25199 {mode}");
        let after = "2 3 word 30000 6000 here old 1 0 25200";
        add("terms as brought, w the greater", boot, &brought, after);
        let brought = format!("3 word 20000 5000 here old 97200000 {mode}");
        let after = "2 3 word 20000 5000 here old 1 0 97200000";
        add("w as brought", boot, &brought, after);
        for bad in [
            "garbage",
            "1 3 here old 20000 25200 500",
            "2 3 word 20000 5000 here old 0 2 25200",
            "2 3 word 86400001 5000 here old 0 0 99999999",
            "2 3 word 20000 5000 here old 0 0 1000000000000000",
        ] {
            let brought = format!("3 word 86400000 86400000 here old 25200 {mode}");
            add("what does not parse", bad, &brought, "=");
        }
        // u, and whether it votes.
        for (u, w) in [(0, 25_199), (0, 25_200), (1, 25_199), (1, 25_200)] {
            let boot = format!("2 3 word 20000 5000 here old 0 {u} {w}");
            let refused = match mode {
                "new" => u == 1,
                "raise" => w == 25_199,
                _ => false,
            };
            let after = match refused {
                true => "=".to_owned(),
                false => format!("2 3 word 20000 5000 here old 1 {u} 25200"),
            };
            let brought = format!("3 word 20000 5000 here old 25200 {mode}");
            add("u of new ones, a vote to raise", &boot, &brought, &after);
        }
    }
    cases
}

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
    for Case {
        line,
        boot,
        hello,
        after,
    } in cases()
    {
        let met = meet(boot.as_deref(), &server(), &hello, Rules::ALL);
        assert_eq!(text(met), after, "{line}");
    }
}

#[test]
fn every_mode_of_admit() {
    for AdmitCase {
        line,
        boot,
        admit: brought,
        after,
    } in admit_cases()
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
            Some("2 3 word 1 0 RUN/x/-1 old 0 0 0"),
        ] {
            let hello = brought("3 word 20000 5000 2 1 0", None);
            assert_eq!(meet(boot, &server, &hello, Rules::ALL), None);
        }
    }
}

#[test]
fn a_run_is_the_process_and_what_it_was_meanwhile() {
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

/// What each trap of §10 does once its rule is off.
#[cfg(feature = "test-util")]
mod without {
    use super::*;
    use crate::rules::Rule::*;

    /// What stands after, with the rule and without it.
    #[track_caller]
    fn case(rule: Rule, boot: &str, hello: &str, with: &str, without: &str) {
        let boot = spelled(boot);
        let hello = brought(hello, Some(&boot));
        for (rules, after) in [(Rules::ALL, with), (Rules::without(rule), without)] {
            let met = text(meet(Some(&boot), &server(), &hello, rules));
            let after = (after != "=").then(|| spelled(after));
            assert_eq!(met, after, "{rule:?}");
        }
    }

    #[test]
    fn run_and_record() {
        case(
            RunAndRecord,
            "2 3 word 20000 5000 there old 0 0 25200",
            "3 word 20000 5000 0 0 0",
            "2 3 word 20000 5000 here new 1 1 0",
            "2 3 word 20000 5000 here old 0 0 25200",
        );
    }

    #[test]
    fn run_first() {
        for boot in [
            "2 5 word 20000 5000 there old 0 0 0",
            "2 3 other 20000 5000 there old 0 0 0",
            "1 3 there old 20000 0 500",
        ] {
            let hello = "3 word 20000 5000 0 0 0";
            case(
                RunFirst,
                boot,
                hello,
                "2 3 word 20000 5000 here new 0 0 0",
                "=",
            );
        }
    }

    #[test]
    fn same_fleet_and_same_list() {
        let hello = "3 word 20000 5000 0 0 0";
        for (rule, boot) in [
            (SameFleet, "2 5 word 20000 5000 here old 0 0 25200"),
            (SameList, "2 3 other 20000 5000 here old 0 0 25200"),
        ] {
            case(rule, boot, hello, "=", boot);
        }
    }

    #[test]
    fn voucher_replaces() {
        let hello = "3 word 20000 5000 1 0 0";
        let new = "2 3 word 20000 5000 here new 1 0 0";
        case(
            VoucherReplaces,
            "2 5 word 20000 5000 here old 0 0 0",
            hello,
            new,
            "=",
        );
        case(
            VoucherReplaces,
            "2 3 word 30000 5000 here old 0 0 0",
            hello,
            new,
            "2 3 word 30000 5000 here old 1 0 0",
        );
    }

    #[test]
    fn lone_voter_lowers() {
        case(
            LoneVoterLowers,
            "2 3 word 30000 5000 here old 1 0 0",
            "3 word 20000 5000 1 0 0",
            "2 3 word 30000 5000 here old 1 0 0",
            "2 3 word 20000 5000 here new 1 0 0",
        );
    }

    #[test]
    fn strangers_change_nothing() {
        case(
            StrangersChangeNothing,
            "2 3 word 20000 5000 here old 1 0 0",
            "3 word 30000 5000 0 0 0",
            "2 3 word 20000 5000 here old 1 0 0",
            "2 3 word 30000 5000 here old 1 0 0",
        );
    }

    #[test]
    fn disk_vouches() {
        case(
            DiskVouches,
            "2 3 word 20000 5000 there old 0 0 25200",
            "3 word 10000 0 0 0 0",
            "2 3 word 20000 5000 here new 1 1 0",
            "2 3 word 10000 0 here new 0 1 0",
        );
    }

    #[test]
    fn margin_in_record() {
        // A voter for who brings less: it is not replaced.
        case(
            MarginInRecord,
            "2 5 word 20000 5000 here old 0 0 21200",
            "3 word 20000 1000 1 0 0",
            "2 3 word 20000 1000 here new 1 0 0",
            "=",
        );
    }

    #[test]
    fn own_guard() {
        let record: BootRecord = "2 3 word 20000 5000 r old 0 0 0".parse().unwrap();
        assert_eq!(record.guard(Rules::ALL), "2 3 word 20000 5000 old");
        assert_eq!(
            record.guard(Rules::without(OwnGuard)),
            "2 3 word 20000 5000 "
        );
    }
}
