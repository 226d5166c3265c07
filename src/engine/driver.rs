//! The task that carries out what the core decides: dials, writes, reads, sleeps.
//!
//! There is one task for all nodes. It encodes a request once and writes it to every node, and it reads the answers
//! itself. So a vote reaches its ballot without another hop between tasks.

use std::{
    future::Future,
    iter,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tokio::{
    runtime::RuntimeFlavor,
    sync::mpsc::UnboundedReceiver,
    task::{coop, yield_now},
};

use super::{core::Core, event::Event};
use crate::{
    base::clock::{Alarm, Clock, Tick},
    node::{Connection, Dial, Disconnected, Incoming, Node, session::Effect},
};

/// Maximum number of events that are handled before answers are read again.
const EVENTS_AT_ONCE: usize = 64;
/// Maximum number of messages that are read from one node before the other nodes, the deadlines and other tasks get
/// their turn. It limits how long a node that floods this client can delay them. Answers are not counted, because there
/// are never more of them than requests.
const MESSAGES_AT_ONCE: usize = 1_024;
/// For how many turns of this task a deadline waits for unread input, when the messages of a node use up the turn.
const TURNS_FOR_MESSAGES: u32 = 4;
/// The same, when the turn ends because tokio lets this task read no more. Each such turn reads about 1 MiB.
const TURNS_FOR_ANSWERS: u32 = 16;
/// From this many requests to one node on, the flush does not wait for more.
const WORTH_A_FLUSH: usize = 64;

/// Drives one core over real nodes.
pub(crate) struct Driver {
    core: Core,
    events: UnboundedReceiver<Event>,
    /// Events that were taken out of the queue and are handled at once. It is kept to reuse its memory.
    taken: Vec<Event>,
    /// No handle is left, so no new event can come.
    orphaned: bool,
    /// The runtime has several threads, so callers run at the same time as this task.
    threads: bool,
    /// The current flush was postponed once.
    put_off: bool,
    nodes: Vec<Arc<dyn Node>>,
    /// The channel on which nodes tell this process that it is its turn.
    channel: Arc<str>,
    links: Vec<Link>,
    alarm: Box<dyn Alarm>,
    /// The alarm rang at this time, so something is due. Input that had arrived by then must be read first.
    rung: Option<Tick>,
    /// For how many turns the tick has been postponed.
    put_off_tick: u32,
    /// A node has sent more messages than were read in this turn.
    unread: bool,
    /// The node that is read first. It changes with each turn, because the first node could use up all that tokio lets
    /// this task read.
    first: usize,
    clock: Arc<dyn Clock>,
}

enum Link {
    Idle,
    Dialing(Dial),
    Up(Box<dyn Connection>),
}

impl Driver {
    pub(crate) fn new(
        core: Core,
        events: UnboundedReceiver<Event>,
        nodes: Vec<Arc<dyn Node>>,
        alarm: Box<dyn Alarm>,
        clock: Arc<dyn Clock>,
        runtime: RuntimeFlavor,
    ) -> Self {
        let links = nodes.iter().map(|_| Link::Idle).collect();
        Self {
            channel: core.channel(),
            core,
            events,
            taken: Vec::with_capacity(EVENTS_AT_ONCE),
            orphaned: false,
            threads: runtime != RuntimeFlavor::CurrentThread,
            put_off: false,
            nodes,
            links,
            alarm,
            rung: None,
            put_off_tick: 0,
            unread: false,
            first: 0,
            clock,
        }
    }

    // ---- when the runtime ends ------------------------------------------------------------

    /// The task is dropped. Handles the queued events, ends everything else, and writes without waiting.
    pub(super) fn leave(&mut self) {
        self.events.close();
        for link in &mut self.links {
            match link {
                Link::Up(connection) => connection.hush(),
                Link::Idle | Link::Dialing(_) => *link = Link::Idle,
            }
        }
        let queued = self.drain();
        self.obey_last(queued);
        self.core.end();
        self.write_out();
    }

    /// Takes all events out of the queue. A sender may be in the middle of a send, which `try_recv` would miss. The
    /// queue is closed, so its end comes, and it comes at once.
    fn drain(&mut self) -> Vec<Event> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut queued = Vec::new();
        loop {
            let next = coop::unconstrained(std::future::poll_fn(|cx| self.events.poll_recv(cx)));
            match std::pin::pin!(next).poll(&mut cx) {
                Poll::Ready(Some(event)) => queued.push(event),
                Poll::Ready(None) => return queued,
                Poll::Pending => std::thread::yield_now(),
            }
        }
    }

    /// After the end nothing new is started, and no caller gets an answer.
    pub(super) fn obey_last(&mut self, events: Vec<Event>) {
        let events = events.into_iter().filter_map(Event::without_answer);
        self.core.events(events);
        self.write_out();
    }

    /// Returns true if the core has nothing left to do.
    pub(super) fn is_done(&self) -> bool {
        self.core.is_done()
    }

    /// Returns true if a lease is left that may still be dropped, and a node is connected that could be told.
    pub(super) fn can_release(&self) -> bool {
        self.core.holds() && self.links.iter().any(|link| matches!(link, Link::Up(_)))
    }

    /// Writes as much as the sockets take at once. Nothing is read any more: the nodes were told not to answer.
    fn write_out(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        // The task that drops the last lease may have used up its budget.
        let all = coop::unconstrained(std::future::poll_fn(|cx| {
            self.carry_out();
            for link in &mut self.links {
                // The core is not told of a failure, because it would plan the next dial.
                write(link, cx);
            }
            Poll::Ready(())
        }));
        let _ = std::pin::pin!(all).poll(&mut cx);
    }

    // ---- while it runs --------------------------------------------------------------------

    fn take_events(&mut self, cx: &mut Context<'_>) -> bool {
        if self.orphaned {
            return false;
        }
        let taken = self
            .events
            .poll_recv_many(cx, &mut self.taken, EVENTS_AT_ONCE);
        match taken {
            Poll::Ready(0) => {
                self.orphaned = true;
                self.core.close();
            }
            Poll::Ready(_) => self.core.events(self.taken.drain(..)),
            Poll::Pending => return false,
        }
        true
    }

    /// Postpones a flush once, so that other callers can add their requests to it. On a runtime with threads the first
    /// of many callers wakes this task. Without the pause it would write for each caller alone, which costs twice the
    /// CPU time.
    fn puts_off(&mut self, cx: &mut Context<'_>) -> bool {
        self.put_off = self.threads && !self.put_off && self.core.may_gather(WORTH_A_FLUSH);
        if self.put_off {
            cx.waker().wake_by_ref();
        }
        self.put_off
    }

    fn poll_links(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        self.unread = false;
        let all = self.links.len();
        self.first = (self.first + 1) % all.max(1);
        for node in (self.first..all).chain(0..self.first) {
            let Some(link) = self.links.get_mut(node) else {
                continue;
            };
            match link {
                Link::Idle => {}
                Link::Dialing(dial) => {
                    if let Poll::Ready(dialled) = dial.as_mut().poll(cx) {
                        any = true;
                        match dialled {
                            Ok(connection) => {
                                self.core.connected(
                                    node,
                                    connection.client_id(),
                                    connection.note(),
                                    connection.hears(),
                                );
                                *link = Link::Up(connection);
                            }
                            Err(error) => {
                                *link = Link::Idle;
                                self.core.dial_failed(node, &error);
                            }
                        }
                    }
                }
                Link::Up(connection) => {
                    let (mut over, mut messages) = (None, 0);
                    let incoming = iter::from_fn(|| {
                        if messages == MESSAGES_AT_ONCE {
                            return None;
                        }
                        match connection.poll_incoming(cx) {
                            Poll::Ready(Ok(incoming)) => {
                                messages += usize::from(!matches!(incoming, Incoming::Answer(_)));
                                Some(incoming)
                            }
                            Poll::Ready(Err(why)) => {
                                over = Some(why);
                                None
                            }
                            Poll::Pending => None,
                        }
                    });
                    any |= self.core.came(node, incoming);
                    self.unread |= messages == MESSAGES_AT_ONCE;
                    if let Some(why) = over {
                        any = true;
                        *link = Link::Idle;
                        self.core.disconnected(node, &why);
                    }
                }
            }
        }
        any
    }

    fn carry_out(&mut self) -> bool {
        let mut any = false;
        while let Some(effect) = self.core.next_effect() {
            any = true;
            let (Effect::Dial(node)
            | Effect::Close(node)
            | Effect::Withdraw(node)
            | Effect::LogIn(node)
            | Effect::Send(node, ..)) = effect;
            let (Some(link), Some(target)) = (self.links.get_mut(node), self.nodes.get(node))
            else {
                continue;
            };
            match (effect, link) {
                (Effect::Dial(_), link) => *link = Link::Dialing(target.dial(&self.channel)),
                (Effect::Close(_), link) => *link = Link::Idle,
                (Effect::Send(_, operation, guard), Link::Up(connection)) => {
                    connection.send(operation, guard);
                }
                (Effect::Withdraw(_), Link::Up(connection)) => {
                    let taken = connection.withdraw();
                    self.core.withdrawn(node, taken);
                }
                (Effect::LogIn(_), Link::Up(connection)) => connection.log_in(),
                // The connection broke in the meantime. The core hears of that next.
                (
                    Effect::Send(..) | Effect::Withdraw(_) | Effect::LogIn(_),
                    Link::Idle | Link::Dialing(_),
                ) => {}
            }
        }
        any
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        for (node, link) in self.links.iter_mut().enumerate() {
            if let Some(why) = write(link, cx) {
                any = true;
                self.core.disconnected(node, &why);
            }
        }
        any
    }

    /// Looks at the alarm. Called before the links are read.
    fn ring(&mut self, cx: &mut Context<'_>) {
        if self.rung.is_none()
            && let Some(at) = self.core.next_tick()
            && let Poll::Ready(seen) = self.alarm.poll_at(cx, self.clock.now(), at)
        {
            self.rung = Some(seen);
        }
    }

    /// Lets the core's deadlines ring. Called after the links were read. It waits while more input has arrived than was
    /// read, because an answer that is unread is not late. The wait is bounded, so a node that sends without end holds
    /// up no deadline.
    fn tick(&mut self) -> bool {
        let turns = match self.unread {
            true => TURNS_FOR_MESSAGES,
            false if !coop::has_budget_remaining() => TURNS_FOR_ANSWERS,
            false => 0,
        };
        if self.rung.is_some() && self.put_off_tick < turns {
            self.put_off_tick += 1;
            return false;
        }
        self.put_off_tick = 0;
        let rung = self.rung.take();
        if let Some(seen) = rung {
            self.core.tick(seen);
        }
        rung.is_some()
    }
}

/// Writes what is queued on a connection. Returns the reason if the connection has ended.
fn write(link: &mut Link, cx: &mut Context<'_>) -> Option<Disconnected> {
    let Link::Up(connection) = link else {
        return None;
    };
    match connection.poll_flush(cx) {
        Poll::Ready(Err(why)) => {
            *link = Link::Idle;
            Some(why)
        }
        Poll::Ready(Ok(())) | Poll::Pending => None,
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            let mut busy = this.take_events(cx);
            busy |= this.carry_out();
            if this.puts_off(cx) {
                return Poll::Pending;
            }
            busy |= this.flush(cx);
            this.core.mark_written();
            this.ring(cx);
            busy |= this.poll_links(cx);
            busy |= this.tick();
            busy |= this.carry_out();
            if this.core.is_done() {
                // The last request to a stalled node may not have been written yet.
                this.write_out();
                return Poll::Ready(());
            }
            if this.unread || !coop::has_budget_remaining() {
                // The task is woken after the other tasks, and after the runtime has looked at sockets and alarms.
                let _ = std::pin::pin!(yield_now()).poll(cx);
                return Poll::Pending;
            }
            if !busy {
                return Poll::Pending;
            }
        }
    }
}
