//! The two sources of passwords that need no program: a file, and a command.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Either, Shared, WeakShared, select},
};
use tokio::{
    io::AsyncReadExt as _,
    process::{Child, Command},
    time::timeout,
};

use super::{BoxError, Credentials, Provider};
use crate::base::{
    files::{OneReader, open_regular},
    text::seconds,
};

/// A file, or the output of a command, is read up to this many bytes.
const LONGEST: u64 = 64 << 10;
const HALF_WRITTEN: Duration = Duration::from_millis(100);
/// How long to read on after the command has ended. A process that it has left behind may keep its output open.
const LEFT_OPEN: Duration = Duration::from_millis(100);

/// Reads the password from a file, for each connection.
pub(crate) fn file(user: &str, path: &Path) -> Provider {
    let (user, path): (Arc<str>, Arc<Path>) = (user.into(), path.into());
    let reader = OneReader::default();
    Provider::new(move |_| {
        let (user, path, reader) = (Arc::clone(&user), Arc::clone(&path), reader.clone());
        async move {
            let read = reader.run(move || read(&path)).await?;
            Ok(Credentials::new(&*user, read?))
        }
    })
}

/// The text of the file without the line end. Errors name the file. A file that has no password is read once more,
/// because it may not be written yet.
fn read(path: &Path) -> Result<String, BoxError> {
    read_once(path).or_else(|_| {
        thread::sleep(HALF_WRITTEN);
        read_once(path)
    })
}

fn read_once(path: &Path) -> Result<String, BoxError> {
    let failed = |error| format!("the password file {path:?} cannot be read: {error}");
    let mut text = String::new();
    open_regular(path)
        .and_then(|file| file.take(LONGEST).read_to_string(&mut text))
        .map_err(failed)?;
    let password = text.trim_end_matches(['\r', '\n']);
    match password {
        "" => Err(format!("the password file {path:?} is empty").into()),
        _ if password.contains(['\r', '\n']) => {
            Err(format!("the password file {path:?} has more than one line").into())
        }
        password => Ok(password.to_owned()),
    }
}

/// The error of `wait` for a child that somebody else has waited for, on Linux and on macOS.
const ECHILD: i32 = 10;

/// The credentials that one run of the command gave, or the reason why it failed.
type Given = Result<Credentials, String>;

/// The run that is under way.
struct Run {
    since: Instant,
    answer: WeakShared<BoxFuture<'static, Given>>,
}

/// Runs a command for the password, for at most `limit`. Its words are separated by blanks, and no shell reads them.
///
/// One run is under way at a time, and all connections that ask meanwhile get its answer. It is ended once none of them
/// waits any more.
pub(crate) fn command(user: &str, words: &str, limit: Duration) -> Provider {
    let user: Arc<str> = user.into();
    let words: Arc<[String]> = words.split_whitespace().map(str::to_owned).collect();
    let under_way: Arc<Mutex<Option<Run>>> = Arc::default();
    Provider::new(move |_| {
        let asked = Instant::now();
        let (since, answer) = {
            let mut under_way = under_way.lock().unwrap_or_else(PoisonError::into_inner);
            let joined = under_way.as_ref().and_then(Run::join);
            joined.unwrap_or_else(|| {
                let (user, words) = (Arc::clone(&user), Arc::clone(&words));
                let answer = async move { run(&user, &words, limit).await };
                let answer = answer.boxed().shared();
                *under_way = answer.downgrade().map(|answer| Run {
                    since: asked,
                    answer,
                });
                (asked, answer)
            })
        };
        async move { Ok(answer.await?.aged(asked.duration_since(since))) }
    })
}

impl Run {
    /// The answer to wait for, and when the command was started, unless it has ended.
    fn join(&self) -> Option<(Instant, Shared<BoxFuture<'static, Given>>)> {
        let answer = self.answer.upgrade()?;
        answer.peek().is_none().then_some((self.since, answer))
    }
}

/// Errors name the program, and never its output.
async fn run(user: &str, words: &[String], limit: Duration) -> Given {
    let [program, arguments @ ..] = words else {
        return Err("the password command is empty".into());
    };
    let failed = |error| format!("the password command {program:?} cannot be run: {error}");
    // The command's own messages go to the standard error of this process, where operators look for them.
    let mut command = Command::new(PathBuf::from(program));
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    // It is dropped before the child is, so the number of the group is still its own.
    let group = Group::of(&child);
    let (said, ended) = match timeout(limit, output(&mut child, group)).await {
        Ok(output) => output.map_err(failed)?,
        Err(_) => {
            return Err(format!(
                "the password command {program:?} was ended, because it ran for {}",
                seconds(limit)
            ));
        }
    };
    match ended {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Err(format!("the password command {program:?} failed: {status}"));
        }
        // Some programs, such as process 1 of a container, reap all their children.
        Err(error) if error.raw_os_error() == Some(ECHILD) && !said.is_empty() => {}
        Err(error) => return Err(failed(error)),
    }
    let said = str::from_utf8(&said)
        .map_err(|_| format!("the password command {program:?} printed text that is not UTF-8"))?;
    let said = said.trim_end_matches(['\r', '\n']);
    if said.trim_start().starts_with('{') {
        return from_json(user, said)
            .map_err(|why| format!("the password command {program:?} printed JSON {why}"));
    }
    match said {
        "" => Err(format!("the password command {program:?} printed nothing")),
        said if said.contains(['\r', '\n']) => Err(format!(
            "the password command {program:?} printed more than one line"
        )),
        said => Ok(Credentials::new(user, said)),
    }
}

/// The output of the command and its exit status. The output counts even if a process that the command left behind
/// keeps it open.
async fn output(child: &mut Child, group: Group) -> io::Result<(Vec<u8>, io::Result<ExitStatus>)> {
    let mut said = Vec::new();
    let stdout = child.stdout.take();
    let mut stdout = stdout.ok_or(io::ErrorKind::BrokenPipe)?.take(LONGEST);
    let mut is_open = true;
    let ended = loop {
        if !is_open {
            break child.wait().await;
        }
        let (read, wait) = (pin!(stdout.read_buf(&mut said)), pin!(child.wait()));
        match select(read, wait).await {
            Either::Left((read, _)) => is_open = read? > 0,
            Either::Right((ended, _)) => break ended,
        }
        // It would wait for ever for somebody who reads on.
        if said.len() as u64 == LONGEST {
            return Err(io::Error::other(format!(
                "it printed {LONGEST} bytes or more"
            )));
        }
    };
    match &ended {
        // The processes that a failed command has started serve nobody, and each retry would leave more of them.
        Ok(status) if !status.success() => drop(group),
        _ => group.goes_on(),
    }
    let rest = async {
        while is_open {
            is_open = stdout.read_buf(&mut said).await? > 0;
        }
        Ok(())
    };
    match timeout(LEFT_OPEN, rest).await {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) | Err(_) => Ok((said, ended)),
    }
}

/// The processes of a command. They are ended with it, unless it was successful: then it may have left some on purpose,
/// such as an agent.
struct Group(Option<u32>);

impl Group {
    fn of(leader: &Child) -> Self {
        Self(leader.id())
    }

    /// Leaves the processes alone.
    fn goes_on(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(id) = self.0.and_then(|id| i32::try_from(id).ok())
            && let Some(group) = rustix::process::Pid::from_raw(id)
        {
            // It fails if all of them have ended.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

/// The user, the password and its life. The error shows nothing of the text.
#[cfg(feature = "serde")]
fn from_json(user: &str, text: &str) -> Result<Credentials, &'static str> {
    #[derive(serde::Deserialize)]
    struct Printed {
        username: Option<String>,
        password: String,
        expires_in_s: Option<u64>,
    }
    let printed: Printed = serde_json::from_str(text).map_err(
        |_| "that is not of the form {\"username\": \"..\", \"password\": \"..\", \"expires_in_s\": 900}",
    )?;
    let user = printed.username.unwrap_or_else(|| user.to_owned());
    let credentials = Credentials::new(user, printed.password);
    Ok(match printed.expires_in_s {
        Some(s) => credentials.expires_in(Duration::from_secs(s)),
        None => credentials,
    })
}

#[cfg(not(feature = "serde"))]
fn from_json(_: &str, _: &str) -> Result<Credentials, &'static str> {
    Err("which needs quorate's feature `serde`")
}
