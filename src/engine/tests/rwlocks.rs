//! Who waits for a read-write lock, and hears that it was freed.

use super::*;
use crate::node::{Incoming, Push, Says, answer::Ahead};

impl World {
    /// A reader that waits, and as whom the nodes know it: each of them has refused it.
    fn reader_that_waits(&mut self, id: u64) -> (Answered, Entry) {
        let lock = Target::Rwlock(Name::new("a").unwrap(), Side::Reader);
        let answer = self.ask(|wish| {
            (wish.id, wish.wants) = (WishId(id), Wants::Lock(lock));
            wish.wait = Wait::For(None);
        });
        let asked = self.are_refused();
        assert_eq!(asked.len(), 3);
        (answer, asked[0].clone())
    }

    /// All that is asked is answered, and nobody may read. As whom those who ask to read wait, node by node.
    fn are_refused(&mut self) -> Vec<Entry> {
        let mut asked = Vec::new();
        while let Some(effect) = self.core.next_effect() {
            let Effect::Send(node, operation, _) = effect else {
                continue;
            };
            self.core.left();
            let said = match operation.command() {
                Command::Request(Request {
                    target: Target::Rwlock(_, Side::Reader),
                    verb: Verb::Acquire { wait, .. },
                    ..
                }) => {
                    asked.push(wait.waiter().unwrap().entry.clone());
                    Answer::Held {
                        which: None,
                        ticket: 0,
                        remaining: Some(Duration::from_secs(1)),
                        counter: 6,
                        holder: None,
                    }
                }
                command if command.entry_that(Request::frees).is_some() => Answer::Released(false),
                Command::Admission(admission::Command::Handshake(_)) => self.met(node),
                other => panic!("{other:?}"),
            };
            self.core.answered(node, [Ok(said)]);
        }
        asked
    }

    fn free(&mut self, entry: &Entry) {
        let entry = entry.clone();
        let says = Says::Freed;
        self.core.came(0, [Incoming::Push(Push { entry, says })]);
        self.core.tick(self.clock.now());
    }
}

#[test]
fn a_call_to_one_who_is_gone_reaches_the_others_of_the_process() {
    let mut world = World::new(3);
    let (_stays, stays) = world.reader_that_waits(1);
    let (goes, gone) = world.reader_that_waits(2);
    drop(goes);
    world.core.event(Event::Cancel(WishId(2)));
    world.are_refused();
    world.free(&gone);
    let asked = world.are_refused();
    assert_eq!(asked, [stays.clone(), stays.clone(), stays]);
}

#[test]
fn who_is_gone_is_forgotten_when_no_node_knows_it_any_more() {
    let mut world = World::new(3);
    let (stays, _) = world.reader_that_waits(1);
    let kept = left(&world);
    for id in 2..100 {
        drop(world.reader_that_waits(id));
        world.core.event(Event::Cancel(WishId(id)));
        world.at(id * 100);
        world.are_refused();
    }
    // As many as go within three of the longest rests and answers.
    assert!(left(&world) <= kept + 20, "{:?}", world.core.leftovers());
    drop(stays);
    world.core.event(Event::Cancel(WishId(1)));
    world.are_refused();
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

// ---- writers ----------------------------------------------------------------------------------

const TURN: &str = "@rwlock-turn:a";

/// Each request that was sent, as text: the node, the command, the name, and the arguments that these tests look at.
fn shown(sent: &[(usize, Command)]) -> Vec<String> {
    let shown = sent.iter().map(|(node, command)| {
        let Request { target, verb, .. } = command.request().unwrap();
        let (what, name) = (command.name(), target.name());
        let more = match (verb, target) {
            (Verb::Acquire { wait, .. }, Target::Rwlock(..)) => {
                format!(" waits: {}", wait.waiter().is_some())
            }
            (Verb::Release(Release { waited, .. }), Target::Rwlock(..)) => {
                format!(" waits no more: {}", waited.is_some())
            }
            (Verb::Acquire { wait, .. }, _) => {
                format!(" only last: {}", wait.place().unwrap().only_last)
            }
            _ => String::new(),
        };
        format!("{node} {what} {name}{more}")
    });
    shown.collect()
}

/// The same of all three nodes.
fn each(what: &str) -> Vec<String> {
    (0..3).map(|node| format!("{node} {what}")).collect()
}

fn is_read() -> Answer {
    Answer::Held {
        which: None,
        ticket: 0,
        remaining: Some(Duration::from_secs(1)),
        counter: 6,
        holder: Some("0123456789abcdef0123456789abcdef@web-1:77".into()),
    }
}

fn released() -> Answer {
    Answer::Released(false)
}

fn granted() -> Answer {
    Answer::Granted(7)
}

fn turn_is_ours() -> Answer {
    Answer::Taken { counter: 3, seq: 1 }
}

impl World {
    fn writer(&mut self, wait: Wait) -> Answered {
        let lock = Target::Rwlock(Name::new("a").unwrap(), Side::Writer);
        self.ask(|wish| {
            (wish.id, wish.wants) = (WishId(1), Wants::Lock(lock));
            wish.wait = wait;
        })
    }

    /// A writer that was refused stands in line for its turn: it has asked all nodes for that.
    fn writer_in_line(&mut self, wait: Wait) -> Answered {
        let answer = self.writer(wait);
        self.sends();
        self.refuse();
        let mut sent = vec!["2 RELEASE a waits no more: false".to_owned()];
        sent.extend(each(&format!("JOIN {TURN} only last: true")));
        assert_eq!(self.sends(), sent);
        self.core.answered(2, [Ok(released())]);
        answer
    }

    /// The nodes refuse what it has asked for. (The last answer is not waited for, and that node is told to take it back.)
    fn refuse(&mut self) {
        self.each_says(&is_read());
    }

    /// Takes the requests that the engine sends now, and reports them as written to the connections.
    fn sends(&mut self) -> Vec<String> {
        let sent = self.until_sent();
        self.core.left();
        shown(&sent)
    }

    /// All that was asked is answered by this, by every node.
    fn each_says(&mut self, said: &Answer) {
        self.all_say(&[said.clone(), said.clone(), said.clone()]);
    }

    /// Handles the events that callers and leases have sent to the engine, as the driver does.
    fn obey_events(&mut self) {
        while let Ok(event) = self._events.try_recv() {
            self.core.event(event);
        }
    }
}

#[test]
fn a_writer_alone_asks_once_and_for_nothing_else() {
    let mut world = World::new(3);
    let mut answer = world.writer(Wait::For(None));
    assert_eq!(world.sends(), each("WRITE a waits: true"));
    world.each_says(&granted());
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(world.sends(), [""; 0]);
    drop(lease);
    world.obey_events();
    assert_eq!(world.sends(), each("RELEASE a waits no more: true"));
}

#[test]
fn a_try_to_write_stands_in_no_line() {
    let mut world = World::new(3);
    let mut answer = world.writer(Wait::Never);
    assert_eq!(world.sends(), each("WRITE a waits: false"));
    world.each_says(&is_read());
    assert!(answer.try_recv().unwrap().unwrap().is_none());
    assert_eq!(world.sends(), ["2 RELEASE a waits no more: false"]);
}

#[test]
fn a_refused_writer_waits_for_its_turn_and_gives_it_back_when_it_writes() {
    let mut world = World::new(3);
    let mut answer = world.writer_in_line(Wait::For(None));
    world.at(50);
    assert_eq!(
        world.sends(),
        [""; 0],
        "it asks for nothing without its turn"
    );
    world.each_says(&turn_is_ours());
    assert_eq!(world.sends(), each("WRITE a waits: true"));
    world.each_says(&granted());
    let _lease = answer.try_recv().unwrap().unwrap().unwrap();
    world.obey_events();
    assert_eq!(world.sends(), each(&format!("RELEASE {TURN}")));
}

#[test]
fn a_writer_dropped_with_its_turn_gives_back_all() {
    let mut world = World::new(3);
    let answer = world.writer_in_line(Wait::For(None));
    world.each_says(&turn_is_ours());
    world.sends();
    world.refuse();
    assert_eq!(world.sends(), ["2 RELEASE a waits no more: false"]);
    world.core.answered(2, [Ok(released())]);
    drop(answer);
    world.core.event(Event::Cancel(WishId(1)));
    assert_eq!(world.sends(), each("RELEASE a waits no more: true"));
    world.each_says(&released());
    world.obey_events();
    assert_eq!(world.sends(), each(&format!("RELEASE {TURN}")));
    world.each_says(&Answer::Released(true));
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn a_writer_dropped_in_line_leaves_it_and_keeps_no_reader_out() {
    let mut world = World::new(3);
    let answer = world.writer_in_line(Wait::For(None));
    drop(answer);
    world.core.event(Event::Cancel(WishId(1)));
    let mut all = each(&format!("RELEASE {TURN}"));
    all.extend(each("RELEASE a waits no more: true"));
    assert_eq!(world.sends(), all);
}

#[test]
fn a_turn_that_no_node_gives_makes_no_write_impossible() {
    let mut world = World::new(3);
    let mut answer = world.writer_in_line(Wait::For(None));
    for node in 0..3 {
        let fault = Fault::Error("ERR nothing is permitted here".into());
        world.core.answered(node, [Err(fault)]);
    }
    let asks = |sent: &[String]| sent.ends_with(&each("WRITE a waits: true"));
    let (mut sent, mut at) = (world.sends(), 0);
    while !asks(&sent) {
        assert!(at < 2_000, "never: {sent:?}");
        at += 10;
        world.at(at);
        sent = world.sends();
    }
    for node in 0..3 {
        let before = sent
            .iter()
            .filter(|sent| sent.starts_with(&format!("{node} ")));
        let answers = before.map(|sent| match sent.contains("WRITE") {
            true => Ok(granted()),
            false => Ok(Answer::Released(false)),
        });
        world.core.answered(node, answers.collect::<Vec<_>>());
    }
    assert!(answer.try_recv().unwrap().unwrap().is_some());
}

/// It has stood in line, so it goes on through an outage, as one does that made an attempt before.
#[test]
fn a_writer_spared_its_first_attempt_outlives_one_that_fails() {
    let mut world = World::new(3);
    let _first = world.writer_in_line(Wait::For(None));
    let ahead = || Ahead {
        remaining: None,
        ticket: 5,
        holder: Some("fedcba9876543210fedcba9876543210@web-2:78".into()),
        is_reserved: false,
    };
    for node in 0..3 {
        let ahead = ahead();
        world.says(node, Answer::InLine { rank: 0, ahead });
    }
    let mut second = world.ask(|wish| {
        let lock = Target::Rwlock(Name::new("a").unwrap(), Side::Writer);
        (wish.id, wish.wants) = (WishId(2), Wants::Lock(lock));
        wish.wait = Wait::For(None);
    });
    assert_eq!(
        world.sends(),
        each(&format!("JOIN {TURN} only last: true")),
        "it is spared an attempt"
    );
    world.each_says(&turn_is_ours());
    assert_eq!(world.sends(), each("WRITE a waits: true"));
    for node in 1..3 {
        world.core.disconnected(node, &Disconnected("died".into()));
    }
    world.core.answered(0, [Ok(granted())]);
    world.sends();
    assert!(
        second.try_recv().is_err(),
        "it was told of the outage at once"
    );
}

#[test]
fn a_writer_still_in_line_at_its_end_asks_once_more_and_says_who_has_the_lock() {
    let mut world = World::new(3);
    let wait = Wait::For(Some(Duration::from_millis(500)));
    let mut answer = world.writer_in_line(wait);
    let in_line = Answer::InLine {
        rank: 0,
        ahead: Ahead {
            remaining: None,
            ticket: 5,
            holder: Some("fedcba9876543210fedcba9876543210@web-2:78".into()),
            is_reserved: false,
        },
    };
    (0..3).for_each(|node| world.says(node, in_line.clone()));
    world.at(470);
    for (node, beat) in world.until_sent() {
        assert!(joins(&beat).is_some());
        world.says(node, in_line.clone());
    }
    world.at(495);
    let sent = world.sends();
    assert!(sent.ends_with(&each("WRITE a waits: true")), "{sent:?}");
    for node in 0..3 {
        let asked = sent
            .iter()
            .filter(|sent| sent.starts_with(&format!("{node} ")));
        let answers = asked.map(|sent| match sent.contains("WRITE") {
            true => Ok(is_read()),
            false => Ok(Answer::Released(false)),
        });
        world.core.answered(node, answers.collect::<Vec<_>>());
    }
    world.at(500);
    let Err(Error::Held(report)) = answer.try_recv().unwrap() else {
        panic!("it is read");
    };
    let report = report.to_string();
    assert!(report.contains("web-1"), "{report}");
    assert!(!report.contains("web-2"), "{report}");
}
