//! Gets a connection that is ready for commands: connect, say who we are, hand over the scripts.
//!
//! All that is said goes out in one write and costs one round trip: a server that refuses the
//! HELLO refuses what follows too, and only the first refusal is told.

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
    encode::{self, Keys},
    frame::{Garbage, Inbox},
};
use crate::{
    node::{Batch, Command, Connection, DialError},
    report::seconds,
};
use DialError::{Refused, Unreachable};

type Dialled = Result<Box<dyn Connection>, DialError>;

/// A greeted connection to the address, within the limit.
pub(super) async fn dial(address: &Address, keys: Arc<Keys>, limit: Duration) -> Dialled {
    let mut stage = Stage::Connect;
    match timeout(limit, reach(address, keys, &mut stage)).await {
        Ok(dialled) => dialled,
        Err(_) => Err(Unreachable(format!("{} within {}", stage.silence(), seconds(limit)))),
    }
}

/// How far it got, for whoever wonders what took so long.
enum Stage {
    Connect,
    Tls,
    Hello,
}

impl Stage {
    fn silence(&self) -> &'static str {
        match self {
            Self::Connect => "no connection",
            Self::Tls => {
                "it accepts connections, but does not answer in TLS (if this is a plain port, use redis://)"
            }
            Self::Hello => "it accepts connections, but does not answer to HELLO",
        }
    }
}

async fn reach(address: &Address, keys: Arc<Keys>, stage: &mut Stage) -> Dialled {
    match &address.endpoint {
        Endpoint::Tcp { host, port } => {
            let stream = connect(host, *port).await?;
            *stage = Stage::Hello;
            greet(stream, address, keys).await
        }
        #[cfg(feature = "tls-rustls")]
        Endpoint::Tls { host, port, tls } => {
            let stream = connect(host, *port).await?;
            *stage = Stage::Tls;
            let stream = tls.wrap(stream).await?;
            *stage = Stage::Hello;
            greet(stream, address, keys).await
        }
        #[cfg(unix)]
        Endpoint::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path)
                .await
                .map_err(|error| Unreachable(format!("cannot connect: {error}")))?;
            *stage = Stage::Hello;
            greet(stream, address, keys).await
        }
    }
}

/// Tries every address of the host. No keepalive: a handshake every few seconds is the ping.
async fn connect(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let addresses = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| Unreachable(format!("cannot resolve {host:?}: {error}")))?;
    let mut tried = Vec::new();
    for address in addresses {
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>(stream)
        };
        match connected.await {
            Ok(stream) => return Ok(stream),
            Err(error) => tried.push(format!("cannot connect to {address}: {error}")),
        }
    }
    Err(Unreachable(match tried.is_empty() {
        true => format!("{host:?} has no address"),
        false => tried.join(", "),
    }))
}

/// What is said first, in this order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Hello,
    Select,
    SetInfo,
    LoadScript,
}

async fn greet<S>(mut stream: S, address: &Address, keys: Arc<Keys>) -> Dialled
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (words, bytes) = greeting(address, &keys);
    // A server that closes without reading has often said why: that is worth more than the error.
    let written = write(&mut stream, &bytes).await;
    let (mut inbox, mut client_id) = (Inbox::new(), 0);
    for word in words {
        let frame = match reply(&mut stream, &mut inbox).await {
            Ok(frame) => frame,
            Err(silence) => return Err(silence.explain(written.err(), address)),
        };
        match (word, error_text(&frame)) {
            (Word::SetInfo, _) | (Word::Select | Word::LoadScript, None) => {}
            (Word::Hello, None) => client_id = fit(&frame)?,
            (word, Some(error)) => return Err(refusal(word, &error, address)),
        }
    }
    Ok(Box::new(RedisConnection::new(stream, client_id, keys, inbox)))
}

fn greeting(address: &Address, keys: &Keys) -> (Vec<Word>, Vec<u8>) {
    let (mut words, mut bytes) = (Vec::new(), Vec::new());
    let mut say = |word, parts: &[&str]| {
        words.push(word);
        bytes.extend_from_slice(format!("*{}\r\n", parts.len()).as_bytes());
        for part in parts {
            bytes.extend_from_slice(format!("${}\r\n{part}\r\n", part.len()).as_bytes());
        }
    };
    match &address.login {
        None => say(Word::Hello, &["HELLO", "3"]),
        Some(Login { user, password }) => say(Word::Hello, &["HELLO", "3", "AUTH", user, password]),
    }
    if address.db != 0 {
        say(Word::Select, &["SELECT", &address.db.to_string()]);
    }
    say(Word::SetInfo, &["CLIENT", "SETINFO", "lib-name", env!("CARGO_PKG_NAME")]);
    say(Word::SetInfo, &["CLIENT", "SETINFO", "lib-ver", env!("CARGO_PKG_VERSION")]);
    words.extend(std::iter::repeat_n(Word::LoadScript, encode::answers(&Command::LoadScripts)));
    bytes.extend(encode::batch(&Batch::one(Command::LoadScripts, &"".into()), keys));
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

async fn reply<S: AsyncRead + Unpin>(stream: &mut S, inbox: &mut Inbox) -> Result<OwnedFrame, Silence> {
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
            (Self::Garbage(Garbage(why)), _) => return Refused(address.without_password(&why)),
            (Self::Failed(error), _) | (Self::Closed, Some(error)) => Some(error),
            (Self::Closed, None) => None,
        };
        #[cfg(feature = "tls-rustls")]
        if let Some(advice) = error.as_ref().and_then(super::tls::advice) {
            return Refused(advice);
        }
        let why = error.map(|error| format!(" ({error})")).unwrap_or_default();
        let hint = match address.endpoint {
            Endpoint::Tcp { .. } => "; if this is a TLS port, use rediss://",
            _ => "",
        };
        Unreachable(format!("it closes the connection without an answer{why}{hint}"))
    }
}

fn error_text(frame: &OwnedFrame) -> Option<String> {
    match frame {
        OwnedFrame::SimpleError { data, .. } => Some(data.clone()),
        OwnedFrame::BlobError { data, .. } => Some(String::from_utf8_lossy(data).into_owned()),
        _ => None,
    }
}

/// Reads HELLO's reply: whether we can work with this server, and our client id there.
fn fit(frame: &OwnedFrame) -> Result<u64, DialError> {
    let (mut id, mut version, mut mode) = (None, None, None);
    if let OwnedFrame::Map { data, .. } = frame {
        for (key, value) in data {
            match (key.as_str(), value) {
                (Some("id"), OwnedFrame::Number { data, .. }) => id = u64::try_from(*data).ok(),
                (Some("version"), value) => version = value.as_str(),
                (Some("mode"), value) => mode = value.as_str(),
                _ => {}
            }
        }
    }
    let Some(id) = id else {
        return Err(Refused(
            "does not answer to HELLO as Redis and Valkey do; quorate needs them, without a proxy".into(),
        ));
    };
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    match (mode, version, major) {
        (Some("sentinel"), ..) => Err(Refused("is a Sentinel: quorate needs the masters themselves".into())),
        (Some("cluster"), ..) => Err(Refused(
            "runs in cluster mode: quorate needs independent masters (cluster-enabled no)".into(),
        )),
        (_, Some(version), Some(..7)) => Err(Refused(format!("is version {version}, older than Redis 7.0"))),
        _ => Ok(id),
    }
}

/// What an error reply to the greeting means, and what to do.
fn refusal(word: Word, error: &str, address: &Address) -> DialError {
    let user = address
        .login
        .as_ref()
        .map_or("default", |login| &login.user);
    let words = address.without_password(error);
    match error.split([' ', '\r']).next().unwrap_or_default() {
        "WRONGPASS" => Refused(format!("wrong user or password (user {user:?}): correct the node's URL, or the server's ACL")),
        "NOAUTH" => Refused("asks for a password: put it into the node's URL, as in redis://user:password@host".into()),
        "NOPERM" => Refused(format!(
            "user {user:?} has not all permissions that are needed: grant them by ACL SETUSER ({words})"
        )),
        "LOADING" => Unreachable("is loading its data set".into()),
        "MASTERDOWN" => Unreachable("is loading its data set from its master".into()),
        "BUSY" => Unreachable("is busy with somebody's script".into()),
        "DENIED" | "-DENIED" => Refused(
            "is in protected mode and takes connections from its own host only: set a password, or `protected-mode no`"
                .into(),
        ),
        // The text repeats what was sent, the password too.
        "ERR" if word == Word::Hello && error.contains("unknown command") => {
            Refused("does not know HELLO: it is older than Redis 7.0, or a proxy".into())
        }
        "NOPROTO" => Refused("does not speak RESP3: it is older than Redis 7.0, or a proxy".into()),
        "ERR" if error.contains("max number of clients") => Unreachable("has no room for another client (maxclients)".into()),
        _ if word == Word::Select => Refused(format!("database {} cannot be used: {words}", address.db)),
        _ if word == Word::LoadScript => Refused(format!("does not take our scripts: {words}")),
        _ => Refused(words),
    }
}

impl Address {
    /// The server's words, should they repeat what we said.
    fn without_password(&self, words: &str) -> String {
        match &self.login {
            Some(Login { password, .. }) if !password.is_empty() => words.replace(password.as_str(), "***"),
            _ => words.to_owned(),
        }
    }
}
