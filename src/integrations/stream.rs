//! Streams whose items come at a limited rate.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), quorate::Error> {
//! use futures::{StreamExt as _, stream};
//! use quorate::{Quorum, Quota, stream::StreamExt as _};
//!
//! let supplier = Quorum::in_memory(3).rate_limiter("supplier", Quota::per_second(50));
//! let mut orders = stream::iter(["one", "two", "three"]).rate_limited(supplier);
//! while let Some(order) = orders.next().await {
//!     println!("placing order {}", order?); // at most 50 a second, over all processes
//! }
//! # Ok(()) }
//! ```

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{Stream, stream::FusedStream};
use pin_project_lite::pin_project;

use crate::{Error, RateLimiter};

/// Limits the rate of any stream: [`rate_limited`](Self::rate_limited).
pub trait StreamExt: Stream {
    /// Takes a unit of the limiter before each item is handed out, and waits for it.
    ///
    /// The item is fetched first, so a slow stream keeps no units. One item may be kept here until its unit comes.
    ///
    /// # Errors
    /// Items come as `Ok`. Between them there may be errors of [`RateLimiter::until_ready`], which lose no item: the
    /// stream asks again [`Error::retry_after`] later, and goes on with the same item. If an error does not pass by
    /// itself (`Invalid`, `Closed`, `System`), the stream ends; [`into_parts`](RateLimited::into_parts) has the item.
    ///
    /// # Cancel safety
    /// `next()` may be dropped: the item stays here.
    fn rate_limited(self, limiter: RateLimiter) -> RateLimited<Self>
    where
        Self: Sized,
    {
        RateLimited {
            stream: self,
            limiter,
            item: None,
            stage: Stage::Fetching,
        }
    }
}

impl<S: Stream> StreamExt for S {}

pin_project! {
    /// The stream that [`StreamExt::rate_limited`] makes.
    #[must_use = "streams do nothing unless polled"]
    pub struct RateLimited<S: Stream> {
        #[pin]
        stream: S,
        limiter: RateLimiter,
        // Its unit has not come yet.
        item: Option<S::Item>,
        stage: Stage,
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

enum Stage {
    Fetching,
    /// Waits for a unit.
    Waiting(Waiting),
    /// After an error, before it asks again.
    Resting(Waiting),
    Over,
}

impl<S: Stream> RateLimited<S> {
    /// Returns the stream, and the item that was fetched and not handed out.
    pub fn into_parts(self) -> (S, Option<S::Item>) {
        (self.stream, self.item)
    }
}

impl<S: Stream> Stream for RateLimited<S> {
    type Item = Result<S::Item, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        loop {
            match this.stage {
                Stage::Fetching => match ready!(this.stream.as_mut().poll_next(cx)) {
                    Some(item) if this.limiter.at_once(1).is_some() => {
                        return Poll::Ready(Some(Ok(item)));
                    }
                    Some(item) => {
                        *this.item = Some(item);
                        *this.stage = Stage::Waiting(Box::pin(this.limiter.until_ready()));
                    }
                    None => *this.stage = Stage::Over,
                },
                Stage::Waiting(waits) => {
                    let ready = ready!(waits.as_mut().poll(cx));
                    *this.stage = match &ready {
                        Ok(()) => Stage::Fetching,
                        Err(error) => match error.retry_after() {
                            Some(rest) => Stage::Resting(Box::pin(
                                this.limiter.rest_until(this.limiter.end_of(rest)),
                            )),
                            None => Stage::Over,
                        },
                    };
                    match ready {
                        Ok(()) => {
                            if let Some(item) = this.item.take() {
                                return Poll::Ready(Some(Ok(item)));
                            }
                        }
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
                Stage::Resting(rests) => {
                    // If it cannot rest, the limiter is closed, and `until_ready` says so.
                    let _ = ready!(rests.as_mut().poll(cx));
                    *this.stage = Stage::Waiting(Box::pin(this.limiter.until_ready()));
                }
                Stage::Over => return Poll::Ready(None),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match self.stage {
            Stage::Over => (0, Some(0)),
            // Errors come in between, and one of them may be the end.
            _ => {
                let left = self.item.is_some() || self.stream.size_hint().0 > 0;
                (usize::from(left), None)
            }
        }
    }
}

impl<S: Stream> FusedStream for RateLimited<S> {
    fn is_terminated(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }
}

impl<S: Stream> fmt::Debug for RateLimited<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimited")
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}
