//! Connects to a server, within a limit of time.

#[cfg(test)]
mod tests;

use std::{io, sync::Arc, time::Duration};

use tokio::{net::TcpStream, time::timeout};

use super::{
    address::{Address, Endpoint},
    encode::Keys,
    greet::{Dialled, greet},
};
use crate::{
    base::{printable::printable, text::seconds},
    node::DialError,
};
use DialError::Unreachable;

/// A greeted connection to the address, within the limit: one that is ready for commands, and hears what is
/// published on the channel.
pub(super) async fn dial(
    address: &Address,
    keys: Arc<Keys>,
    channel: &Arc<str>,
    limit: Duration,
) -> Dialled {
    let mut stage = Stage::Connect;
    match timeout(limit, reach(address, keys, channel, &mut stage, limit)).await {
        Ok(dialled) => dialled,
        Err(_) => Err(Unreachable(format!(
            "{} within {}",
            stage.silence(),
            seconds(limit)
        ))),
    }
}

/// How far it got, for the text if it takes too long.
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

async fn reach(
    address: &Address,
    keys: Arc<Keys>,
    channel: &Arc<str>,
    stage: &mut Stage,
    limit: Duration,
) -> Dialled {
    match &address.endpoint {
        Endpoint::Tcp { host, port } => {
            let stream = connect(host, *port, limit).await?;
            *stage = Stage::Hello;
            greet(stream, address, keys, channel).await
        }
        #[cfg(feature = "tls-rustls")]
        Endpoint::Tls { host, port, tls } => {
            let stream = connect(host, *port, limit).await?;
            *stage = Stage::Tls;
            let stream = tls.wrap(stream).await?;
            *stage = Stage::Hello;
            greet(stream, address, keys, channel).await
        }
        #[cfg(unix)]
        Endpoint::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path)
                .await
                .map_err(|error| Unreachable(format!("no connection: {}", printable(error))))?;
            *stage = Stage::Hello;
            greet(stream, address, keys, channel).await
        }
    }
}

/// Tries every address of the host, each for its share of the limit, so that one that never answers
/// does not hide the others. No keepalive: a handshake every few seconds is the ping.
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
        false => printable(tried.join(", ")),
    }))
}
