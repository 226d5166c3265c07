//! Connects to a server, within a time limit.

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

/// Opens and greets a connection to the address, within the limit. It is then ready for commands, and subscribed to the
/// channel.
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

/// How far the dial has got, for the text if it takes too long.
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
