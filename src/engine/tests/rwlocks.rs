//! Acquisitions that wait for a read-write lock and are told that it was freed.

use super::*;
use crate::node::{Incoming, Push, Says, answer::Ahead};

impl World {
    /// A reader that waits, and the owner under which the nodes know it. Each node has refused it.
    fn reader_that_waits(&mut self, id: u64) -> (Answered, Entry) {
        let lock = Target::Rwlock(Name::new("a").unwrap(), Side::Reader);
        let answer = self.ask(|acquisition| {
            (acquisition.id, acquisition.request.wants) =
                (AcquisitionId::of_call(id), Wants::Lock(lock));
            acquisition.request.wait = Wait::For(None);
        });
        let asked = self.are_refused();
        assert_eq!(asked.len(), 3);
        (answer, asked[0].clone())
    }

    /// Answers all requests, so that nobody may read. Returns the owners under which readers wait, node by node.
    fn are_refused(&mut self) -> Vec<Entry> {
        let mut asked = Vec::new();
        while let Some(effect) = self.core.next_effect() {
            let Effect::Send(node, operation, _) = effect else {
                continue;
            };
            self.core.mark_written();
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
fn a_push_for_a_dropped_waiter_wakes_another_of_its_process() {
    let mut world = World::new(3);
    let (_stays, stays) = world.reader_that_waits(1);
    let (goes, gone) = world.reader_that_waits(2);
    drop(goes);
    world.core.event(Event::Cancel(AcquisitionId::of_call(2)));
    world.are_refused();
    world.free(&gone);
    let asked = world.are_refused();
    assert_eq!(asked, [stays.clone(), stays.clone(), stays]);
}

#[test]
fn reader_that_is_called_during_its_attempt_asks_again_at_once() {
    for is_called in [false, true] {
        let mut world = World::new(3);
        let (_answer, entry) = world.reader_that_waits(1);
        // The push starts the next attempt. Another push comes while that is under way.
        world.free(&entry);
        if is_called {
            world.free(&entry);
        }
        assert_eq!(world.are_refused().len(), 3);
        world.core.tick(world.clock.now());
        assert_eq!(world.are_refused().len(), if is_called { 3 } else { 0 });
    }
}

#[test]
fn a_rest_that_ends_twice_makes_one_attempt() {
    let mut world = World::new(3);
    let (_answer, entry) = world.reader_that_waits(1);
    for node in [1, 2] {
        let died = Disconnected("died".into());
        world.core.disconnected(node, &died);
    }
    while world.core.next_effect().is_some() {}
    world.core.connected(1, 8, None, true);
    // Its rest ends, and then a push comes. Both times the acquisition waits for node 1, which is being met.
    world.at(101);
    world.free(&entry);
    let early = |(what, _): &&(&str, usize)| *what == "early requests";
    let early = world.core.leftovers().iter().find(early).unwrap().1;
    assert_eq!(early, 2);
    assert_eq!(world.are_refused().len(), 2);
}

#[test]
fn dropped_waiters_are_forgotten_once_no_node_knows_them() {
    let mut world = World::new(3);
    let (stays, _) = world.reader_that_waits(1);
    let kept = left(&world);
    for id in 2..100 {
        drop(world.reader_that_waits(id));
        world.core.event(Event::Cancel(AcquisitionId::of_call(id)));
        world.at(id * 100);
        world.are_refused();
    }
    // As many as go within three of the longest rests and answers.
    assert!(left(&world) <= kept + 20, "{:?}", world.core.leftovers());
    drop(stays);
    world.core.event(Event::Cancel(AcquisitionId::of_call(1)));
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

/// The same text for each of three nodes.
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

/// Another writer is before it in the queue for the turn.
fn behind_another() -> Answer {
    Answer::InLine {
        rank: 0,
        ahead: Ahead {
            remaining: None,
            ticket: 5,
            holder: Some("fedcba9876543210fedcba9876543210@web-2:78".into()),
            is_reserved: false,
        },
    }
}

fn turn_is_ours() -> Answer {
    Answer::Taken { counter: 3, seq: 1 }
}

impl World {
    fn writer(&mut self, wait: Wait) -> Answered {
        let lock = Target::Rwlock(Name::new("a").unwrap(), Side::Writer);
        self.ask(|acquisition| {
            (acquisition.id, acquisition.request.wants) =
                (AcquisitionId::of_call(1), Wants::Lock(lock));
            acquisition.request.wait = wait;
        })
    }

    /// A writer that was refused and has asked all nodes for a place in the queue for its turn.
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

    /// The nodes refuse what it asked for. (The last answer is not waited for, and that node is told to take it back.)
    fn refuse(&mut self) {
        self.each_says(&is_read());
    }

    /// Takes the requests that the engine sends now, and reports them as written to the connections.
    fn sends(&mut self) -> Vec<String> {
        let sent = self.until_sent();
        self.core.mark_written();
        shown(&sent)
    }

    /// Every node answers all requests by this.
    fn each_says(&mut self, said: &Answer) {
        self.all_say(&[said.clone(), said.clone(), said.clone()]);
    }

    /// All nodes say that another writer is before it. Returns the requests that are sent when it asks them again.
    fn stands_behind_another(&mut self) -> Vec<(usize, Command)> {
        (0..3).for_each(|node| self.says(node, behind_another()));
        let (mut beats, mut at) = (Vec::new(), 0);
        while beats.is_empty() {
            assert!(at < 5_000, "it does not ask again");
            at += 10;
            self.at(at);
            beats = self.until_sent();
            self.core.mark_written();
        }
        beats
    }

    /// Handles the events that callers and leases have sent to the engine, as the driver does.
    fn obey_events(&mut self) {
        while let Ok(event) = self._events.try_recv() {
            self.core.event(event);
        }
    }
}

#[test]
fn an_uncontended_writer_asks_each_node_once() {
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
fn a_try_to_write_does_not_queue() {
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
    world.core.event(Event::Cancel(AcquisitionId::of_call(1)));
    assert_eq!(world.sends(), each("RELEASE a waits no more: true"));
    world.each_says(&released());
    world.obey_events();
    assert_eq!(world.sends(), each(&format!("RELEASE {TURN}")));
    world.each_says(&Answer::Released(true));
    assert_eq!(left(&world), 0, "{:?}", world.core.leftovers());
}

#[test]
fn a_dropped_queued_writer_leaves_the_queue_and_blocks_no_reader() {
    let mut world = World::new(3);
    let answer = world.writer_in_line(Wait::For(None));
    drop(answer);
    world.core.event(Event::Cancel(AcquisitionId::of_call(1)));
    let mut all = each(&format!("RELEASE {TURN}"));
    all.extend(each("RELEASE a waits no more: true"));
    assert_eq!(world.sends(), all);
}

#[test]
fn a_writer_still_writes_if_no_node_gives_it_a_turn() {
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

#[test]
fn a_writer_queued_on_too_few_nodes_leaves_and_asks_without_a_turn() {
    let mut world = World::new(3);
    let _answer = world.writer_in_line(Wait::For(None));
    let beats = world.stands_behind_another();
    assert!(beats.iter().all(|(_, command)| joins(command).is_some()));
    for (node, _) in beats.iter().take(2) {
        let fault = Fault::Error("ERR nothing is permitted here".into());
        world.core.answered(*node, [Err(fault)]);
    }
    let sent = world.sends();
    let left = format!("RELEASE {TURN}");
    let left = sent.iter().filter(|sent| sent.contains(&left)).count();
    assert_eq!(left, 3, "{sent:?}");
    assert!(sent.ends_with(&each("WRITE a waits: true")), "{sent:?}");
}

/// A node that is back was not asked again yet, so it has not refused.
#[test]
fn writer_that_is_cut_off_for_a_moment_keeps_its_place_among_the_writers() {
    let mut world = World::new(3);
    let _answer = world.writer_in_line(Wait::For(None));
    world.stands_behind_another();
    for node in [1, 2] {
        world.dies(node);
    }
    world.until_sent();
    for node in [1, 2] {
        world.comes_back(node, TERMS.quarantine());
        let mut sent = world.until_sent();
        sent.retain(|(_, command)| command.request().is_some());
        let again = format!("{node} JOIN {TURN} only last: false");
        assert_eq!(shown(&sent), [again]);
    }
}

/// It has been in the queue, so it goes on through an outage, as one does that made an attempt before.
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
    let mut second = world.ask(|acquisition| {
        let lock = Target::Rwlock(Name::new("a").unwrap(), Side::Writer);
        (acquisition.id, acquisition.request.wants) =
            (AcquisitionId::of_call(3), Wants::Lock(lock));
        acquisition.request.wait = Wait::For(None);
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

/// The node knows that the writer waits, and would keep readers out.
#[test]
fn a_node_that_the_winning_attempt_did_not_ask_is_told_that_the_wait_has_ended() {
    let mut world = World::new(3);
    let mut answer = world.writer(Wait::For(None));
    let asked = world.until_sent();
    let waited = asked[2].1.request().unwrap().verb.clone();
    let Verb::Acquire { wait, .. } = waited else {
        panic!("{waited:?}");
    };
    let waited = wait.waiter().unwrap().entry.clone();
    world.core.mark_written();
    world.refuse();
    world.sends();
    world.dies(2);
    for node in 0..2 {
        world.says(node, turn_is_ours());
    }
    assert_eq!(
        world.sends(),
        ["0 WRITE a waits: true", "1 WRITE a waits: true"]
    );
    for node in 0..2 {
        world.says(node, granted());
    }
    let lease = answer.try_recv().unwrap().unwrap().unwrap();
    world.comes_back(2, TERMS.quarantine());
    let told = world.until_sent();
    let is_told = |(node, command): &(usize, Command)| {
        *node == 2 && command.entry_that(Request::frees) == Some(&waited)
    };
    assert!(told.iter().any(is_told), "{told:?}");
    drop(lease);
}

#[test]
fn a_queued_writer_asks_once_more_at_its_end_and_names_the_holder() {
    let mut world = World::new(3);
    let wait = Wait::For(Some(Duration::from_millis(500)));
    let mut answer = world.writer_in_line(wait);
    (0..3).for_each(|node| world.says(node, behind_another()));
    world.at(470);
    for (node, beat) in world.until_sent() {
        assert!(joins(&beat).is_some());
        world.says(node, behind_another());
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
