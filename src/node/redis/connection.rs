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
    time::Instant,
};

use futures::future::BoxFuture;

use redis_protocol::resp3::types::OwnedFrame;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    credentials::{self, GivenLogin},
    decode,
    encode::{self, Keys},
    frame::{Garbage, Inbox},
    outbox::{Asked, Outbox},
    secret::{self, Secret},
};
use crate::{
    base::printable::printable,
    node::{Connection, Disconnected, Guard, Incoming, Operation, answer::Answered},
};

/// Bytes in both directions: TCP, TLS or a Unix socket.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// Gets the next login.
pub(crate) type NextLogin = Box<dyn Fn() -> BoxFuture<'static, Result<GivenLogin, String>> + Send>;

/// A login that has not been answered yet.
enum NewLogin {
    /// The provider is asked for it.
    Asked(BoxFuture<'static, Result<GivenLogin, String>>),
    /// It is on the way to the server, and lasts until then.
    Sent(Option<Instant>),
}

/// A connection that was greeted.
pub(super) struct RedisConnection<S> {
    stream: S,
    client_id: u64,
    note: Option<String>,
    /// The channel that it is subscribed to, if any.
    channel: Option<Arc<str>>,
    /// It receives pushes: it is subscribed, and the server's scripts may publish.
    hears: bool,
    /// The secrets that are never shown, even if the server repeats them.
    secret: Secret,
    /// Where to get the next login.
    logins: Option<NextLogin>,
    new_login: Option<NewLogin>,
    /// Until when the login lasts that was answered last, or why it failed, if that is not passed on yet.
    logged_in: Option<Result<Option<Instant>, String>>,
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
            logins: None,
            new_login: None,
            logged_in: None,
            outbox: Outbox::new(keys),
            unflushed: false,
            inbox,
            replies: Vec::new(),
            answers: VecDeque::new(),
            over: None,
        }
    }

    /// Notes something for operators, such as a right that the user lacks.
    pub(crate) fn add_note(&mut self, note: String) {
        self.note = Some(match self.note.take() {
            Some(before) => format!("{before}; {note}"),
            None => note,
        });
    }

    /// It has logged in with credentials that last until `ends`.
    pub(crate) fn set_login(&mut self, next: NextLogin, ends: Option<Instant>) {
        self.logins = Some(next);
        self.logged_in = ends.map(|ends| Ok(Some(ends)));
    }

    /// Sends the login that the provider has given, if it has.
    fn poll_login(&mut self, cx: &mut Context<'_>) {
        let Some(NewLogin::Asked(asked)) = &mut self.new_login else {
            return;
        };
        let Poll::Ready(given) = asked.as_mut().poll(cx) else {
            return;
        };
        self.new_login = None;
        match given {
            Ok(GivenLogin { login, ends }) => {
                self.secret.add(&login.password);
                let mut bytes = Vec::new();
                encode::words(&mut bytes, &["AUTH", &login.user, &login.password]);
                self.outbox.push_login(bytes);
                self.new_login = Some(NewLogin::Sent(ends));
                // The driver has flushed in this turn already.
                cx.waker().wake_by_ref();
            }
            Err(why) => self.logged_in = Some(Err(why)),
        }
    }

    /// The server has answered AUTH. A server that refuses it keeps the login that the connection had.
    fn take_login(&mut self, frame: &OwnedFrame) {
        let ends = match self.new_login.take() {
            Some(NewLogin::Sent(ends)) => ends,
            Some(NewLogin::Asked(_)) | None => None,
        };
        self.logged_in = Some(match decode::error(frame) {
            Some(error) => Err(credentials::refusal(secret::code(&error))),
            None => Ok(ends),
        });
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
            Some(Asked::Login) => self.take_login(&frame),
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

impl<S: Stream> Connection for RedisConnection<S> {
    fn client_id(&self) -> u64 {
        self.client_id
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn log_in(&mut self) {
        if let (Some(logins), None) = (&self.logins, &self.new_login) {
            self.new_login = Some(NewLogin::Asked(logins()));
        }
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
        self.poll_login(cx);
        loop {
            if let Some(logged_in) = self.logged_in.take() {
                let left = |ends: Instant| ends.saturating_duration_since(Instant::now());
                let logged_in = logged_in.map(|ends| ends.map(left));
                return Poll::Ready(Ok(Incoming::LoggedIn(logged_in)));
            }
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
    if let Some(advice) = super::tls::advice(error, None) {
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
