//! Where a server is and as whom to speak to it, out of what the user has: a URL, or what the
//! `redis` crate made of one.

use std::{fmt, path::PathBuf};

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

#[cfg(feature = "tls-rustls")]
use super::tls::{Authorities, Tls};
use crate::{Error, MemoryNode, report::said};

/// Whatever names a server: a URL (`redis://[user][:password@]host[:port][/db]`, `rediss://` for
/// TLS, `unix:///path?db=..&user=..&pass=..`), a [`redis::ConnectionInfo`] or a [`redis::Client`].
///
/// The address, the credentials and the database are taken; the connection is always quorate's
/// own, because the restart rule needs it. Of TLS, only what a URL can say is taken: certificates
/// inside of a [`redis::Client`] are refused, as they cannot be read out. Give those of its CA to
/// `Builder::ca_certificates`; client certificates are not supported.
///
/// TLS trusts the certificates given to `Builder::ca_certificates` (feature `tls-rustls`); without them those of
/// the system, or those that the environment variables `SSL_CERT_FILE` (a file) and `SSL_CERT_DIR` (directories)
/// name. A variable that leads to no certificate is said to be wrong in the node's state. `rediss://host:port/#insecure` trusts anybody
/// and is for tests.
///
/// A password needs its `@ : / # ? %` percent-encoded (`@` is `%40`). A URL that could be read in two
/// ways is refused, and the error shows of it only the scheme and the host. No password is shown, by
/// an error, a state, a log or `Debug`.
pub trait IntoNode: sealed::Sealed {
    #[doc(hidden)]
    fn into_node(self) -> Result<Target, Error>;
}

impl IntoNode for MemoryNode {
    fn into_node(self) -> Result<Target, Error> {
        Ok(Target::Memory(self))
    }
}

/// Which kind of master it is.
#[derive(Clone, Debug)]
pub enum Target {
    /// A server.
    Server(Address),
    /// One in this process.
    Memory(MemoryNode),
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for &str {}
    impl Sealed for String {}
    impl Sealed for redis::ConnectionInfo {}
    impl Sealed for redis::Client {}
    impl Sealed for crate::MemoryNode {}
    impl<T: Sealed + Clone> Sealed for &T {}
}

impl IntoNode for &str {
    fn into_node(self) -> Result<Target, Error> {
        Address::parse(self).map(Target::Server).map_err(|why| {
            let hint = if may_hold_password(self) {
                "; if the password has characters such as @ : / # ? %, write them percent-encoded \
                 (@ is %40)"
            } else {
                ""
            };
            Error::Invalid(format!(
                "\"{}\" is not a valid node: {why}; allowed are redis://, rediss:// (TLS) and \
                 unix://, as in redis://user:password@host:6379/0{hint}",
                shown(self)
            ))
        })
    }
}

impl IntoNode for String {
    fn into_node(self) -> Result<Target, Error> {
        self.as_str().into_node()
    }
}

impl IntoNode for ConnectionInfo {
    fn into_node(self) -> Result<Target, Error> {
        Address::new(&self).map(Target::Server).map_err(|why| {
            let place = self.addr().to_string();
            let place = if place.contains('@') { "***" } else { &place };
            Error::Invalid(format!("{} is not a valid node: {why}", said(place)))
        })
    }
}

impl IntoNode for Client {
    fn into_node(self) -> Result<Target, Error> {
        self.get_connection_info().clone().into_node()
    }
}

impl<T: IntoNode + Clone> IntoNode for &T {
    fn into_node(self) -> Result<Target, Error> {
        self.clone().into_node()
    }
}

#[cfg(not(feature = "tls-rustls"))]
const NO_TLS: &str = "TLS needs quorate's feature `tls-rustls`";

/// What to dial, and what to say first. Two addresses are equal if they name the same server: by
/// host and port, or by path, whatever the user and the database.
#[derive(Clone)]
pub struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) db: u32,
    pub(super) login: Option<Login>,
}

#[derive(Clone)]
pub(super) enum Endpoint {
    Tcp {
        host: String,
        port: u16,
    },
    #[cfg(feature = "tls-rustls")]
    Tls {
        host: String,
        port: u16,
        tls: Tls,
    },
    #[cfg(unix)]
    Unix(PathBuf),
}

/// Has no `Debug`, so that the password gets nowhere by accident.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl Address {
    /// Reads a URL. What it does not understand for sure it refuses: where a password is not
    /// percent-encoded, the `redis` crate would take a piece of it for the host or drop it.
    fn parse(url: &str) -> Result<Self, String> {
        const UNREADABLE: &str = "it cannot be read";
        let mut url = redis::parse_redis_url(url).ok_or(UNREADABLE)?;
        // Whether rediss:// is one for the `redis` crate depends on features of that crate, and
        // with its TLS but not its TLS for tokio it does not compile. So it only sees redis://.
        let tls = matches!(url.scheme(), "rediss" | "valkeys");
        let insecure = url.fragment() == Some("insecure");
        if url.fragment().is_some() && !(tls && insecure) {
            return Err("only rediss://...#insecure may stand behind a #".into());
        }
        let unix = url.scheme().ends_with("unix");
        if url.path().contains('@') {
            return Err("an @ stands behind a /: a path has it as %40".into());
        }
        let (settings, wrong): (&[&str], _) = match unix {
            true => (
                &["db", "user", "pass", "protocol"],
                "behind the ? may stand only db=, user=, pass= and protocol=",
            ),
            false => (
                &["protocol"],
                "behind the ? may stand only protocol=, as user, password and database stand before it",
            ),
        };
        if url.query_pairs().any(|(key, _)| !settings.contains(&&*key)) {
            return Err(wrong.into());
        }
        // What is percent-encoded there was to be a login.
        let is_host = |host: &str| !host.is_empty() && !host.contains('%');
        if !unix && !url.host_str().is_some_and(is_host) {
            return Err("its host is missing, or not a valid name".into());
        }
        if tls && url.set_scheme("redis").is_err() {
            return Err(UNREADABLE.into());
        }
        let mut info = url.into_connection_info().map_err(|error| {
            // Only what surely repeats nothing of the URL.
            let (error, why) = (error.to_string(), WHY.iter());
            why.copied()
                .find(|why| error.starts_with(why))
                .unwrap_or(UNREADABLE)
        })?;
        if let (true, ConnectionAddr::Tcp(host, port)) = (tls, info.addr()) {
            let addr = ConnectionAddr::TcpTls {
                host: host.clone(),
                port: *port,
                insecure,
                tls_params: None,
            };
            info = info.set_addr(addr);
        }
        Self::new(&info)
    }

    fn new(info: &ConnectionInfo) -> Result<Self, String> {
        let endpoint = match info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }
                if host.contains('@') =>
            {
                return Err("its host has an @: give user and password on their own".into());
            }
            ConnectionAddr::Tcp(host, port) => Endpoint::Tcp {
                // Names are the same in capitals: one server given twice is seen at once.
                host: host.to_ascii_lowercase(),
                port: *port,
            },
            #[cfg(feature = "tls-rustls")]
            ConnectionAddr::TcpTls {
                tls_params: Some(_),
                ..
            } => {
                return Err(
                    "its own TLS certificates cannot be read out of a redis::Client: \
                     pass a rediss:// URL, and give its CA's certificate to \
                     Builder::ca_certificates, or name the CA's file in the environment variable \
                     SSL_CERT_FILE"
                        .into(),
                );
            }
            #[cfg(feature = "tls-rustls")]
            ConnectionAddr::TcpTls {
                host,
                port,
                insecure,
                tls_params: None,
            } => Endpoint::Tls {
                host: host.to_ascii_lowercase(),
                port: *port,
                tls: Tls::new(host, *insecure)?,
            },
            #[cfg(not(feature = "tls-rustls"))]
            ConnectionAddr::TcpTls { .. } => return Err(NO_TLS.into()),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => Endpoint::Unix(path.clone()),
            other => return Err(format!("{other} cannot be dialled here")),
        };
        let settings = info.redis_settings();
        let db = u32::try_from(settings.db()).map_err(|_| "Invalid database number")?;
        let login = match (settings.username(), settings.password()) {
            (None | Some(""), None | Some("")) => None,
            (user, password) => Some(Login {
                user: user
                    .filter(|user| !user.is_empty())
                    .unwrap_or("default")
                    .into(),
                password: password.unwrap_or_default().into(),
            }),
        };
        Ok(Self {
            endpoint,
            db,
            login,
        })
    }

    /// Trusts these alone, where it speaks TLS and does not trust anybody.
    #[cfg(feature = "tls-rustls")]
    pub(crate) fn trust(&mut self, authorities: &Authorities) {
        if let Endpoint::Tls { tls, .. } = &mut self.endpoint {
            tls.trust(authorities);
        }
    }

    /// host:port/db, or path/db: what clients have to agree on. With the database, so that SWAPDB
    /// brings another list.
    pub(crate) fn with_database(&self) -> String {
        format!("{}/{}", self.id(), self.db)
    }

    /// host:port, or the path of the socket.
    pub(crate) fn id(&self) -> String {
        let (host, port) = match &self.endpoint {
            Endpoint::Tcp { host, port } => (host, port),
            #[cfg(feature = "tls-rustls")]
            Endpoint::Tls { host, port, .. } => (host, port),
            #[cfg(unix)]
            Endpoint::Unix(path) => return path.display().to_string(),
        };
        match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        }
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        match (&self.endpoint, &other.endpoint) {
            #[cfg(unix)]
            (Endpoint::Unix(one), Endpoint::Unix(two)) => one == two,
            #[cfg(unix)]
            (Endpoint::Unix(_), _) | (_, Endpoint::Unix(_)) => false,
            _ => self.id().eq_ignore_ascii_case(&other.id()),
        }
    }
}

impl Eq for Address {}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the user: a password that was written in the wrong place is one.
        f.debug_struct("Address")
            .field("id", &self.id())
            .field("db", &self.db)
            .finish_non_exhaustive()
    }
}

/// What the `redis` crate may say of a URL.
const WHY: &[&str] = &[
    "Cannot connect to a wildcard address (0.0.0.0 or ::)",
    "Invalid database number",
    "Invalid protocol version",
    "Missing hostname",
    "Missing path",
    "Password is not valid UTF-8 string",
    "Username is not valid UTF-8 string",
];

/// The words before `://` that are shown.
const SCHEMES: &[&str] = &[
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "unix",
    "redis+unix",
    "valkey+unix",
    "http",
    "https",
    "tcp",
];

/// As long as a host's name may be.
const LONGEST_HOST: usize = 253;

/// What may be shown of a URL that is not valid: the scheme, and what is surely host and port, or the
/// path of a socket. All else is `***`, as any of it may belong to a password.
fn shown(url: &str) -> String {
    // Without a scheme it may be a piece of a password that has a comma, out of a list.
    let Some((scheme, rest)) = url.split_once("://") else {
        return "***".into();
    };
    if !SCHEMES
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
    {
        return "***".into();
    }
    let unix = scheme.to_ascii_lowercase().ends_with("unix");
    let (login, place) = match rest.rsplit_once('@') {
        // This one may be a password's, with the password on both sides of it.
        Some((before, _)) if unix || before.contains(['?', '#']) => {
            return format!("{scheme}://***");
        }
        Some((_, place)) => ("***@", place),
        None => ("", rest),
    };
    let (host, after) = place.split_at(host_length(place, unix));
    if host.len() > LONGEST_HOST || !after.is_empty() && !after.starts_with([':', '/', '?', '#']) {
        return format!("{scheme}://***");
    }
    // Without an `@` what stands behind a `:` may be the beginning of a password.
    let port = port_length(after);
    let is_port = !login.is_empty() || port == after.len();
    let (port, tail) = after.split_at(if is_port { port } else { 0 });
    let is_login = !login.is_empty() || tail.starts_with(':');
    let is_plain = |path: &str| path.len() < 4 && path.bytes().all(|b| b.is_ascii_alphanumeric());
    let tail = match (tail.strip_prefix('/'), tail.get(..1)) {
        (Some(path), _) if !is_login && is_plain(path) => tail.to_owned(),
        (_, Some(separator)) => format!("{separator}***"),
        (_, None) => String::new(),
    };
    format!("{scheme}://{login}{host}{port}{tail}")
}

/// How many bytes at the beginning are surely of a host's name, or of the path of a socket.
fn host_length(place: &str, unix: bool) -> usize {
    if let Some(rest) = place.strip_prefix('[') {
        let is_address = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
        let length = rest.bytes().take_while(is_address).count();
        let closed = rest.as_bytes().get(length) == Some(&b']');
        return if closed { length + 2 } else { 0 };
    }
    let is_host = |b: &u8| match b {
        b'.' | b'-' | b'_' => true,
        b'/' => unix,
        b => b.is_ascii_alphanumeric(),
    };
    place.bytes().take_while(is_host).count()
}

/// How many bytes at the beginning are surely `:` and a port.
fn port_length(text: &str) -> usize {
    let Some(rest) = text.strip_prefix(':') else {
        return 0;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (port, after) = rest.split_at(digits);
    match port.parse::<u16>() {
        Ok(_) if after.is_empty() || after.starts_with(['/', '?', '#']) => digits + 1,
        _ => 0,
    }
}

/// Is there a login in the URL, or something that was meant as one?
fn may_hold_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let port = rest.split_once(':').map(|(_, port)| port);
    let port = port.and_then(|port| port.split(['/', '?', '#']).next());
    url.contains('@')
        || rest.to_ascii_lowercase().contains("pass")
        || !rest.starts_with('[') && port.is_some_and(|port| port.parse::<u64>().is_err())
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "tls-rustls")]
    use super::super::tls::Trust;
    use super::*;

    fn address(node: impl IntoNode) -> Address {
        match node.into_node() {
            Ok(Target::Server(address)) => address,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_is_surely_no_password_is_shown() {
        for (url, text) in [
            ("redis://h/x", "redis://h/x"),
            ("REDISS://h_1.b-c:6379", "REDISS://h_1.b-c:6379"),
            ("redis://h:6379/x", "redis://h:***"),
            ("redis://h/abcd", "redis://h/***"),
            ("redis://h?password=hunter2", "redis://h?***"),
            ("redis://h:99999", "redis://h:***"),
            ("redis://[::1]:7", "redis://[::1]:7"),
            ("redis://[::1", "redis://***"),
            ("redis://user:hunter2", "redis://user:***"),
            ("redis://:hunter2", "redis://:***"),
            ("redis://user:1234/hunter2", "redis://user:***"),
            ("redis://me:hunter2@h:7/x", "redis://***@h:7/***"),
            ("redis://me:hun/ter2@h:x", "redis://***@h:***"),
            ("redis://me:hunter2@h h", "redis://***"),
            ("redis://a:hu?nter2@h:1", "redis://***"),
            ("redis://a:b@hunter2@h/x", "redis://***@h/***"),
            ("redis://:one@h:1redis://:two@i:2", "redis://***@i:2"),
            (
                "unix:///run/r.sock?db=x&pass=hunter2",
                "unix:///run/r.sock?***",
            ),
            ("unix:///run/r.sock?pass=ab@hunter2", "unix://***"),
            ("unix:///me:hunter2", "unix:///me:***"),
            ("http://me:hunter2@h", "http://***@h"),
            ("hunter2://h", "***"),
            ("me:hunter2@h", "***"),
            ("hunter2", "***"),
            ("redis:/:hunter2@h", "***"),
            ("redis://me:hunter2\t@h", "redis://***@h"),
            ("redis://hunter2\t@", "redis://***@"),
        ] {
            assert_eq!(shown(url), text, "{url}");
        }
        let long = "h".repeat(LONGEST_HOST + 1);
        assert_eq!(shown(&format!("redis://{long}")), "redis://***");
    }

    #[test]
    fn the_hint_is_given_where_a_password_may_be() {
        for (url, hint) in [
            ("redis://me:se/secret@host", true),
            ("redis://me:1?secret@host", true),
            ("redis://me:sec#ret@host", true),
            ("redis://me:secret", true),
            ("unix:///s?pass=a#b", true),
            ("redis://h/x", false),
            ("redis://h:6379/x", false),
            ("redis://h:99999", false),
            ("redis://[::1]:1/x", false),
            ("127.0.0.1:6379", false),
            ("http://h", false),
        ] {
            assert_eq!(invalid(url).contains("(@ is %40)"), hint, "{url}");
        }
    }

    #[test]
    fn what_another_reader_would_drop_is_refused() {
        for (url, why) in [
            (
                "redis://me:12?hunter2@h",
                "behind the ? may stand only protocol=",
            ),
            (
                "redis://h?password=hunter2",
                "behind the ? may stand only protocol=",
            ),
            ("redis://me:12/hunter2@h", "an @ stands behind a /"),
            ("redis://:one@h/0redis://:two@i", "an @ stands behind a /"),
            ("unix:///me:hunter2@/run/r.sock", "an @ stands behind a /"),
            (
                "unix:///r.sock?PASS=hunter2",
                "only db=, user=, pass= and protocol=",
            ),
            (
                "unix:///r.sock?password=hunter2",
                "only db=, user=, pass= and protocol=",
            ),
            ("redis:///1", "its host is missing"),
            ("redis://me%3Ahunter2", "not a valid name"),
            ("redis:/:hunter2@h", "an @ stands behind a /"),
            (
                "redis://h?protocol=hunter2",
                "not a valid node: Invalid protocol version;",
            ),
            (
                "redis://%ff:x@h",
                "not a valid node: Username is not valid UTF-8 string;",
            ),
            ("unix://host/s", "not a valid node: Missing path;"),
            (
                "redis://0.0.0.0",
                "not a valid node: Cannot connect to a wildcard address",
            ),
        ] {
            let text = invalid(url);
            assert!(
                text.contains(why) && !text.contains("hunter2"),
                "{url}: {text}"
            );
        }
        for url in [
            "redis://h?protocol=resp3",
            "unix:///run/a%40b?p%61ss=x@y",
            "redis://h?",
        ] {
            address(url);
        }
        assert_eq!(address("unix:///run/a%40b?p%61ss=x@y").id(), "/run/a@b");
    }

    #[test]
    fn a_login_in_a_host_is_refused_and_not_shown() {
        let info = ("me:hunter2@h", 6379).into_connection_info().unwrap();
        let text = invalid(info);
        assert!(
            text.contains("host has an @") && !text.contains("hunter2"),
            "{text}"
        );
    }

    fn invalid(node: impl IntoNode) -> String {
        match node.into_node() {
            Err(Error::Invalid(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn urls_say_where_and_as_whom() {
        for (url, id, db, login) in [
            ("redis://localhost", "localhost:6379", 0, None),
            ("valkey://localhost:7/3", "localhost:7", 3, None),
            (
                "redis://:secret@10.0.0.1:7",
                "10.0.0.1:7",
                0,
                Some(("default", "secret")),
            ),
            (
                "redis://me:s%40:ret@[::1]:7/2",
                "[::1]:7",
                2,
                Some(("me", "s@:ret")),
            ),
            ("redis://me@h:7", "h:7", 0, Some(("me", ""))),
            ("redis://:@h:7", "h:7", 0, None),
            (
                "unix:///run/r.sock?db=4&user=me&pass=secret",
                "/run/r.sock",
                4,
                Some(("me", "secret")),
            ),
        ] {
            let address = address(url);
            let found = address
                .login
                .as_ref()
                .map(|l| (l.user.as_str(), l.password.as_str()));
            assert_eq!(
                (address.id().as_str(), address.db, found),
                (id, db, login),
                "{url}"
            );
            assert!(!format!("{address:?}").contains("secret"), "{address:?}");
        }
    }

    #[test]
    fn what_names_a_server() {
        let client = Client::open("redis://h:7/1").unwrap();
        let info = client.get_connection_info().clone();
        let string = String::from("redis://h:7/1");
        let same = address("redis://h:7/1");
        assert_eq!(address(&string), same);
        assert_eq!(address(["redis://h:7/1"].first().unwrap()), same);
        assert_eq!(address(string), same);
        assert_eq!(address(&client), same);
        assert_eq!(address(client), same);
        assert_eq!(address(&info), same);
        assert_eq!(address(info), same);
    }

    #[test]
    fn one_server_twice_is_seen() {
        assert_eq!(address("redis://H:7"), address("redis://user:pw@h:7/3"));
        assert_ne!(address("redis://h:7"), address("redis://h:8"));
        assert_ne!(address("redis://h:7"), address("redis://i:7"));
        assert_eq!(address("unix:///a?db=1"), address("unix:///a"));
        assert_ne!(address("unix:///a"), address("unix:///A"));
    }

    #[test]
    fn an_invalid_url_is_shown_without_its_password() {
        for url in [
            "http://me:secret@host",
            "me:secret@host:6379",
            "redis://me:se/secret@host",
            "redis://me:secret@host:port",
            "redis://me:secret@host/-1",
            "redis://me:secret@host/x",
            "unix://me:secret@/run?pass=secret",
            "tcp:///run/s?pass=secret&user=me",
            "unix:///run/s?pass=secret&db=x",
            "redis://a/@:secret@host:port",
        ] {
            let why = invalid(url);
            assert!(!why.contains("secret"), "{why}");
            assert!(
                why.contains("redis://, rediss:// (TLS) and unix://"),
                "{why}"
            );
        }
        assert!(
            invalid("redis://h/x")
                .contains("\"redis://h/x\" is not a valid node: Invalid database number;")
        );
    }

    #[cfg(feature = "tls-rustls")]
    #[test]
    fn tls_is_taken_as_far_as_a_url_can_say_it() {
        for (url, insecure) in [
            ("rediss://h:7", false),
            ("VALKEYS://h:7/#insecure", true),
            ("rediss://h:7/2#insecure", true),
        ] {
            match address(url).endpoint {
                Endpoint::Tls { tls, .. } => {
                    assert_eq!(matches!(tls.trust, Trust::Anybody), insecure, "{url}")
                }
                _ => panic!("{url}"),
            }
        }
        for url in ["rediss://h:7/#secure", "redis://h:7/#insecure"] {
            assert!(invalid(url).contains("#insecure"));
        }
    }

    #[cfg(not(feature = "tls-rustls"))]
    #[test]
    fn tls_without_the_feature_names_it() {
        assert!(invalid("rediss://me:secret@h:7").contains("`tls-rustls`"));
    }
}
