//! The same tests for a semaphore with two slots.

use super::*;

fn by(labels: &[&'static str]) -> Told {
    let mut told = Told::by(labels);
    for (_, lines) in &mut told.files {
        if let Event::Process { locks, .. } = &mut lines[0].event {
            locks.limit = Some(2);
        }
    }
    told
}

impl Told {
    /// A [section](Told::section) in this slot.
    #[expect(
        clippy::too_many_arguments,
        reason = "tests plant a section in a line each"
    )]
    fn in_slot(
        &mut self,
        slot: u32,
        label: &str,
        op: u64,
        times: Range<u64>,
        token: u64,
        wrote: (Access, Access),
    ) -> &mut Self {
        self.section(label, op, times, token, wrote);
        self.put_in_slot(label, op, slot)
    }

    fn put_in_slot(&mut self, label: &str, op: u64, slot: u32) -> &mut Self {
        let file = self.files.iter_mut().find(|file| file.0 == label).unwrap();
        for line in &mut file.1 {
            match &mut line.event {
                Event::Granted {
                    op: its,
                    slot: held,
                    ..
                } if *its == op => *held = Some(slot),
                _ => {}
            }
        }
        self
    }

    fn stored(&mut self, slot: u32, value: u64) -> &mut Self {
        let (name, fenced, plain) = (format!("a/{slot}"), value, value);
        let stored = Event::Stored {
            name,
            fenced,
            plain,
        };
        self.say("look", 100, stored)
    }
}

/// Two holders at a time, each in its slot, with tokens and counters of the slot. Then the store at the end.
fn sound() -> Told {
    let mut told = by(&["p", "q", "look"]);
    told.in_slot(0, "p", 1, 10..30, 200, both(1));
    told.in_slot(1, "q", 1, 12..32, 100, both(1));
    told.in_slot(0, "q", 2, 40..60, 201, both(2));
    told.in_slot(1, "p", 2, 45..65, 101, both(2));
    told.stored(0, 2).stored(1, 2);
    told
}

#[test]
fn a_sound_history_holds() {
    let summary = sound().judge();
    assert!(summary.held(), "{:#?}", summary.findings);
    assert_eq!((summary.sections, summary.lost_plain), (4, 0));
}

#[test]
fn two_holders_of_one_slot_are_found() {
    let mut told = by(&["p", "q"]);
    let none = (Access::NO_STORE, Access::NO_STORE);
    told.in_slot(1, "p", 1, 10..30, 100, none);
    told.in_slot(1, "q", 1, 20..40, 101, none);
    finds(
        &told,
        Kind::Exclusion,
        &[
            "two held it at once, for 10.000 ms",
            "granted slot 1 with token 100",
            "q's operation 1",
        ],
    );
}

#[test]
fn more_holders_than_slots_are_found() {
    let none = (Access::NO_STORE, Access::NO_STORE);
    let three = |third: u64| {
        let mut told = by(&["p", "q", "r"]);
        told.in_slot(0, "p", 1, 10..30, 100, none);
        told.in_slot(1, "q", 1, 10..25, 100, none);
        told.in_slot(2, "r", 1, third..third + 20, 100, none);
        told
    };
    finds(
        &three(20),
        Kind::Exclusion,
        &[
            "3 held at once, for 5.000 ms, and it has 2 slots",
            "p's operation 1",
            "q's operation 1",
            "r's operation 1",
        ],
    );
    assert!(three(27).judge().held(), "one has ended by then");
}

#[test]
fn tokens_are_compared_within_a_slot() {
    let none = (Access::NO_STORE, Access::NO_STORE);
    let then = |slot, token| {
        let mut told = by(&["p", "q"]);
        told.in_slot(0, "p", 1, 10..30, 100, none);
        told.in_slot(slot, "q", 1, 50..60, token, none);
        told
    };
    assert!(then(1, 99).judge().held());
    assert!(then(1, 100).judge().held());
    let back = then(0, 99).judge().findings;
    assert!(back.iter().all(|finding| finding.kind == Kind::Token));
    assert!(back[0].text.contains("from 100 to 99"), "{back:#?}");
    finds(&then(0, 100), Kind::Token, &["token 100 was given twice"]);
}

#[test]
fn updates_are_counted_for_each_slot() {
    let mut told = sound();
    told.files[2].1.pop();
    told.stored(1, 1);
    let found = told.judge().findings;
    let texts: Vec<&str> = found.iter().map(|it| it.text.as_str()).collect();
    assert!(
        texts[0].contains("1 updates of \"a/1\" are missing"),
        "{texts:?}"
    );
    // The same value in two slots is not a lost update. In one slot it is.
    let mut told = by(&["p", "q"]);
    told.in_slot(0, "p", 1, 10..20, 100, both(1));
    told.in_slot(0, "q", 1, 30..40, 101, both(1));
    let found = told.judge().findings;
    assert_eq!(found.len(), 2, "in either store: {found:#?}");
    assert!(found[0].text.contains("both wrote 1"), "{found:#?}");
}

#[test]
fn a_refusal_is_explained_by_a_newer_holder_of_the_same_slot() {
    let refused = |slot| {
        let mut told = by(&["p", "q"]);
        let wrote = (Access::REFUSED, Access::Value(1));
        told.in_slot(0, "p", 1, 10..50, 100, wrote);
        told.granted("q", 1, 30, 101).put_in_slot("q", 1, slot);
        told.judge()
    };
    let text = |summary: &Summary| {
        let mut found = summary.findings.iter();
        let found = found.find(|finding| finding.kind == Kind::Fence);
        found.map(|finding| finding.text.clone()).unwrap()
    };
    assert!(text(&refused(0)).contains("a newer token was held by q's operation 1"));
    assert!(text(&refused(1)).contains("a newer token was held by no recorded operation"));
}

#[test]
fn a_slot_left_on_a_node() {
    let mut told = sound();
    let left = Event::Left {
        node: "node4:6379".into(),
        name: "a".into(),
        slot: Some(1),
        side: None,
        waits: false,
        label: "p".into(),
        remaining_ms: Some(1_234),
        token: Some(101),
    };
    told.say("look", 110, left);
    finds(
        &told,
        Kind::Leftover,
        &["slot 1 was left on node4:6379", "p's operation 2"],
    );
}

#[test]
fn a_free_slot_with_a_waiter_counts_as_a_gap() {
    let none = (Access::NO_STORE, Access::NO_STORE);
    let mut told = by(&["p", "q", "r"]);
    told.in_slot(0, "p", 1, 10..500, 100, none);
    told.in_slot(1, "q", 1, 10..100, 100, none);
    // r has waited since both slots were taken.
    told.in_slot(1, "r", 1, 160..180, 101, none);
    let wish = told.files[2].1.iter_mut();
    let wish = wish.filter(|line| matches!(line.event, Event::Invoked { .. }));
    wish.for_each(|line| line.at = 20 * MS);
    let summary = told.judge();
    assert!(summary.held(), "{:#?}", summary.findings);
    assert_eq!(summary.longest_gap, Some(60 * MS));
}

#[test]
fn overtaking_within_the_number_of_slots_is_allowed() {
    let slots = |told: &mut Told, labels: &[&'static str]| {
        for label in labels {
            told.put_in_slot(label, 9, 0);
        }
        for (_, lines) in &mut told.files {
            if let Event::Process { locks, .. } = &mut lines[0].event {
                locks.limit = Some(2);
            }
        }
    };
    // q overtakes only p.
    let mut told = overtaking(named(), true);
    slots(&mut told, &["p", "q"]);
    assert_eq!(order_of(&told), (0, 0));
    // It overtakes as many waiters as there are slots.
    let mut told = overtaking(named(), true);
    let mut other = told.files[0].clone();
    other.0 = "o";
    for line in &mut other.1 {
        match &mut line.event {
            Event::Process { label, .. } => *label = "o".into(),
            Event::Granted { token, .. } => *token = 103,
            _ => {}
        }
        if line.at >= 1_100 * MS {
            line.at += 60 * MS;
        }
    }
    told.files.push(other);
    slots(&mut told, &["p", "q", "o"]);
    assert_eq!(order_of(&told), (2, 0));
}

#[test]
fn histories_of_different_semaphores_are_refused() {
    let with = |file: usize, other| {
        let mut told = sound();
        if let Event::Process { locks, .. } = &mut told.files[file].1[0].event {
            locks.limit = other;
        }
        judge("x", &told.parts())
    };
    let wrong = with(1, Some(3)).err().unwrap();
    assert!(
        wrong.contains("p.jsonl and q.jsonl") && wrong.contains("--semaphore"),
        "{wrong}"
    );
    assert!(with(2, None).is_ok(), "who looks need not know");
}
