//! The table of settings. Each row makes the setter of both builders, the environment variable, the field of a
//! configuration file, and the option of the `quorate` command with its help text.

use std::{path::PathBuf, sync::Arc, time::Duration};

#[cfg(feature = "tls-rustls")]
use rustls::pki_types::ServerName;

use crate::{
    Error,
    base::{name::check_word, owner::Label, rules::Rules},
    node::{
        admission::{
            Terms,
            record::{LONGEST, THROWAWAY},
        },
        redis::{self, Provider},
        settings::Settings,
    },
};

/// The masters of a quorum.
pub(crate) struct Roster {
    /// The nodes' ids, in the order in which they were given.
    pub(crate) nodes: Vec<Arc<str>>,
    /// The word for the list of their addresses. A fleet's name, if it has one, replaces it.
    pub(crate) list: String,
    /// The place of each node in the sorted list of addresses.
    pub(crate) ranks: Vec<usize>,
}

const LONGEST_TIMEOUT: Duration = Duration::from_secs(3600);
const SHORTEST_MAX_TTL: Duration = Duration::from_millis(100);
const DEFAULT_PREFIX: &str = "quorate";

/// Passes the table to a macro. Rows without a variable stand last, because only programs can set them.
macro_rules! each_setting {
    ($make:ident) => {
        $make! {
            /// The prefix of every key on the nodes: 1 to 64 characters of `A-Z a-z 0-9 . _ : -`.
            /// Default `quorate`. Deployments with different prefixes share nothing.
            key_prefix: String {
                default: DEFAULT_PREFIX,
                check: |_, word| check_word("key prefix", word),
                variable: "QUORATE_KEY_PREFIX",
                help: "The prefix of every key on the servers",
            }
            /// The word that all clients of these masters share: 1 to 64 characters of `A-Z a-z 0-9 . _ : -`. Default:
            /// 8 hex digits derived from the addresses as they were given, in any order.
            ///
            /// Give the fleet a name if clients reach the same masters by different addresses. Clients with different
            /// words belong to different fleets, and a master works with one fleet only (protocol §2). That is how a
            /// client with another list of masters is noticed.
            fleet: String {
                default: "8 hex digits derived from the addresses",
                check: |_, word| check_fleet(word),
                variable: "QUORATE_FLEET",
                help: "The name that all clients of these servers share: for clients that reach them by different addresses",
            }
            /// The longest lease of the whole deployment, lock-delay included; at most 24 h. Default 30 s.
            ///
            /// Set the same value in every client, because a master that restarted is kept out for a little longer than
            /// this (protocol §2). A client that asks for more than the fleet has is refused; one that asks for less
            /// works. [`Quorum::raise_terms`] raises it. It cannot be lowered while the fleet runs.
            max_ttl: Duration {
                default: Duration::from_secs(30),
                check: |_, d| check_max_ttl(*d),
                variable: "QUORATE_MAX_TTL",
                help: "The longest ttl that any client of these servers uses; the same in every client",
            }
            /// The margin that is added to the time for which a restarted master is kept out; at most 24 h. Default 5
            /// s. Set the same value in every client: the fleet agrees on it and raises it in the same way as
            /// [`max_ttl`](Self::max_ttl).
            restart_margin: Duration {
                default: Duration::from_secs(5),
                check: |_, d| check_margin(*d),
                variable: "QUORATE_RESTART_MARGIN",
                help: "Added to the time for which a restarted server does not vote; the same in every client of these servers",
            }
            /// How long [`connect`](Self::connect) waits for a majority. Default 5 s.
            connect_timeout: Duration {
                default: Duration::from_secs(5),
                check: check_timeout,
                variable: "QUORATE_CONNECT_TIMEOUT",
                help: "How long to wait until a majority of the servers, or Consul, can be reached",
            }
            /// How long to wait for one node's answer. Default 500 ms. Set it to a few times the round trip to the
            /// farthest node. It limits how long callers wait when a majority is dead.
            node_timeout: Duration {
                default: Duration::from_millis(500),
                check: check_timeout,
                variable: "QUORATE_NODE_TIMEOUT",
                help: "How long to wait for one server's answer; with --consul the default is 5s",
            }
            /// The holder's name, as operators and other clients see it: 1 to 128 printable ASCII characters without
            /// spaces, `@`, quotes and backslashes, so an address or a URL fits. Default `host:pid`.
            ///
            /// Everybody who can read the masters can read it, so do not put a secret into it.
            /// [`Mutex::label`](crate::Mutex::label) replaces it for one handle.
            label: String {
                default: "host:pid",
                check: |_, label| Label::new(label).map(drop),
                variable: "QUORATE_LABEL",
                help: "The holder's name, as operators see it",
            }
            /// Accepts servers whose `maxmemory-policy` may evict keys. An evicted lock can get a second holder, so use
            /// it only for servers that never reach `maxmemory`.
            allow_eviction: bool {
                default: false,
                check: |_, _| Ok(()),
                variable: "QUORATE_ALLOW_EVICTION",
                help: "Count servers whose maxmemory-policy may evict keys, and with them locks: only for servers that never reach maxmemory",
            }
            /// How long opening one connection may take, with TLS, the login, and the
            /// [`credentials`](Self::credentials) for it. Default 3 s.
            dial_timeout: Duration {
                default: Duration::from_secs(3),
                check: check_timeout,
                variable: "QUORATE_DIAL_TIMEOUT",
                help: "How long opening one connection may take, with TLS, the password command and the login",
            }
            /// The servers are thrown away after this run, as those of a test, a CI job or a developer's machine. Each
            /// votes at once, when it is new and when it has restarted, without a quarantine, also for rate limits.
            ///
            /// So a lock may get a second holder when a server restarts, and its token may be smaller. All clients of the
            /// servers need the setting. They form a fleet of their own, `throwaway`, and may reach the servers by
            /// different addresses; [`fleet`](Self::fleet) is not used.
            ///
            /// Never set it in production: if all clients have it, a restart may give a lock two holders. One client that
            /// has it by mistake cannot stop the others: it refuses servers of any other fleet, and a client without it
            /// takes these servers over, as if they were new. But after most masters have restarted, it may get a lock
            /// that another client still holds. [testing](crate::docs::testing#your-own-tests) has more.
            throwaway: bool {
                default: false,
                check: |_, _| Ok(()),
                variable: "QUORATE_THROWAWAY",
                help: "The servers are thrown away after this run (tests, CI): they vote at once, and a restart may give a lock two holders",
            }
            cacert: PathBuf {
                default: "",
                check: |_, _| needs_tls("cacert"),
                variable: "QUORATE_CACERT",
                help: "A file with the certificates of the CAs to trust for rediss:// servers, in place of the system's",
            }
            client_cert: PathBuf {
                default: "",
                check: |_, _| needs_tls("client_cert"),
                variable: "QUORATE_CLIENT_CERT",
                help: "A file with the certificate to show to rediss:// servers that ask for one; read for each connection",
            }
            client_key: PathBuf {
                default: "",
                check: |_, _| needs_tls("client_key"),
                variable: "QUORATE_CLIENT_KEY",
                help: "The file with the key of that certificate",
            }
            /// The name to expect in the certificates of `rediss://` nodes, and to name to them (SNI). Default: the host
            /// of each URL.
            ///
            /// For nodes that are reached by addresses which their certificates do not have. It applies to all of them.
            server_name: String {
                default: "the host of each URL",
                check: |_, name| check_server_name(name),
                variable: "QUORATE_SERVER_NAME",
                help: "The name in the certificates of rediss:// servers that are reached by another name or by an address",
            }
            username: Text {
                default: "the user in the URL, or default",
                check: |_, _| Ok(()),
                variable: "QUORATE_USERNAME",
                help: "The user whose password the file or the command gives",
            }
            password_file: PathBuf {
                default: "",
                check: |_, _| Ok(()),
                variable: "QUORATE_PASSWORD_FILE",
                help: "A file with the password for servers whose URL has none; read for each connection",
            }
            password_command: Text {
                default: "",
                check: |_, _| Ok(()),
                variable: "QUORATE_PASSWORD_COMMAND",
                help: "In place of the file, a command that prints the password, or JSON with username, password and expires_in_s; no shell reads it",
            }
            /// How long [`Quorum::shutdown`] waits for leases to be dropped, and for a majority to confirm their
            /// releases. Default 5 s.
            shutdown_timeout: Duration {
                default: Duration::from_secs(5),
                check: |_, _| Ok(()),
                variable: "",
                help: "",
            }
        }
    };
}

pub(crate) use each_setting;

/// Text for which the builder has no setter of its own.
type Text = String;

/// The type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The path of a file.
    File,
    /// A [`duration`].
    Duration,
    /// Text.
    Word,
    /// Set or not set.
    Flag,
}

/// A value that can be written as text.
pub(crate) trait Value: Sized + PartialEq {
    const KIND: Kind;

    fn read(text: &str) -> Result<Self, String>;
    fn show(&self) -> String;
}

impl Value for Duration {
    const KIND: Kind = Kind::Duration;

    fn read(text: &str) -> Result<Self, String> {
        duration(text)
    }

    fn show(&self) -> String {
        match self.subsec_millis() {
            0 => format!("{}s", self.as_secs()),
            _ => format!("{}ms", self.as_millis()),
        }
    }
}

impl Value for String {
    const KIND: Kind = Kind::Word;

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Value for PathBuf {
    const KIND: Kind = Kind::File;

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for bool {
    const KIND: Kind = Kind::Flag;

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            _ => Err("it must be 1 or 0".to_owned()),
        }
    }

    fn show(&self) -> String {
        u8::from(*self).to_string()
    }
}

/// One row of the table.
#[derive(Debug)]
pub struct Setting {
    /// The name of the builder's method.
    pub name: &'static str,
    /// The environment variable; empty if only programs can set it.
    pub variable: &'static str,
    /// Its meaning, for the help text of the command.
    pub help: &'static str,
    /// The type of its value.
    pub kind: Kind,
    default: fn() -> Option<String>,
    read: fn(&mut Options, &str) -> Result<(), String>,
    show: fn(&Options) -> Option<String>,
    check: fn(&Options) -> Result<(), Error>,
}

impl Setting {
    /// The default as text, if there is one.
    pub fn default(&self) -> Option<String> {
        (self.default)()
    }

    /// Sets it to the value of a text.
    ///
    /// # Errors
    /// The reason why the text is not a valid value.
    pub fn read(&self, options: &mut Options, text: &str) -> Result<(), String> {
        (self.read)(options, text)
    }

    /// Its value as text, if it was set.
    pub fn show(&self, options: &Options) -> Option<String> {
        (self.show)(options)
    }

    /// Checks its value, if it was set.
    ///
    /// # Errors
    /// `Invalid`, which names the setting.
    pub fn check(&self, options: &Options) -> Result<(), Error> {
        (self.check)(options)
    }
}

macro_rules! default_text {
    (Duration, $default:expr) => {
        || Some(Value::show(&$default))
    };
    (String, $default:expr) => {
        || Some(($default).to_owned())
    };
    (Text, $default:expr) => {
        || Some(($default).to_owned()).filter(|text: &String| !text.is_empty())
    };
    (PathBuf, $default:expr) => {
        || None
    };
    (bool, $default:expr) => {
        || None
    };
}

macro_rules! getter {
    (Duration, $name:ident, $default:expr) => {
        /// The value, or the default.
        pub fn $name(&self) -> Duration {
            self.$name.unwrap_or($default)
        }
    };
    (bool, $name:ident, $default:expr) => {
        /// The value, or the default.
        pub fn $name(&self) -> bool {
            self.$name.unwrap_or($default)
        }
    };
    ($kind:ident, $name:ident, $default:expr) => {};
}

macro_rules! make_table {
    ($($(#[$doc:meta])* $name:ident: $kind:ident {
        default: $default:expr,
        check: $check:expr,
        variable: $variable:literal,
        help: $help:literal,
    })*) => {
        /// The settings that were given, unchecked.
        #[derive(Clone, Debug, Default)]
        pub struct Options {
            $(
                #[doc = concat!("The setting `", stringify!($name), "`.")]
                pub $name: Option<$kind>,
            )*
        }

        impl Options {
            $(getter!($kind, $name, $default);)*

            /// These settings, and those of `other` for each that was not given here. A certificate and its key, or the
            /// two sources of a password, come from one place: those of `other` do not join what was given here.
            #[must_use]
            pub fn or(self, mut other: Self) -> Self {
                if self.client_cert.is_some() || self.client_key.is_some() {
                    (other.client_cert, other.client_key) = (None, None);
                }
                if self.password_file.is_some() || self.password_command.is_some() {
                    (other.password_file, other.password_command) = (None, None);
                }
                Self {
                    $($name: self.$name.or(other.$name),)*
                }
            }
        }

        /// The rows, in this order.
        pub static SETTINGS: &[Setting] = &[$(Setting {
            name: stringify!($name),
            variable: $variable,
            help: $help,
            kind: <$kind as Value>::KIND,
            default: default_text!($kind, $default),
            read: |options, text| {
                options.$name = Some(Value::read(text)?);
                Ok(())
            },
            show: |options| options.$name.as_ref().map(Value::show),
            check: |options| {
                let check: fn(&str, &$kind) -> Result<(), Error> = $check;
                options.$name.as_ref().map_or(Ok(()), |value| check(stringify!($name), value))
            },
        }),*];
    };
}

each_setting!(make_table);

impl Options {
    /// Checks each setting and returns the label to use.
    pub(crate) fn checked(&self) -> Result<Label, Error> {
        SETTINGS
            .iter()
            .try_for_each(|setting| setting.check(self))?;
        self.check_pairs()?;
        match &self.label {
            Some(label) => Label::new(label),
            None => Ok(Label::of_this_process()),
        }
    }

    /// Checks settings that only work together.
    pub(crate) fn check_pairs(&self) -> Result<(), Error> {
        let invalid = |why: &str| Err(Error::Invalid(why.to_owned()));
        match (&self.client_cert, &self.client_key) {
            (Some(_), None) => {
                return invalid(
                    "client_cert (QUORATE_CLIENT_CERT, tls.certificate) is set without client_key (QUORATE_CLIENT_KEY, tls.key): set both",
                );
            }
            (None, Some(_)) => {
                return invalid(
                    "client_key (QUORATE_CLIENT_KEY, tls.key) is set without client_cert (QUORATE_CLIENT_CERT, tls.certificate): set both",
                );
            }
            _ => {}
        }
        match (&self.password_file, &self.password_command, &self.username) {
            (Some(_), Some(_), _) => invalid(
                "password_file (QUORATE_PASSWORD_FILE) and password_command (QUORATE_PASSWORD_COMMAND) are both set: set one of them",
            ),
            (None, None, Some(_)) => invalid(
                "username (QUORATE_USERNAME) is set without password_file or password_command: set one of them, or write the user into \
                 the URLs",
            ),
            _ => Ok(()),
        }
    }

    /// The source of passwords that these settings name.
    pub(crate) fn credentials(&self) -> Option<Provider> {
        let user = self.username.as_deref().unwrap_or_default();
        let of_file = self.password_file.as_deref();
        let of_file = of_file.map(|path| redis::file(user, path));
        let of_command = self.password_command.as_deref();
        of_file.or_else(|| Some(redis::command(user, of_command?, self.dial_timeout())))
    }

    /// The prefix of all keys.
    pub fn prefix(&self) -> &str {
        self.key_prefix.as_deref().unwrap_or(DEFAULT_PREFIX)
    }

    /// The word that all clients share, if it is not the one for the list of masters.
    pub(crate) fn word(&self) -> Option<&str> {
        match self.throwaway() {
            true => Some(THROWAWAY),
            false => self.fleet.as_deref(),
        }
    }

    /// The longest ttl and the restart margin, which the whole fleet agrees on.
    pub(crate) fn terms(&self) -> Terms {
        Terms::new(self.max_ttl(), self.restart_margin())
    }

    /// The settings of a quorum with these nodes. `channel` is where waiters of this process are told that it is their
    /// turn.
    pub(crate) fn settle(
        self,
        rules: Rules,
        label: Label,
        roster: Roster,
        channel: String,
    ) -> Settings {
        Settings {
            nodes: roster.nodes,
            terms: self.terms(),
            list: self.word().map_or(roster.list, str::to_owned),
            ranks: self.word().is_none().then_some(roster.ranks),
            prefix: self.prefix().to_owned(),
            node_timeout: self.node_timeout(),
            allow_eviction: self.allow_eviction(),
            label,
            channel: channel.into(),
            rules,
        }
    }
}

fn check_fleet(word: &str) -> Result<(), Error> {
    match word {
        THROWAWAY => Err(Error::Invalid(format!(
            "the fleet name {THROWAWAY} is taken: it is that of servers which `throwaway` names"
        ))),
        _ => check_word("fleet name", word),
    }
}

fn check_max_ttl(d: Duration) -> Result<(), Error> {
    match (SHORTEST_MAX_TTL..=LONGEST).contains(&d) {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "max_ttl must be between {SHORTEST_MAX_TTL:?} and 24 h (got {d:?})"
        ))),
    }
}

fn check_margin(d: Duration) -> Result<(), Error> {
    match d <= LONGEST {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "restart_margin must be at most 24 h (got {d:?})"
        ))),
    }
}

fn needs_tls(name: &str) -> Result<(), Error> {
    match cfg!(feature = "tls-rustls") {
        true => Ok(()),
        false => Err(Error::Invalid(format!(
            "{name} needs quorate's feature `tls-rustls`"
        ))),
    }
}

fn check_server_name(name: &str) -> Result<(), Error> {
    needs_tls("server_name")?;
    #[cfg(feature = "tls-rustls")]
    server_name(name)?;
    let _ = name;
    Ok(())
}

/// The name to expect in certificates.
#[cfg(feature = "tls-rustls")]
pub(crate) fn server_name(name: &str) -> Result<ServerName<'static>, Error> {
    // The text is not repeated: a URL in the wrong place may hold a password.
    ServerName::try_from(name.to_owned()).map_err(|_| {
        Error::Invalid(
            "server_name must be a DNS name or an IP address, as a certificate has it".into(),
        )
    })
}

fn check_timeout(name: &str, d: &Duration) -> Result<(), Error> {
    if d.is_zero() {
        return Err(Error::Invalid(format!("{name} must be greater than zero")));
    }
    if *d > LONGEST_TIMEOUT {
        return Err(Error::Invalid(format!(
            "{name} must be at most an hour (got {d:?})"
        )));
    }
    Ok(())
}

/// Reads a whole number and its unit: `700ms`, `3s`, `10m`, `24h`.
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
    use super::*;

    /// The table on the page of `from_env` ends where rows without a variable begin.
    #[test]
    fn rows_without_a_variable_stand_last() {
        let with = SETTINGS.iter().take_while(|s| !s.variable.is_empty());
        let names: Vec<String> = with
            .map(|s| format!("QUORATE_{}", s.name.to_uppercase()))
            .collect();
        let variables: Vec<&str> = SETTINGS.iter().map(|s| s.variable).collect();
        let (given, rest) = variables.split_at(names.len());
        assert_eq!(given, names);
        assert!(rest.iter().all(|variable| variable.is_empty()), "{rest:?}");
    }

    #[test]
    fn a_value_is_read_back_from_its_text() {
        let texts = [
            ("max_ttl", "1500ms"),
            ("node_timeout", "3s"),
            ("fleet", "a"),
            ("allow_eviction", "1"),
            ("throwaway", "1"),
        ];
        for (name, text) in texts {
            let setting = SETTINGS.iter().find(|s| s.name == name).unwrap();
            let mut options = Options::default();
            assert_eq!(setting.show(&options), None);
            setting.read(&mut options, text).unwrap();
            assert_eq!(setting.show(&options).as_deref(), Some(text));
        }
        let mut options = Options::default();
        let max_ttl = SETTINGS.iter().find(|s| s.name == "max_ttl").unwrap();
        max_ttl.read(&mut options, "10m").unwrap();
        assert_eq!(max_ttl.show(&options).as_deref(), Some("600s"));
        assert_eq!(max_ttl.default().as_deref(), Some("30s"));
    }
}
