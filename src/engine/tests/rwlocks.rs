//! Who waits for a read-write lock, and hears that it was freed.

use super::*;
use crate::{
    claim::Side,
    node::{Incoming, Push, Says},
    owner::Entry,
};

impl World {
    /// A reader that waits, and as whom the nodes know it: each of them has refused it.
    fn reader_that_waits(&mut self, id: u64) -> (Answered, Entry) {
        let lock = Lock::Rwlock(Name::new("a").unwrap(), Side::Reader);
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
                Command::Rwlock(rwlock::Command::Read { wait, .. }) => {
                    asked.push(wait.as_ref().unwrap().entry.clone());
                    Said::Rwlock(rwlock::Reply::Held {
                        remaining: Some(Duration::from_secs(1)),
                        counter: 6,
                        holder: None,
                    })
                }
                Command::Rwlock(rwlock::Command::Release { .. }) => {
                    Said::Rwlock(rwlock::Reply::Released(false))
                }
                Command::Admission(admission::Command::Handshake(_)) => self.met(node),
                other => panic!("{other:?}"),
            };
            self.core.answered(node, [Ok(said)]);
        }
        asked
    }

    fn is_freed(&mut self, entry: &Entry) {
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
    world.is_freed(&gone);
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
