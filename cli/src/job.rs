//! This process as a shell sees it: as part of a job, which the terminal may stop.

use std::{os::unix::process::CommandExt, path::PathBuf, process::Command};

use nix::{
    errno::Errno,
    sys::{
        signal::{Signal, kill, raise},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getppid, getsid},
};

use crate::terminal::Terminal;

/// The first argument of a start that runs [`obey`].
pub(crate) const OBEY: &str = "__obey";

/// Stops this process as `signal` would if it were not caught, and returns when it goes on. Returns `false` if the
/// kernel ignores the signal. It does so if no shell could continue the job (an orphaned process group), or if the
/// signal was ignored from the start.
pub(crate) fn stop(signal: Signal) -> bool {
    // The kernel obeys SIGSTOP even if no shell could continue the process.
    let signal = match signal {
        Signal::SIGTTIN | Signal::SIGTTOU => signal,
        _ => Signal::SIGTSTP,
    };
    let stops = would_stop(signal);
    // If that is not known, this process is not stopped: perhaps nobody would continue it.
    if stops == Some(true) {
        let _ = raise(Signal::SIGSTOP);
    }
    stops != Some(false)
}

/// Only the kernel knows whether a group is orphaned, and it does not tell. So this starts a process that does not
/// catch the signal, and looks whether the signal stops it. Returns `None` if that is not known.
fn would_stop(signal: Signal) -> Option<bool> {
    let child = Command::new(ourselves())
        .args([OBEY, signal.as_str()])
        .spawn()
        .ok()?;
    let pid = Pid::from_raw(i32::try_from(child.id()).ok()?);
    loop {
        match waitpid(pid, Some(WaitPidFlag::WUNTRACED)) {
            Ok(WaitStatus::Stopped(..)) => break,
            Ok(WaitStatus::Exited(_, 0)) => return Some(false),
            Err(Errno::EINTR) => {}
            _ => return None,
        }
    }
    let _ = kill(pid, Signal::SIGKILL);
    while waitpid(pid, None) == Err(Errno::EINTR) {}
    Some(true)
}

/// `quorate __obey SIGNAL`: does what the signal does to a process that does not catch it.
pub(crate) fn obey(signal: Option<&str>) -> u8 {
    match signal.and_then(|signal| signal.parse::<Signal>().ok()) {
        Some(signal) => u8::from(raise(signal).is_err()),
        None => crate::failure::USAGE,
    }
}

/// The path of this program. It is valid even if the file was replaced since.
pub(crate) fn ourselves() -> PathBuf {
    let link = PathBuf::from("/proc/self/exe");
    match link.exists() {
        true => link,
        false => std::env::current_exe().unwrap_or_else(|_| "quorate".into()),
    }
}

/// Ends this process as Ctrl-C would if it were not caught. A shell ends its script only if the program that it waits
/// for was ended by the signal: an exit status of 130 tells it that the signal was handled. Returns if no shell shares
/// this process's terminal, or if it cannot be done.
pub(crate) fn die_of_interrupt() {
    let shell = getsid(Some(getppid())).is_ok_and(|session| Ok(session) == getsid(None));
    if shell && Terminal::open().is_some_and(|terminal| terminal.is_ours()) {
        // An exec restores the default action of the signal. Every other way needs unsafe code.
        let _ = Command::new(ourselves())
            .args([OBEY, Signal::SIGINT.as_str()])
            .exec();
    }
}
