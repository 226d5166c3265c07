//! The options of a server, and the configuration file that is made from them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, atomic::AtomicI64};

use super::super::{installed, port::Port, tls::Certificates};
use super::Server;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Redis,
    Valkey,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Redis, Kind::Valkey];

    /// The program. `QUORATE_TEST_SERVERS` names one in `target/servers` that both kinds run, such as `redis-8`:
    /// `tests/matrix.sh` sets it.
    pub(super) fn binary(self) -> PathBuf {
        let (name, variable) = match self {
            Kind::Redis => ("redis-server", "QUORATE_TEST_REDIS"),
            Kind::Valkey => ("valkey-server", "QUORATE_TEST_VALKEY"),
        };
        let both = std::env::var("QUORATE_TEST_SERVERS").unwrap_or_default();
        let binary = match std::env::var_os(variable) {
            Some(path) => PathBuf::from(path),
            None if both.is_empty() => installed(name),
            None => installed(&both),
        };
        assert!(
            binary.exists(),
            "no {} there: run tests/install-servers.sh (make test does)",
            binary.display()
        );
        binary
    }
}

/// The options of a server. The default is what quorate requires of a master: no persistence and no eviction.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    pub(super) kind: Kind,
    pub(super) password: Option<String>,
    pub(super) tls: Option<Certificates>,
    cluster: bool,
    pub(super) appendonly: bool,
    save: String,
    maxmemory_policy: String,
    pub(super) own_clock: bool,
    lines: Vec<String>,
}

impl ServerOptions {
    pub fn new(kind: Kind) -> ServerOptions {
        ServerOptions {
            kind,
            password: None,
            tls: None,
            cluster: false,
            appendonly: false,
            save: String::new(),
            maxmemory_policy: "noeviction".into(),
            own_clock: false,
            lines: Vec::new(),
        }
    }

    /// The default user's password. It may contain letters and digits only, because it goes into URLs unchanged.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Adds a user, in the form of `ACL SETUSER`: `"alice on >secret ~* +@all"`. May be called several times.
    pub fn acl(self, user: &str) -> Self {
        self.config(&format!("user {user}"))
    }

    pub fn maxmemory_policy(mut self, policy: &str) -> Self {
        self.maxmemory_policy = policy.into();
        self
    }

    /// Only TLS on the port. (The harness itself uses the unix socket.)
    pub fn tls(mut self, certificates: &Certificates) -> Self {
        assert!(
            self.kind == Kind::Redis,
            "the valkey-server that tests/install-servers.sh brings is built without TLS"
        );
        self.tls = Some(certificates.clone());
        self
    }

    pub fn cluster(mut self) -> Self {
        self.cluster = true;
        self
    }

    /// The wall clock can be stepped ([`Server::set_clock`]), because the server runs under libfaketime.
    pub fn own_clock(mut self) -> Self {
        assert!(
            self.kind == Kind::Valkey,
            "a server with jemalloc hangs under libfaketime"
        );
        self.own_clock = true;
        self
    }

    /// When to write dump.rdb, in the form of the configuration file: `"60 1"`.
    pub fn save(mut self, rule: &str) -> Self {
        self.save = rule.into();
        self
    }

    /// Every write is on disk before it is answered, so `kill9` and `start_again` lose nothing.
    pub fn appendonly(mut self) -> Self {
        self.appendonly = true;
        self
    }

    /// Adds any line to the configuration file: `"maxmemory 2mb"`. May be called several times.
    pub fn config(mut self, line: &str) -> Self {
        self.lines.push(line.into());
        self
    }

    /// Starts the server, and returns when it answers.
    pub fn start(self) -> Server {
        for _ in 0..10 {
            let server = Server {
                options: self.clone(),
                port: Port::claim(),
                cluster_port: self.cluster.then(Port::claim),
                dir: tempfile::Builder::new()
                    .prefix("quorate-test-")
                    .tempdir()
                    .expect("a temporary directory"),
                clock_off: AtomicI64::new(0),
                process: Mutex::new(None),
            };
            self.write_for(&server);
            match server.launch() {
                Ok(()) => return server,
                // A program that does not know of our claims was faster. This is not the server's fault, so try another
                // port.
                Err(why) if why.contains("Address already in use") => continue,
                Err(why) => panic!("{why}"),
            }
        }
        panic!("ten ports in a row were taken by others");
    }

    /// Writes the configuration file of this server.
    fn write_for(&self, server: &Server) {
        let port = server.port();
        let mut config = String::new();
        let mut line = |text: std::fmt::Arguments| writeln!(config, "{text}").expect("a String");
        line(format_args!("bind 127.0.0.1"));
        line(format_args!("dir \"{}\"", server.dir().display()));
        line(format_args!("unixsocket \"{}\"", server.socket().display()));
        line(format_args!("save \"{}\"", self.save));
        line(format_args!("maxmemory-policy {}", self.maxmemory_policy));
        // Without this a master waits 5 s for more replicas before it serves the first one.
        line(format_args!("repl-diskless-sync-delay 0"));
        match &self.tls {
            None => line(format_args!("port {port}")),
            Some(files) => {
                line(format_args!("port 0\ntls-port {port}\ntls-auth-clients no"));
                line(format_args!("tls-ca-cert-file \"{}\"", files.ca.display()));
                line(format_args!("tls-cert-file \"{}\"", files.cert.display()));
                line(format_args!("tls-key-file \"{}\"", files.key.display()));
            }
        }
        if self.appendonly {
            line(format_args!("appendonly yes\nappendfsync always"));
        }
        if let Some(cluster_port) = &server.cluster_port {
            let bus = cluster_port.number();
            line(format_args!("cluster-enabled yes\ncluster-port {bus}"));
        }
        if let Some(password) = &self.password {
            line(format_args!("requirepass {password}"));
        }
        for extra in &self.lines {
            line(format_args!("{extra}"));
        }
        fs::write(server.dir().join("server.conf"), config).expect("our own directory");
    }
}
