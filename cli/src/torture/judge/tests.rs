//! Each test plants one violation in a history. The judge must find it, give its kind, and name the operations. The
//! sound history beside them is accepted.

mod rwlocks;
mod several;
mod slots;

use std::ops::Range;

use super::*;
use crate::torture::history::{Access, Accesses, Event, Line, Side, parse};

const MS: u64 = 1_000_000;

/// A history in which tests plant violations. Times are in ms.
struct Told {
    files: Vec<(&'static str, Vec<Line>)>,
}

impl Told {
    fn by(labels: &[&'static str]) -> Self {
        let process = |label: &str| Event::Process {
            label: label.into(),
            clock: "this boot".into(),
            ttl_ms: 2_000,
            locks: Locks::default(),
        };
        let files = labels.iter().map(|label| {
            (
                *label,
                vec![Line {
                    at: 0,
                    event: process(label),
                }],
            )
        });
        Self {
            files: files.collect(),
        }
    }

    fn say(&mut self, label: &str, at: u64, event: Event) -> &mut Self {
        let file = self.files.iter_mut().find(|file| file.0 == label).unwrap();
        file.1.push(Line { at: at * MS, event });
        self
    }

    fn granted(&mut self, label: &str, op: u64, at: u64, token: u64) -> &mut Self {
        self.say(label, at - 5, invoked(op, "a"));
        self.say(
            label,
            at,
            Event::Granted {
                op,
                token,
                valid_ns: 1_900 * MS,
                slot: None,
            },
        )
    }

    /// A section that reads and writes `fenced` and `plain`, at this time in ms.
    fn section(
        &mut self,
        label: &str,
        op: u64,
        time: Range<u64>,
        token: u64,
        wrote: (Access, Access),
    ) -> &mut Self {
        let Range { start: at, end } = time;
        let read = |access: Access| {
            access
                .value()
                .map_or(access, |value| Access::Value(value - 1))
        };
        let valid_until = (at + 1_900) * MS;
        self.granted(label, op, at, token);
        self.say(
            label,
            at,
            Event::Begun {
                op,
                fenced: read(wrote.0),
                plain: read(wrote.1),
                also: Vec::new(),
            },
        );
        self.say(
            label,
            end,
            Event::Ended {
                op,
                fenced: wrote.0,
                plain: wrote.1,
                also: Vec::new(),
                valid_until,
            },
        );
        self.say(
            label,
            end,
            Event::Released {
                op,
                outcome: "confirmed".into(),
            },
        )
    }

    /// Judges it as if it were read from disk, after a look that found nothing.
    fn judge(&self) -> Summary {
        let mut parts = self.parts();
        let looked = r#"{"at":0,"event":"looked","node":"node1","silent":null}"#;
        parts.push(parse("looked", &format!("{looked}\n")).unwrap());
        judge("test", &parts).unwrap()
    }

    fn parts(&self) -> Vec<Part> {
        let parts = self.files.iter().map(|(label, lines)| {
            let lines = lines
                .iter()
                .map(|line| serde_json::to_string(line).unwrap() + "\n");
            parse(&format!("{label}.jsonl"), &lines.collect::<String>()).unwrap()
        });
        parts.collect()
    }
}

fn invoked(op: u64, name: &str) -> Event {
    Event::Invoked {
        op,
        name: name.into(),
        also: Vec::new(),
        side: None,
    }
}

fn both(value: u64) -> (Access, Access) {
    (Access::Value(value), Access::Value(value))
}

/// Checks that exactly one thing is found, that it has this kind, and that its text contains all of these.
#[track_caller]
fn finds(told: &Told, kind: Kind, names: &[&str]) {
    let summary = told.judge();
    assert!(!summary.held());
    let [finding] = summary.findings.as_slice() else {
        panic!("{:#?}", summary.findings)
    };
    assert_eq!(finding.kind, kind, "{}", finding.text);
    for name in names {
        assert!(
            finding.text.contains(name),
            "no {name:?} in {}",
            finding.text
        );
    }
}

/// Checks that this is found, perhaps among other things.
#[track_caller]
fn finds_some(told: &Told, kind: Kind, text: &str) {
    let found = told.judge().findings;
    let is_it = |it: &Finding| it.kind == kind && it.text.contains(text);
    assert!(found.iter().any(is_it), "no {text:?} in {found:#?}");
}

/// Two clients that take turns, and the store at the end.
fn sound() -> Told {
    let mut told = Told::by(&["p", "q", "look"]);
    told.section("p", 1, 10..20, 100, both(1));
    told.section("q", 1, 30..40, 101, both(2));
    told.section("p", 2, 50..60, 102, both(3));
    told.say(
        "look",
        100,
        Event::Stored {
            name: "a".into(),
            fenced: 3,
            plain: 3,
        },
    );
    told
}

#[test]
fn a_sound_history_holds() {
    let summary = sound().judge();
    assert!(summary.held(), "{:#?}", summary.findings);
    assert_eq!(
        (summary.sections, summary.grants, summary.lost_plain),
        (3, 3, 0)
    );
    assert_eq!(summary.scenario.name, "test");
}

#[test]
fn two_holders_at_once() {
    let mut told = sound();
    told.section("q", 2, 55..70, 103, both(4));
    told.files[2].1.pop();
    finds(
        &told,
        Kind::Exclusion,
        &[
            "p's operation 2 on \"a\" (p.jsonl, line 7",
            "q's operation 2 on \"a\" (q.jsonl, line 7",
            "for 5.000 ms",
        ],
    );
}

#[test]
fn a_holder_whose_validity_is_over_holds_no_more() {
    let mut told = sound();
    // p is frozen from 70 to 9,000. Others take over meanwhile, and the store refuses it.
    told.granted("q", 2, 70, 103);
    told.say(
        "q",
        71,
        Event::Begun {
            op: 2,
            fenced: Access::Value(3),
            plain: Access::Value(3),
            also: Vec::new(),
        },
    );
    told.section("p", 3, 2_100..2_200, 104, both(4));
    // It had waited since 75.
    let waited = told.files[0]
        .1
        .iter_mut()
        .find(|line| line.at == 2_095 * MS);
    waited.unwrap().at = 75 * MS;
    let refused = Event::Ended {
        op: 2,
        fenced: Access::REFUSED,
        plain: Access::Value(4),
        also: Vec::new(),
        valid_until: 1_970 * MS,
    };
    told.say("p", 2_250, Event::Stopping);
    told.say("q", 9_000, refused);
    told.files[2].1.pop();
    told.say(
        "look",
        9_500,
        Event::Stored {
            name: "a".into(),
            fenced: 4,
            plain: 4,
        },
    );
    let summary = told.judge();
    // One update is lost where nobody checks tokens. The refusal in the other store explains it.
    assert!(summary.held(), "{:#?}", summary.findings);
    assert_eq!(
        (summary.refused, summary.lost_plain, summary.lost_fenced),
        (1, 1, 0)
    );
    assert_eq!(summary.longest_gap, Some((2_100 - 1_970) * MS));
}

#[test]
fn a_holder_told_of_its_loss_no_longer_counts_as_holder() {
    let mut told = Told::by(&["p", "q"]);
    told.granted("p", 1, 10, 100);
    told.say(
        "p",
        50,
        Event::Lost {
            op: 1,
            reason: "evicted".into(),
        },
    );
    told.section("q", 1, 60..70, 101, (Access::NO_STORE, Access::NO_STORE));
    let none = Access::NO_STORE;
    told.say(
        "p",
        90,
        Event::Ended {
            op: 1,
            fenced: none,
            plain: none,
            also: Vec::new(),
            valid_until: 1_910 * MS,
        },
    );
    assert!(told.judge().held());
}

#[test]
fn a_killed_holder_held_while_it_lived() {
    let mut told = Told::by(&["p", "q"]);
    told.granted("p", 1, 10, 100);
    told.section("q", 1, 60..70, 101, (Access::NO_STORE, Access::NO_STORE));
    assert!(told.judge().held(), "nothing was heard of p after 10");
    told.say("p", 65, invoked(2, "a"));
    finds(
        &told,
        Kind::Exclusion,
        &["p's operation 1", "q's operation 1"],
    );
}

#[test]
fn a_token_that_goes_back() {
    let mut told = sound();
    told.section("q", 2, 80..90, 99, both(4));
    told.files[2].1.pop();
    let found = told.judge().findings;
    assert!(
        found.iter().all(|finding| finding.kind == Kind::Token),
        "{found:#?}"
    );
    let text = &found[0].text;
    assert!(
        text.contains("from 102 to 99")
            && text.contains("p's operation 2")
            && text.contains("q's operation 2"),
        "{text}"
    );
}

#[test]
fn a_token_given_twice() {
    let mut told = sound();
    told.section("q", 2, 80..90, 102, both(4));
    told.files[2].1.pop();
    finds(
        &told,
        Kind::Token,
        &[
            "token 102 was given twice",
            "p's operation 2",
            "q's operation 2",
        ],
    );
}

#[test]
fn a_grant_recorded_late_says_nothing_of_the_order() {
    let mut told = Told::by(&["p", "q"]);
    // p was granted at some time between 5 and 9,000, and its lease was over when it looked.
    told.say("p", 5, invoked(1, "a"));
    told.section(
        "q",
        1,
        6_000..6_010,
        101,
        (Access::NO_STORE, Access::NO_STORE),
    );
    told.say(
        "p",
        9_000,
        Event::Granted {
            op: 1,
            token: 100,
            valid_ns: 0,
            slot: None,
        },
    );
    let found = told.judge().findings;
    assert!(found.is_empty(), "{found:#?}");
    // But the order is certain if p asked after q had been granted.
    let mut told = Told::by(&["p", "q"]);
    told.section("q", 1, 60..70, 101, (Access::NO_STORE, Access::NO_STORE));
    told.say("p", 80, invoked(1, "a"));
    told.say(
        "p",
        9_000,
        Event::Granted {
            op: 1,
            token: 100,
            valid_ns: 0,
            slot: None,
        },
    );
    finds(&told, Kind::Token, &["from 101 to 100"]);
}

#[test]
fn a_lost_update_where_tokens_are_checked() {
    let mut told = sound();
    told.section("q", 2, 80..90, 103, (Access::Value(3), Access::Value(4)));
    told.files[2].1.pop();
    finds(
        &told,
        Kind::LostUpdate,
        &[
            "the store that checks tokens",
            "both wrote 3",
            "p's operation 2",
            "q's operation 2",
        ],
    );
}

#[test]
fn a_lost_update_elsewhere_needs_a_refusal() {
    let mut told = sound();
    told.section("q", 2, 80..90, 103, (Access::Value(4), Access::Value(3)));
    told.files[2].1.pop();
    finds(
        &told,
        Kind::LostUpdate,
        &[
            "without a check",
            "both wrote 3",
            "the store that checks tokens refused no writer meanwhile",
            "p's operation 2",
            "q's operation 2",
        ],
    );
}

#[test]
fn a_stale_holder_that_sets_the_counter_back_explains_what_follows() {
    let mut told = Told::by(&["p", "q", "look"]);
    told.section("p", 1, 10..20, 100, both(1));
    told.granted("q", 1, 30, 101);
    told.say(
        "q",
        31,
        Event::Begun {
            op: 1,
            fenced: Access::Value(1),
            plain: Access::Value(1),
            also: Vec::new(),
        },
    );
    told.section("p", 2, 2_000..2_010, 102, both(2));
    told.section("p", 3, 2_020..2_030, 103, both(3));
    // q writes 2 when the counter is 3. Then p gets to 3 a second time.
    let refused = Event::Ended {
        op: 1,
        fenced: Access::REFUSED,
        plain: Access::Value(2),
        also: Vec::new(),
        valid_until: 1_930 * MS,
    };
    told.say("q", 2_040, refused);
    told.section(
        "p",
        4,
        2_050..2_060,
        104,
        (Access::Value(4), Access::Value(3)),
    );
    told.say(
        "look",
        2_100,
        Event::Stored {
            name: "a".into(),
            fenced: 4,
            plain: 3,
        },
    );
    let summary = told.judge();
    assert!(summary.held(), "{:#?}", summary.findings);
    assert_eq!(summary.lost_plain, 2);
}

#[test]
fn updates_that_are_missing_at_the_end() {
    let mut told = sound();
    told.files[2].1.pop();
    told.say(
        "look",
        100,
        Event::Stored {
            name: "a".into(),
            fenced: 2,
            plain: 3,
        },
    );
    finds(
        &told,
        Kind::LostUpdate,
        &[
            "1 updates of \"a\" are missing",
            "it began with 0, 3 were written",
        ],
    );
}

#[test]
fn a_valid_holder_that_is_refused() {
    let mut told = sound();
    told.section("q", 2, 80..90, 103, (Access::REFUSED, Access::Value(4)));
    told.files[2].1.pop();
    finds(
        &told,
        Kind::Fence,
        &["q's operation 2", "no recorded operation"],
    );
}

#[test]
fn a_lock_left_on_a_node() {
    let mut told = sound();
    let left = |label: &str, token| Event::Left {
        node: "node4:6379".into(),
        name: "a".into(),
        slot: None,
        side: None,
        waits: false,
        label: label.into(),
        remaining_ms: Some(1_234),
        token,
    };
    told.say("look", 110, left("p", Some(100)));
    finds(
        &told,
        Kind::Leftover,
        &[
            "left on node4:6379",
            "of \"a\", by p, for 1234 ms more",
            "p's operation 1",
        ],
    );
    told.files[2].1.pop();
    // An operation that was never granted has no token.
    told.say("look", 110, left("p", Some(77)));
    finds(&told, Kind::Leftover, &["p's operation 2"]);
    told.files[2].1.pop();
    told.say(
        "look",
        110,
        Event::Looked {
            node: "node4:6379".into(),
            silent: Some("stalled".into()),
        },
    );
    finds(
        &told,
        Kind::Unseen,
        &["node4:6379 could not be inspected: stalled"],
    );
}

#[test]
fn a_run_without_a_grant_after_the_last_fault_is_a_finding() {
    let mut told = sound();
    told.say(
        "look",
        55,
        Event::Fault {
            what: "node1 killed".into(),
            stops: None,
        },
    );
    told.say(
        "look",
        61,
        Event::Healed {
            what: "node1 started".into(),
        },
    );
    finds(
        &told,
        Kind::Progress,
        &[
            "after the last fault (node1 started, at 0.061000 s)",
            "p's operation 2",
        ],
    );
}

#[test]
fn a_wait_longer_than_promised() {
    let scenario = |gap_ms| {
        Event::Scenario(Scenario {
            gap_ms: Some(gap_ms),
            ..Scenario::default()
        })
    };
    let with = |told: &mut Told, event| {
        told.say("look", 100, event);
        told.judge()
    };
    let mut told = sound();
    // The gap lasts from the last section to the end of a wait that failed.
    let why = "held".to_owned();
    told.say("p", 60, invoked(3, "a"));
    told.say("p", 100, Event::Failed { op: 3, why });
    told.say("look", 100, scenario(39));
    finds(
        &told,
        Kind::Progress,
        &["\"a\" for 40 ms", "39 ms is promised"],
    );
    assert!(with(&mut told, scenario(40)).held());
    // A process that was told to end asks for nothing more, no matter what it wrote down after that.
    told.say("p", 75, Event::Stopping);
    told.say("p", 76, invoked(4, "a"));
    let summary = with(&mut told, scenario(15));
    assert!(summary.held(), "{:#?}", summary.findings);
    assert!(!with(&mut told, scenario(14)).held());
    // The load starts again, much later.
    told.files.push(("r", told.files[0].1[..1].to_vec()));
    told.section("r", 1, 5_000..5_010, 104, both(4));
    told.files[2]
        .1
        .retain(|line| !matches!(line.event, Event::Stored { .. }));
    let summary = with(&mut told, scenario(15));
    assert!(summary.held(), "{:#?}", summary.findings);
    assert_eq!(summary.longest_gap, Some(15 * MS));
}

#[test]
fn a_name_that_is_never_granted_again_is_a_finding() {
    let wish = |told: &mut Told, op, name: &str, (from, until)| {
        told.say("p", from, invoked(op, name));
        told.say(
            "p",
            until,
            Event::Failed {
                op,
                why: "no_quorum".into(),
            },
        );
    };
    let mut told = sound();
    wish(&mut told, 3, "b", (60, 70));
    finds(&told, Kind::Progress, &["nobody was ever granted \"b\""]);
    let mut told = sound();
    for op in 3..23 {
        wish(&mut told, op, "a", (op * 1_000, op * 1_000 + 990));
    }
    finds(
        &told,
        Kind::Progress,
        &["\"a\" for the last 19 s", "p's operation 2"],
    );
    // A scenario states itself what may happen.
    let named = Scenario {
        name: "outage".into(),
        ..Scenario::default()
    };
    told.say("look", 100, Event::Scenario(named));
    assert!(told.judge().held());
}

#[test]
fn a_history_without_a_look_is_unseen() {
    let summary = judge("test", &sound().parts()).unwrap();
    let [finding] = summary.findings.as_slice() else {
        panic!("{:#?}", summary.findings)
    };
    assert_eq!(finding.kind, Kind::Unseen);
}

#[test]
fn a_fault_without_a_holder_is_vacuous() {
    let held = Scenario {
        must_see: vec![Sight::Held],
        ..Scenario::default()
    };
    let faulty = |at| {
        let mut told = sound();
        told.say("look", 0, Event::Scenario(held.clone()));
        told.say(
            "look",
            at,
            Event::Fault {
                what: "all killed".into(),
                stops: None,
            },
        );
        told.section("q", 2, 80..90, 103, both(4));
        told.files[2]
            .1
            .retain(|line| !matches!(line.event, Event::Stored { .. }));
        told
    };
    assert!(faulty(55).judge().held());
    finds(
        &faulty(65),
        Kind::Vacuous,
        &["at the last fault nobody held a lease"],
    );
}

#[test]
fn a_fault_that_did_not_stop_its_process_is_vacuous() {
    let mut told = sound();
    told.files[2].1.clear();
    told.say(
        "look",
        0,
        Event::Fault {
            what: "all paused".into(),
            stops: Some("q".into()),
        },
    );
    told.section("p", 3, 2_000..2_010, 104, both(4));
    told.say(
        "look",
        3_000,
        Event::Healed {
            what: "all resumed".into(),
        },
    );
    told.section("p", 4, 3_010..3_020, 105, both(5));
    assert!(told.judge().held(), "{:#?}", told.judge().findings);
    told.section("q", 2, 2_500..2_510, 104, both(5));
    let found = told.judge().findings;
    let vacuous = found
        .iter()
        .find(|finding| finding.kind == Kind::Vacuous)
        .unwrap();
    assert!(
        vacuous.text.contains("the fault had no effect (all paused")
            && vacuous.text.contains("q's operation 2"),
        "{vacuous:?}"
    );
}

#[test]
fn a_run_with_too_few_sections_or_sights_is_vacuous() {
    let told = Told::by(&["p"]);
    finds(
        &told,
        Kind::Vacuous,
        &["only 0 sections, but at least 1 must run"],
    );
    let mut told = sound();
    told.say(
        "look",
        100,
        Event::Scenario(Scenario {
            must_see: vec![Sight::Refusal],
            ..Scenario::default()
        }),
    );
    finds(&told, Kind::Vacuous, &["the store refused no stale holder"]);
}

/// `p`, which was granted something before, asks at 100. `q` asks at 900 and is granted at 1,000. `p` is granted at
/// 1,100, or never. Both live until 3,000.
fn overtaking(scenario: Scenario, granted: bool) -> Told {
    let mut told = Told::by(&["p", "q", "look"]);
    told.say("look", 0, Event::Scenario(scenario));
    for at in (0..3_000).step_by(50) {
        told.say("p", at, Event::Alive).say("q", at, Event::Alive);
    }
    told.say("p", 20, invoked(8, "another"));
    told.say("p", 100, invoked(9, "a"));
    told.say("q", 900, invoked(9, "a"));
    let granted_at = [("p", 8, 40, 99), ("q", 9, 1_000, 100), ("p", 9, 1_100, 101)];
    for (label, op, at, token) in granted_at.into_iter().take(2 + usize::from(granted)) {
        let valid_ns = 1_900 * MS;
        let event = Event::Granted {
            op,
            token,
            valid_ns,
            slot: None,
        };
        told.say(label, at, event);
        let none = Access::NO_STORE;
        let event = Event::Ended {
            op,
            fenced: none,
            plain: none,
            also: Vec::new(),
            valid_until: (at + 1_900) * MS,
        };
        told.say(label, at + 50, event);
    }
    told
}

fn is_about(event: &Event, number: u64) -> bool {
    match event {
        Event::Invoked { op, .. } | Event::Granted { op, .. } | Event::Ended { op, .. } => {
            *op == number
        }
        _ => false,
    }
}

fn named() -> Scenario {
    Scenario {
        name: "order".into(),
        ..Scenario::default()
    }
}

fn order_of(told: &Told) -> (usize, usize) {
    let summary = told.judge();
    let found = summary.findings.iter();
    let found = found.filter(|finding| finding.kind == Kind::Order).count();
    (found, summary.in_order)
}

#[test]
fn a_grant_to_a_much_later_request_is_an_order_finding() {
    finds(
        &overtaking(named(), true),
        Kind::Order,
        &[
            "asked 800 ms after it: p's operation 9",
            "was overtaken by q's operation 9",
        ],
    );
    // p gave up: long after q was granted, or at the same time.
    let over = |at| {
        let mut told = overtaking(named(), false);
        let why = "held".into();
        told.say("p", at, Event::Failed { op: 9, why });
        order_of(&told)
    };
    assert_eq!(over(2_500), (1, 0));
    assert_eq!(over(1_100), (0, 0));
}

#[test]
fn an_order_is_judged_only_where_it_is_certain() {
    assert_eq!(order_of(&overtaking(named(), true)), (1, 0));
    assert_eq!(
        order_of(&overtaking(Scenario::default(), true)),
        (0, 0),
        "faults are not known"
    );

    // q asked almost at once after p.
    let mut told = overtaking(named(), true);
    for line in &mut told.files[0].1 {
        if matches!(line.event, Event::Invoked { op: 9, .. }) {
            line.at = 700 * MS;
        }
    }
    assert_eq!(order_of(&told), (0, 0));

    // p's process may still be connecting.
    let mut told = overtaking(named(), true);
    for line in &mut told.files[0].1 {
        if matches!(line.event, Event::Granted { op: 8, .. }) {
            line.at = 101 * MS;
        }
    }
    assert_eq!(order_of(&told), (0, 0));
    // That excuse lasts for 5 s, even if the process is never granted anything.
    let never = |asks_at: u64| {
        let mut told = overtaking(named(), false);
        for (label, lines) in &mut told.files {
            lines.retain(|line| !matches!(line.event, Event::Alive));
            if *label == "p" {
                lines.retain(|line| !is_about(&line.event, 8));
            }
            for line in lines {
                if is_about(&line.event, 9) {
                    line.at += asks_at - 100 * MS;
                }
            }
        }
        for at in (0..9_000).step_by(50) {
            told.say("p", at, Event::Alive).say("q", at, Event::Alive);
        }
        order_of(&told)
    };
    assert_eq!(never(4_999 * MS), (0, 0));
    assert_eq!(never(5_000 * MS), (1, 0));

    // p's process stood still.
    let mut told = overtaking(named(), true);
    told.files[0]
        .1
        .retain(|line| !(500 * MS..700 * MS).contains(&line.at));
    assert_eq!(order_of(&told), (0, 0));

    // A fault concerns all processes, or only those that the scenario names.
    for (disturbs, found) in [(None, 0), (Some(vec!["q"]), 0), (Some(vec!["x"]), 1)] {
        let disturbs =
            disturbs.map(|labels: Vec<&str>| labels.iter().map(|it| (*it).into()).collect());
        let mut told = overtaking(
            Scenario {
                disturbs,
                ..named()
            },
            true,
        );
        let (what, stops) = ("node1 killed".into(), None);
        told.say("look", 50, Event::Fault { what, stops });
        assert_eq!(order_of(&told), (found, 0));
    }
}

#[test]
fn an_order_that_was_kept_is_counted() {
    let mut told = overtaking(named(), true);
    for line in &mut told.files[1].1 {
        if matches!(line.event, Event::Granted { .. } | Event::Ended { .. }) {
            line.at += 200 * MS;
        }
    }
    for line in &mut told.files[1].1 {
        if let Event::Granted { token, .. } = &mut line.event {
            *token = 102;
        }
    }
    assert_eq!(order_of(&told), (0, 1));
    let mut told = sound();
    let must_see = vec![Sight::Order];
    told.say(
        "look",
        100,
        Event::Scenario(Scenario {
            must_see,
            ..named()
        }),
    );
    finds(&told, Kind::Vacuous, &["which one had asked first"]);
}

#[test]
fn a_scenario_lists_required_and_permitted_findings() {
    let planted = |scenario| {
        let mut told = sound();
        told.section("q", 2, 55..70, 103, both(4));
        told.files[2].1.pop();
        told.say("look", 100, Event::Scenario(scenario));
        told.judge().held()
    };
    let with = |may_break, must_find| Scenario {
        may_break,
        must_find,
        ..Scenario::default()
    };
    assert!(planted(with(vec![Kind::Exclusion], vec![])));
    assert!(!planted(with(vec![Kind::Token], vec![])));
    assert!(planted(with(vec![], vec![Kind::Exclusion])));
    assert!(!planted(with(
        vec![],
        vec![Kind::Exclusion, Kind::Leftover]
    )));
}

#[test]
fn malformed_histories_are_refused() {
    let wrong = |text: &str| judge("x", &[parse("f", text).unwrap()]).err().unwrap();
    let process = r#"{"at":1,"event":"process","label":"p","clock":"c","ttl_ms":1}"#;
    let invoked = r#"{"at":2,"event":"invoked","op":1,"name":"a"}"#;
    let granted = r#"{"at":3,"event":"granted","op":2,"token":1,"valid_ns":1}"#;
    assert_eq!(
        wrong(&format!("{invoked}\n")),
        "f, line 1: no process line before it"
    );
    assert_eq!(
        wrong(&format!("{process}\n{invoked}\n{granted}\n")),
        "f, line 3: its operation was never invoked"
    );
    assert_eq!(
        wrong(&format!("{process}\n{invoked}\n{invoked}\n")),
        "f, line 3: operation 1 is invoked twice"
    );
    let other = process.replace("\"c\"", "\"d\"");
    let parts = [process, &other].map(|text| parse("f", &format!("{text}\n")).unwrap());
    let wrong = judge("x", &parts).err().unwrap();
    assert!(wrong.contains("different clocks"), "{wrong}");
}
