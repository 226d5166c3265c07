//! Settings from the environment. Programs may use the variables of the `quorate` command, and both read them with the
//! functions here.

use std::{ffi::OsString, fs::File, io::Read as _, mem};

use crate::{
    Builder, Error, Quorum,
    quorum::settings::{Options, SETTINGS, Setting, each_setting},
};

/// The variable that holds the masters' URLs, with their passwords.
pub const NODES: &str = "QUORATE_NODES";
/// The variable that names a file with the masters' URLs.
pub const NODES_FILE: &str = "QUORATE_NODES_FILE";

/// The variable that names a configuration file, which only the `quorate` command reads.
pub const CONFIG: &str = "QUORATE_CONFIG";

/// How to name masters, for an error that says that none are named.
pub const SET_NODES: &str = "set QUORATE_NODES (separated by commas), as in \
    QUORATE_NODES=redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1";

/// A file with masters is read up to this many bytes.
const LONGEST_FILE: u64 = 1 << 20;

impl Quorum {
    /// Connects with the settings in the environment: [`Builder::from_env`], then [`Builder::connect`].
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), quorate::Error> {
    /// // QUORATE_NODES=redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1
    /// let quorum = quorate::Quorum::from_env().await?;
    /// # drop(quorum); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Builder::from_env`] and [`Builder::connect`].
    ///
    /// # Cancel safety
    /// May be dropped; that closes all connections.
    pub async fn from_env() -> Result<Self, Error> {
        Builder::from_env()?.connect().await
    }
}

macro_rules! env_row {
    ("", $kind:ident, $name:ident) => {
        ""
    };
    ($variable:literal, PathBuf, $name:ident) => {
        ""
    };
    ($variable:literal, Text, $name:ident) => {
        ""
    };
    ($variable:literal, $kind:ident, $name:ident) => {
        concat!(
            "| `",
            $variable,
            "` | [`",
            stringify!($name),
            "`](Self::",
            stringify!($name),
            ") |"
        )
    };
}

macro_rules! make_from_env {
    ($($(#[$doc:meta])* $name:ident: $kind:ident {
        default: $default:expr,
        check: $check:expr,
        variable: $variable:tt,
        help: $help:literal,
    })*) => {
        impl Builder {
            /// Returns a builder with the settings in the environment. The variables are those of the `quorate`
            /// command, and mean the same.
            ///
            /// | variable | setting |
            /// | --- | --- |
            /// | `QUORATE_NODES` | [`node`](Self::node), for each URL; separated by commas, not by blanks |
            /// | `QUORATE_NODES_FILE` | in place of it, a file with the URLs, one on each line; lines that begin with `#` are left out |
            $(#[doc = env_row!($variable, $kind, $name)])*
            /// | `QUORATE_CACERT` | the file of [`ca_certificates`](Self::ca_certificates); read for each connection |
            /// | `QUORATE_CLIENT_CERT`, `QUORATE_CLIENT_KEY` | [`client_certificate_files`](Self::client_certificate_files) |
            /// | `QUORATE_PASSWORD_FILE` | a file with the password for the masters whose URL has none; read for each connection |
            /// | `QUORATE_PASSWORD_COMMAND` | in place of it, a command that prints the password |
            /// | `QUORATE_USERNAME` | the user for that password; default: the user in the URL, or `default` |
            ///
            /// The words of the command are separated by blanks, and no shell reads them. It is run for each connection,
            /// but once at a time: connections that ask while it runs share its answer. It has a process group of its
            /// own, which is killed if the command runs for longer than `QUORATE_DIAL_TIMEOUT`. It prints one line, or (with the feature `serde`) JSON:
            /// `{"username": "..", "password": "..", "expires_in_s": 900}`, of which only the password is needed. With
            /// `expires_in_s`, connections log in again before that time has passed: see
            /// [`credentials`](Self::credentials). Its standard error is that of this process.
            ///
            /// A duration is a whole number and its unit: `700ms`, `3s`, `10m`, `24h`. `QUORATE_ALLOW_EVICTION` is `1`
            /// or `true`, `0` or `false`. An empty variable counts as not set, and a setting that is not set has its
            /// default.
            ///
            /// Setters that are called on the builder afterwards replace the values from the environment. Masters that
            /// are added afterwards join those from the environment. The file is read in this call, which blocks the
            /// thread.
            ///
            /// ```no_run
            /// # async fn example() -> Result<(), quorate::Error> {
            /// let quorum = quorate::Builder::from_env()?.label("payouts-7").connect().await?;
            /// # drop(quorum); Ok(()) }
            /// ```
            ///
            /// # Errors
            /// `Invalid`, which names the variable and never shows a password:
            /// - no variable names a master, or both of them do;
            /// - the file cannot be read, or names no master;
            /// - a value is not valid for its setting.
            pub fn from_env() -> Result<Self, Error> {
                from(&Variables::of_this_process())
            }
        }
    };
}

each_setting!(make_from_env);

fn from(variables: &Variables) -> Result<Builder, Error> {
    let (nodes, source) = variables.nodes()?;
    let Some(source) = source else {
        return Err(Error::Invalid(format!(
            "no nodes are named: {SET_NODES}, or name a file with {NODES_FILE}{}{}",
            variables.hint(),
            variables.hint_at_a_config()
        )));
    };
    let builder = Quorum::builder().nodes(nodes);
    builder.check_nodes().map_err(|error| of(source, error))?;
    let mut options = Options::default();
    variables.fill(&mut options)?;
    for setting in SETTINGS {
        let checked = setting.check(&options);
        checked.map_err(|error| of(setting.variable, error))?;
    }
    Ok(builder.options(options))
}

/// Adds the name of the variable to an error.
fn of(variable: &str, error: Error) -> Error {
    match error {
        Error::Invalid(why) => Error::Invalid(format!("{variable}: {why}")),
        error => error,
    }
}

/// Returns the value of a variable, if it is set.
type Lookup = dyn Fn(&str) -> Option<OsString>;

/// The environment, behind the function that reads it. All errors are `Invalid`. They name the variable and show no
/// value that could hold a password.
pub struct Variables(Box<Lookup>);

impl Variables {
    /// The variables of this process.
    pub fn of_this_process() -> Self {
        Self(Box::new(|variable| std::env::var_os(variable)))
    }

    /// The value of a variable, or `None` if it is not set or empty.
    pub fn word(&self, variable: &str) -> Result<Option<String>, Error> {
        let said = self.0(variable).map(OsString::into_string).transpose();
        let said = said.map_err(|_| Error::Invalid(format!("{variable} is not valid UTF-8")))?;
        Ok(said.filter(|text| !text.trim().is_empty()))
    }

    /// Sets each setting that has a variable and is not set yet.
    pub fn fill(&self, options: &mut Options) -> Result<(), Error> {
        let mut found = Options::default();
        for setting in SETTINGS.iter().filter(|s| !s.variable.is_empty()) {
            if setting.show(options).is_none() {
                self.fill_one(setting, &mut found)?;
            }
        }
        *options = mem::take(options).or(found);
        Ok(())
    }

    /// Sets one setting, if its variable is set.
    pub fn fill_one(&self, setting: &Setting, options: &mut Options) -> Result<(), Error> {
        let variable = setting.variable;
        let read = |text: String| setting.read(options, &text);
        let read = self.word(variable)?.map_or(Ok(()), read);
        read.map_err(|why| Error::Invalid(format!("{variable}: {why}")))
    }

    /// The masters' URLs, and the variable that names them. The variable is `None` if neither is set.
    pub fn nodes(&self) -> Result<(Vec<String>, Option<&'static str>), Error> {
        match (self.word(NODES)?, self.word(NODES_FILE)?) {
            (Some(_), Some(_)) => Err(Error::Invalid(format!(
                "{NODES} and {NODES_FILE} are both set: set one of them"
            ))),
            (None, Some(path)) => Ok((from_file(&path)?, Some(NODES_FILE))),
            (Some(list), None) => {
                let nodes = urls(&list);
                let source = (!nodes.is_empty()).then_some(NODES);
                Ok((nodes, source))
            }
            (None, None) => Ok((Vec::new(), None)),
        }
    }

    /// A possible reason why no masters are named, to be added to an error that says so.
    pub fn hint(&self) -> String {
        // `quorate lock`, `semaphore` and `limit` set this for their command.
        match self.0("QUORATE_NAME") {
            Some(_) => format!(
                ". A command that `quorate lock`, `quorate semaphore` or `quorate limit` runs finds {NODES} only with \
                 their option --keep-env"
            ),
            None => String::new(),
        }
    }

    /// For programs that do not read the file that the command reads.
    fn hint_at_a_config(&self) -> String {
        match self.word(CONFIG) {
            Ok(None) => String::new(),
            Ok(Some(_)) | Err(_) => format!(
                ". {CONFIG} is set, but only the `quorate` command reads that file: a program reads it into a \
                 `quorate::Config`"
            ),
        }
    }
}

fn from_file(path: &str) -> Result<Vec<String>, Error> {
    if path.contains("://") || path.contains('@') {
        return Err(Error::Invalid(format!(
            "{NODES_FILE} must be the name of a file, but looks like a URL: put URLs into {NODES}"
        )));
    }
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST_FILE).read_to_string(&mut text));
    read.map_err(|error| {
        Error::Invalid(format!(
            "the file {path:?}, which {NODES_FILE} names, cannot be read: {error}"
        ))
    })?;
    // Some editors begin a file with a byte order mark.
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    let nodes: Vec<String> = lines
        .filter(|line| !line.starts_with('#'))
        .flat_map(urls)
        .collect();
    match nodes.is_empty() {
        false => Ok(nodes),
        true => Err(Error::Invalid(format!(
            "the file {path:?}, which {NODES_FILE} names, names no server: write one URL on each line"
        ))),
    }
}

/// Splits a list into URLs. A comma is part of a password, or of a socket's path, only if no URL begins behind it. After
/// the `@` of a password it separates two URLs, even if the second lacks its scheme.
fn urls(list: &str) -> Vec<String> {
    let mut urls: Vec<String> = Vec::new();
    for piece in list.split(',') {
        match urls.last_mut() {
            Some(url) if !begins_a_url(piece) => {
                url.push(',');
                url.push_str(piece);
            }
            _ => urls.push(piece.to_owned()),
        }
    }
    let beside = |c: char| c == ',' || c.is_whitespace();
    let mut split = Vec::new();
    for url in urls {
        let kept = match is_of_a_socket(&url) {
            true => url.len(),
            false => url.rfind('@').unwrap_or(0),
        };
        let (head, tail) = url.split_at(kept);
        let (first, others) = tail.split_once(',').unwrap_or((tail, ""));
        split.push(format!("{head}{first}"));
        split.extend(others.split(',').map(str::to_owned));
    }
    let split = split.iter().map(|url| url.trim_matches(beside));
    split
        .filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect()
}

fn is_of_a_socket(url: &str) -> bool {
    let scheme = url.trim_start().split_once("://");
    scheme.is_some_and(|(scheme, _)| scheme.ends_with("unix"))
}

fn begins_a_url(text: &str) -> bool {
    let scheme = text
        .trim_start()
        .split_once("://")
        .map(|(scheme, _)| scheme);
    let is_scheme = |scheme: &str| {
        scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+')
    };
    scheme.is_some_and(is_scheme)
}

#[cfg(test)]
mod tests;
