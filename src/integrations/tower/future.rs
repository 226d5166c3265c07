//! A request on its way through a limit.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    Limit, Reject,
    held::{Holds as _, Taking},
};

pin_project! {
    /// The response of a [`Limited`](super::Limited) service. It holds the permit until it ends or is dropped.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<S, Req, L, R>
    where
        S: Service<Req>,
        L: Limit,
    {
        #[pin]
        stage: Stage<S, Req, S::Future, L::Held>,
        reject: R,
    }
}

pin_project! {
    #[project = At]
    enum Stage<S, Req, F, H> {
        Taking {
            taking: Taking<H>,
            next: Option<(S, Req)>,
        },
        Calling {
            // Dropped before the permit it was made under.
            #[pin]
            response: F,
            held: Option<H>,
        },
        Over,
    }
}

impl<S, Req, L, R> ResponseFuture<S, Req, L, R>
where
    S: Service<Req>,
    L: Limit,
{
    pub(super) fn taking(taking: Taking<L::Held>, next: (S, Req), reject: R) -> Self {
        let next = Some(next);
        let stage = Stage::Taking { taking, next };
        Self { stage, reject }
    }

    pub(super) fn calling(response: S::Future, held: Option<L::Held>, reject: R) -> Self {
        let stage = Stage::Calling { response, held };
        Self { stage, reject }
    }
}

impl<S, Req, L, R> Future for ResponseFuture<S, Req, L, R>
where
    S: Service<Req>,
    L: Limit,
    R: Reject<S::Response, S::Error>,
{
    type Output = Result<S::Response, R::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let result = match this.stage.as_mut().project() {
                At::Taking { taking, next } => match ready!(taking.as_mut().poll(cx)) {
                    Ok(held) => {
                        let Some((mut service, request)) = next.take() else {
                            return Poll::Pending;
                        };
                        let (response, held) = (service.call(request), Some(held));
                        this.stage.set(Stage::Calling { response, held });
                        continue;
                    }
                    Err(rejected) => this.reject.reject(rejected),
                },
                At::Calling { response, held } => {
                    let lost = held.as_mut().map(|held| held.poll_lost(cx));
                    match lost {
                        Some(Poll::Ready(lost)) => this.reject.reject(lost.into()),
                        _ => match ready!(response.poll(cx)) {
                            Ok(response) => {
                                let decision = held.as_ref().and_then(|held| held.decision());
                                Ok(this.reject.passed(response, decision))
                            }
                            Err(error) => Err(R::inner(error)),
                        },
                    }
                }
                // Polled after its end.
                At::Over => return Poll::Pending,
            };
            // Units and permits go back now, and not when this future is dropped.
            this.stage.set(Stage::Over);
            return Poll::Ready(result);
        }
    }
}
