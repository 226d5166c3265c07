//! An ordered connection to one server process.
//!
//! The bytes are moved here and not by the `redis` crate, because the promises of a connection are about single bytes.
//! A rollback must not overtake its acquire, and a request of which nothing has left yet can be taken back. A
//! connection that multiplexes many callers promises neither.

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
    frame::{Garbage, Inbox},
    outbox::{Asked, Outbox},
    secret::Secret,
};
use crate::{
    base::printable::printable,
    node::{Connection, Disconnected, Guard, Incoming, Operation, answer::Answered},
};

/// A connection that was greeted, over TCP, TLS or a Unix socket.
#[derive(Debug)]
pub(super) struct RedisConnection<S> {
    stream: S,
    client_id: u64,
    note: Option<String>,
    /// The channel that it is subscribed to, if any.
    channel: Option<Arc<str>>,
    /// It receives pushes: it is subscribed, and the server's scripts may publish.
    hears: bool,
    /// The secret that is never shown, even if the server repeats it.
    secret: Secret,
    outbox: Outbox,
    /// Bytes may still be in the stream's own buffer.
    unflushed: bool,
    inbox: Inbox,
    /// The replies to the operation that is answered next, if it has several and not all have come.
    replies: Vec<OwnedFrame>,
    /// Answers that came together and are not passed on yet.
    answers: VecDeque<Answered>,
    over: Option<Disconnected>,
}

impl<S> RedisConnection<S> {
    pub(super) fn new(
        stream: S,
        client_id: u64,
        channel: Option<Arc<str>>,
        keys: Arc<Keys>,
        secret: Secret,
        inbox: Inbox,
    ) -> Self {
        Self {
            stream,
            client_id,
            note: None,
            hears: channel.is_some(),
            channel,
            secret,
            outbox: Outbox::new(keys),
            unflushed: false,
            inbox,
            replies: Vec::new(),
            answers: VecDeque::new(),
            over: None,
        }
    }

    /// Notes a right that the user lacks.
    pub(super) fn set_note(&mut self, note: Option<String>) {
        self.note = note;
    }

    /// The server's scripts may not publish, so waiters have to ask.
    pub(super) fn mute(&mut self) {
        self.hears = false;
    }

    /// Ends the connection for good, for this reason.
    fn end<T>(&mut self, reason: impl Into<String>) -> Poll<Result<T, Disconnected>> {
        let reason = Disconnected(reason.into());
        self.over = Some(reason.clone());
        Poll::Ready(Err(reason))
    }

    /// Handles a message that does not answer any request. Returns an error if too many came that were not subscribed
    /// to. Messages of the own channel are not counted, because any client that may publish there could end this
    /// connection with them.
    fn unasked(&mut self, frame: &OwnedFrame) -> Result<Incoming, Garbage> {
        let channel = self.channel.as_deref();
        match channel.and_then(|channel| decode::message(frame, channel)) {
            Some(_) if !self.hears => Ok(Incoming::Nothing),
            // A message that cannot be read costs no more than a lost one.
            Some(message) => Ok(decode::push(message).map_or(Incoming::Nothing, Incoming::Push)),
            None => self.inbox.count_unasked().map(|()| Incoming::Nothing),
        }
    }

    /// Ends the connection, because the server sends something that cannot be read.
    fn end_of<T>(&mut self, garbage: &Garbage) -> Poll<Result<T, Disconnected>> {
        let text = garbage.text(|words| self.secret.hidden_in_garbage(words).to_owned());
        self.end(format!("the server {text}"))
    }

    /// Makes answers of this frame, if it completes any. Returns the frame as an error if nothing was asked that it
    /// could answer.
    fn take(&mut self, frame: OwnedFrame) -> Result<(), OwnedFrame> {
        match self.outbox.asked(self.replies.len()) {
            None => return Err(frame),
            Some(Asked::Alone(_, wanted)) if self.replies.len() + 1 < wanted => {
                self.replies.push(frame);
                return Ok(());
            }
            Some(Asked::Alone(operation, 1)) => {
                let answer =
                    decode::answer(operation.command(), slice::from_ref(&frame), &self.secret);
                self.answers.push_back(answer);
            }
            Some(Asked::Alone(operation, _)) => {
                let mut replies = mem::take(&mut self.replies);
                replies.push(frame);
                let answer = decode::answer(operation.command(), &replies, &self.secret);
                self.answers.push_back(answer);
            }
            Some(Asked::Together(count)) => {
                if decode::forbids_a_key(&frame) {
                    self.outbox.send_alone();
                }
                let commands = self.outbox.operations().map(Operation::command);
                let answers = &mut self.answers;
                decode::answers(
                    commands.take(count),
                    count,
                    &frame,
                    &self.secret,
                    |answer| {
                        answers.push_back(answer);
                    },
                );
            }
        }
        self.outbox.answered();
        Ok(())
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
        self.outbox.push(operation, guard);
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
        if let Some(over) = &self.over {
            return Poll::Ready(Err(over.clone()));
        }
        loop {
            let unsent = self.outbox.unsent();
            if unsent.is_empty() {
                break;
            }
            match ready!(Pin::new(&mut self.stream).poll_write(cx, unsent)) {
                Ok(0) => return self.end("nothing can be written any more"),
                Ok(bytes) => {
                    self.unflushed = true;
                    self.outbox.advance(bytes);
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

    fn hears(&self) -> bool {
        self.hears
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Result<Incoming, Disconnected>> {
        if let Some(answer) = self.answers.pop_front() {
            return Poll::Ready(Ok(Incoming::Answer(answer)));
        }
        if let Some(over) = &self.over {
            return Poll::Ready(Err(over.clone()));
        }
        loop {
            match self.inbox.next() {
                // A push is never an answer, even if it comes between the replies to one operation.
                Ok(Some(frame @ OwnedFrame::Push { .. })) => match self.unasked(&frame) {
                    Ok(incoming) => return Poll::Ready(Ok(incoming)),
                    Err(garbage) => return self.end_of(&garbage),
                },
                Ok(Some(frame)) => {
                    if let Err(frame) = self.take(frame) {
                        return self.end(stray_answer(&frame, &self.secret));
                    }
                    if let Some(answer) = self.answers.pop_front() {
                        return Poll::Ready(Ok(Incoming::Answer(answer)));
                    }
                }
                Ok(None) => match ready!(self.inbox.poll_fill(&mut self.stream, cx)) {
                    Ok(0) => return self.end("the server closed the connection"),
                    Ok(_) => {}
                    Err(error) => return self.end(failed("reading", &error)),
                },
                Err(garbage) => return self.end_of(&garbage),
            }
        }
    }

    fn hush(&mut self) {
        let mut bytes = Vec::new();
        encode::words(&mut bytes, &["CLIENT", "REPLY", "OFF"]);
        self.outbox.push_unanswered(bytes);
    }

    fn withdraw(&mut self) -> usize {
        self.outbox.withdraw()
    }
}

fn failed(what: &str, error: &io::Error) -> String {
    #[cfg(feature = "tls-rustls")]
    if let Some(advice) = super::tls::advice(error) {
        return format!("{what} failed: {advice}");
    }
    format!("{what} failed: {}", printable(error))
}

/// The error for an answer that nothing asked for. Servers send one before they close a connection that they reject.
fn stray_answer(frame: &OwnedFrame, secret: &Secret) -> String {
    match decode::error(frame) {
        Some(words) => format!(
            "the server says: {}",
            printable(secret.hidden_in_error(&words))
        ),
        None => "the server sent an answer without a request".into(),
    }
}

#[cfg(test)]
mod tests;
