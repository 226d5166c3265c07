//! The two sources of passwords that need no program: a file, and a command.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    thread,
    time::Duration,
};

use tokio::{io::AsyncReadExt as _, process::Command, task::spawn_blocking};

use super::{BoxError, Credentials, Provider};

/// A file, or the output of a command, is read up to this many bytes.
const LONGEST: u64 = 64 << 10;
const HALF_WRITTEN: Duration = Duration::from_millis(100);

/// Reads the password from a file, for each connection.
pub(crate) fn file(user: &str, path: &Path) -> Provider {
    let (user, path): (Arc<str>, Arc<Path>) = (user.into(), path.into());
    Provider::new(move |_| {
        let (user, path) = (Arc::clone(&user), Arc::clone(&path));
        async move {
            let read = spawn_blocking(move || read(&path)).await?;
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
    // Opening a FIFO would block this thread until somebody writes.
    if !path.metadata().map_err(failed)?.is_file() {
        return Err(format!("the password file {path:?} is not a regular file").into());
    }
    let mut text = String::new();
    File::open(path)
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

/// Runs a command for the password. Its words are separated by blanks, and no shell reads them.
pub(crate) fn command(user: &str, words: &str) -> Provider {
    let user: Arc<str> = user.into();
    let words: Arc<[String]> = words.split_whitespace().map(str::to_owned).collect();
    Provider::new(move |_| {
        let (user, words) = (Arc::clone(&user), Arc::clone(&words));
        async move { run(&user, &words).await }
    })
}

/// Errors name the program, and never its output.
async fn run(user: &str, words: &[String]) -> Result<Credentials, BoxError> {
    let [program, arguments @ ..] = words else {
        return Err("the password command is empty".into());
    };
    let failed = |error| format!("the password command {program:?} cannot be run: {error}");
    // The command's own messages go to the standard error of this process, where operators look for them.
    let mut child = Command::new(PathBuf::from(program))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut said = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout
            .take(LONGEST)
            .read_to_end(&mut said)
            .await
            .map_err(failed)?;
    }
    match child.wait().await {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Err(format!("the password command {program:?} failed: {status}").into());
        }
        // Some programs, such as process 1 of a container, reap all their children.
        Err(error) if error.raw_os_error() == Some(ECHILD) && !said.is_empty() => {}
        Err(error) => return Err(failed(error).into()),
    }
    let said = str::from_utf8(&said)
        .map_err(|_| format!("the password command {program:?} printed text that is not UTF-8"))?;
    let said = said.trim_end_matches(['\r', '\n']);
    if said.trim_start().starts_with('{') {
        return from_json(user, said)
            .map_err(|why| format!("the password command {program:?} printed JSON {why}").into());
    }
    match said {
        "" => Err(format!("the password command {program:?} printed nothing").into()),
        said if said.contains(['\r', '\n']) => {
            Err(format!("the password command {program:?} printed more than one line").into())
        }
        said => Ok(Credentials::new(user, said)),
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
