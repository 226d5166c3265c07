//! Which signals are heard. One that was ignored from the start (`nohup`, a job that a script put
//! in the background) stays ignored, as the command that we run inherits it.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll},
};

use nix::sys::signal::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Those that are passed on to the command.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Listens from its making on: from then on no signal of these ends this process by itself.
pub(crate) struct Signals {
    heard: Vec<(Signal, unix::Signal)>,
    child: unix::Signal,
}

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let ignored = ignored();
        let wanted = PASSED_ON
            .into_iter()
            .filter(|signal| ignored & (1 << (*signal as u32 - 1)) == 0);
        let listen = |signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        Ok(Self {
            heard: wanted.map(listen).collect::<io::Result<_>>()?,
            child: unix::signal(SignalKind::child())?,
        })
    }

    /// The next one. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// The next one that asks to end.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGUSR1 | Signal::SIGUSR2 => {}
                signal => return signal,
            }
        }
    }

    /// A signal to pass on, or none if a child may have ended or stopped.
    pub(crate) async fn next_or_child(&mut self) -> Option<Signal> {
        poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(signal) => Poll::Ready(Some(signal)),
            Poll::Pending => self.child.poll_recv(cx).map(|_| None),
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        for (signal, stream) in &mut self.heard {
            if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

/// The signals that this process ignores, as a bit mask. Only Linux tells without unsafe code.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
