//! A connection to an in-process master.

use std::{
    collections::VecDeque,
    future::Future as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::process::Process;
use crate::{
    base::clock::Clock as _,
    node::{Connection, Disconnected, Guard, Incoming, Operation, batch},
};

/// A command takes effect when it is flushed, in a batch with the others that wait. Output is kept at the node's end,
/// where commands of other connections can put pushes between the answers.
pub(super) struct MemoryConnection {
    process: Arc<Process>,
    client_id: u64,
    hears: bool,
    waiting: VecDeque<(Arc<Operation>, Arc<Guard>)>,
    /// Sleeps until the first output may be read.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl MemoryConnection {
    pub(super) fn new(process: Arc<Process>, client_id: u64, hears: bool) -> Self {
        Self {
            process,
            client_id,
            hears,
            waiting: VecDeque::new(),
            sleep: None,
        }
    }
}

impl Connection for MemoryConnection {
    fn client_id(&self) -> u64 {
        self.client_id
    }

    fn note(&self) -> Option<&str> {
        None
    }

    fn send(&mut self, operation: Arc<Operation>, guard: Arc<Guard>) {
        self.waiting.push_back((operation, guard));
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
        let mut server = self.process.lock();
        if server.open(self.client_id).is_none() {
            self.waiting.clear();
            return Poll::Ready(Ok(()));
        }
        let (time, due) = (server.clock.wall_us(), server.due());
        let (mut left, mut woken) = (0, Vec::new());
        while let Some((operation, guard)) = self.waiting.front() {
            let (command, guard) = (operation.command(), guard.as_str());
            let answer = match left {
                0 => {
                    left = batch::first(self.waiting.iter().map(|(o, g)| (&**o, &**g)));
                    server.store.apply(command, guard, time)
                }
                _ => server.store.apply_next(command, guard, time),
            };
            left -= 1;
            self.waiting.pop_front();
            // A script publishes before it answers.
            server.hand_out(due, &mut woken);
            server.answer(self.client_id, due, answer);
        }
        drop(server);
        woken.into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }

    fn hears(&self) -> bool {
        self.hears
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, Disconnected>> {
        let mut server = self.process.lock();
        let Some(open) = server.open(self.client_id) else {
            return Poll::Ready(Err(Disconnected("the in-process node was stopped".into())));
        };
        if let Some((Some(due), _)) = open.said.front()
            && *due > Instant::now()
        {
            // It is woken earlier if the connection breaks.
            open.waiting = Some(cx.waker().clone());
            let sleep = self
                .sleep
                .get_or_insert_with(|| Box::pin(sleep_until(*due)));
            ready!(sleep.as_mut().poll(cx));
        }
        if let Some((_, said)) = open.said.pop_front() {
            self.sleep = None;
            return Poll::Ready(Ok(said));
        }
        open.waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    fn withdraw(&mut self) -> usize {
        self.waiting.drain(..).count()
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.process.lock().close(self.client_id);
    }
}
