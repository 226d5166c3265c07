//! The future of an acquisition. Many callers wait at once, so it does not keep the request beside the answer it waits
//! for, as an async block would.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
    task::{Context, Poll, ready},
    time::Duration,
};

use tracing::{Instrument as _, instrument::Instrumented};

use crate::{
    Error, Lease, Renewal,
    base::{logs, owner::Label},
    engine::{Acquiring, Acquisition, Caller, Engine, Wait, wants::Wants},
};

/// An acquisition. Its first poll sends the request to the engine.
pub(crate) enum Acquire {
    Unasked(Box<Asks>),
    Asked(Instrumented<Acquiring>),
    /// A setting is not valid.
    Invalid(Error),
    Over,
}

/// The request.
pub(crate) struct Asks {
    pub(crate) engine: Engine,
    pub(crate) wants: Wants,
    pub(crate) ttl: Duration,
    pub(crate) lock_delay: Duration,
    pub(crate) renewal: Renewal,
    /// `None`: the label of the quorum.
    pub(crate) label: Option<Label>,
    pub(crate) wait: Wait,
    pub(crate) seen: Arc<AtomicU64>,
}

impl Acquire {
    pub(crate) fn new(asks: Asks) -> Self {
        Self::Unasked(Box::new(asks))
    }
}

impl Asks {
    fn ask(self) -> Instrumented<Acquiring> {
        let name = self.wants.name();
        // The library's own locks are part of the caller's operation and need no span.
        let span = match name.is_own() {
            true => tracing::Span::none(),
            false => logs::span!(
                "acquire",
                name = name.as_str(),
                wait_ms = wait_ms(self.wait)
            ),
        };
        let acquisition = |id, asked_at, reply| Acquisition {
            id,
            wants: self.wants,
            ttl: self.ttl,
            lock_delay: self.lock_delay,
            renewal: self.renewal,
            label: self.label,
            wait: self.wait,
            caller: Caller::now(),
            asked_at,
            seen: self.seen,
            reply,
        };
        self.engine.acquire(acquisition).instrument(span)
    }
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
            Self::Unasked(asks) => {
                *this = Self::Asked(asks.ask());
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
