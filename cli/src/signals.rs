//! The signals that this process catches. A signal that was ignored from the start stays ignored, because the command
//! inherits that. This happens under `nohup`, and to a job that a script put in the background.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::getpgrp,
};
use tokio::signal::unix::{self, SignalKind};

use crate::{
    failure::{Failure, SOFTWARE},
    job,
};

/// The signals that are passed on to the command.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// The signals with which the terminal, or a shell with job control, stops a job.
const STOPS: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// How late a signal that we sent ourselves may arrive. It may also never arrive, because SIGCONT discards it.
const OWN: Duration = Duration::from_millis(200);

/// Catches signals from its construction on. After that none of them ends or stops this process by itself.
pub(crate) struct Signals {
    heard: Vec<(Signal, unix::Signal)>,
    child: unix::Signal,
    went_on: unix::Signal,
    /// A signal of this kind that comes before this instant is the one that we sent ourselves.
    own: Option<(Signal, Instant)>,
    /// SIGCONT came, before or after the signal that was returned last.
    went_on_too: bool,
}

impl Signals {
    /// Catches the signals that are passed on to a command.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::of(&PASSED_ON)
    }

    /// Catches these, and the signals that stop a job.
    pub(crate) fn of_job() -> Result<Self, Failure> {
        Self::of(&[PASSED_ON.as_slice(), &STOPS].concat())
    }

    fn of(signals: &[Signal]) -> Result<Self, Failure> {
        Self::listen(signals).map_err(|error| {
            let text = format!("cannot listen for signals: {error}");
            Failure::new(SOFTWARE, "internal", text)
        })
    }

    fn listen(signals: &[Signal]) -> io::Result<Self> {
        let ignored = ignored();
        let wanted = signals
            .iter()
            .filter(|signal| ignored & (1 << (**signal as u32 - 1)) == 0);
        let listen = |&signal| Ok((signal, unix::signal(SignalKind::from_raw(signal as i32))?));
        Ok(Self {
            heard: wanted.map(listen).collect::<io::Result<_>>()?,
            child: unix::signal(SignalKind::child())?,
            went_on: unix::signal(SignalKind::from_raw(Signal::SIGCONT as i32))?,
            own: None,
            went_on_too: false,
        })
    }

    /// The next signal. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| self.poll(cx)).await
    }

    /// The next signal that asks this process to end. A signal that asks it to stop takes effect at once, because there
    /// is no command that has to be stopped first.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                Signal::SIGUSR1 | Signal::SIGUSR2 => {}
                signal if is_stop(signal) => {
                    if !self.went_on_meanwhile() {
                        job::stop(signal);
                    }
                }
                signal => return signal,
            }
        }
    }

    /// The next signal, or `None` if a child may have ended or stopped.
    pub(crate) async fn next_or_child(&mut self) -> Option<Signal> {
        poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(signal) => Poll::Ready(Some(signal)),
            Poll::Pending => self.child.poll_recv(cx).map(|_| None),
        })
        .await
    }

    /// Sends SIGTSTP to our whole group, and ignores our own copy.
    pub(crate) fn stop_our_group(&mut self) {
        self.sends_itself(Signal::SIGTSTP);
        let _ = killpg(getpgrp(), Signal::SIGTSTP);
    }

    /// Sends SIGINT to our whole group, and ignores our own copy.
    pub(crate) fn interrupt_our_group(&mut self) {
        self.sends_itself(Signal::SIGINT);
        let _ = killpg(getpgrp(), Signal::SIGINT);
    }

    fn sends_itself(&mut self, signal: Signal) {
        self.own = Some((signal, Instant::now() + OWN));
    }

    /// Call this after [`stop_our_group`](Self::stop_our_group), when this process goes on.
    pub(crate) fn went_on(&mut self) {
        self.sends_itself(Signal::SIGTSTP);
    }

    /// Returns true if SIGCONT came together with the signal that was returned last, or since.
    pub(crate) fn went_on_meanwhile(&mut self) -> bool {
        let since = self.poll_went_on(&mut Context::from_waker(Waker::noop()));
        std::mem::take(&mut self.went_on_too) || since
    }

    fn poll_went_on(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while let Poll::Ready(Some(())) = self.went_on.poll_recv(cx) {
            any = true;
        }
        any
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Signal> {
        self.went_on_too = false;
        let went_on = self.poll_went_on(cx);
        for (signal, stream) in &mut self.heard {
            while let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                let is_own = |(own, until): &mut _| own == signal && Instant::now() < *until;
                if self.own.take_if(is_own).is_some() {
                    continue;
                }
                // SIGCONT cancels a stop that was not obeyed yet. It does not cancel a request for the terminal, which
                // may have come after it: another program of our pipeline reads from the terminal as soon as the job
                // goes on.
                if went_on && is_stop(*signal) && !wants_terminal(*signal) {
                    continue;
                }
                self.went_on_too = went_on;
                return Poll::Ready(*signal);
            }
        }
        Poll::Pending
    }
}

/// Returns true if the signal asks the process to stop, not to end.
pub(crate) fn is_stop(signal: Signal) -> bool {
    STOPS.contains(&signal)
}

/// Returns true if the kernel sends the signal to a background process that reads from the terminal or writes to it.
pub(crate) fn wants_terminal(signal: Signal) -> bool {
    matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU)
}

/// Set before Rust's runtime starts, which ignores SIGPIPE itself.
#[cfg(target_os = "linux")]
static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// The C library calls this before it calls the runtime. Nothing later can find what the caller of this program had.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // Only the attribute counts as unsafe: the section must hold pointers to such functions.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_RUST: extern "C" fn() = {
    extern "C" fn look() {
        PIPE_IGNORED.store(is_ignored(Signal::SIGPIPE), Relaxed);
    }
    look
};

/// Returns true if this process ignored SIGPIPE when it was started.
pub(crate) fn ignored_pipe_from_the_start() -> bool {
    #[cfg(target_os = "linux")]
    return PIPE_IGNORED.load(Relaxed);
    #[cfg(not(target_os = "linux"))]
    false
}

/// Returns true if this process ignores the signal now.
pub(crate) fn is_ignored(signal: Signal) -> bool {
    ignored() & (1 << (signal as u32 - 1)) != 0
}

/// The signals that this process ignores, as a bit mask. Only Linux tells without unsafe code.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}
