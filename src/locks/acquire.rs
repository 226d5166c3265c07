//! The future of an acquisition. Many callers wait at once, so it does not keep the request beside the answer it waits
//! for, as an async block would.

use std::{
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tracing::{Instrument as _, instrument::Instrumented};

use crate::{
    Error, Lease,
    base::logs,
    engine::{AcquireRequest, Acquiring, Engine, Wait},
};

/// An acquisition. Its first poll sends the request to the engine.
pub(crate) enum Acquire {
    Unasked(Engine, Box<AcquireRequest>),
    Asked(Instrumented<Acquiring>),
    /// A setting is not valid.
    Invalid(Error),
    Over,
}

impl Acquire {
    pub(crate) fn new(engine: &Engine, request: Result<AcquireRequest, Error>) -> Self {
        match request {
            Ok(request) => Self::Unasked(engine.clone(), Box::new(request)),
            Err(error) => Self::Invalid(error),
        }
    }
}

/// Sends the request. The wait begins now.
fn ask(engine: &Engine, request: AcquireRequest) -> Instrumented<Acquiring> {
    let name = request.wants.name();
    // The library's own locks are part of the caller's operation and need no span.
    let span = match name.is_own() {
        true => tracing::Span::none(),
        false => logs::span!(
            "acquire",
            name = name.as_str(),
            wait_ms = wait_ms(request.wait)
        ),
    };
    engine.acquire(request).instrument(span)
}

impl Future for Acquire {
    type Output = Result<Option<Lease>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Self::Asked(answer) = this {
            let answer = ready!(Pin::new(answer).poll(cx));
            *this = Self::Over;
            return Poll::Ready(answer);
        }
        match mem::replace(this, Self::Over) {
            Self::Unasked(engine, request) => {
                *this = Self::Asked(ask(&engine, *request));
                self.poll(cx)
            }
            Self::Invalid(error) => Poll::Ready(Err(error)),
            Self::Asked(_) | Self::Over => Poll::Ready(Err(Error::Closed)),
        }
    }
}

/// The longest wait in ms; `None` if there is no limit.
fn wait_ms(wait: Wait) -> Option<u64> {
    match wait {
        Wait::Never => Some(0),
        Wait::For(limit) => limit.map(logs::ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acquire_future_is_hardly_larger_than_its_waiting_state() {
        let most = size_of::<Instrumented<Acquiring>>() + 8;
        assert!(size_of::<Acquire>() <= most, "{}", size_of::<Acquire>());
    }
}
