//! The locked command: started so that it dies with this process, in a process group of its own so
//! that all it starts can be ended with it, and in the foreground of the terminal if there is one.
//!
//! Between fork and exec only unsafe code can run, and there is none in this crate. So this program
//! starts itself as `quorate __exec`, which prepares its own process and then becomes the command.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
};

use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal, killpg},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getpgrp, getpid, getppid, tcgetpgrp, tcsetpgrp},
};
use quorate::FencingToken;

use crate::{
    failure::{CANNOT_RUN, Failure, NOT_FOUND, SOFTWARE},
    output,
};

/// The first word of our own second life.
pub(crate) const EXEC: &str = "__exec";

/// A command that was started and has not been seen to end.
pub(crate) struct Child {
    /// Of the process and of its group.
    pid: Pid,
    /// It runs on a terminal, and whoever sits there may stop and continue it.
    interactive: bool,
    /// The terminal is the command's at the moment.
    foreground: bool,
    ended: bool,
}

/// What happened to it.
pub(crate) enum News {
    /// With this exit status, as a shell would say it.
    Ended(u8),
    Stopped(Signal),
}

impl Child {
    /// Has to be called on the main thread: the command dies with the thread that started it.
    pub(crate) fn start(
        command: &[OsString],
        name: &str,
        token: FencingToken,
    ) -> Result<Self, Failure> {
        // With its output in a pipe, as in `| less`, somebody else needs the terminal too.
        let interactive = io::stdin().is_terminal() && io::stdout().is_terminal();
        let foreground = interactive && we_are_in_front();
        let child = Command::new(ourselves())
            .arg0("quorate")
            .arg(EXEC)
            .arg(getpid().to_string())
            .arg(if foreground { "front" } else { "back" })
            .args(command)
            .env("QUORATE_NAME", name)
            .env("QUORATE_TOKEN", token.to_string())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Failure::new(
                    SOFTWARE,
                    "internal",
                    format!("cannot start a process: {error}"),
                )
            })?;
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
        Ok(Self {
            pid,
            interactive,
            foreground,
            ended: false,
        })
    }

    /// What happened since it was last asked; to be asked until there is nothing more. Stands in
    /// for `std`'s wait, which does not tell of a stop.
    pub(crate) fn news(&mut self) -> Option<News> {
        if self.ended {
            return None;
        }
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        let code = match waitpid(self.pid, Some(flags)) {
            Ok(WaitStatus::Exited(_, code)) => u8::try_from(code & 0xff).unwrap_or(SOFTWARE),
            Ok(WaitStatus::Signaled(_, signal, _)) => died_of(signal),
            Ok(WaitStatus::Stopped(_, signal)) => return Some(News::Stopped(signal)),
            Ok(_) | Err(Errno::EINTR) => return None,
            // It is gone all the same: a real-time signal, which has no name here.
            Err(_) => SOFTWARE,
        };
        self.ended = true;
        self.take_terminal();
        Some(News::Ended(code))
    }

    /// To the command and all that it started, unless that went into groups of its own.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = killpg(self.pid, signal);
    }

    /// From now on what the command leaves behind is this process's child, so that
    /// [`is_gone`](Self::is_gone) does not depend on an init that buries the dead: many a container
    /// has none.
    pub(crate) fn adopt_orphans(&self) {
        #[cfg(target_os = "linux")]
        let _ = nix::sys::prctl::set_child_subreaper(true);
    }

    /// Nothing of it runs any more.
    pub(crate) fn is_gone(&self) -> bool {
        if !self.ended {
            return false;
        }
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            if status == WaitStatus::StillAlive {
                break;
            }
        }
        killpg(self.pid, None) == Err(Errno::ESRCH)
    }

    /// It was stopped, so that whoever sits at the terminal expects to be asked for the next
    /// command: stops this process too, and returns when that is continued.
    pub(crate) fn stopped_by(&mut self, signal: Signal) {
        if !self.interactive {
            return;
        }
        self.take_terminal();
        let wants_terminal = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        // A job that the shell has brought to the front again, while the command was behind.
        if !(wants_terminal && we_are_in_front()) {
            let _ = killpg(getpgrp(), Signal::SIGTSTP);
        }
    }

    /// Lets it go on after [`stopped_by`](Self::stopped_by).
    pub(crate) fn go_on(&mut self) {
        if !self.interactive {
            return;
        }
        if we_are_in_front() {
            self.foreground = to_front(self.pid);
        }
        self.signal(Signal::SIGCONT);
    }

    fn take_terminal(&mut self) {
        if std::mem::take(&mut self.foreground) {
            to_front(getpgrp());
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.take_terminal();
    }
}

/// 128 + n.
fn died_of(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or(0).saturating_add(128)
}

fn we_are_in_front() -> bool {
    tcgetpgrp(io::stdin()) == Ok(getpgrp())
}

/// Whoever does this from behind is stopped by SIGTTOU, unless that is blocked.
fn to_front(group: Pid) -> bool {
    let stop: SigSet = [Signal::SIGTTOU].into_iter().collect();
    let blocked = stop.thread_block().is_ok();
    let done = tcsetpgrp(io::stdin(), group).is_ok();
    if blocked {
        let _ = stop.thread_unblock();
    }
    done
}

/// This program, even if its file was replaced since.
fn ourselves() -> PathBuf {
    let link = PathBuf::from("/proc/self/exe");
    match link.exists() {
        true => link,
        false => std::env::current_exe().unwrap_or_else(|_| "quorate".into()),
    }
}

/// `quorate __exec PARENT front|back CMD ARGS..`: becomes the command, or says why not with an exit
/// status.
pub(crate) fn exec(mut words: impl Iterator<Item = OsString>) -> u8 {
    let parent = words
        .next()
        .and_then(|pid| pid.to_str()?.parse().ok())
        .map(Pid::from_raw);
    let front = words.next().is_some_and(|it| it == "front");
    let Some(program) = words.next() else {
        output::complain("__exec is not for people: use `quorate lock NAME -- CMD`");
        return crate::failure::USAGE;
    };
    // It survives the exec. Who died before this was set is not our parent any more.
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL) {
        output::complain(&format!(
            "cannot arrange that the command dies with quorate: {error}"
        ));
        return SOFTWARE;
    }
    if parent != Some(getppid()) {
        return died_of(Signal::SIGKILL);
    }
    // Here and not in the parent: the command may read from the terminal at once.
    if front {
        to_front(getpid());
    }
    let error = Command::new(&program).args(words).exec();
    let shown = OsStr::new(&program).to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => {
            output::complain(&format!(
                "{shown:?} was not found: is it installed, and in PATH?"
            ));
            NOT_FOUND
        }
        _ => {
            output::complain(&format!("{shown:?} cannot be run: {error}"));
            CANNOT_RUN
        }
    }
}
