//! The same tests for read-write locks: readers beside each other, and a writer alone.

use super::*;

fn by(labels: &[&'static str]) -> Told {
    let mut told = Told::by(labels);
    for (_, lines) in &mut told.files {
        if let Event::Process { locks, .. } = &mut lines[0].event {
            locks.readers = Some(80);
        }
    }
    told
}

const NONE: (Access, Access) = (Access::NO_STORE, Access::NO_STORE);
/// The first access of a section to both stores, and its second one. A reader reads again, a writer writes.
struct Stores {
    read: (Access, Access),
    wrote: (Access, Access),
}

fn stores(read: (Access, Access), wrote: (Access, Access)) -> Stores {
    Stores { read, wrote }
}

impl Told {
    /// A [section](Told::section) that reads or writes.
    #[expect(
        clippy::too_many_arguments,
        reason = "tests plant a section in a line each"
    )]
    fn on_side(
        &mut self,
        side: Side,
        label: &str,
        op: u64,
        times: Range<u64>,
        token: u64,
        stores: Stores,
    ) -> &mut Self {
        let Stores { read, wrote } = stores;
        self.section(label, op, times, token, NONE);
        let file = self.files.iter_mut().find(|file| file.0 == label).unwrap();
        for line in &mut file.1 {
            match &mut line.event {
                Event::Invoked {
                    op: its,
                    side: of_it,
                    ..
                } if *its == op => *of_it = Some(side),
                Event::Begun {
                    op: its,
                    fenced,
                    plain,
                    ..
                } if *its == op => (*fenced, *plain) = read,
                Event::Ended {
                    op: its,
                    fenced,
                    plain,
                    ..
                } if *its == op => (*fenced, *plain) = wrote,
                _ => {}
            }
        }
        self
    }

    fn reads(&mut self, label: &str, op: u64, times: Range<u64>, token: u64) -> &mut Self {
        self.on_side(Side::Reader, label, op, times, token, stores(NONE, NONE))
    }

    fn writes(&mut self, label: &str, op: u64, times: Range<u64>, token: u64) -> &mut Self {
        self.on_side(Side::Writer, label, op, times, token, stores(NONE, NONE))
    }
}

/// A writer, then two readers of its epoch beside each other, then another writer, and a reader of a greater epoch.
/// Then the store.
fn sound() -> Told {
    let mut told = by(&["p", "q", "look"]);
    let writes = |value| stores(both(value - 1), both(value));
    let reads = |value| stores(both(value), both(value));
    told.on_side(Side::Writer, "p", 1, 10..20, 100, writes(1));
    told.on_side(Side::Reader, "p", 2, 30..60, 100, reads(1));
    told.on_side(Side::Reader, "q", 1, 40..50, 100, reads(1));
    told.on_side(Side::Writer, "q", 2, 70..80, 105, writes(2));
    told.on_side(Side::Reader, "p", 3, 90..95, 107, reads(2));
    let (name, fenced, plain) = ("a".into(), 2, 2);
    let stored = Event::Stored {
        name,
        fenced,
        plain,
    };
    told.say("look", 100, stored);
    told
}

#[test]
fn a_sound_history_holds() {
    let summary = sound().judge();
    assert!(summary.held(), "{:#?}", summary.findings);
    assert_eq!((summary.sections, summary.lost_plain), (5, 0));
    assert_eq!(summary.locks.to_string(), "rwlocks, 80 % read");
}

#[test]
fn a_writer_is_alone() {
    for (first, second) in [
        (Side::Reader, Side::Writer),
        (Side::Writer, Side::Reader),
        (Side::Writer, Side::Writer),
    ] {
        let mut told = by(&["p", "q"]);
        told.on_side(first, "p", 1, 10..30, 100, stores(NONE, NONE));
        told.on_side(second, "q", 1, 20..40, 101, stores(NONE, NONE));
        finds(
            &told,
            Kind::Exclusion,
            &["two held it at once, for 10.000 ms", "ing \"a\" (p.jsonl"],
        );
    }
    let mut told = by(&["p", "q"]);
    told.reads("p", 1, 10..30, 100).reads("q", 1, 20..40, 100);
    assert!(told.judge().held());
}

#[test]
fn a_remaining_reader_is_found_after_another_has_left() {
    let mut told = by(&["p", "q", "r"]);
    told.reads("p", 1, 10..100, 100);
    told.reads("q", 1, 20..30, 100);
    told.writes("r", 1, 50..60, 101);
    finds(
        &told,
        Kind::Exclusion,
        &["p's operation 1 reading", "r's operation 1 writing"],
    );
}

#[test]
fn writers_tokens_are_unique_and_grow() {
    let then = |token| {
        let mut told = by(&["p", "q"]);
        told.writes("p", 1, 10..30, 100);
        told.writes("q", 1, 50..60, token);
        told
    };
    assert!(then(101).judge().held());
    finds(&then(100), Kind::Token, &["token 100 was given twice"]);
    finds(&then(99), Kind::Token, &["went back from 100 to 99"]);
}

#[test]
fn an_epoch_lies_between_two_writers() {
    let with = |epoch| {
        let mut told = by(&["p", "q", "r"]);
        told.writes("p", 1, 10..30, 100);
        told.reads("q", 1, 50..60, epoch);
        told.writes("r", 1, 80..90, 105);
        told
    };
    for epoch in [100, 104] {
        assert!(with(epoch).judge().held(), "{epoch}");
    }
    finds(&with(99), Kind::Token, &["went back from 100 to 99"]);
    finds(
        &with(105),
        Kind::Token,
        &["of a writer is not greater than a reader's: from 105 to 105"],
    );
    // Readers may have the same token, or tokens in any order.
    let mut told = by(&["p", "q"]);
    told.reads("p", 1, 10..30, 100);
    told.reads("q", 1, 50..60, 99);
    assert!(told.judge().held());
}

#[test]
fn nothing_changes_under_a_reader() {
    let changed = |first: (Access, Access), last| {
        let mut told = by(&["p"]);
        told.on_side(Side::Reader, "p", 1, 10..30, 100, stores(first, last));
        told
    };
    let (three, four) = (Access::Value(3), Access::Value(4));
    assert!(changed((three, three), (three, three)).judge().held());
    finds(
        &changed((three, three), (four, three)),
        Kind::Exclusion,
        &["from 3 to 4 in the store that checks tokens", "reading"],
    );
    finds(
        &changed((three, three), (three, four)),
        Kind::Exclusion,
        &["from 3 to 4 in the store without a check"],
    );
    // After the lease has ended nothing is promised.
    let mut told = changed((three, three), (four, four));
    for line in &mut told.files[0].1 {
        if matches!(line.event, Event::Ended { .. } | Event::Released { .. }) {
            line.at = 3_000 * MS;
        }
    }
    assert!(told.judge().held());
}

#[test]
fn a_stale_writer_explains_what_changes_under_a_reader() {
    // q's lease ends at 1,910. Its token is the reader's epoch, and it writes at 2,020.
    let with = |wrote_until| {
        let mut told = by(&["p", "q"]);
        told.on_side(
            Side::Writer,
            "q",
            1,
            10..2_020,
            100,
            stores(both(3), both(4)),
        );
        told.on_side(
            Side::Reader,
            "p",
            1,
            2_000..2_050,
            100,
            stores(both(3), both(4)),
        );
        for line in &mut told.files[1].1 {
            if let Event::Ended { .. } = line.event {
                line.at = wrote_until * MS;
            }
        }
        told
    };
    assert!(with(2_020).judge().held());
    finds_some(
        &with(1_900),
        Kind::Exclusion,
        "the value that was read changed",
    );
}

#[test]
fn a_reader_is_refused_by_a_newer_writer_only_when_its_lease_is_over() {
    let mut told = by(&["p", "q"]);
    let refused = (Access::REFUSED, Access::Value(1));
    told.on_side(Side::Reader, "p", 1, 10..50, 100, stores(both(1), refused));
    finds(
        &told,
        Kind::Fence,
        &["p's operation 1 reading", "no recorded operation"],
    );
    // A reader writes nothing, so no update is lost.
    assert_eq!(told.judge().lost_plain, 0);
}

#[test]
fn leftover_shares_and_waiters_are_reported() {
    let left = |side, waits, token| Event::Left {
        node: "node4:6379".into(),
        name: "a".into(),
        slot: None,
        side: Some(side),
        waits,
        label: "q".into(),
        remaining_ms: Some(1_234),
        token,
    };
    for (event, what) in [
        (
            left(Side::Reader, false, None),
            [
                "a reader's share was left on node4",
                "q's operation 1 reading",
            ],
        ),
        (
            left(Side::Writer, true, None),
            [
                "the place of a waiting writer was left",
                "q's operation 2 writing",
            ],
        ),
        (
            left(Side::Writer, false, Some(105)),
            ["a lock was left on node4", "q's operation 2 writing"],
        ),
    ] {
        let mut told = sound();
        told.say("look", 110, event);
        finds(&told, Kind::Leftover, &what);
    }
}

/// `p` waits from 100 on. `q` asks at 900 and holds the lock from 1,000 to 1,050, before `p`.
fn overtaking(first: Side, second: Side) -> Told {
    let mut told = super::overtaking(named(), true);
    for (label, lines) in &mut told.files {
        for line in lines {
            match &mut line.event {
                Event::Process { locks, .. } => locks.readers = Some(80),
                Event::Invoked { side, .. } => {
                    *side = Some(if *label == "p" { first } else { second });
                }
                _ => {}
            }
        }
    }
    told
}

#[test]
fn no_reader_overtakes_a_writer_that_waits_alone() {
    finds(
        &overtaking(Side::Writer, Side::Reader),
        Kind::Order,
        &["asked 800 ms after it: p's operation 9 writing"],
    );
    for (first, second) in [
        (Side::Writer, Side::Writer),
        (Side::Reader, Side::Writer),
        (Side::Reader, Side::Reader),
    ] {
        let found = order_of(&overtaking(first, second));
        assert_eq!(found, (0, 0), "{first:?} {second:?}");
    }
    // Another writer frees the lock meanwhile, and lets readers in.
    let mut told = overtaking(Side::Writer, Side::Reader);
    told.files.push(("r", vec![told.files[0].1[0].clone()]));
    told.writes("r", 1, 700..800, 90);
    assert_eq!(order_of(&told), (0, 0));
}

#[test]
fn steady_readers_do_not_excuse_a_starved_writer() {
    let waits = |until: u64, named: bool| {
        let mut told = by(&["p", "q"]);
        if named {
            told.say("p", 0, Event::Scenario(super::named()));
        }
        told.writes("q", 1, 10..20, 90);
        for op in 0..until {
            let from = op * 1_000 + 100;
            told.reads("p", op + 1, from..from + 800, 100);
            let mut wish = invoked(op + 2, "a");
            if let Event::Invoked { side, .. } = &mut wish {
                *side = Some(Side::Writer);
            }
            told.say("q", from, wish);
            let why = "held".into();
            told.say("q", from + 900, Event::Failed { op: op + 2, why });
        }
        told
    };
    finds(
        &waits(20, false),
        Kind::Progress,
        &["\"a\" to write for the last 19 s"],
    );
    assert!(waits(10, false).judge().held());
    let of_order = |it: &Finding| it.kind == Kind::Order;
    let found = waits(20, true).judge().findings;
    assert!(found.iter().all(of_order), "{found:#?}");
}

#[test]
fn histories_of_different_locks_are_refused() {
    let mut told = sound();
    if let Event::Process { locks, .. } = &mut told.files[1].1[0].event {
        *locks = Locks::default();
    }
    let wrong = judge("x", &told.parts()).err().unwrap();
    assert!(
        wrong.contains("--rwlock") && wrong.contains("rwlocks, 80 % read and mutexes"),
        "{wrong}"
    );
}
