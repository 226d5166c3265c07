//! The way back to a caller.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::Error;

/// Answers a caller.
pub(crate) type Responder<T> = oneshot::Sender<Result<T, Error>>;

/// An answer on its way. It is `Closed` if nobody is left to give it. Polling it needs no runtime.
pub(crate) struct Response<T>(oneshot::Receiver<Result<T, Error>>);

impl<T> Response<T> {
    pub(crate) fn channel() -> (Responder<T>, Self) {
        let (responder, receiver) = oneshot::channel();
        (responder, Self(receiver))
    }

    /// Notes that nobody waits for the answer any more.
    pub(crate) fn close(&mut self) {
        self.0.close();
    }

    /// An answer that is already known.
    pub(crate) fn ready(answer: Result<T, Error>) -> Self {
        let (responder, response) = Self::channel();
        // The receiver still exists, so sending cannot fail.
        let _ = responder.send(answer);
        response
    }
}

impl<T> Future for Response<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or(Err(Error::Closed)))
    }
}
