//! Settings from the environment: programs may use the variables of the command line. Both read them with the
//! functions here.

use std::{ffi::OsString, fs::File, io::Read as _, time::Duration};

use crate::{
    Builder, Error, Quorum,
    base::name::check_word,
    quorum::settings::{check_margin, check_max_ttl, check_timeout},
};

/// The masters, with their passwords.
pub const NODES: &str = "QUORATE_NODES";
/// A file with the masters.
pub const NODES_FILE: &str = "QUORATE_NODES_FILE";
/// [`Builder::key_prefix`].
pub const KEY_PREFIX: &str = "QUORATE_KEY_PREFIX";
/// [`Builder::fleet`].
pub const FLEET: &str = "QUORATE_FLEET";
/// [`Builder::max_ttl`].
pub const MAX_TTL: &str = "QUORATE_MAX_TTL";
/// [`Builder::restart_margin`].
pub const RESTART_MARGIN: &str = "QUORATE_RESTART_MARGIN";
/// [`Builder::connect_timeout`].
pub const CONNECT_TIMEOUT: &str = "QUORATE_CONNECT_TIMEOUT";
/// [`Builder::node_timeout`].
pub const NODE_TIMEOUT: &str = "QUORATE_NODE_TIMEOUT";
/// [`Builder::label`].
pub const LABEL: &str = "QUORATE_LABEL";
/// [`Builder::allow_eviction`].
pub const ALLOW_EVICTION: &str = "QUORATE_ALLOW_EVICTION";

/// How to name masters, for an error that says that none are named.
pub const SET_NODES: &str = "set QUORATE_NODES (separated by commas), as in \
    QUORATE_NODES=redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1";

/// At most this much is read of a file with masters.
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
    /// Dropping it drops all connections.
    pub async fn from_env() -> Result<Self, Error> {
        Builder::from_env()?.connect().await
    }
}

impl Builder {
    /// A builder with the settings in the environment. The variables are those of the `quorate` command, and
    /// mean the same.
    ///
    /// | variable | setting |
    /// | --- | --- |
    /// | `QUORATE_NODES` | [`node`](Self::node), for each URL; separated by commas, not by blanks |
    /// | `QUORATE_NODES_FILE` | in place of it, a file with the URLs, one on each line; lines that begin with `#` are left out |
    /// | `QUORATE_KEY_PREFIX` | [`key_prefix`](Self::key_prefix) |
    /// | `QUORATE_FLEET` | [`fleet`](Self::fleet) |
    /// | `QUORATE_MAX_TTL` | [`max_ttl`](Self::max_ttl) |
    /// | `QUORATE_RESTART_MARGIN` | [`restart_margin`](Self::restart_margin) |
    /// | `QUORATE_CONNECT_TIMEOUT` | [`connect_timeout`](Self::connect_timeout) |
    /// | `QUORATE_NODE_TIMEOUT` | [`node_timeout`](Self::node_timeout) |
    /// | `QUORATE_LABEL` | [`label`](Self::label) |
    /// | `QUORATE_ALLOW_EVICTION` | [`allow_eviction`](Self::allow_eviction), if it is `1` or `true`; `0` or `false`: not |
    ///
    /// A duration is a whole number and its unit: `700ms`, `3s`, `10m`, `24h`. An empty variable counts as not set,
    /// and what is not set has its default. What is set on the builder afterwards replaces what the environment
    /// said; masters are added to those that it names. The file is read in this call, which blocks the thread.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), quorate::Error> {
    /// let quorum = quorate::Builder::from_env()?.label("payouts-7").connect().await?;
    /// # drop(quorum); Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Invalid`, naming the variable and never a password:
    /// - no variable names a master, or both of them do;
    /// - the file cannot be read, or names no master;
    /// - a value is not valid for its setting.
    pub fn from_env() -> Result<Self, Error> {
        from(&Variables::of_this_process())
    }
}

fn from(variables: &Variables) -> Result<Builder, Error> {
    let (nodes, source) = variables.nodes()?;
    let Some(source) = source else {
        return Err(Error::Invalid(format!(
            "no nodes are named: {SET_NODES}, or name a file with {NODES_FILE}{}",
            variables.hint()
        )));
    };
    let mut builder = Quorum::builder().nodes(nodes);
    builder.check_nodes().map_err(|error| of(source, error))?;

    if let Some(prefix) = word(variables, KEY_PREFIX, "key prefix")? {
        builder = builder.key_prefix(prefix);
    }
    if let Some(name) = word(variables, FLEET, "fleet name")? {
        builder = builder.fleet(name);
    }
    if let Some(label) = word(variables, LABEL, "label")? {
        builder = builder.label(label);
    }
    if let Some(d) = time(variables, MAX_TTL, check_max_ttl)? {
        builder = builder.max_ttl(d);
    }
    if let Some(d) = time(variables, RESTART_MARGIN, check_margin)? {
        builder = builder.restart_margin(d);
    }
    let timeout = |what| move |d| check_timeout(what, d);
    if let Some(d) = time(variables, CONNECT_TIMEOUT, timeout("connect_timeout"))? {
        builder = builder.connect_timeout(d);
    }
    if let Some(d) = time(variables, NODE_TIMEOUT, timeout("node_timeout"))? {
        builder = builder.node_timeout(d);
    }
    match variables.flag(ALLOW_EVICTION)? {
        Some(true) => Ok(builder.allow_eviction()),
        Some(false) | None => Ok(builder),
    }
}

fn word(variables: &Variables, variable: &str, what: &str) -> Result<Option<String>, Error> {
    let word = variables.word(variable)?;
    let checked = word
        .as_deref()
        .map_or(Ok(()), |word| check_word(what, word));
    checked.map_err(|error| of(variable, error))?;
    Ok(word)
}

fn time(
    variables: &Variables,
    variable: &str,
    check: impl Fn(Duration) -> Result<(), Error>,
) -> Result<Option<Duration>, Error> {
    let d = variables.duration(variable)?;
    let checked = d.map_or(Ok(()), check);
    checked.map_err(|error| of(variable, error))?;
    Ok(d)
}

/// The same error with the name of the variable.
fn of(variable: &str, error: Error) -> Error {
    match error {
        Error::Invalid(why) => Error::Invalid(format!("{variable}: {why}")),
        error => error,
    }
}

/// Reads a variable.
type Lookup = dyn Fn(&str) -> Option<OsString>;

/// The environment, behind the function that reads it. All errors are `Invalid`; they name the variable and show no
/// value that could hold a password.
pub struct Variables(Box<Lookup>);

impl Variables {
    /// The variables of this process.
    pub fn of_this_process() -> Self {
        Self(Box::new(|variable| std::env::var_os(variable)))
    }

    /// The value of a variable; none if it is empty.
    pub fn word(&self, variable: &str) -> Result<Option<String>, Error> {
        let said = self.0(variable).map(OsString::into_string).transpose();
        let said = said.map_err(|_| Error::Invalid(format!("{variable} is not valid UTF-8")))?;
        Ok(said.filter(|text| !text.trim().is_empty()))
    }

    /// A value that is a [`duration`].
    pub fn duration(&self, variable: &str) -> Result<Option<Duration>, Error> {
        let said = self.word(variable)?.map(|text| duration(&text));
        said.transpose()
            .map_err(|why| Error::Invalid(format!("{variable}: {why}")))
    }

    /// A value that is `1` or `true`, `0` or `false`.
    pub fn flag(&self, variable: &str) -> Result<Option<bool>, Error> {
        match self.word(variable)?.as_deref() {
            None => Ok(None),
            Some("1" | "true") => Ok(Some(true)),
            Some("0" | "false") => Ok(Some(false)),
            Some(_) => Err(Error::Invalid(format!("{variable} is neither 1 nor 0"))),
        }
    }

    /// The masters' URLs, and the variable that names them; none if none does.
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
        // `quorate lock` sets this for its command.
        match self.0("QUORATE_TOKEN") {
            Some(_) => format!(
                ". A command that `quorate lock` runs finds {NODES} only with `quorate lock --keep-env`"
            ),
            None => String::new(),
        }
    }
}

fn from_file(path: &str) -> Result<Vec<String>, Error> {
    if path.contains("://") || path.contains('@') {
        return Err(Error::Invalid(format!(
            "{NODES_FILE} is the name of a file, and looks like a URL: URLs are for {NODES}"
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

/// The URLs of a list. A comma separates two only where the second one begins with its scheme: otherwise it is a part of a
/// password.
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
    let urls = urls.iter().map(|url| url.trim_matches(beside));
    urls.filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect()
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

/// `700ms`, `3s`, `10m`, `24h`: a whole number and its unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let wrong = || {
        "it is not a valid duration: write a whole number and its unit, as in 700ms, 3s, 10m, 24h"
            .to_owned()
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
