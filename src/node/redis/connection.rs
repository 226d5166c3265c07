//! An ordered connection to one server process.
//!
//! The bytes are moved here and not by the `redis` crate, because what is promised of a connection
//! is about single bytes: a rollback must not overtake its acquire, and a request of which nothing
//! has left yet can be taken back. A connection that multiplexes many callers promises neither.

use std::{
    collections::VecDeque,
    io, mem,
    pin::Pin,
    slice,
    sync::Arc,
    task::{Context, Poll, ready},
};

use redis_protocol::resp3::types::OwnedFrame;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    decode,
    encode::{self, Keys},
    frame::Inbox,
    secret::Secret,
};
use crate::{
    node::{Answer, Connection, Disconnected, Guard, Operation, operation::Wire},
    report::said,
};

/// About this many bytes are offered to the stream in one call.
const CHUNK: usize = 16 << 10;
/// An idle queue keeps room for this many operations.
const QUEUE: usize = 64;

/// A greeted connection: over TCP, TLS or a Unix socket.
#[derive(Debug)]
pub(super) struct RedisConnection<S> {
    stream: S,
    client_id: u64,
    note: Option<String>,
    keys: Arc<Keys>,
    /// Never told, should the server repeat it.
    secret: Secret,
    /// All operations that are not answered yet; first those on their way, then the unsent.
    queue: VecDeque<Queued>,
    /// How many of the queue have left in whole.
    sent: usize,
    /// How many bytes of the next one have left.
    offset: usize,
    /// What the stream is offered. Copied together: a call with a piece for each request and guard
    /// costs more than the copy.
    out: Vec<u8>,
    /// Something may linger in the stream's own buffer.
    unflushed: bool,
    /// The replies to the first of the queue, where it has several and not all have come.
    replies: Vec<OwnedFrame>,
    inbox: Inbox,
    over: Option<Disconnected>,
}

/// What is written for once and waits for its answer.
#[derive(Debug)]
enum Queued {
    /// An operation, and the guard that this node is to be asked with.
    Operation(Arc<Operation>, Arc<Guard>),
    /// Bytes to which no answer comes.
    Unanswered(Vec<u8>),
}

impl Queued {
    /// What all nodes share of its bytes, and the guard of this one behind them.
    fn pieces(&self, keys: &Keys) -> [&[u8]; 2] {
        match self {
            Self::Operation(operation, guard) => {
                let wire = wire(operation, keys);
                let guard = wire.has_guard.then(|| guard.wire(encode::guard));
                [&wire.bytes, guard.unwrap_or_default()]
            }
            Self::Unanswered(bytes) => [bytes, &[]],
        }
    }

    /// How many bytes it is.
    fn len(&self, keys: &Keys) -> usize {
        self.pieces(keys).map(<[u8]>::len).iter().sum()
    }
}

fn wire<'o>(operation: &'o Operation, keys: &Keys) -> &'o Wire {
    operation.wire(|command| encode::wire(command, keys))
}

impl<S> RedisConnection<S> {
    pub(super) fn new(
        stream: S,
        client_id: u64,
        note: Option<String>,
        keys: Arc<Keys>,
        secret: Secret,
        inbox: Inbox,
    ) -> Self {
        Self {
            stream,
            client_id,
            note,
            keys,
            secret,
            queue: VecDeque::with_capacity(QUEUE),
            sent: 0,
            offset: 0,
            out: Vec::new(),
            unflushed: false,
            replies: Vec::new(),
            inbox,
            over: None,
        }
    }

    /// The connection is over, for good and for this reason.
    fn end<T>(&mut self, reason: impl Into<String>) -> Poll<Result<T, Disconnected>> {
        let reason = Disconnected(reason.into());
        self.over = Some(reason.clone());
        Poll::Ready(Err(reason))
    }

    /// These bytes have left.
    fn advance(&mut self, mut bytes: usize) {
        while let Some(next) = self.queue.get(self.sent) {
            let left = next.len(&self.keys).saturating_sub(self.offset);
            if bytes < left {
                self.offset += bytes;
                return;
            }
            bytes -= left;
            self.sent += 1;
            self.offset = 0;
            if bytes == 0 {
                return;
            }
        }
    }

    /// The answer that this frame completes, if it does; an error: nobody asked for it.
    fn take(&mut self, frame: OwnedFrame) -> Result<Option<Answer>, OwnedFrame> {
        let Some(Queued::Operation(operation, _)) = self.queue.front() else {
            return Err(frame);
        };
        let wanted = wire(operation, &self.keys).replies;
        let completes = self.replies.len() + 1 == wanted;
        // The last of several may come only when the last byte has left.
        if self.sent == 0 && (self.offset == 0 || completes) {
            return Err(frame);
        }
        if !completes {
            self.replies.push(frame);
            return Ok(None);
        }
        let command = operation.command();
        let answer = match wanted {
            1 => decode::answer(command, slice::from_ref(&frame), &self.secret),
            _ => {
                self.replies.push(frame);
                decode::answer(command, &mem::take(&mut self.replies), &self.secret)
            }
        };
        self.sent -= 1;
        self.queue.pop_front();
        if self.queue.is_empty() && self.queue.capacity() > 16 * QUEUE {
            self.queue.shrink_to(QUEUE);
        }
        Ok(Some(answer))
    }
}

impl<S: AsyncWrite + Unpin> RedisConnection<S> {
    /// Offers the stream what is unsent, as much of it as one call takes.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.out.clear();
        for queued in self.queue.iter().skip(self.sent) {
            for piece in queued.pieces(&self.keys) {
                self.out.extend_from_slice(piece);
            }
            if self.out.len() >= self.offset.saturating_add(CHUNK) {
                break;
            }
        }
        let unsent = self.out.get(self.offset..).unwrap_or_default();
        Pin::new(&mut self.stream).poll_write(cx, unsent)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Connection for RedisConnection<S> {
    fn client_id(&self) -> u64 {
        self.client_id
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn send(&mut self, operation: Arc<Operation>, guard: Arc<Guard>) {
        self.queue.push_back(Queued::Operation(operation, guard));
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
        if let Some(over) = &self.over {
            return Poll::Ready(Err(over.clone()));
        }
        while self.sent < self.queue.len() {
            match ready!(self.poll_write(cx)) {
                Ok(0) => return self.end("nothing can be written any more"),
                Ok(bytes) => {
                    self.unflushed = true;
                    self.advance(bytes);
                }
                Err(error) => return self.end(failed("writing", &error)),
            }
        }
        if self.unflushed {
            match ready!(Pin::new(&mut self.stream).poll_flush(cx)) {
                Ok(()) => self.unflushed = false,
                Err(error) => return self.end(failed("writing", &error)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, Disconnected>> {
        if let Some(over) = &self.over {
            return Poll::Ready(Err(over.clone()));
        }
        loop {
            match self.inbox.next() {
                Ok(Some(OwnedFrame::Push { .. })) => {}
                Ok(Some(frame)) => match self.take(frame) {
                    Ok(Some(answer)) => return Poll::Ready(Ok(answer)),
                    Ok(None) => {}
                    Err(frame) => return self.end(unasked(&frame, &self.secret)),
                },
                Ok(None) => match ready!(self.inbox.poll_fill(&mut self.stream, cx)) {
                    Ok(0) => return self.end("the server closed the connection"),
                    Ok(_) => {}
                    Err(error) => return self.end(failed("reading", &error)),
                },
                Err(garbage) => {
                    let text = garbage.text(|words| self.secret.hidden(words));
                    return self.end(format!("the server {text}"));
                }
            }
        }
    }

    fn hush(&mut self) {
        let mut bytes = Vec::new();
        encode::words(&mut bytes, &["CLIENT", "REPLY", "OFF"]);
        self.queue.push_back(Queued::Unanswered(bytes));
    }

    fn withdraw(&mut self) -> usize {
        let keep = self.sent + usize::from(self.offset > 0);
        let unsent = self.queue.drain(keep.min(self.queue.len())..);
        let operation = |queued: &Queued| matches!(queued, Queued::Operation(..));
        unsent.filter(operation).count()
    }
}

fn failed(what: &str, error: &io::Error) -> String {
    #[cfg(feature = "tls-rustls")]
    if let Some(advice) = super::tls::advice(error) {
        return format!("{what} failed: {advice}");
    }
    format!("{what} failed: {}", said(error))
}

/// Servers say so before they close a connection that they will not have.
fn unasked(frame: &OwnedFrame, secret: &Secret) -> String {
    match decode::error(frame) {
        Some(words) => format!("the server says: {}", said(secret.hidden_in_error(&words))),
        None => "the server answers what was not asked".into(),
    }
}

#[cfg(test)]
mod tests;
