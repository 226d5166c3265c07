//! The step between fork and exec of the locked command.
//!
//! Only unsafe code can run between fork and exec, and this crate has none there. So this program starts itself as `quorate
//! __exec`, which prepares its own process and then becomes the command.

#[cfg(target_os = "linux")]
use std::{
    collections::BTreeMap,
    ffi::{CString, OsStr},
    os::unix::ffi::OsStrExt as _,
};
use std::{ffi::OsString, io, os::unix::process::CommandExt, process::Command};

#[cfg(target_os = "linux")]
use nix::unistd::execvpe;
use nix::{
    sys::signal::Signal,
    unistd::{Pid, getpgid, getpid, getppid},
};

use crate::{
    failure::{CANNOT_RUN, Failure, NOT_FOUND, SOFTWARE},
    output,
    signals::{ignored_pipe_from_the_start, is_ignored},
    terminal::Terminal,
};

/// The first argument of that second start.
pub(crate) const EXEC: &str = "__exec";

/// The word for a command that ignores SIGPIPE from the start.
const IGNORES_PIPE: &str = "ignores-pipe";

/// The first arguments of that start, up to the command.
pub(crate) fn words(json: bool) -> [String; 4] {
    let pipe = match ignored_pipe_from_the_start() {
        true => IGNORES_PIPE,
        false => "default",
    };
    let json = if json { "json" } else { "text" };
    let words = [EXEC, &getpid().to_string(), json, pipe];
    words.map(str::to_owned)
}

/// `quorate __exec PARENT json|text ignores-pipe|default CMD ARGS..`: becomes the command. If that fails, it prints the reason and returns
/// an exit status.
pub(crate) fn exec(mut words: impl Iterator<Item = OsString>) -> u8 {
    let parent = words
        .next()
        .and_then(|pid| pid.to_str()?.parse().ok())
        .map(Pid::from_raw);
    let json = words.next().is_some_and(|it| it == "json");
    let ignores_pipe = words.next().is_some_and(|it| it == IGNORES_PIPE);
    let Some(program) = words.next() else {
        output::complain("__exec is internal: use `quorate lock NAME -- CMD`");
        return crate::failure::USAGE;
    };
    // This setting survives the exec. If the parent died before it was made, we have another parent now.
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
    // This is done here and not in the parent, because the command may read from the terminal at once. A process that a
    // script puts in the background shares the script's group, and ignores Ctrl-C so that only the script gets it.
    if let Some(terminal) = Terminal::open()
        && terminal.front() == getpgid(parent).ok()
        && !is_ignored(Signal::SIGINT)
    {
        terminal.give(getpid());
    }
    let failure = become_command(Command::new(&program).args(words), ignores_pipe);
    failure.tell(json);
    failure.code()
}

/// Returns only if the command cannot be run, with the reason.
pub(crate) fn become_command(command: &mut Command, ignores_pipe: bool) -> Failure {
    let error = match ignores_pipe {
        true => exec_ignoring_pipe(command),
        false => command.exec(),
    };
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

/// As [`Command::exec`], which would set SIGPIPE to its default. Rust's runtime has ignored it, and it stays so.
#[cfg(target_os = "linux")]
fn exec_ignoring_pipe(command: &Command) -> io::Error {
    let mut environment: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => environment.insert(name.to_owned(), value.to_owned()),
            None => environment.remove(name),
        };
    }
    let text = |bytes: &OsStr| CString::new(bytes.as_bytes());
    let words = [command.get_program()]
        .into_iter()
        .chain(command.get_args());
    let variables = environment.into_iter().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        text(&name)
    });
    let all = words.map(text).collect::<Result<Vec<_>, _>>();
    let all = all.and_then(|words| Ok((words, variables.collect::<Result<Vec<_>, _>>()?)));
    match all {
        Ok((words, variables)) => match words.first() {
            Some(program) => match execvpe(program, &words, &variables) {
                Ok(never) => match never {},
                Err(error) => error.into(),
            },
            None => io::ErrorKind::InvalidInput.into(),
        },
        Err(zero) => zero.into(),
    }
}

#[cfg(not(target_os = "linux"))]
fn exec_ignoring_pipe(command: &mut Command) -> io::Error {
    command.exec()
}

/// The exit status of a process that a signal ended, as a shell would report it: 128 + n.
pub(crate) fn died_of(signal: Signal) -> u8 {
    u8::try_from(signal as i32).unwrap_or(0).saturating_add(128)
}
