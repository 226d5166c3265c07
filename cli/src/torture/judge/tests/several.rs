//! The same tests for several names at once, beside single ones.

use super::*;

fn by(labels: &[&'static str]) -> Told {
    let mut told = Told::by(labels);
    for (_, lines) in &mut told.files {
        if let Event::Process { locks, .. } = &mut lines[0].event {
            locks.several = true;
        }
    }
    told
}

impl Told {
    /// A [section](Told::section) of these names. It writes these values to their counters.
    #[expect(
        clippy::too_many_arguments,
        reason = "tests plant a section in a line each"
    )]
    fn of(
        &mut self,
        names: &[&str],
        label: &str,
        op: u64,
        times: Range<u64>,
        token: u64,
        wrote: &[u64],
    ) -> &mut Self {
        self.section(label, op, times, token, both(wrote[0]));
        let accesses = |less: u64| {
            let others = wrote[1..].iter().map(|value| Accesses {
                fenced: Access::Value(value - less),
                plain: Access::Value(value - less),
            });
            others.collect::<Vec<_>>()
        };
        let file = self.files.iter_mut().find(|file| file.0 == label).unwrap();
        for line in &mut file.1 {
            match &mut line.event {
                Event::Invoked {
                    op: its,
                    name,
                    also,
                    ..
                } if *its == op => {
                    names[0].clone_into(name);
                    *also = names[1..].iter().map(|name| (*name).into()).collect();
                }
                Event::Begun { op: its, also, .. } if *its == op => *also = accesses(1),
                Event::Ended { op: its, also, .. } if *its == op => *also = accesses(0),
                _ => {}
            }
        }
        self
    }

    fn holds(&mut self, name: &str, value: u64) -> &mut Self {
        let (name, fenced, plain) = (name.into(), value, value);
        let stored = Event::Stored {
            name,
            fenced,
            plain,
        };
        self.say("look", 200, stored)
    }
}

/// `a` and `b` together, at the same time `c` alone, then `c` and `b` together.
fn sound() -> Told {
    let mut told = by(&["p", "q", "look"]);
    told.of(&["a", "b"], "p", 1, 10..30, 100, &[1, 1]);
    told.of(&["c"], "q", 1, 12..32, 90, &[1]);
    told.of(&["c", "b"], "q", 2, 50..60, 101, &[2, 2]);
    told.holds("a", 1).holds("b", 2).holds("c", 2);
    told
}

#[test]
fn a_sound_history_holds() {
    let summary = sound().judge();
    assert!(summary.held(), "{:#?}", summary.findings);
    assert_eq!((summary.sections, summary.lost_plain), (3, 0));
    assert_eq!(summary.locks.to_string(), "several at once");
}

#[test]
fn holders_of_overlapping_sets_at_once_are_a_finding() {
    let with = |names: &[&str]| {
        let mut told = by(&["p", "q"]);
        told.of(&["a", "b"], "p", 1, 10..30, 100, &[1, 1]);
        let wrote: Vec<u64> = names.iter().map(|_| 2).collect();
        told.of(names, "q", 1, 20..40, 101, &wrote);
        told
    };
    for names in [["c", "b"].as_slice(), &["b"]] {
        finds(
            &with(names),
            Kind::Exclusion,
            &[
                "two held \"b\" at once",
                "operation 1 on \"a\" and \"b\" (p",
            ],
        );
    }
    assert!(with(&["c", "d"]).judge().held());
}

#[test]
fn a_token_is_newer_than_the_last_of_each_name() {
    let then = |token, names: &[&str]| {
        let mut told = by(&["p", "q", "r"]);
        told.of(&["a"], "p", 1, 10..30, 100, &[1]);
        told.of(&["b"], "q", 1, 10..30, 200, &[1]);
        let wrote: Vec<u64> = names.iter().map(|_| 2).collect();
        told.of(names, "r", 1, 50..60, token, &wrote);
        told
    };
    assert!(then(201, &["a", "b"]).judge().held());
    assert!(then(101, &["a"]).judge().held());
    finds(
        &then(150, &["a", "b"]),
        Kind::Token,
        &["from 200 to 150", "q's operation 1", "r's operation 1"],
    );
    finds(
        &then(200, &["a", "b"]),
        Kind::Token,
        &["token 200 was given twice"],
    );
}

#[test]
fn updates_of_each_name_are_counted() {
    let mut told = sound();
    told.files[2].1.remove(2);
    told.holds("b", 1);
    let found = told.judge().findings;
    let texts: Vec<&str> = found.iter().map(|it| it.text.as_str()).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(
        texts[0].contains("1 updates of \"b\" are missing"),
        "{texts:?}"
    );
    // Here the common name is the second one of both sections.
    let mut told = by(&["p", "q"]);
    told.of(&["a", "b"], "p", 1, 10..30, 100, &[1, 1]);
    told.of(&["c", "b"], "q", 1, 50..60, 101, &[1, 1]);
    let found = told.judge().findings;
    assert_eq!(found.len(), 2, "in either store: {found:#?}");
    let says = |it: &Finding| it.text.contains("an update of \"b\" was lost");
    assert!(found.iter().all(says), "{found:#?}");
}

#[test]
fn a_gap_of_a_set_counts_only_while_all_names_are_free() {
    // r waits for both names from 20 on. `a` is free from 30 on and `b` from 100 on. r gets them at 160.
    let with = |alone: bool| {
        let mut told = by(&["p", "q", "r"]);
        told.of(&["a"], "p", 1, 10..30, 100, &[1]);
        told.of(&["b"], "q", 1, 10..100, 100, &[1]);
        match alone {
            true => told.of(&["a"], "r", 1, 160..180, 101, &[2]),
            false => told.of(&["a", "b"], "r", 1, 160..180, 101, &[2, 2]),
        };
        let wish = told.files[2].1.iter_mut();
        let wish = wish.filter(|line| matches!(line.event, Event::Invoked { .. }));
        wish.for_each(|line| line.at = 20 * MS);
        told.say("p", 0, gap_of(59));
        told
    };
    finds(
        &with(false),
        Kind::Progress,
        &["\"a and b\" for 60 ms", "59 ms is promised"],
    );
    let alone = with(true).judge();
    assert_eq!(alone.longest_gap, Some(130 * MS));
    // Another process holds one of them in between.
    let mut told = with(false);
    told.of(&["b"], "q", 2, 120..125, 150, &[2]);
    for line in &mut told.files[2].1 {
        if let Event::Granted { token, .. } = &mut line.event {
            *token = 151;
        }
    }
    assert_eq!(told.judge().longest_gap, Some(35 * MS));
}

#[test]
fn after_the_last_fault_only_names_waited_for_alone_need_a_grant() {
    let waited = |names: &[&str], votes: Option<u64>, until| {
        let mut told = sound();
        let (op, what) = (3, String::from("node1 started"));
        told.say("look", 70, Event::Healed { what });
        if let Some(at) = votes {
            told.say("look", at, Event::Voting);
        }
        let [name, also] =
            [&names[..1], &names[1..]].map(|some| some.iter().map(|it| (*it).into()));
        let (name, also, side) = (name.collect(), also.collect(), None);
        told.say(
            "p",
            80,
            Event::Invoked {
                op,
                name,
                also,
                side,
            },
        );
        let why = String::from("held");
        told.say("p", until, Event::Failed { op, why });
        told.judge().findings
    };
    let found = waited(&["a"], Some(1_000), 4_000);
    let due = |text: &str| text.starts_with("nobody was granted \"a\" after the last fault");
    assert!(found.len() == 1 && due(&found[0].text), "{found:#?}");
    // It gave up too early, before the masters voted, or asked for two names at once.
    for found in [
        waited(&["a"], Some(1_000), 3_999),
        waited(&["a"], Some(5_000), 4_000),
        waited(&["a"], None, 9_000),
        waited(&["a", "b"], Some(1_000), 9_000),
    ] {
        assert!(found.is_empty(), "{found:#?}");
    }
}

fn gap_of(ms: u64) -> Event {
    Event::Scenario(Scenario {
        gap_ms: Some(ms),
        ..Scenario::default()
    })
}

#[test]
fn a_set_may_be_overtaken_and_may_not_overtake_a_waiter() {
    // p waits, and q, which asks long after it, is granted first. Each asks for `a` and these names.
    let with = |first: &[&str], second: &[&str]| {
        let mut told = overtaking(named(), true);
        for (label, lines) in &mut told.files {
            for line in lines {
                match &mut line.event {
                    Event::Process { locks, .. } => locks.several = true,
                    Event::Invoked { also, .. } => {
                        let names = if *label == "p" { first } else { second };
                        *also = names.iter().map(|name| (*name).into()).collect();
                    }
                    _ => {}
                }
            }
        }
        order_of(&told)
    };
    assert_eq!(with(&[], &[]), (1, 0));
    assert_eq!(with(&[], &["b"]), (1, 0));
    assert_eq!(with(&["b"], &[]), (0, 0));
    assert_eq!(with(&["b"], &["b"]), (0, 0));
}

#[test]
fn a_lock_left_on_a_node_is_told_of_the_set() {
    let mut told = sound();
    let left = Event::Left {
        node: "node4:6379".into(),
        name: "b".into(),
        slot: None,
        side: None,
        waits: false,
        label: "q".into(),
        remaining_ms: Some(1_234),
        token: Some(101),
    };
    told.say("look", 210, left);
    finds(
        &told,
        Kind::Leftover,
        &["of \"b\", by q", "q's operation 2 on \"c\" and \"b\""],
    );
}
