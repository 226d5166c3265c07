//! Connects to a server, within a time limit.

#[cfg(test)]
mod tests;

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{net::TcpStream, time::timeout};

use super::{
    address::{Address, Endpoint},
    connection::{NextLogin, RedisConnection, Stream},
    credentials::{GivenLogin, Logins},
    encode::Keys,
    greet::greet,
    rights::Missing,
};
use crate::{
    base::{printable::printable, text::seconds},
    node::{Connection, DialError},
};
use DialError::{Refused, Unreachable};

pub(crate) type Dialled = Result<Box<dyn Connection>, DialError>;

/// Opens and greets a connection to the address, within the limit. It is then ready for commands, and subscribed to the
/// channel. `logins` is asked for the user and the password.
pub(super) async fn dial(
    address: &Address,
    logins: Option<Arc<Logins>>,
    keys: Arc<Keys>,
    channel: &Arc<str>,
    limit: Duration,
) -> Dialled {
    let mut attempt = Attempt {
        keys,
        channel,
        limit,
        stage: Stage::Connect,
        logins,
    };
    match timeout(limit, attempt.reach(address)).await {
        Ok(dialled) => dialled,
        Err(_) => Err(Unreachable(format!(
            "{} within {}",
            attempt.stage.silence(),
            seconds(limit)
        ))),
    }
}

/// How far the dial has got, for the text if it takes too long.
enum Stage {
    Credentials,
    Connect,
    #[cfg(feature = "tls-rustls")]
    Files,
    #[cfg(feature = "tls-rustls")]
    Tls,
    Hello,
}

impl Stage {
    fn silence(&self) -> &'static str {
        match self {
            Self::Credentials => "the credentials provider gives no answer",
            Self::Connect => "no connection",
            #[cfg(feature = "tls-rustls")]
            Self::Files => {
                "the files with certificates (QUORATE_CACERT, QUORATE_CLIENT_CERT, SSL_CERT_FILE, or the system's) were \
                 not read"
            }
            #[cfg(feature = "tls-rustls")]
            Self::Tls => {
                "it accepts connections, but does not answer in TLS \
                 (if this is a plain port, use redis://)"
            }
            Self::Hello => "it accepts connections, but does not answer HELLO",
        }
    }
}

struct Attempt<'a> {
    keys: Arc<Keys>,
    channel: &'a Arc<str>,
    limit: Duration,
    stage: Stage,
    logins: Option<Arc<Logins>>,
}

impl Attempt<'_> {
    async fn reach(&mut self, address: &Address) -> Dialled {
        match &address.endpoint {
            Endpoint::Tcp { host, port } => {
                let stream = connect(host, *port, self.limit).await?;
                self.log_in(stream, address, None).await
            }
            #[cfg(feature = "tls-rustls")]
            Endpoint::Tls { host, port, tls } => {
                let stream = connect(host, *port, self.limit).await?;
                self.stage = Stage::Files;
                let (config, note) = tls.config().await?;
                self.stage = Stage::Tls;
                let stream = tls.wrap(config, stream).await?;
                self.log_in(stream, address, note).await
            }
            #[cfg(unix)]
            Endpoint::Unix(path) => {
                let stream = tokio::net::UnixStream::connect(path)
                    .await
                    .map_err(|error| Unreachable(format!("no connection: {}", printable(error))))?;
                self.log_in(stream, address, None).await
            }
        }
    }

    /// Greets the server. The credentials are asked for only now, so a server that is away costs none.
    async fn log_in<S: Stream>(
        &mut self,
        stream: S,
        address: &Address,
        note: Option<String>,
    ) -> Dialled {
        let mut connection = match self.logins.take() {
            None => self.greet(stream, address).await?,
            Some(logins) => {
                self.stage = Stage::Credentials;
                let given = logins.ask().await.map_err(Refused)?;
                let with_login = address.with_login(given.login);
                let mut connection = self.greet(stream, &with_login).await?;
                connection.set_login(self.next_login(logins, address), given.ends);
                connection
            }
        };
        if let Some(note) = note {
            connection.add_note(note);
        }
        Ok(Box::new(connection))
    }

    /// How the connection gets its next login.
    fn next_login(&self, logins: Arc<Logins>, address: &Address) -> NextLogin {
        let (keys, address, limit) = (Arc::clone(&self.keys), address.clone(), self.limit);
        Box::new(move || {
            let (logins, keys) = (Arc::clone(&logins), Arc::clone(&keys));
            Box::pin(next_login(logins, keys, address.clone(), limit))
        })
    }

    async fn greet<S: Stream>(
        &mut self,
        stream: S,
        address: &Address,
    ) -> Result<RedisConnection<S>, DialError> {
        self.stage = Stage::Hello;
        greet(stream, address, Arc::clone(&self.keys), self.channel).await
    }
}

/// Asks for a new login, and tries it on a connection of its own. A server accepts the login of a user without rights,
/// and this would cost the connection that lives.
async fn next_login(
    logins: Arc<Logins>,
    keys: Arc<Keys>,
    address: Address,
    limit: Duration,
) -> Result<GivenLogin, String> {
    // Other nodes wait for their turn meanwhile, so both steps share the limit.
    let begun = Instant::now();
    let given = logins.ask_again().await?;
    let limit = limit.saturating_sub(begun.elapsed());
    let address = address.with_login(given.login.clone());
    let no_channel = Arc::from("");
    match dial(&address, None, keys, &no_channel, limit).await {
        Err(Refused(why)) if Missing::is_reason(&why) => Err(format!(
            "the new credentials lack rights, so the connection stays with the old login: {why}"
        )),
        // If nothing else can be learnt, the server decides.
        _ => Ok(given),
    }
}

/// Tries every address of the host, each for its share of the limit, so that an address that never answers does not
/// hide the others. TCP keepalive is not used: a handshake every few seconds serves as the ping.
async fn connect(host: &str, port: u16, limit: Duration) -> Result<TcpStream, DialError> {
    let addresses: Vec<_> = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| {
            Unreachable(format!(
                "its address cannot be looked up: {}",
                printable(error)
            ))
        })?
        .collect();
    let share = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut tried = Vec::new();
    for address in addresses {
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok::<_, io::Error>(stream)
        };
        // The last address gets what is left. The caller enforces the limit as a whole.
        let connected = timeout(share, connected).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => tried.push(format!("no connection to {address}: {error}")),
        }
    }
    Err(Unreachable(match tried.is_empty() {
        true => "its name has no address".into(),
        // A name may have any number of addresses, so the text may have to be shortened.
        false => printable(tried.join(", ")),
    }))
}
