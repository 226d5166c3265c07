//! Where a server is and as whom to speak to it, out of what the user has: a URL, or what the
//! `redis` crate made of one.

use std::{fmt, path::PathBuf};

use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

#[cfg(feature = "tls-rustls")]
use super::tls::Tls;
use crate::{Error, MemoryNode};

/// Whatever names a server: a URL (`redis://[user][:password@]host[:port][/db]`, `rediss://` for
/// TLS, `unix:///path?db=..&user=..&pass=..`), a [`redis::ConnectionInfo`] or a [`redis::Client`].
///
/// The address, the credentials and the database are taken; the connection is always quorate's
/// own, because the restart guard needs it. Of TLS, only what a URL can say is taken: certificates
/// inside of a [`redis::Client`] are refused, as they cannot be read out.
///
/// TLS trusts the certificates of the system, or those in the file that the environment variable
/// `SSL_CERT_FILE` names; `rediss://host:port/#insecure` trusts anybody and is for tests.
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
        let invalid = |why: &str| {
            Error::Invalid(format!(
                "{:?} is no node: {why}; allowed are redis://, rediss:// (TLS) and unix://, as in \
                 redis://user:password@host:6379/0",
                masked(self)
            ))
        };
        let mut url = redis::parse_redis_url(self).ok_or_else(|| invalid("it cannot be read"))?;
        // Whether rediss:// is one for the `redis` crate depends on features of that crate, and
        // with its TLS but not its TLS for tokio it does not compile. So it only sees redis://.
        let tls = matches!(url.scheme(), "rediss" | "valkeys");
        let insecure = url.fragment() == Some("insecure");
        if url.fragment().is_some() && !(tls && insecure) {
            return Err(invalid("only rediss://...#insecure may stand behind a #"));
        }
        if tls && url.set_scheme("redis").is_err() {
            return Err(invalid("it cannot be read"));
        }
        let mut info = url.into_connection_info().map_err(|error| {
            let why = error.to_string();
            invalid(
                why.split(" - InvalidClientConfig")
                    .next()
                    .unwrap_or("it cannot be read"),
            )
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
        Address::new(&info)
            .map(Target::Server)
            .map_err(|why| invalid(&why))
    }
}

impl IntoNode for String {
    fn into_node(self) -> Result<Target, Error> {
        self.as_str().into_node()
    }
}

impl IntoNode for ConnectionInfo {
    fn into_node(self) -> Result<Target, Error> {
        Address::new(&self)
            .map(Target::Server)
            .map_err(|why| Error::Invalid(format!("{} is no node: {why}", self.addr())))
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

/// What to dial, and what to say first. Equal are two that are one server: by host and port, or by
/// path, whatever the user and the database.
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
    fn new(info: &ConnectionInfo) -> Result<Self, String> {
        let endpoint = match info.addr() {
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
                     pass a rediss:// URL, and name the CA's file in the environment variable \
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
        let db = u32::try_from(settings.db())
            .map_err(|_| format!("{} is no database", settings.db()))?;
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
        let user = self.login.as_ref().map(|login| &login.user);
        f.debug_struct("Address")
            .field("id", &self.id())
            .field("db", &self.db)
            .field("user", &user)
            .finish_non_exhaustive()
    }
}

/// A URL that may be shown, however malformed: all that might be a password is `***`.
fn masked(url: &str) -> String {
    let (scheme, rest) = match url.find("://") {
        Some(colon) => url.split_at(colon + 3),
        None => ("", url),
    };
    // What follows the first `pass` of a query may be a password, whatever it contains.
    let (rest, query) = match rest.find('?') {
        Some(mark) => rest.split_at(mark),
        None => (rest, ""),
    };
    let query = match query.find("pass") {
        Some(at) => format!("{}***", query.get(..at).unwrap_or("?")),
        None => query.to_owned(),
    };
    let rest = match rest.rsplit_once('@') {
        Some((login, host)) => match login.split_once(':') {
            Some((user, _)) if !user.contains(['/', '#', '@']) => format!("{user}:***@{host}"),
            _ => format!("***@{host}"),
        },
        // A host that was forgotten leaves a password where the port would be.
        None => match rest.split_once(':') {
            Some((host, port))
                if !port
                    .split('/')
                    .next()
                    .unwrap_or(port)
                    .bytes()
                    .all(|b| b.is_ascii_digit()) =>
            {
                format!("{host}:***")
            }
            _ => rest.to_owned(),
        },
    };
    // An `@` behind the `?` may belong to a login that holds a `?`.
    match query.contains('@') {
        true => format!("{scheme}***"),
        false => format!("{scheme}{rest}{query}"),
    }
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
    fn no_password_is_shown_however_malformed() {
        for url in [
            "unix:///r.sock?db=x&pass=ab@hunter2",
            "redis://user:hunter2",
            "redis://:hunter2",
            "redis://user:1hunter2",
            "redis://h:6379?password=hunter2&protocol=9",
            "redis://a:hu?nter2@h:1?x",
            "redis://a:b@hunter2@h:x",
            "h:hunter2@x",
        ] {
            let shown = masked(url);
            assert!(!shown.contains("nter2"), "{shown}");
        }
        assert_eq!(masked("redis://h:6379/x"), "redis://h:6379/x");
        assert_eq!(masked("redis://h:6379/1?x=1"), "redis://h:6379/1?x=1");
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
            assert!(why.contains("host") || why.contains("/run"), "{why}");
        }
        assert!(
            invalid("redis://h/x").contains("\"redis://h/x\" is no node: Invalid database number;")
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
