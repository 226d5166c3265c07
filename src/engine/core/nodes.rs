//! What the driver tells of the nodes, and what it takes from here.

use super::Core;
use crate::{
    base::shrink::Room as _,
    node::{
        DialError, Disconnected, Incoming,
        session::{Effect, Session, Step},
    },
};

impl Core {
    /// `hears`: it hears what the node says unasked.
    pub(crate) fn connected(
        &mut self,
        node: usize,
        client_id: u64,
        note: Option<&str>,
        hears: bool,
    ) {
        self.session(node, |session, step| {
            session.connected(step, client_id, note, hears);
        });
    }

    pub(crate) fn dial_failed(&mut self, node: usize, error: &DialError) {
        self.session(node, |session, step| session.dial_failed(step, error));
    }

    pub(crate) fn disconnected(&mut self, node: usize, why: &Disconnected) {
        self.session(node, |session, step| session.disconnected(step, why));
    }

    /// What has come from this node by now, in its order. Whether there was anything.
    pub(crate) fn came(
        &mut self,
        node: usize,
        incoming: impl IntoIterator<Item = Incoming>,
    ) -> bool {
        let mut read = std::mem::take(&mut self.read);
        read.extend(incoming);
        let any = !read.is_empty();
        if any {
            // After the last of them was read: this process may have stood still between two. A vote is judged by a
            // clock that is not too early, and a memory is watched since its record was read, never since before.
            self.net.look_at_the_clock();
            self.net.session(node, |session, step| {
                for incoming in read.drain(..) {
                    match incoming {
                        Incoming::Answer(answer) => session.answered(step, answer),
                        Incoming::Push(push) => session.pushed(step, push),
                        Incoming::Nothing => {}
                    }
                }
            });
            self.settle();
        }
        read.give_back();
        self.read = read;
        any
    }

    /// Whether more requests may join those that are about to leave: fewer than `few` wait at any node, and somebody
    /// waits for the answers to others. So a caller alone is not kept waiting.
    pub(crate) fn may_gather(&self, few: usize) -> bool {
        let waiting = self.net.sessions().iter().map(Session::unleft).max();
        let waiting = waiting.unwrap_or(0);
        let under_way = self.wishes.under_way() + self.holdings.under_way();
        (1..few).contains(&waiting) && under_way > waiting
    }

    /// The connection took back this many operations; what it was not given yet is not among them.
    pub(crate) fn withdrawn(&mut self, node: usize, taken: usize) {
        self.net.look_at_the_clock();
        self.net.withdrawn(node, taken);
        self.settle();
    }

    /// The driver has written what it was given, as far as the nodes take it.
    pub(crate) fn left(&mut self) {
        self.net.left();
    }

    fn session(&mut self, node: usize, act: impl FnOnce(&mut Session, &mut Step<'_>)) {
        self.net.look_at_the_clock();
        self.net.session(node, act);
        self.settle();
    }

    /// What the driver has to do next.
    pub(crate) fn next_effect(&mut self) -> Option<Effect> {
        self.net.next_effect()
    }
}
