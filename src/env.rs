//! Settings from the environment: the command line's variables, for programs too. The command reads them by the
//! same functions.

// Public for the command alone.
#![cfg_attr(not(feature = "cli"), allow(unreachable_pub))]

use std::{ffi::OsString, fs::File, io::Read as _, time::Duration};

use crate::{
    Builder, Error, Quorum,
    builder::{check_margin, check_max_ttl, check_timeout},
    name::check_word,
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

/// How to name masters, for a text that says that there are none.
pub const SET_NODES: &str = "set QUORATE_NODES (separated by commas), as in \
    QUORATE_NODES=redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1";

/// More is not read of a file with masters.
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
    /// As of [`Builder::from_env`] and [`Builder::connect`].
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
    /// | `QUORATE_NODES` | [`node`](Self::node), for each URL; separated by commas (in a password a comma is `%2C`) |
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
    /// A duration is a whole number and its unit: `700ms`, `3s`, `10m`, `24h`. A variable that is empty counts
    /// as not set, and what is not set has its default. What is set on the builder afterwards replaces what the
    /// environment said; masters are added to those that it names. The file is read here, while the thread waits.
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

/// The same error, saying which variable it is about.
fn of(variable: &str, error: Error) -> Error {
    match error {
        Error::Invalid(why) => Error::Invalid(format!("{variable}: {why}")),
        error => error,
    }
}

/// What reads a variable.
type Lookup = dyn Fn(&str) -> Option<OsString>;

/// The environment, by whatever reads it. All errors are `Invalid`, name the variable and show no value
/// that could hold a password.
pub struct Variables(Box<Lookup>);

impl Variables {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        Self(Box::new(|variable| std::env::var_os(variable)))
    }

    /// What a variable says; nothing if it is empty.
    pub fn word(&self, variable: &str) -> Result<Option<String>, Error> {
        let said = self.0(variable).map(OsString::into_string).transpose();
        let said = said.map_err(|_| Error::Invalid(format!("{variable} is not valid UTF-8")))?;
        Ok(said.filter(|text| !text.trim().is_empty()))
    }

    /// As [`duration`].
    pub fn duration(&self, variable: &str) -> Result<Option<Duration>, Error> {
        let said = self.word(variable)?.map(|text| duration(&text));
        said.transpose()
            .map_err(|why| Error::Invalid(format!("{variable}: {why}")))
    }

    /// `1` or `true`, `0` or `false`.
    pub fn flag(&self, variable: &str) -> Result<Option<bool>, Error> {
        match self.word(variable)?.as_deref() {
            None => Ok(None),
            Some("1" | "true") => Ok(Some(true)),
            Some("0" | "false") => Ok(Some(false)),
            Some(_) => Err(Error::Invalid(format!("{variable} is neither 1 nor 0"))),
        }
    }

    /// The masters' URLs, and the variable that led to them; none if no variable does.
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

    /// Why there may be no masters here, to be added to a text that says so.
    pub fn hint(&self) -> String {
        // What `quorate lock` hands to its command.
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
    // Some editors begin a file with a mark of the encoding.
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

fn urls(list: &str) -> Vec<String> {
    let urls = list.split(',').map(str::trim);
    urls.filter(|url| !url.is_empty())
        .map(str::to_owned)
        .collect()
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
mod tests {
    use std::path::Path;

    use super::*;

    /// An environment in which these variables are set.
    fn with(set: &[(&'static str, &str)]) -> Variables {
        let set: Vec<(&str, OsString)> = set.iter().map(|(name, it)| (*name, it.into())).collect();
        Variables(Box::new(move |variable| {
            let found = set.iter().find(|(name, _)| *name == variable);
            found.map(|(_, value)| value.clone())
        }))
    }

    fn invalid(set: &[(&'static str, &str)]) -> String {
        match from(&with(set)) {
            Err(Error::Invalid(why)) => why,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("accepted: {set:?}"),
        }
    }

    const NODE: (&str, &str) = (NODES, "redis://127.0.0.1:1");

    #[test]
    fn every_variable_reaches_its_setting() {
        // What a wrong value is called says which setting it came to: each variable is one setting.
        for (variable, wrong, says) in [
            (KEY_PREFIX, "a b", "the key prefix \"a b\" is not"),
            (FLEET, "a b", "the fleet name \"a b\" is not"),
            (LABEL, "a b", "the label \"a b\" is not"),
            (MAX_TTL, "48h", "max_ttl 172800s is not between"),
            (MAX_TTL, "99ms", "max_ttl 99ms is not between"),
            (RESTART_MARGIN, "25h", "restart_margin 90000s is longer"),
            (CONNECT_TIMEOUT, "0s", "connect_timeout is zero"),
            (NODE_TIMEOUT, "2h", "node_timeout 7200s is longer"),
            (NODE_TIMEOUT, "3", "it is not a valid duration"),
        ] {
            let why = invalid(&[NODE, (variable, wrong)]);
            assert!(why.starts_with(&format!("{variable}: {says}")), "{why}");
        }
        let why = invalid(&[NODE, (ALLOW_EVICTION, "yes")]);
        assert_eq!(why, "QUORATE_ALLOW_EVICTION is neither 1 nor 0");

        let all = from(&with(&[
            (
                NODES,
                " redis://127.0.0.1:1 ,redis://127.0.0.1:2,, redis://127.0.0.1:3",
            ),
            (KEY_PREFIX, "mine"),
            (FLEET, "ours"),
            (LABEL, "web-3"),
            (MAX_TTL, "10m"),
            (RESTART_MARGIN, "7s"),
            (CONNECT_TIMEOUT, "700ms"),
            (NODE_TIMEOUT, "100ms"),
            (ALLOW_EVICTION, "1"),
        ]));
        let text = all.unwrap().shown();
        for said in [
            "nodes: [\"127.0.0.1:1\", \"127.0.0.1:2\", \"127.0.0.1:3\"]",
            "list: \"ours\"",
            "prefix: \"mine\"",
            "node_timeout: 100ms",
            "max_ttl: 600s, margin: 7s",
            "label: Label(\"web-3\")",
            "allow_eviction: true",
            "connect_timeout: 700ms",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn what_is_set_afterwards_counts_and_what_is_empty_does_not() {
        let environment = [
            NODE,
            (MAX_TTL, "10m"),
            (LABEL, "env"),
            (FLEET, ""),
            (NODE_TIMEOUT, "  "),
            (NODES_FILE, ""),
            (ALLOW_EVICTION, "0"),
        ];
        let builder = from(&with(&environment)).unwrap();
        let builder = builder.max_ttl(Duration::from_secs(60)).label("ours");
        let text = builder.node("redis://127.0.0.1:9").shown();
        for said in [
            "nodes: [\"127.0.0.1:1\", \"127.0.0.1:9\"]",
            "max_ttl: 60s, margin: 5s",
            "node_timeout: 500ms",
            "Label(\"ours\")",
            "allow_eviction: false",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn without_masters_it_says_what_to_set() {
        for set in [&[][..], &[(NODES, " ")], &[(NODES, " , ,")]] {
            let why = invalid(set);
            assert!(
                why.starts_with(
                    "no nodes are named: set QUORATE_NODES (separated by commas), as in"
                ) && why.contains("QUORATE_NODES_FILE"),
                "{why}"
            );
            assert!(!why.contains("--keep-env"), "{why}");
        }
        // Run by `quorate lock`, which keeps them to itself.
        let why = invalid(&[("QUORATE_TOKEN", "7")]);
        assert!(why.contains("--keep-env"), "{why}");
    }

    #[test]
    fn a_file_may_name_the_masters() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes");
        let named = |path: &Path| with(&[(NODES_FILE, path.to_str().unwrap())]).nodes();
        let why = named(&path).unwrap_err().to_string();
        assert!(
            why.contains(NODES_FILE) && why.contains("cannot be read"),
            "{why}"
        );
        std::fs::write(&path, "# none yet\n\n").unwrap();
        let why = named(&path).unwrap_err().to_string();
        assert!(
            why.contains(NODES_FILE) && why.contains("names no server"),
            "{why}"
        );
        std::fs::write(
            &path,
            "\u{feff}# ours\nredis://a\n\n  redis://b , redis://c\n",
        )
        .unwrap();
        let urls = ["redis://a", "redis://b", "redis://c"].map(str::to_owned);
        assert_eq!(named(&path).unwrap(), (urls.into(), Some(NODES_FILE)));
        let why = invalid(&[NODE, (NODES_FILE, "nodes")]);
        assert!(why.contains("are both set"), "{why}");
        std::fs::write(&path, "redis://a\nhttp://b").unwrap();
        let why = invalid(&[(NODES_FILE, path.to_str().unwrap())]);
        assert!(
            why.starts_with("QUORATE_NODES_FILE: node 2 of 2: \"http://b\""),
            "{why}"
        );
    }

    #[test]
    fn no_password_is_shown_and_the_variable_is_named() {
        for (variable, value) in [
            (NODES, "redis://me:sekret@"),
            (NODES, "redis://127.0.0.1, sekret"),
            (NODES, "redis://u:sek/ret@h"),
            (NODES_FILE, "redis://u:sekret@h"),
            (KEY_PREFIX, "redis://u:sekret@h"),
            (FLEET, "u:sekret@h"),
            (LABEL, "u:sekret@h"),
            (MAX_TTL, "redis://u:sekret@h"),
            (RESTART_MARGIN, "sekret"),
            (CONNECT_TIMEOUT, "sekret"),
            (NODE_TIMEOUT, "sekret"),
            (ALLOW_EVICTION, "sekret"),
        ] {
            let set = [(variable, value), NODE];
            let alone = matches!(variable, NODES | NODES_FILE);
            let why = invalid(if alone { &set[..1] } else { &set });
            assert!(why.starts_with(variable) && !why.contains("sek"), "{why}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_utf8_is_said_so() {
        use std::os::unix::ffi::OsStrExt as _;
        let said = std::ffi::OsStr::from_bytes(b"sekret\xff");
        let variables = Variables(Box::new(move |_| Some(said.into())));
        let why = variables.word(FLEET).unwrap_err().to_string();
        assert_eq!(why, "QUORATE_FLEET is not valid UTF-8");
        assert!(variables.duration(MAX_TTL).is_err() && variables.nodes().is_err());
    }

    #[test]
    fn durations_are_a_whole_number_and_a_unit() {
        assert_eq!(duration("700ms"), Ok(Duration::from_millis(700)));
        assert_eq!(duration("3s"), Ok(Duration::from_secs(3)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
        for wrong in [
            "",
            "3",
            "s",
            "3 s",
            " 3s",
            "3S",
            "-3s",
            "+3s",
            "1.5s",
            "3s4",
            "3d",
            "99999999999999999999s",
            "9999999999999999999h",
        ] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }
}
