//! The numbered lines of HANDSHAKE (protocol §2), with one case or more each: the record before, what a client brings,
//! and the record afterwards.

use super::*;

/// One case. `RUN` is the server's run id.
pub(crate) struct Line {
    /// The number of the line in the protocol, and what it says.
    pub(crate) line: String,
    pub(crate) boot: Option<String>,
    pub(crate) hello: Handshake,
    /// A client of the record's own fleet was there a moment ago.
    pub(crate) visited: bool,
    /// None: nothing may be written.
    pub(crate) after: Option<String>,
}

/// Parses "N list max_ttl M v u x". x is `2000` for a client that has read the stored record. It is `2000/nobody`,
/// `2000/run` or `2000/id` for a client that has read none, another run or another id.
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
struct Lines(Vec<Line>);

impl Lines {
    /// `boot` "-": there is no record. `after` "=": nothing is written.
    fn add(&mut self, line: &str, boot: &str, hello: &str, after: &str) {
        let boot = (boot != "-").then(|| spelled(boot));
        let hello = brought(hello, boot.as_deref());
        self.0.push(Line {
            line: format!("{line}: {boot:?}, {hello:?}"),
            boot,
            hello,
            visited: false,
            after: (after != "=").then(|| spelled(after)),
        });
    }

    /// The same, when a client of the record's own fleet was there a moment ago.
    fn add_visited(&mut self, line: &str, boot: &str, hello: &str, after: &str) {
        self.add(line, boot, hello, after);
        self.0.last_mut().expect("it was just added").visited = true;
    }
}

// Z of 20000 5000 is 25200.

/// Every line of HANDSHAKE except the first.
pub(crate) fn lines() -> Vec<Line> {
    let mut lines = Lines::default();
    no_record(&mut lines);
    another_run(&mut lines);
    thrown_away(&mut lines);
    another_format(&mut lines);
    who_vouches_replaces(&mut lines);
    what_never_voted_gives_way(&mut lines);
    terms_grow(&mut lines);
    used_and_witnessed(&mut lines);
    lines.0
}

fn no_record(lines: &mut Lines) {
    let line = "2 no record: what was brought, and w = 0";
    for (hello, after) in [
        (
            "3 word 20000 5000 0 0 90000",
            "3 3 word 20000 5000 here new 0 0 0",
        ),
        (
            "3 word 20000 5000 1 0 90000",
            "3 3 word 20000 5000 here new 1 0 0",
        ),
        ("5 list 1 0 2 1 0", "3 5 list 1 0 here new 1 1 0"),
    ] {
        lines.add(line, "-", hello, after);
    }
    let line = "3 what does not parse is no record";
    for bad in [
        "",
        "garbage",
        "garbage here",
        "3",
        "03 3 word 20000 5000 here old 1 1 90000",
        " 3 3 word 20000 5000 here old 1 1 90000",
        "3 3 word 20000 5000 here old 1 1 90000 ",
        "3 3 word 20000 5000 here old 1 1",
        "3 3  20000 5000 here old 1 1 90000",
        "3 3 word 20000 5000 here old 2 1 90000",
        "3 3 word 20000 5000 here old 1 x 90000",
        "3 3 word 20000 5000 here old 1 1 -90000",
        "3 3 word 20000 5000 here old 1 1 9e4",
        "3 3 word 20000 5000 here old 1 1 1000000000000000",
        "3 1000000000000000 word 20000 5000 here old 1 1 0",
        // Terms above 24 h.
        "3 3 word 86400001 5000 here old 1 1 90000",
        "3 3 word 20000 86400001 here old 1 1 90000",
    ] {
        let hello = "3 word 20000 5000 0 0 90000";
        lines.add(line, bad, hello, "3 3 word 20000 5000 here new 0 0 0");
    }
    for day in [
        "3 3 word 86400000 5000 here old 0 0 7",
        "3 3 word 20000 86400000 here old 0 0 7",
    ] {
        let line = "3 24 h is a record";
        lines.add(line, day, "3 word 20000 5000 0 0 0", day);
    }
}

fn thrown_away(lines: &mut Lines) {
    let line = "2a a record of throw-away servers is none for others, also if it votes";
    for old in ["old 0 0 97200000", "old 1 1 90000", "old 0 0 7"] {
        let boot = format!("3 3 throwaway 30000 6000 here {old}");
        for (hello, after) in [
            (
                "3 word 20000 5000 0 0 90000",
                "3 3 word 20000 5000 here new 0 0 0",
            ),
            (
                "5 word 20000 5000 2 1 0/nobody",
                "3 5 word 20000 5000 here new 1 1 0",
            ),
        ] {
            lines.add(line, &boot, hello, after);
            lines.add_visited(line, &boot, hello, after);
        }
    }
    let line = "7 their own client says at once that it has watched them";
    lines.add(
        line,
        "3 3 throwaway 20000 5000 here old 0 0 0",
        "3 throwaway 20000 5000 0 0 97200000",
        "3 3 throwaway 20000 5000 here old 0 0 97200000",
    );
    let line = "2a it replaces no other record, of this run or another";
    for old in ["old 1 0 90000", "old 0 0 25200", "old 1 0 0", "old 0 0 7"] {
        for run in ["here", "there"] {
            let boot = format!("3 3 word 20000 5000 {run} {old}");
            lines.add(line, &boot, "3 throwaway 20000 5000 0 0 97200000", "=");
        }
    }
    let line = "2a nor one of another format";
    let boot = "2 3 word 20000 5000 there old 0 0 7";
    lines.add(line, boot, "3 throwaway 20000 5000 0 0 97200000", "=");
    let line = "6 their terms grow also where they vote, and after a restart from a disk";
    for (run, after) in [
        ("here old 0 0 97200000", "here old 0 0 97200000"),
        ("there old 0 0 97200000", "here new 1 1 0"),
    ] {
        lines.add(
            line,
            &format!("3 3 throwaway 20000 5000 {run}"),
            "3 throwaway 30000 4000 0 0 97200000",
            &format!("3 3 throwaway 30000 5000 {after}"),
        );
    }
}

fn another_run(lines: &mut Lines) {
    let line = "2 another run, that did not vote: what was brought";
    for (boot, hello, after) in [
        // With any N and list.
        (
            "3 3 word 30000 6000 there old 0 0 36299",
            "3 word 20000 5000 0 0 90000",
            "3 3 word 20000 5000 here new 0 0 0",
        ),
        (
            "3 5 word 20000 5000 there old 1 0 25199",
            "3 word 20000 5000 0 0 90000",
            "3 3 word 20000 5000 here new 0 0 0",
        ),
        (
            "3 3 other 20000 5000 there old 1 0 25199",
            "3 word 20000 5000 1 0 90000",
            "3 3 word 20000 5000 here new 1 0 0",
        ),
        // u goes on.
        (
            "3 3 word 20000 5000 there old 0 1 0",
            "3 word 20000 5000 0 0 0",
            "3 3 word 20000 5000 here new 0 1 0",
        ),
        (
            "3 3 word 20000 5000 there old 0 0 0",
            "3 word 20000 5000 0 1 0",
            "3 3 word 20000 5000 here new 0 1 0",
        ),
    ] {
        lines.add(line, boot, hello, after);
    }
    let line = "NEW of what had voted, or was vouched for: its terms";
    for old in [
        "there old 0 0 25200",
        "there old 1 0 25199",
        "there old 1 0 0",
    ] {
        let boot = format!("3 3 word 20000 5000 {old}");
        // 1 if it had voted.
        let u = u8::from(old.ends_with("25200"));
        for (hello, stored) in [
            // v = 0: the old terms stay, no matter which terms the client brings.
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
            lines.add(line, &boot, hello, &format!("3 3 word {stored}"));
        }
        let hello = "3 other 10000 9000 0 0 0";
        let after = format!("3 3 other 10000 9000 here new 0 {u} 0");
        lines.add("NEW of another list: as brought", &boot, hello, &after);
        let hello = "5 word 10000 9000 1 0 0";
        let after = format!("3 5 word 10000 9000 here new 1 {u} 0");
        lines.add("NEW of another N: as brought", &boot, hello, &after);
    }
    let line = "2 replid2 turned to zeros: the same memory, under its new name";
    let boot = "3 3 word 20000 5000 freed old 0 0 1000";
    for (x, w) in [("2000", 2000), ("2000/run", 1000), ("2000/nobody", 1000)] {
        let hello = format!("3 word 20000 5000 0 0 {x}");
        let after = format!("3 3 word 20000 5000 here old 0 0 {w}");
        lines.add(line, boot, &hello, &after);
    }
}

fn another_format(lines: &mut Lines) {
    for boot in [
        "1 3 here old 20000 1000 500",
        // A whole record of format 2, whose words are those of format 3.
        "2 3 word 20000 5000 here old 1 1 90000",
        "2 RUN",
        "4 RUN",
        "77 what:RUN:ever",
        "0 here",
        "99999999999999999999999 RUN",
    ] {
        for hello in ["3 word 20000 5000 0 0 0", "3 word 20000 5000 2 1 0"] {
            lines.add("3 another format, of this run", boot, hello, "=");
        }
    }
    for boot in [
        "1 3 there old 20000 90000 500",
        "2 3 word 20000 5000 there old 1 1 90000",
        "2",
        "4",
        "0",
        "77 whatever",
    ] {
        let line = "3 another format, of another run";
        let hello = "3 word 20000 5000 1 0 0";
        lines.add(line, boot, hello, "3 3 word 20000 5000 here new 1 1 0");
    }
    // A lease may still run by the terms in it, so they count as those of a record of this format do.
    let line = "3 the terms of another format, of another run";
    let vouched = "2 3 word 40000 9000 there old 1 1 90000";
    let unknown = "4 3 word 40000 9000 there and some other words";
    for (boot, v, after) in [
        (vouched, 0, "word 40000 9000 here new 1"),
        (vouched, 1, "word 40000 9000 here new 1"),
        (vouched, 2, "word 20000 5000 here new 1"),
        (unknown, 0, "word 40000 9000 here new 1"),
        (unknown, 2, "word 20000 5000 here new 1"),
        // A number that this format does not have.
        (
            "2 3 word 40000 9000 there old 1 1 1000000000000000",
            0,
            "word 40000 9000 here new 1",
        ),
        (
            "2 3 word 40000 9000 there old 0 0 90000",
            0,
            "word 40000 9000 here new 1",
        ),
        // A stranger wrote these, or another fleet, or they are not valid.
        (
            "2 3 word 40000 9000 there old 0 0 10",
            0,
            "word 20000 5000 here new 0",
        ),
        (
            "2 3 other 40000 9000 there old 1 1 90000",
            0,
            "word 20000 5000 here new 0",
        ),
        ("4 5 word 40000 9000 there", 0, "word 20000 5000 here new 0"),
        (
            "4 3 word 86400001 9000 there",
            0,
            "word 20000 5000 here new 0",
        ),
        ("4 3 word 40000 9000", 0, "word 20000 5000 here new 0"),
    ] {
        let hello = format!("3 word 20000 5000 {v} 0 0");
        lines.add(line, boot, &hello, &format!("3 3 {after} 1 0"));
    }
}

/// Lines 4 and 5, and 6 when 4 does not apply: v brought × v stored × w at Z − 1 and Z.
fn who_vouches_replaces(lines: &mut Lines) {
    for v in 0..=2 {
        for stored in 0..=1 {
            for w in [25_199, 25_200] {
                let unripe = w == 25_199;
                // The u of the old record goes on in the new one.
                let hello = format!("3 word 20000 5000 {v} 0 0");
                for fleet in ["5 word", "3 other"] {
                    let boot = format!("3 {fleet} 20000 5000 here old {stored} 1 {w}");
                    let after = match v >= 1 && unripe {
                        true => "3 3 word 20000 5000 here new 1 1 0",
                        // Nobody has vouched for it, and this client has read it before (4a).
                        false if v == 0 && stored == 0 && unripe => {
                            "3 3 word 20000 5000 here new 0 1 0"
                        }
                        false => "=",
                    };
                    lines.add("4, 5 another N or list", &boot, &hello, after);
                }
                // Z is the same: 10 s more margin, 10.1 s less max_ttl.
                for (max_ttl, margin) in [(20_001, 4998), (9900, 15_201)] {
                    let old = format!("3 3 word {max_ttl} {margin} here old {stored} 0 {w}");
                    let z = Terms {
                        max_ttl: Duration::from_millis(max_ttl),
                        margin: Duration::from_millis(margin),
                    }
                    .quarantine();
                    assert_eq!(z, 25_200);
                    let joined = (max_ttl.max(20_000), margin.max(5000));
                    let after = match (v, stored, unripe) {
                        (1 | 2, 0, true) | (2, 1, true) => {
                            "3 3 word 20000 5000 here new 1 0 0".to_owned()
                        }
                        // Line 6.
                        (1 | 2, ..) | (0, 0, true) => {
                            let (max_ttl, margin) = joined;
                            let v = stored.max(v.min(1));
                            format!("3 3 word {max_ttl} {margin} here old {v} 0 {w}")
                        }
                        _ => old.clone(),
                    };
                    lines.add("4, 6 greater stored", &old, &hello, &after);
                }
            }
        }
    }
}

/// Line 4 for a client that sees no voter: v stored × u stored × w at Z − 1 and Z, with and without a visit.
fn what_never_voted_gives_way(lines: &mut Lines) {
    let line = "4 another N or list that never voted";
    // Z of 90000 5000 is 95900.
    for (v, u, w) in [
        (0, 0, 0),
        (0, 0, 95_899),
        (0, 0, 95_900),
        (0, 1, 0),
        (1, 0, 0),
        (1, 1, 95_899),
    ] {
        for fleet in ["5 word", "3 other"] {
            let boot = format!("3 {fleet} 90000 5000 here old {v} {u} {w}");
            let hello = "3 word 20000 5000 0 0 90000";
            let after = match (v, u, w) {
                (0, 0, 0..95_900) => "3 3 word 20000 5000 here new 0 0 0",
                (0, 1, 0) => "3 3 word 20000 5000 here new 0 1 0",
                _ => "=",
            };
            lines.add(line, &boot, hello, after);
            for unread in ["nobody", "run", "id"] {
                lines.add(line, &boot, &format!("{hello}/{unread}"), "=");
            }
            lines.add_visited(line, &boot, hello, "=");
        }
    }
    let line = "4 a record of one's own goes on";
    let boot = "3 3 word 20000 5000 here old 0 0 1000";
    let after = "3 3 word 20000 5000 here old 0 0 2000";
    lines.add(line, boot, "3 word 20000 5000 0 0 2000", after);
}

/// Line 6 when the stored terms are not greater.
fn terms_grow(lines: &mut Lines) {
    for v in 0..=2 {
        for stored in 0..=1 {
            for w in [25_199, 25_200] {
                let changes = v >= 1 || (stored == 0 && w == 25_199);
                let boot = format!("3 3 word 20000 5000 here old {stored} 0 {w}");
                let now = stored.max(v.min(1));
                for (max_ttl, margin) in [(20_000, 5000), (20_001, 5000), (20_000, 5001)] {
                    let hello = format!("3 word {max_ttl} {margin} {v} 0 0");
                    let after = match changes {
                        true => format!("3 3 word {max_ttl} {margin} here old {now} 0 {w}"),
                        false => boot.clone(),
                    };
                    lines.add("6 equal or greater brought", &boot, &hello, &after);
                }
            }
        }
    }
}

fn used_and_witnessed(lines: &mut Lines) {
    for (stored, told, after) in [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)] {
        // Also for a voter, and from a client that sees no voters and may change nothing else.
        for w in [25_199, 25_200] {
            let boot = format!("3 3 word 20000 5000 here old 1 {stored} {w}");
            let hello = format!("3 word 10000 5000 0 {told} 0");
            let after = format!("3 3 word 20000 5000 here old 1 {after} {w}");
            lines.add("6a u is never taken back", &boot, &hello, &after);
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
        let boot = format!("3 3 word 20000 5000 here old 0 0 {w}");
        let hello = format!("3 word 20000 5000 0 0 {x}");
        let after = format!("3 3 word 20000 5000 here old 0 0 {after}");
        lines.add(line, &boot, &hello, &after);
    }
    let line = "7 at most Z, where that is more than 27 h, and it is that of what now stands";
    for x in [173_663_999, 173_664_000, 173_664_001] {
        let w = x.min(173_664_000);
        let boot = "3 3 word 86400000 86400000 here old 0 0 0";
        let hello = format!("3 word 20000 5000 0 0 {x}");
        let after = format!("3 3 word 86400000 86400000 here old 0 0 {w}");
        lines.add(line, boot, &hello, &after);
        let boot = "3 3 word 20000 5000 here old 0 0 0";
        let hello = format!("3 word 86400000 86400000 1 0 {x}");
        let after = format!("3 3 word 86400000 86400000 here old 1 0 {w}");
        lines.add(line, boot, &hello, &after);
    }
}
