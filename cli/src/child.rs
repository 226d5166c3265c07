//! The command that runs under the lock. It dies with this process. It leads a process group of its own, so that
//! everything it starts can be ended with it. If there is a terminal, it runs in its foreground. It is started through
//! [`exec`](crate::exec).

use std::{os::unix::process::CommandExt, process::Command, time::Duration};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getpgid, getpgrp, getpid},
};
use quorate::{Lease, cli::NODES};
use tokio::time;

use crate::{
    args::{Args, Fleet, Run},
    exec::{self, died_of},
    failure::{Failure, SOFTWARE},
    job::{self, ourselves},
    signals::{Signals, is_ignored, wants_terminal},
    terminal::Terminal,
};

/// The environment variable that tells the command its slot.
const SLOT: &str = "QUORATE_SLOT";
/// The variable of the setting `password_command`.
const PASSWORD_COMMAND: &str = "QUORATE_PASSWORD_COMMAND";
/// How often to check whether a process has obeyed a signal.
pub(crate) const LOOK: Duration = Duration::from_millis(2);
/// How long a command may take to obey SIGTSTP: an editor puts the terminal in order first.
const GRACE: Duration = Duration::from_millis(100);
/// How long the kernel may take to stop it.
const STOPPED: Duration = Duration::from_secs(1);

/// A command that was started, and the group of processes that it leads.
pub(crate) struct Child {
    /// The id of the process and of its group.
    pid: Pid,
    terminal: Option<Terminal>,
    /// True if this process adopts the processes that the command leaves behind, and waits for them.
    adopting: bool,
    /// The exit status, as a shell would report it.
    ended: Option<u8>,
    stopped: bool,
    /// The signal that stopped it, until this process has reacted to that.
    stopped_by: Option<Signal>,
    /// True if it was stopped together with this process, and waits for [`go_on`](Self::go_on).
    paused: bool,
    /// True if it asked for the terminal, and may have it.
    asked: bool,
    /// True if an interrupt that was sent to this process was passed on.
    passed_interrupt: bool,
    /// True if the terminal's interrupt key ended it.
    interrupted: bool,
}

/// How much is left of the command's process group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Gone,
    Alive,
    /// It runs, but this process may not signal any of it.
    Untouchable,
}

impl Child {
    /// Must be called on the main thread: the command dies with the thread that started it.
    pub(crate) fn start(args: &Args, run: &Run, lease: &Lease) -> Result<Self, Failure> {
        // Opened before the command can change the terminal's modes.
        let terminal = Terminal::open();
        let mut exec = Command::new(ourselves());
        let on_masters = !run.consul.is_asked();
        name_servers(&mut exec, &args.fleet, run.keep_env, on_masters);
        match lease.slot() {
            Some(slot) => exec.env(SLOT, slot.to_string()),
            // This process may itself run under a semaphore, and the command must not inherit that slot.
            None => exec.env_remove(SLOT),
        };
        let child = exec
            .arg0("quorate")
            .args(exec::words(args.json))
            .args(&run.command)
            .env("QUORATE_NAME", lease.name())
            .env("QUORATE_TOKEN", lease.token().to_string())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Failure::new(
                    SOFTWARE,
                    "internal",
                    format!("cannot start a process: {error}"),
                )
            })?;
        Ok(Self {
            pid: Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX)),
            terminal,
            adopting: false,
            ended: None,
            stopped: false,
            stopped_by: None,
            paused: false,
            asked: false,
            passed_interrupt: false,
            interrupted: false,
        })
    }

    /// The number of its process group.
    pub(crate) fn group(&self) -> Pid {
        self.pid
    }

    /// Records what has happened to the command. It replaces `std`'s wait, which does not report a stop. Where
    /// this process gets orphans, as process 1 of a container does, it reaps them too: they would stay zombies.
    pub(crate) fn look(&mut self) {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED | WaitPidFlag::WCONTINUED;
        while self.ended.is_none() {
            match waitpid(self.pid, Some(flags)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(status) => self.note(status),
                Err(Errno::EINTR) => {}
                // It was ended by a real-time signal, which has no name in nix.
                Err(_) => self.end(SOFTWARE),
            }
        }
        // The library waits for password commands, which are in groups of their own. Only process 1 reaps everything, so
        // there such a command may lose its exit status.
        let of_group = Pid::from_raw(-self.pid.as_raw());
        let orphans = (getpid().as_raw() != 1).then_some(of_group);
        loop {
            match waitpid(orphans, Some(flags)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => break,
                Ok(status) => self.note(status),
                Err(_) => {}
            }
        }
    }

    fn note(&mut self, status: WaitStatus) {
        let its_own = status.pid() == Some(self.pid);
        // After the command has ended, only the processes that it left in its group count.
        let of_group = || self.ended.is_some() && getpgid(status.pid()) == Ok(self.pid);
        match status {
            WaitStatus::Exited(_, code) if its_own => {
                self.end(u8::try_from(code & 0xff).unwrap_or(SOFTWARE));
            }
            WaitStatus::Signaled(_, signal, _) if its_own => {
                let in_front = self.terminal.as_ref().and_then(Terminal::front) == Some(self.pid);
                self.interrupted = signal == Signal::SIGINT && in_front && !self.passed_interrupt;
                self.end(died_of(signal));
                self.restore_terminal();
            }
            WaitStatus::Stopped(_, signal) if its_own || of_group() => {
                self.stopped = true;
                self.stopped_by = Some(signal);
            }
            WaitStatus::Continued(_) if its_own => {
                self.stopped = false;
                self.stopped_by = None;
            }
            _ => {}
        }
    }

    fn end(&mut self, code: u8) {
        self.ended = Some(code);
        self.stopped = false;
        self.stopped_by = None;
        self.take_terminal();
    }

    /// The exit status, as a shell would report it, if the command has ended.
    pub(crate) fn ended(&self) -> Option<u8> {
        self.ended
    }

    /// Returns true if Ctrl-C ended the command. The key reached only the command's group. So the rest of our own group
    /// must be told, as if the command were a member: a script's loop must end, and so must the other programs of our
    /// pipeline.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Signals the command and all that it started, except what went into groups of its own.
    pub(crate) fn signal(&self, signal: Signal) -> nix::Result<()> {
        killpg(self.pid, signal)
    }

    /// Passes on a signal that was sent to this process. A stopped command would not notice it, so the command is
    /// continued if the signal asks it to end.
    pub(crate) fn pass_on(&mut self, signal: Signal) -> nix::Result<()> {
        self.passed_interrupt |= signal == Signal::SIGINT;
        self.signal(signal)?;
        match signal {
            Signal::SIGUSR1 | Signal::SIGUSR2 => Ok(()),
            _ => self.signal(Signal::SIGCONT),
        }
    }

    /// Makes this process the parent of what the command leaves behind. So [`rest`](Self::rest) does not depend on an
    /// init that reaps the dead, which many containers lack.
    pub(crate) fn adopt_orphans(&mut self) {
        self.adopting = true;
        #[cfg(target_os = "linux")]
        let _ = nix::sys::prctl::set_child_subreaper(true);
    }

    pub(crate) fn rest(&self) -> Rest {
        match killpg(self.pid, None) {
            // Until its end was seen, the number belongs to the command and to no other process.
            Err(Errno::ESRCH) if self.ended.is_some() => Rest::Gone,
            Err(Errno::EPERM) => Rest::Untouchable,
            _ => Rest::Alive,
        }
    }

    /// The exit status once the command has ended and, if orphans are adopted, its whole group has ended too.
    pub(crate) fn done(&self) -> Option<u8> {
        self.ended
            .filter(|_| !self.adopting || self.rest() == Rest::Gone)
    }

    /// The signal that stopped the command. Each stop is returned once.
    pub(crate) fn stopped_by(&mut self) -> Option<Signal> {
        self.stopped_by.take()
    }

    /// Reacts to a stop of the command by `signal`. The command gets the terminal if it wants it and may have it.
    /// Otherwise the shell has to see a stopped job: this stops the whole group and this process, and returns when this
    /// process goes on. The caller then continues the command with [`go_on`](Self::go_on).
    ///
    /// The future may be dropped. The command may then be stopped or not.
    pub(crate) async fn follow(&mut self, signal: Signal, signals: &mut Signals) {
        if self.terminal.is_none() {
            // No shell watches, so the process that stopped the command has to continue it.
            return;
        }
        if self.may_have_terminal(signal) {
            (self.paused, self.asked) = (true, true);
            return;
        }
        // Stopping takes a moment, in which the shell may put us in the foreground.
        if !self.stop_group().await || self.may_have_terminal(signal) {
            return;
        }
        if signals.went_on_meanwhile() {
            return;
        }
        self.take_terminal();
        // The terminal's key reached only the command, and not the other programs of our pipeline.
        signals.stop_our_group();
        let heeded = job::stop(signal);
        signals.went_on();
        if !heeded && wants_terminal(signal) {
            // Nobody can bring this job to the foreground. The kernel sends such jobs SIGHUP.
            let _ = self.signal(Signal::SIGHUP);
        }
    }

    /// Reacts to `signal`, which asks this process to stop. Stops the command, then this process, and returns when this
    /// process goes on, as [`follow`](Self::follow) does. Returns `false` if the command cannot be stopped; then
    /// neither is stopped.
    pub(crate) async fn stop(&mut self, signal: Signal, signals: &mut Signals) -> bool {
        if !self.may_have_terminal(signal) {
            // The kernel does the same: SIGCONT cancels a stop that is still pending.
            if signals.went_on_meanwhile() {
                return true;
            }
            if !self.stop_group().await {
                return self.done().is_some();
            }
            if signals.went_on_meanwhile() {
                return true;
            }
        }
        self.take_terminal();
        if self.may_have_terminal(signal) {
            // All of our group got the signal, because a program of our pipeline wanted the terminal that the command
            // had. The command gets it again when it asks. A second SIGCONT does no harm.
            let _ = killpg(getpgrp(), Signal::SIGCONT);
        } else {
            job::stop(signal);
        }
        true
    }

    /// Stops the group, and waits until all of it is stopped. Returns `false` if that cannot be done.
    async fn stop_group(&mut self) -> bool {
        let _ = self.signal(Signal::SIGTSTP);
        time::sleep(GRACE).await;
        let deadline = time::Instant::now() + STOPPED;
        while time::Instant::now() < deadline {
            // For processes that do not obey SIGTSTP.
            let told = self.signal(Signal::SIGSTOP).is_ok();
            let again = time::Instant::now() + GRACE;
            while time::Instant::now() < again {
                self.look();
                if self.done().is_some() {
                    return false;
                }
                self.paused = self.stopped || (told && self.ended.is_some());
                if self.paused {
                    // This stop is our own, so it is not reported.
                    self.stopped_by = None;
                    return true;
                }
                time::sleep(LOOK).await;
            }
            // It may wait for a child that it has just made by vfork, and that is stopped.
            let _ = self.signal(Signal::SIGCONT);
        }
        false
    }

    /// Continues the command, if it was stopped by or together with this process.
    pub(crate) fn go_on(&mut self) {
        if !std::mem::take(&mut self.paused) {
            return;
        }
        let asked = std::mem::take(&mut self.asked);
        let may = |it: &&Terminal| match asked {
            true => it.is_of_our_job(),
            false => it.is_ours() && !is_ignored(Signal::SIGINT),
        };
        if let Some(terminal) = self.terminal.as_ref().filter(may) {
            terminal.give(self.pid);
        }
        self.stopped = false;
        let _ = self.signal(Signal::SIGCONT);
    }

    /// Returns true if the signal was sent because a process wants the terminal, and the terminal belongs to our job.
    fn may_have_terminal(&self, signal: Signal) -> bool {
        let terminal = self.terminal.as_ref().filter(|_| wants_terminal(signal));
        terminal.is_some_and(|it| it.is_of_our_job() || it.front() == Some(self.pid))
    }

    fn take_terminal(&self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back(self.pid);
        }
    }

    /// For use after a command was killed: it may have left the terminal in any mode.
    pub(crate) fn restore_terminal(&self) {
        self.take_terminal();
        if let Some(terminal) = &self.terminal {
            terminal.restore_modes();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.take_terminal();
    }
}

/// Sets what the command finds about the servers in its environment: no password, or with `keep_env` all settings.
pub(crate) fn name_servers(command: &mut Command, fleet: &Fleet, keep_env: bool, on_masters: bool) {
    if !keep_env {
        // The URLs may hold passwords, and so may the arguments of the password command.
        command.env_remove(NODES).env_remove(PASSWORD_COMMAND);
    } else if on_masters {
        fleet.set_environment(command);
    }
}
