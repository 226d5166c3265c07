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
    node::{Answer, Connection, Disconnected, Guard, Operation},
};

/// A command takes effect when it is sent.
pub(super) struct MemoryConnection {
    process: Arc<Process>,
    client_id: u64,
    life: u64,
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
        let mut server = self.process.lock();
        if server.life != self.life {
            return;
        }
        let time = server.clock.wall_us();
        let due = (!server.delay.is_zero()).then(|| Instant::now() + server.delay);
        let answer = server
            .store
            .apply(operation.command(), guard.as_str(), time);
        self.answers.push_back((due, answer));
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
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
        0
    }
}

impl Drop for MemoryConnection {
    fn drop(&mut self) {
        self.process.lock().waiting.remove(&self.client_id);
    }
}
