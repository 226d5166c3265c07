//! The terminal that controls this process: which group it serves, and its modes. This does not depend on where input
//! and output go: with all of them in pipes, a password prompt still reads from the terminal.

use std::fs::File;

use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, SigmaskHow, Signal, killpg},
        termios::{SetArg, Termios, tcgetattr, tcsetattr},
    },
    unistd::{Pid, getpgid, getpgrp, tcgetpgrp, tcsetpgrp},
};

pub(crate) struct Terminal {
    tty: File,
    /// The modes that the terminal had when it was opened.
    modes: Option<Termios>,
}

impl Terminal {
    /// `None` in a service, or under cron.
    pub(crate) fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty");
        let tty = tty.ok()?;
        let modes = tcgetattr(&tty).ok();
        Some(Self { tty, modes })
    }

    /// The process group that may read from the terminal, and that its keys send signals to.
    pub(crate) fn front(&self) -> Option<Pid> {
        tcgetpgrp(&self.tty).ok()
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.front() == Some(getpgrp())
    }

    /// Returns true if the group in front is ours, or that of a command which another `quorate` of our group runs.
    pub(crate) fn is_of_our_job(&self) -> bool {
        let Some(front) = self.front() else {
            return false;
        };
        front == getpgrp() || parent(front).and_then(|it| getpgid(Some(it)).ok()) == Some(getpgrp())
    }

    pub(crate) fn give(&self, group: Pid) {
        let _ = from_behind(|| tcsetpgrp(&self.tty, group));
    }

    /// Takes the terminal from the command's group, or from a group that is gone, but never from another job.
    pub(crate) fn take_back(&self, from: Pid) {
        let front = self.front();
        if front.is_some_and(|front| front == from || killpg(front, None) == Err(Errno::ESRCH)) {
            self.give(getpgrp());
        }
    }

    /// Restores the modes, after a command that could not do so itself.
    pub(crate) fn restore_modes(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| self.is_ours()) {
            let _ = from_behind(|| tcsetattr(&self.tty, SetArg::TCSANOW, modes));
        }
    }
}

/// Does something that the terminal may refuse to a background job, such as writing a line under `stty tostop` or
/// putting another group in front. The terminal permits it while SIGTTOU is blocked. Ignoring the signal would work
/// too, but the command would inherit that.
pub(crate) fn from_behind<T>(act: impl FnOnce() -> T) -> T {
    let stop: SigSet = [Signal::SIGTTOU].into_iter().collect();
    let before = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let done = act();
    if let Ok(before) = before {
        let _ = before.thread_set_mask();
    }
    done
}

/// The parent of a process. Only Linux has files about other processes.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, which may hold anything, is followed by the state and the parent.
    let (_, fields) = stat.rsplit_once(')')?;
    let parent = fields.split_ascii_whitespace().nth(1)?;
    parent.parse().ok().map(Pid::from_raw)
}
