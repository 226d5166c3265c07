//! The way back to a caller.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::Error;

/// What a caller is answered by.
pub(crate) type Responder<T> = oneshot::Sender<Result<T, Error>>;

/// An answer on its way; `Closed` if nobody is there to give it. Needs no runtime to be polled on.
pub(crate) struct Response<T>(oneshot::Receiver<Result<T, Error>>);

impl<T> Response<T> {
    pub(crate) fn channel() -> (Responder<T>, Self) {
        let (responder, receiver) = oneshot::channel();
        (responder, Self(receiver))
    }

    /// Nobody waits for it any more.
    pub(crate) fn close(&mut self) {
        self.0.close();
    }

    /// An answer that is known already.
    pub(crate) fn ready(answer: Result<T, Error>) -> Self {
        let (responder, response) = Self::channel();
        // The receiver is here: it cannot be refused.
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
