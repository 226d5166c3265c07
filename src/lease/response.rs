//! The way back to a caller.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

use crate::{Error, base::ending::Ending};

/// Answers a caller.
pub(crate) type Responder<T> = oneshot::Sender<Result<T, Error>>;

/// An answer on its way. If nobody is left to give it, it says why. Polling it needs no runtime.
pub(crate) struct Response<T> {
    answer: oneshot::Receiver<Result<T, Error>>,
    ending: Arc<Ending>,
}

impl<T> Response<T> {
    /// If the responder is dropped, the answer is the error of `ending`.
    pub(crate) fn channel(ending: Arc<Ending>) -> (Responder<T>, Self) {
        let (responder, answer) = oneshot::channel();
        (responder, Self { answer, ending })
    }

    /// Notes that nobody waits for the answer any more.
    pub(crate) fn close(&mut self) {
        self.answer.close();
    }

    /// An answer that is already known.
    pub(crate) fn ready(answer: Result<T, Error>) -> Self {
        let (responder, response) = Self::channel(Arc::default());
        // The receiver still exists, so sending cannot fail.
        let _ = responder.send(answer);
        response
    }
}

impl<T> Future for Response<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer)
            .poll(cx)
            .map(|answer| answer.unwrap_or_else(|_| Err(self.ending.error())))
    }
}
