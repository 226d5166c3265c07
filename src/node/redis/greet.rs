//! The greeting on a new connection, and what the answers to it mean.
//!
//! The whole greeting goes out in one write and costs one round trip. A server that refuses HELLO refuses what follows
//! too, so only the first refusal is reported. Missing rights are reported all at once.
//!
//! SSUBSCRIBE is the last command of the greeting. So a subscription lives exactly as long as its connection, and
//! exists before any waiter is registered on the connection. Its reply is a push (RESP3). Its refusal is an error like
//! any other.
//!
//! The channels are sharded ones, because SPUBLISH counts only the subscribers of this very channel. PUBLISH counts
//! pattern subscribers too: beside a monitoring tool with `PSUBSCRIBE *` a crashed waiter would seem to be there.

mod advice;
#[cfg(test)]
mod tests;
mod words;

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
};

use redis_protocol::resp3::types::{OwnedFrame, Resp3Frame as _};
use tokio::io::{AsyncRead, AsyncWrite};

use self::{
    advice::Silence,
    words::{Word, greeting},
};
use super::{
    address::Address,
    connection::{RedisConnection, Stream},
    decode,
    encode::Keys,
    frame::Inbox,
    rights::{self, Missing},
    secret,
};
use crate::node::DialError;
use DialError::Refused;

/// Makes a connection of a stream to the address. It is subscribed to the channel, unless the channel is empty or the
/// server's ACL does not allow it.
pub(super) async fn greet<S>(
    mut stream: S,
    address: &Address,
    keys: Arc<Keys>,
    channel: &Arc<str>,
) -> Result<RedisConnection<S>, DialError>
where
    S: Stream,
{
    let (words, bytes) = greeting(address, &keys, channel);
    // A server that closes without reading has often said why. Its reply is worth more than the error of the write.
    let written = write(&mut stream, &bytes).await;
    let (mut inbox, mut id, mut missing) = (Inbox::new(), 0, Missing::default());
    let mut subscribed = false;
    for word in words {
        let confirms = |frame: &_| word == Word::Subscribe && decode::confirms(frame, channel);
        let frame = match reply(&mut stream, &mut inbox, confirms).await {
            Ok(frame) => frame,
            Err(silence) => return Err(advice::no_reply(silence, written.err(), address)),
        };
        match (word, decode::error(&frame)) {
            (Word::Hello, None) => id = client_id(&frame)?,
            // Nothing depends on this.
            (Word::SetInfo, _) => {}
            (Word::Subscribe, None) if !confirms(&frame) => return Err(stranger("SSUBSCRIBE")),
            (Word::Subscribe, None) => subscribed = true,
            (_, None) => {}
            (Word::Subscribe, Some(error)) if Missing::is(&error) => {
                missing.add(&rights::SUBSCRIBE, &error);
            }
            (Word::Try(right), Some(error)) => missing.add(right, &error),
            (Word::Select, Some(error)) if secret::code(&error) == "NOPERM" => {
                missing.add(&rights::SELECT, &error);
            }
            // This right is tried separately as well.
            (Word::LoadScript, Some(error)) if secret::code(&error) == "NOPERM" => {}
            (word, Some(error)) => return Err(advice::refusal(word, &error, address)),
        }
    }
    if let Some(why) = missing.refusal(&address.user(), &keys) {
        return Err(Refused(why));
    }
    let (secret, note) = (address.password(), missing.note(&keys));
    // Without SPUBLISH the server's own scripts cannot notify a waiter, so the waiter has to ask.
    let channel = subscribed.then(|| Arc::clone(channel));
    let mut connection = RedisConnection::new(stream, id, channel, keys, secret, inbox);
    if let Some(note) = note {
        connection.add_note(note);
    }
    if missing.silences() {
        connection.mute();
    }
    Ok(connection)
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

/// The next reply. A push is skipped, unless it `confirms`.
async fn reply<S: AsyncRead + Unpin>(
    stream: &mut S,
    inbox: &mut Inbox,
    confirms: impl Fn(&OwnedFrame) -> bool,
) -> Result<OwnedFrame, Silence> {
    loop {
        match inbox.next().map_err(Silence::Garbage)? {
            Some(frame @ OwnedFrame::Push { .. }) if !confirms(&frame) => {
                inbox.count_unasked().map_err(Silence::Garbage)?;
            }
            Some(frame) => return Ok(frame),
            None => match poll_fn(|cx| inbox.poll_fill(stream, cx)).await {
                Ok(0) => return Err(Silence::Closed),
                Ok(_) => {}
                Err(error) => return Err(Silence::Failed(error)),
            },
        }
    }
}

/// This connection's client id, from HELLO's reply. The handshake will check if the server is fit to vote. Here it only
/// matters that the handshake is possible.
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
        (_, None) => Err(stranger("HELLO")),
    }
}

fn stranger(word: &str) -> DialError {
    Refused(format!(
        "it does not answer {word} as Redis and Valkey do: \
         quorate needs the server itself, no proxy"
    ))
}
