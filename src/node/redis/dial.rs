//! Gets a connection that is ready for commands: connect, say who we are, hand over the scripts.
//!
//! All that is said goes out in one write and costs one round trip: a server that refuses the
//! HELLO refuses what follows too, and only the first refusal is told. Rights that are missing are
//! told all at once.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
    time::Duration,
};

use redis_protocol::resp3::types::{OwnedFrame, Resp3Frame as _};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

use super::{
    address::{Address, Endpoint, Login},
    connection::RedisConnection,
    decode,
    encode::{self, Keys},
    frame::{Garbage, Inbox},
    rights::{self, Missing, Right},
    secret::{self, Secret},
};
use crate::{
    node::{Connection, DialError, server},
    report::{said, seconds},
};
use DialError::{Refused, Unreachable};

type Dialled = Result<Box<dyn Connection>, DialError>;

/// A greeted connection to the address, within the limit.
pub(super) async fn dial(address: &Address, keys: Arc<Keys>, limit: Duration) -> Dialled {
    let mut stage = Stage::Connect;
    match timeout(limit, reach(address, keys, &mut stage, limit)).await {
        Ok(dialled) => dialled,
        Err(_) => Err(Unreachable(format!(
            "{} within {}",
            stage.silence(),
            seconds(limit)
        ))),
    }
}

/// How far it got: for the text, if it takes too long.
enum Stage {
    Connect,
    #[cfg(feature = "tls-rustls")]
    Tls,
    Hello,
}

impl Stage {
    fn silence(&self) -> &'static str {
        match self {
            Self::Connect => "no connection",
            #[cfg(feature = "tls-rustls")]
            Self::Tls => {
                "it accepts connections, but does not answer in TLS \
                 (if this is a plain port, use redis://)"
            }
            Self::Hello => "it accepts connections, but does not answer HELLO",
        }
    }
}

async fn reach(address: &Address, keys: Arc<Keys>, stage: &mut Stage, limit: Duration) -> Dialled {
    match &address.endpoint {
        Endpoint::Tcp { host, port } => {
            let stream = connect(host, *port, limit).await?;
            *stage = Stage::Hello;
            greet(stream, address, keys).await
        }
        #[cfg(feature = "tls-rustls")]
        Endpoint::Tls { host, port, tls } => {
            let stream = connect(host, *port, limit).await?;
            *stage = Stage::Tls;
            let stream = tls.wrap(stream).await?;
            *stage = Stage::Hello;
            greet(stream, address, keys).await
        }
        #[cfg(unix)]
        Endpoint::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path)
                .await
                .map_err(|error| Unreachable(format!("no connection: {}", said(error))))?;
            *stage = Stage::Hello;
            greet(stream, address, keys).await
        }
    }
}

/// Tries every address of the host, each for its share of the limit, so that one that never answers
/// does not hide the others. No keepalive: a handshake every few seconds is the ping.
async fn connect(host: &str, port: u16, limit: Duration) -> Result<TcpStream, DialError> {
    let addresses: Vec<_> = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| Unreachable(format!("its address cannot be looked up: {}", said(error))))?
        .collect();
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut tried = Vec::new();
    for address in addresses {
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>(stream)
        };
        // The last one has what is left, and the limit as a whole is watched by the caller.
        let connected = timeout(share, connected).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => tried.push(format!("no connection to {address}: {error}")),
        }
    }
    Err(Unreachable(match tried.is_empty() {
        true => "its name has no address".into(),
        // A name may have any number of addresses.
        false => said(tried.join(", ")),
    }))
}

/// What is said first, in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Hello,
    Select,
    SetInfo,
    LoadScript,
    Try(&'static Right),
}

async fn greet<S>(mut stream: S, address: &Address, keys: Arc<Keys>) -> Dialled
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (words, bytes) = greeting(address, &keys);
    // A server that closes without reading has often said why: that is worth more than the error.
    let written = write(&mut stream, &bytes).await;
    let (mut inbox, mut id, mut missing) = (Inbox::new(), 0, Missing::default());
    for word in words {
        let frame = match reply(&mut stream, &mut inbox).await {
            Ok(frame) => frame,
            Err(silence) => return Err(silence.explain(written.err(), address)),
        };
        match (word, decode::error(&frame)) {
            (Word::Hello, None) => id = client_id(&frame)?,
            // Nothing depends on it.
            (Word::SetInfo, _) | (_, None) => {}
            (Word::Try(right), Some(error)) => missing.add(right, &error),
            (Word::Select, Some(error)) if secret::code(&error) == "NOPERM" => {
                missing.add(&rights::SELECT, &error);
            }
            // It is tried by itself as well.
            (Word::LoadScript, Some(error)) if secret::code(&error) == "NOPERM" => {}
            (word, Some(error)) => return Err(refusal(word, &error, address)),
        }
    }
    if let Some(why) = missing.refusal(&address.user(), &keys) {
        return Err(Refused(why));
    }
    let (secret, note) = (address.secret(), missing.note());
    Ok(Box::new(RedisConnection::new(
        stream, id, note, keys, secret, inbox,
    )))
}

fn greeting(address: &Address, keys: &Keys) -> (Vec<Word>, Vec<u8>) {
    let (mut words, mut bytes) = (Vec::new(), Vec::new());
    let mut say = |word, parts: &[&str]| {
        words.push(word);
        encode::words(&mut bytes, parts);
    };
    match &address.login {
        None => say(Word::Hello, &["HELLO", "3"]),
        Some(Login { user, password }) => say(Word::Hello, &["HELLO", "3", "AUTH", user, password]),
    }
    if address.db != 0 {
        say(Word::Select, &["SELECT", &address.db.to_string()]);
    }
    say(
        Word::SetInfo,
        &["CLIENT", "SETINFO", "lib-name", env!("CARGO_PKG_NAME")],
    );
    say(
        Word::SetInfo,
        &["CLIENT", "SETINFO", "lib-ver", env!("CARGO_PKG_VERSION")],
    );
    let load = encode::wire(&server::Command::LoadScripts.into(), keys);
    words.extend(std::iter::repeat_n(Word::LoadScript, load.replies));
    bytes.extend(load.bytes);
    for right in rights::TRIED {
        words.push(Word::Try(right));
        encode::words(&mut bytes, &right.words(keys));
    }
    (words, bytes)
}

async fn write<S: AsyncWrite + Unpin>(stream: &mut S, mut bytes: &[u8]) -> io::Result<()> {
    poll_fn(|cx| {
        while !bytes.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, bytes))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => bytes = bytes.get(n..).unwrap_or_default(),
            }
        }
        Pin::new(&mut *stream).poll_flush(cx)
    })
    .await
}

async fn reply<S: AsyncRead + Unpin>(
    stream: &mut S,
    inbox: &mut Inbox,
) -> Result<OwnedFrame, Silence> {
    loop {
        match inbox.next().map_err(Silence::Garbage)? {
            Some(OwnedFrame::Push { .. }) => {}
            Some(frame) => return Ok(frame),
            None => match poll_fn(|cx| inbox.poll_fill(stream, cx)).await {
                Ok(0) => return Err(Silence::Closed),
                Ok(_) => {}
                Err(error) => return Err(Silence::Failed(error)),
            },
        }
    }
}

/// Why a reply did not come.
enum Silence {
    Closed,
    Failed(io::Error),
    Garbage(Garbage),
}

impl Silence {
    fn explain(self, write_error: Option<io::Error>, address: &Address) -> DialError {
        let error = match (self, write_error) {
            (Self::Garbage(garbage), _) => {
                let text = garbage.text(|words| address.of_a_stranger(words));
                return Refused(format!("it {text}"));
            }
            (Self::Failed(error), _) | (Self::Closed, Some(error)) => Some(error),
            (Self::Closed, None) => None,
        };
        #[cfg(feature = "tls-rustls")]
        if let Some(advice) = error.as_ref().and_then(super::tls::advice) {
            return Refused(advice);
        }
        let why = error
            .map(|error| format!(" ({})", said(error)))
            .unwrap_or_default();
        let hint = match address.endpoint {
            Endpoint::Tcp { .. } => "; if this is a TLS port, use rediss://",
            _ => "",
        };
        Unreachable(format!(
            "it closes the connection without an answer{why}{hint}"
        ))
    }
}

/// Reads HELLO's reply: our client id there. Whether the server is fit to vote is asked by the
/// handshake; here only what would keep us from it.
fn client_id(frame: &OwnedFrame) -> Result<u64, DialError> {
    let (mut id, mut mode) = (None, None);
    if let OwnedFrame::Map { data, .. } = frame {
        for (key, value) in data {
            match (key.as_str(), value) {
                (Some("id"), OwnedFrame::Number { data, .. }) => id = u64::try_from(*data).ok(),
                (Some("mode"), value) => mode = value.as_str(),
                _ => {}
            }
        }
    }
    match (mode, id) {
        (Some(mode @ ("sentinel" | "cluster")), _) => Err(Refused(format!(
            "it runs in {mode} mode: quorate needs independent masters, without cluster or sentinel"
        ))),
        (_, Some(id)) => Ok(id),
        (_, None) => Err(Refused(
            "it does not answer HELLO as Redis and Valkey do: \
             quorate needs the server itself, no proxy"
                .into(),
        )),
    }
}

/// What an error reply to the greeting means, and what to do.
fn refusal(word: Word, error: &str, address: &Address) -> DialError {
    let user = address.user();
    let secret = address.secret();
    let words = match (word, secret::code(error)) {
        // To repeat a login there are more ways than can be recognised.
        (Word::Hello, "") if address.login.is_some() => HIDDEN.into(),
        (Word::Hello, code) if address.login.is_some() => format!("{code} ({HIDDEN})"),
        _ => said(secret.hidden_in_error(error)),
    };
    let refused = |why: &str| Refused(why.to_owned());
    let unreachable = |why: &str| Unreachable(why.to_owned());
    match error.split_ascii_whitespace().next().unwrap_or_default() {
        "WRONGPASS" if address.has_password() => Refused(format!(
            "it does not know {user} with this password: \
             correct the node's URL, or the server's ACL"
        )),
        "WRONGPASS" => refused(
            "it does not know this user without a password: \
             correct the node's URL (redis://:password@host, with a colon before the password), \
             or the server's ACL",
        ),
        "NOAUTH" => refused(
            "it asks for a password: put it into the node's URL, as in redis://user:password@host",
        ),
        "NOPERM" => Refused(format!(
            "{user} has not all permissions that are needed, \
             grant them with ACL SETUSER: {words}"
        )),
        "DENIED" => refused(
            "it is in protected mode and serves its own host only: \
             give it a password, or set `protected-mode no`",
        ),
        "NOPROTO" => refused("it does not speak RESP3: it is older than Redis 7.0, or a proxy"),
        "LOADING" => unreachable("it is loading its data"),
        "MASTERDOWN" => unreachable("it is a replica that waits for its master"),
        "BUSY" => unreachable("it is busy with a script that does not end"),
        "ERR" if error.contains("max number of clients") => {
            unreachable("it takes no more clients (maxclients)")
        }
        // These words repeat what was sent, the password too.
        "ERR" if word == Word::Hello && error.contains("unknown command") => {
            refused("it does not know HELLO: it is older than Redis 7.0, or a proxy")
        }
        _ => match word {
            Word::Hello | Word::SetInfo => Refused(format!("it refuses us: {words}")),
            Word::Select => Refused(format!(
                "it does not let us use database {}: {words}",
                address.db
            )),
            Word::LoadScript | Word::Try(_) => {
                Refused(format!("it does not take our scripts: {words}"))
            }
        },
    }
}

/// Stands for words that may repeat a login.
const HIDDEN: &str = "its words are not told, as they may repeat the password";

/// How servers begin that are not Redis, and how much is told of such a beginning: an HTTP status.
const STRANGERS: &[&str] = &["HTTP/", "SSH-", "220 "];
const NAMED: usize = 12;

impl Address {
    /// What is never told of this server. A user without a password is one that was written in the
    /// wrong place, more often than not.
    fn secret(&self) -> Secret {
        Secret::new(match &self.login {
            Some(Login { user, password }) if password.is_empty() => user,
            Some(Login { password, .. }) => password,
            None => "",
        })
    }

    fn has_password(&self) -> bool {
        let login = self.login.as_ref();
        login.is_some_and(|login| !login.password.is_empty())
    }

    /// As whom we speak to it.
    fn user(&self) -> String {
        match &self.login {
            None => "user \"default\"".into(),
            Some(_) if !self.has_password() => "this user".into(),
            Some(login) => format!("user {:?}", self.secret().hidden(&login.user)),
        }
    }

    /// What a server says that is not Redis. If it was told a password, it may repeat that in any way.
    fn of_a_stranger(&self, words: &str) -> String {
        let clean = self.secret().hidden(words);
        match self.login {
            None => clean,
            Some(_) if STRANGERS.iter().any(|name| words.starts_with(name)) => {
                clean.chars().take(NAMED).collect()
            }
            Some(_) => "***".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;
    use crate::{
        name::Name,
        node::{
            Answer, Command, Operation, Reply, admission, mutex,
            redis::{
                address::{IntoNode as _, Target},
                support::{Kind, Server, ServerOptions},
            },
            server,
        },
        owner::{Entry, Label},
    };

    const LIMIT: Duration = Duration::from_secs(3);

    fn address(url: &str) -> Address {
        match url.into_node() {
            Ok(Target::Server(address)) => address,
            other => panic!("{other:?}"),
        }
    }

    async fn dialled(address: &Address) -> Dialled {
        dial(address, Arc::new(Keys::new("quorate")), LIMIT).await
    }

    async fn connected(url: &str) -> Box<dyn Connection> {
        dialled(&address(url))
            .await
            .unwrap_or_else(|why| panic!("{url}: {why:?}"))
    }

    async fn fails(address: &Address) -> DialError {
        match dialled(address).await {
            Ok(_) => panic!("{address:?} is greeted"),
            Err(why) => why,
        }
    }

    async fn refused(url: &str) -> String {
        match fails(&address(url)).await {
            Refused(why) => why,
            other => panic!("{url}: {other:?}"),
        }
    }

    async fn unreachable(url: &str) -> String {
        match fails(&address(url)).await {
            Unreachable(why) => why,
            other => panic!("{url}: {other:?}"),
        }
    }

    async fn ask(connection: &mut dyn Connection, command: Command) -> Answer {
        connection.send(Operation::new(command), Arc::default());
        poll_fn(|cx| connection.poll_flush(cx)).await.unwrap();
        poll_fn(|cx| connection.poll_answer(cx)).await.unwrap()
    }

    /// What the server knows of the connection.
    fn client(server: &Server, connection: &dyn Connection) -> String {
        let id = connection.client_id().to_string();
        let list = server.cmd(&["CLIENT", "LIST", "ID", &id]);
        redis::FromRedisValue::from_redis_value(list).unwrap()
    }

    #[tokio::test]
    async fn a_connection_is_ready_for_commands() {
        for kind in Kind::ALL {
            let server = Server::start(kind);
            let mut connection = connected(&format!("{}/3", server.url())).await;
            let seen = client(&server, &*connection);
            assert!(
                seen.contains(" db=3 ") && seen.contains(" resp=3"),
                "{seen}"
            );
            let knows_setinfo = server
                .try_cmd(&["CLIENT", "SETINFO", "lib-name", "test"])
                .is_ok();
            assert_eq!(seen.contains(" lib-name=quorate "), knows_setinfo, "{seen}");
            let release = Command::Mutex(mutex::Command::Release {
                name: Name::new("a").unwrap(),
                entry: Entry::new(uuid::Uuid::from_u128(1), &Label::new("test").unwrap()),
            });
            assert_eq!(
                ask(&mut *connection, release.clone()).await,
                Ok(Reply::Mutex(mutex::Reply::Released(false))),
                "by a script"
            );
            server.cmd(&["SCRIPT", "FLUSH"]);
            assert_eq!(
                ask(&mut *connection, release).await,
                Err(crate::node::Fault::NoScript)
            );
            assert_eq!(
                ask(
                    &mut *connection,
                    Command::Server(server::Command::LoadScripts)
                )
                .await,
                Ok(Reply::Server(server::Reply::Loaded))
            );
            assert_eq!(
                ask(
                    &mut *connection,
                    Command::Admission(admission::Command::Survey)
                )
                .await,
                Ok(Reply::Admission(admission::Reply::Surveyed {
                    used: false,
                    lock: None
                }))
            );

            let other = connected(&server.unix_url()).await;
            assert!(client(&server, &*other).contains(" db=0 "));
            let kill = Command::Server(server::Command::Disconnect {
                client: connection.client_id(),
            });
            let mut third = connected(&server.url()).await;
            assert_eq!(
                ask(&mut *third, kill).await,
                Ok(Reply::Server(server::Reply::Disconnected(true)))
            );
            let over = poll_fn(|cx| connection.poll_answer(cx))
                .await
                .expect_err("killed");
            assert_eq!(over.0, "the server closed the connection");
            server.kill9();
            poll_fn(|cx| third.poll_answer(cx))
                .await
                .expect_err("killed");
            assert!(
                unreachable(&server.url())
                    .await
                    .contains("Connection refused")
            );
            assert!(
                unreachable(&server.unix_url())
                    .await
                    .starts_with("no connection: ")
            );
        }
    }

    #[tokio::test]
    async fn credentials() {
        for kind in Kind::ALL {
            let server = ServerOptions::new(kind)
                .password("sesame")
                .acl("alice on >wonder ~* &* +@all")
                .acl("bob on >builder ~* &* +@all -script")
                .acl("dave on nopass ~* &* +@all")
                .acl("eve off >apple ~* +@all")
                .start();
            let with = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
            for (login, user) in [
                (":sesame@", "default"),
                ("alice:wonder@", "alice"),
                ("dave@", "dave"),
            ] {
                let connection = connected(&with(login)).await;
                let seen = client(&server, &*connection);
                assert!(seen.contains(&format!(" user={user} ")), "{seen}");
            }
            for (login, why) in [
                ("", "it asks for a password: put it into the node's URL"),
                (
                    ":wrongpw@",
                    "it does not know user \"default\" with this password",
                ),
                (
                    "alice:wrongpw@",
                    "it does not know user \"alice\" with this password",
                ),
                (
                    "alice@",
                    "it does not know this user without a password: correct the node's URL",
                ),
                (
                    "sesame@",
                    "it does not know this user without a password: correct the node's URL",
                ),
                (
                    "nobody:wrongpw@",
                    "it does not know user \"nobody\" with this password",
                ),
                (
                    "eve:apple@",
                    "it does not know user \"eve\" with this password",
                ),
                (
                    "bob:builder@",
                    "its ACL withholds SCRIPT LOAD from user \"bob\": \
                     grant it with ACL SETUSER (+script|load)",
                ),
            ] {
                let said = refused(&with(login)).await;
                assert!(said.starts_with(why), "{login}: {said}");
                for secret in ["sesame", "wonder", "builder", "wrongpw", "apple"] {
                    assert!(!said.contains(secret), "{said}");
                }
            }
        }
    }

    #[tokio::test]
    async fn what_is_not_an_independent_master() {
        let server = ServerOptions::new(Kind::Redis)
            .config("databases 2")
            .start();
        let why = refused(&format!("{}/2", server.url())).await;
        assert_eq!(
            why,
            "it does not let us use database 2: ERR DB index is out of range"
        );
        let cluster = ServerOptions::new(Kind::Redis).cluster().start();
        for db in ["", "/1"] {
            let why = refused(&format!("{}{db}", cluster.url())).await;
            assert!(why.starts_with("it runs in cluster mode"), "{why}");
        }
        let full = ServerOptions::new(Kind::Redis)
            .config("maxclients 1")
            .start();
        let _one = connected(&full.url()).await;
        assert_eq!(
            unreachable(&full.url()).await,
            "it takes no more clients (maxclients)"
        );
    }

    /// What becomes of a server that answers our greeting with this.
    async fn greeted(said: &[u8]) -> DialError {
        let (ours, mut theirs) = tokio::io::duplex(1 << 22);
        theirs.write_all(said).await.unwrap();
        theirs.shutdown().await.unwrap();
        let keys = Arc::new(Keys::new("quorate"));
        let address = address("redis://me:sesame@h");
        match greet(ours, &address, keys).await {
            Ok(_) => panic!("greeted"),
            Err(why) => why,
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_a_server_says_is_told_in_short_and_plainly(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
            huge in proptest::bool::ANY,
        ) {
            let bytes = bytes.repeat(if huge { 3_000 } else { 1 });
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let blob = [format!("!{}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat();
            let text = format!("${}\r\n", bytes.len());
            let field = [b"%1\r\n+mode\r\n", text.as_bytes(), &bytes, b"\r\n"].concat();
            for said in [bytes, blob, field] {
                let (Refused(why) | Unreachable(why)) = runtime.block_on(greeted(&said));
                proptest::prop_assert!(why.len() < 1_000, "{} bytes", why.len());
                proptest::prop_assert!(!why.contains(char::is_control), "{why:?}");
            }
        }
    }

    #[tokio::test]
    async fn a_password_is_taken_out_before_the_words_are_cut() {
        let (x, y) = ("x".repeat(6), "x".repeat(193));
        let known = "%1\r\n$2\r\nid\r\n:3\r\n+OK\r\n+OK\r\n";
        for said in [
            format!("SSH-{x}sesame"),
            format!("{known}-ERR {y}sesame\r\n"),
            format!("{known}-ERR {y}\\x73\\x65same\r\n"),
        ] {
            let (Refused(why) | Unreachable(why)) = greeted(said.as_bytes()).await;
            assert!(why.contains("x*"), "{why}");
        }
    }

    /// Says this to every client, when it has heard something.
    async fn scripted(said: &'static [u8]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://me:sesame@{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut heard = vec![0; 1 << 20];
                let _ = stream.read(&mut heard).await;
                let _ = stream.write_all(said).await;
                // Leaves nothing unread: that would reset the connection and lose what was said.
                let _ = stream.shutdown().await;
                while stream.read(&mut heard).await.is_ok_and(|read| read > 0) {}
            }
        });
        url
    }

    #[tokio::test]
    async fn strange_servers() {
        for (said, why) in [
            (
                &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
                "it does not speak RESP: it says \"HTTP/1.1 400\"",
            ),
            (
                b"-ERR unknown command `HELLO`, with args: `3`, `AUTH`, `me`, `sesame`\r\n",
                "it does not know HELLO: it is older than Redis 7.0, or a proxy",
            ),
            (
                b"-NOPROTO unsupported protocol version\r\n",
                "it does not speak RESP3: it is older than Redis 7.0, or a proxy",
            ),
            (
                b"-ERR not with c2VzYW1l\r\n",
                "it refuses us: ERR (its words are not told, as they may repeat the password)",
            ),
            (
                b"-Not with c2VzYW1l\r\n",
                "it refuses us: its words are not told, as they may repeat the password",
            ),
            (
                b"%1\r\n$2\r\nid\r\n:3\r\n+OK\r\n+OK\r\n-ERR not with sesame\r\n",
                "it does not take our scripts: ERR not with ***",
            ),
            (b"c2VzYW1l\r\n", "it does not speak RESP: it says \"***\""),
            (
                b"-DENIED Redis is running in protected mode because ...\r\n",
                "it is in protected mode and serves its own host only: \
                 give it a password, or set `protected-mode no`",
            ),
            (
                b"+OK\r\n",
                "it does not answer HELLO as Redis and Valkey do: \
                 quorate needs the server itself, no proxy",
            ),
            (
                b"%2\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n$2\r\nid\r\n:3\r\n",
                "it runs in sentinel mode: \
                 quorate needs independent masters, without cluster or sentinel",
            ),
            (b"$9999999\r\n", "it sends an answer of more than 1024 KiB"),
        ] {
            assert_eq!(refused(&scripted(said).await).await, why);
        }
        for (said, why) in [
            (
                &b""[..],
                "it closes the connection without an answer; if this is a TLS port, use rediss://",
            ),
            (
                b"%1\r\n$2\r\nid\r\n:3\r\n",
                "it closes the connection without an answer; if this is a TLS port, use rediss://",
            ),
            (
                b"%1\r\n$2\r\nid\r\n:3\r\n-ERR\r\n-LOADING x\r\n-LOADING x\r\n",
                "it is loading its data",
            ),
            (
                b"-LOADING Redis is loading the dataset in memory\r\n",
                "it is loading its data",
            ),
            (
                b"-MASTERDOWN x\r\n",
                "it is a replica that waits for its master",
            ),
            (b"-BUSY x\r\n", "it is busy with a script that does not end"),
        ] {
            assert_eq!(unreachable(&scripted(said).await).await, why);
        }
    }

    #[tokio::test]
    async fn silence_is_told_within_the_limit() {
        // The kernel accepts; nobody answers.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let limit = Duration::from_millis(200);
        for (scheme, why) in [
            (
                "redis",
                "it accepts connections, but does not answer HELLO within 200 ms",
            ),
            #[cfg(feature = "tls-rustls")]
            (
                "rediss",
                "it accepts connections, but does not answer in TLS \
                 (if this is a plain port, use redis://) within 200 ms",
            ),
        ] {
            let address = address(&format!("{scheme}://{}", listener.local_addr().unwrap()));
            let start = Instant::now();
            let dialled = dial(&address, Arc::new(Keys::new("quorate")), limit).await;
            assert_eq!(dialled.err(), Some(Unreachable(why.into())));
            assert!((limit..LIMIT).contains(&start.elapsed()));
        }
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let why = unreachable(&format!("redis://127.0.0.1:{port}")).await;
        assert!(
            why.starts_with(&format!(
                "no connection to 127.0.0.1:{port}: Connection refused"
            )),
            "{why}"
        );
        let why = unreachable("redis://nowhere.invalid").await;
        assert!(
            why.starts_with("its address cannot be looked up: "),
            "{why}"
        );
    }

    #[cfg(feature = "tls-rustls")]
    mod tls {
        use std::{path::Path, process::Command as Process};

        use super::*;
        use crate::node::redis::{
            support::tls::{Certificates, certificates},
            tls::Authorities,
        };

        fn tls_server(dir: &Path, line: &str) -> (Server, Certificates) {
            let files = certificates(dir);
            (
                ServerOptions::new(Kind::Redis)
                    .password("sesame")
                    .tls(&files)
                    .config(line)
                    .start(),
                files,
            )
        }

        fn trusting(url: &str, ca: &Path, expected: Option<&'static str>) -> Address {
            let mut address = address(url);
            let Endpoint::Tls { tls, .. } = &mut address.endpoint else {
                panic!("{url}")
            };
            tls.trust(&Authorities::of(&std::fs::read(ca).unwrap()).unwrap());
            if let Some(name) = expected {
                tls.name = name.try_into().unwrap();
            }
            address
        }

        #[tokio::test]
        async fn encrypted_and_verified() {
            let dir = tempfile::tempdir().unwrap();
            let (server, files) = tls_server(dir.path(), "");
            let localhost = server.url().replace("127.0.0.1", "localhost");
            for (url, name) in [
                (server.url(), None),
                (server.url(), Some("localhost")),
                (localhost, None),
            ] {
                let mut connection = dialled(&trusting(&url, &files.ca, name)).await.unwrap();
                let answer = ask(
                    &mut *connection,
                    Command::Admission(admission::Command::Survey),
                )
                .await;
                assert_eq!(
                    answer,
                    Ok(Reply::Admission(admission::Reply::Surveyed {
                        used: false,
                        lock: None
                    }))
                );
            }
            let insecure = format!("{}/#insecure", server.url());
            let mut connection = connected(&insecure).await;
            // More than TLS takes at once.
            let survey = Operation::new(admission::Command::Survey);
            for _ in 0..5_000 {
                connection.send(Arc::clone(&survey), Arc::default());
            }
            let mut answers = 0;
            poll_fn(|cx| {
                if let Poll::Ready(flushed) = connection.poll_flush(cx) {
                    flushed.unwrap();
                }
                while answers < 5_000 {
                    let answer = ready!(connection.poll_answer(cx)).unwrap();
                    assert_eq!(
                        answer,
                        Ok(Reply::Admission(admission::Reply::Surveyed {
                            used: false,
                            lock: None
                        }))
                    );
                    answers += 1;
                }
                Poll::Ready(())
            })
            .await;

            let DialError::Refused(why) =
                fails(&trusting(&server.url(), &files.ca, Some("h.example"))).await
            else {
                panic!("reached")
            };
            assert!(
                why.starts_with("its TLS certificate is not accepted: ")
                    && why.contains("h.example"),
                "{why}"
            );
            let elsewhere = tempfile::tempdir().unwrap();
            let stranger = certificates(elsewhere.path());
            let DialError::Refused(why) = fails(&trusting(&server.url(), &stranger.ca, None)).await
            else {
                panic!("reached")
            };
            assert!(
                why.starts_with("none of the certificates in ca_certificates"),
                "{why}"
            );
        }

        #[tokio::test]
        async fn a_client_certificate_is_not_had() {
            let dir = tempfile::tempdir().unwrap();
            let (server, _) = tls_server(dir.path(), "tls-auth-clients yes");
            let why = refused(&format!("{}#insecure", server.url())).await;
            assert!(why.contains("tls-auth-clients no"), "{why}");
        }

        #[tokio::test]
        async fn plain_and_tls_confused() {
            let dir = tempfile::tempdir().unwrap();
            let (tls, _) = tls_server(dir.path(), "");
            let plain = Server::start(Kind::Redis);
            let why = fails(&address(&tls.url().replace("rediss:", "redis:"))).await;
            let (Refused(text) | Unreachable(text)) = &why;
            assert!(text.contains("use rediss://"), "{why:?}");
            let limit = Duration::from_millis(500);
            let address = address(&format!(
                "{}#insecure",
                plain.url().replace("redis:", "rediss:")
            ));
            let why = dial(&address, Arc::new(Keys::new("quorate")), limit)
                .await
                .err()
                .unwrap();
            let (Refused(text) | Unreachable(text)) = &why;
            assert!(text.contains("use redis://"), "{why:?}");
        }

        /// The variable counts for a whole process, so a process of its own reads it.
        #[tokio::test]
        async fn the_systems_certificates_may_be_a_file_of_ours() {
            let dir = tempfile::tempdir().unwrap();
            let (server, files) = tls_server(dir.path(), "");
            let elsewhere = tempfile::tempdir().unwrap();
            let stranger = certificates(elsewhere.path());
            let empty = dir.path().join("empty.pem");
            std::fs::write(&empty, "").unwrap();
            for (ca, outcome) in [
                (&files.ca, "outcome: greeted"),
                (
                    &stranger.ca,
                    "outcome: Refused(\"nobody whom this machine trusts",
                ),
                (&empty, "outcome: Refused(\"SSL_CERT_FILE names "),
            ] {
                let child = Process::new(std::env::current_exe().unwrap())
                    .args([
                        "--exact",
                        "node::redis::dial::tests::tls::child",
                        "--ignored",
                        "--nocapture",
                    ])
                    .env("SSL_CERT_FILE", ca)
                    .env_remove("SSL_CERT_DIR")
                    .env("QUORATE_TEST_DIAL", server.url())
                    .output()
                    .unwrap();
                let said = String::from_utf8_lossy(&child.stdout);
                assert!(said.contains(outcome), "{said}");
            }
        }

        #[tokio::test]
        #[ignore = "started by the_systems_certificates_may_be_a_file_of_ours"]
        async fn child() {
            if let Ok(url) = std::env::var("QUORATE_TEST_DIAL") {
                match dialled(&address(&url)).await {
                    Ok(_) => println!("outcome: greeted"),
                    Err(why) => println!("outcome: {why:?}"),
                }
            }
        }
    }
}
