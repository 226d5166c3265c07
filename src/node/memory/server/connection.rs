//! A connection to an in-process master.

use std::{
    collections::VecDeque,
    future::Future as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::time::{Instant, Sleep, sleep_until};

use super::process::Process;
use crate::{
    clock::Clock as _,
    node::{Answer, Connection, Disconnected, Guard, Operation, batch},
};

/// A command takes effect when it is flushed, in a batch with the others that wait.
pub(super) struct MemoryConnection {
    process: Arc<Process>,
    client_id: u64,
    life: u64,
    waiting: VecDeque<(Arc<Operation>, Arc<Guard>)>,
    /// With the instant from which one may be read, if it comes late.
    answers: VecDeque<(Option<Instant>, Answer)>,
    /// Until the first answer may be read.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl MemoryConnection {
    pub(super) fn new(process: Arc<Process>, client_id: u64, life: u64) -> Self {
        Self {
            process,
            client_id,
            life,
            waiting: VecDeque::new(),
            answers: VecDeque::new(),
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
        if server.life != self.life {
            self.waiting.clear();
            return Poll::Ready(Ok(()));
        }
        let time = server.clock.wall_us();
        let due = (!server.delay.is_zero()).then(|| Instant::now() + server.delay);
        let mut left = 0;
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
            self.answers.push_back((due, answer));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, Disconnected>> {
        let mut server = self.process.lock();
        if server.life != self.life {
            return Poll::Ready(Err(Disconnected("the in-process node was stopped".into())));
        }
        if let Some((due, _)) = self.answers.front() {
            if let Some(due) = *due
                && due > Instant::now()
            {
                // Woken earlier where the connection breaks.
                server.waiting.insert(self.client_id, cx.waker().clone());
                let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(due)));
                ready!(sleep.as_mut().poll(cx));
            }
            self.sleep = None;
        }
        if let Some((_, answer)) = self.answers.pop_front() {
            return Poll::Ready(Ok(answer));
        }
        server.waiting.insert(self.client_id, cx.waker().clone());
        Poll::Pending
    }

    fn withdraw(&mut self) -> usize {
        self.waiting.drain(..).count()
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.process.lock().waiting.remove(&self.client_id);
    }
}
