//! A command on its way to its own exec.
//!
//! Between fork and exec only unsafe code can run, and there is none in this crate. So this program
//! starts itself as `quorate __exec`, which prepares its own process and then becomes the command.

use std::{ffi::OsString, io, os::unix::process::CommandExt, process::Command};

use nix::{
    sys::signal::Signal,
    unistd::{Pid, getpgid, getpid, getppid},
};

use crate::{
    failure::{CANNOT_RUN, Failure, NOT_FOUND, SOFTWARE},
    output,
    signals::is_ignored,
    terminal::Terminal,
};

/// The first word of that second start.
pub(crate) const EXEC: &str = "__exec";

/// `quorate __exec PARENT json|text CMD ARGS..`: becomes the command, or says why not with an exit
/// status.
pub(crate) fn exec(mut words: impl Iterator<Item = OsString>) -> u8 {
    let parent = words
        .next()
        .and_then(|pid| pid.to_str()?.parse().ok())
        .map(Pid::from_raw);
    let json = words.next().is_some_and(|it| it == "json");
    let Some(program) = words.next() else {
        output::complain("__exec is not for people: use `quorate lock NAME -- CMD`");
        return crate::failure::USAGE;
    };
    // It survives the exec. If the parent died before this was set, we have another parent now.
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
    // Here and not in the parent, as the command may read from the terminal at once. What a script puts in the
    // background shares its group, and ignores Ctrl-C so that the script gets it.
    if let Some(terminal) = Terminal::open()
        && terminal.front() == getpgid(parent).ok()
        && !is_ignored(Signal::SIGINT)
    {
        terminal.give(getpid());
    }
    let failure = become_command(Command::new(&program).args(words));
    failure.tell(json);
    failure.code()
}

/// Returns only where it cannot be run, and says why.
pub(crate) fn become_command(command: &mut Command) -> Failure {
    let error = command.exec();
    let shown = command.get_program().to_string_lossy();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::new(
            NOT_FOUND,
            "not_found",
            format!("{shown:?} was not found: is it installed, and in PATH?"),
        ),
        _ => Failure::new(
            CANNOT_RUN,
            "cannot_run",
            format!("{shown:?} cannot be run: {error}"),
        ),
    }
}

/// The exit status of what a signal ended, as a shell would say it: 128 + n.
pub(crate) fn died_of(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or(0).saturating_add(128)
}
