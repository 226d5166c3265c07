//! A layer that checks a fencing token before each request.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Method, Request, Response, StatusCode};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::error::plain;
use crate::{FencingToken, fence::Gate};

/// The header of the token, unless set otherwise.
const HEADER: &str = "fencing-token";

/// Refuses an HTTP request whose [fencing token](FencingToken) is older than one that a [`Gate`] has seen before.
///
/// | the request | the answer |
/// | --- | --- |
/// | has a token that is not older than the newest of its resource | comes from the inner service |
/// | has a stale token | 412 Precondition Failed (RFC 9110, section 15.5.13) |
/// | has no token | 428 Precondition Required (RFC 6585, section 3); GET, HEAD, OPTIONS and TRACE go to the inner service |
/// | has a header that is not a valid token | 400 Bad Request |
///
/// - **Authenticate callers in a layer around this one.** Anybody can make up a token. A single request with a huge one
///   locks the resource for good, because every real holder is stale from then on.
/// - **Name the resource.** The default is the path of the request, as it was sent, or what axum's `nest` has left of
///   it. One resource may have many paths (`/invoices/42`, `/invoices/%34%32`), and a stale token would pass by another
///   one. Set [`resource`](Self::resource) to name it.
/// - **Clones share the gate.** Two instances of a service have two gates, which know nothing of each other. There let
///   the store check ([`fence`](crate::fence)).
/// - **Put it next to the handler**, inside of layers in which requests wait. Otherwise a newer holder may write while
///   an admitted request waits.
/// - Between the check and the write of the handler a newer holder may be admitted and write first. [`Gate`] says what
///   to do if that matters.
///
/// ```
/// use axum::{Router, extract::Request, routing::put};
/// use quorate::{fence::Gate, tower::FenceLayer};
///
/// #[derive(Clone)]
/// struct Invoice(u64); // put into the request by a layer around this one, from the decoded path
///
/// let fence = FenceLayer::new(Gate::new()).resource(|request: &Request| {
///     match request.extensions().get::<Invoice>() {
///         Some(Invoice(id)) => id.to_string(),
///         None => request.uri().path().to_owned(),
///     }
/// });
/// let app: Router = Router::new()
///     .route("/invoices/{id}", put(|| async { "written" }))
///     .route_layer(fence);
/// ```
///
/// [Fencing](crate::docs::fencing#over-http) has this example together with that layer.
///
/// The response's body has to be one that can be made from a text, as axum's can. For another body, for gRPC, and for a
/// token in the body call [`Gate::admit`] in the handler.
pub struct FenceLayer<T = OfHeader, P = OfPath> {
    gate: Arc<Gate>,
    token: T,
    resource: P,
}

impl FenceLayer {
    /// Compares the token in the header `Fencing-Token` with the newest of the path. It takes a [`Gate`], or one that
    /// is shared in an `Arc`.
    pub fn new(gate: impl Into<Arc<Gate>>) -> Self {
        Self {
            gate: gate.into(),
            token: OfHeader,
            resource: OfPath,
        }
    }
}

impl<T, P> FenceLayer<T, P> {
    /// Sets where the token is. Default: in the header `Fencing-Token`. Return `None` if the request has no token, or
    /// none that can be read. A GET then still goes to the inner service.
    pub fn token<F, B>(self, token: F) -> FenceLayer<F, P>
    where
        F: Fn(&Request<B>) -> Option<FencingToken>,
    {
        FenceLayer {
            gate: self.gate,
            token,
            resource: self.resource,
        }
    }

    /// Names the resource that the request writes to, for [`Gate::admit`]. Default: the path.
    pub fn resource<F, B, N>(self, resource: F) -> FenceLayer<T, F>
    where
        F: Fn(&Request<B>) -> N,
        N: AsRef<str>,
    {
        FenceLayer {
            gate: self.gate,
            token: self.token,
            resource,
        }
    }
}

/// The place of a token in a request.
pub trait TokenOf<B> {
    /// The text for a client that sent no token.
    #[doc(hidden)]
    const MISSING: &'static str;

    /// The token, if there is one.
    ///
    /// # Errors
    /// The text for the client, if the token is not valid.
    fn token(&self, request: &Request<B>) -> Result<Option<FencingToken>, String>;
}

/// The header `Fencing-Token`.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfHeader;

impl<B> TokenOf<B> for OfHeader {
    const MISSING: &'static str = "a fencing token is needed, in the header Fencing-Token";

    fn token(&self, request: &Request<B>) -> Result<Option<FencingToken>, String> {
        let mut all = request.headers().get_all(HEADER).iter();
        let Some(value) = all.next() else {
            return Ok(None);
        };
        if all.next().is_some() {
            return Err("there is more than one Fencing-Token".to_owned());
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        let token = text.trim().parse::<FencingToken>();
        token.map(Some).map_err(|error| error.to_string())
    }
}

impl<B, F> TokenOf<B> for F
where
    F: Fn(&Request<B>) -> Option<FencingToken>,
{
    const MISSING: &'static str = "a fencing token is needed";

    fn token(&self, request: &Request<B>) -> Result<Option<FencingToken>, String> {
        Ok(self(request))
    }
}

/// The resource that a request writes to.
pub trait ResourceOf<B> {
    /// Calls `then` with its name.
    fn with<T>(&self, request: &Request<B>, then: impl FnOnce(&str) -> T) -> T;
}

/// The path as it was sent, or what a router that nests this one has left of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OfPath;

impl<B> ResourceOf<B> for OfPath {
    fn with<T>(&self, request: &Request<B>, then: impl FnOnce(&str) -> T) -> T {
        then(request.uri().path())
    }
}

impl<B, F, N> ResourceOf<B> for F
where
    F: Fn(&Request<B>) -> N,
    N: AsRef<str>,
{
    fn with<T>(&self, request: &Request<B>, then: impl FnOnce(&str) -> T) -> T {
        then(self(request).as_ref())
    }
}

impl<T: Clone, P: Clone> Clone for FenceLayer<T, P> {
    fn clone(&self) -> Self {
        Self {
            gate: Arc::clone(&self.gate),
            token: self.token.clone(),
            resource: self.resource.clone(),
        }
    }
}

impl<T, P> fmt::Debug for FenceLayer<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer")
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

impl<S, T: Clone, P: Clone> Layer<S> for FenceLayer<T, P> {
    type Service = Fence<S, T, P>;

    fn layer(&self, inner: S) -> Self::Service {
        Fence {
            inner,
            rules: self.clone(),
        }
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Clone)]
pub struct Fence<S, T = OfHeader, P = OfPath> {
    inner: S,
    rules: FenceLayer<T, P>,
}

impl<S: fmt::Debug, T, P> fmt::Debug for Fence<S, T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence")
            .field("inner", &self.inner)
            .field("rules", &self.rules)
            .finish()
    }
}

impl<S, T, P, B, ResB> Service<Request<B>> for Fence<S, T, P>
where
    S: Service<Request<B>, Response = Response<ResB>>,
    T: TokenOf<B>,
    P: ResourceOf<B>,
    ResB: From<String>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = FenceFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (response, refusal) = match self.rules.admit(&request) {
            Ok(()) => (Some(self.inner.call(request)), None),
            Err(refusal) => (None, Some(refusal)),
        };
        FenceFuture { response, refusal }
    }
}

/// A status, and a text that says what is wrong.
type Refusal = (StatusCode, String);

impl<T, P> FenceLayer<T, P> {
    fn admit<B>(&self, request: &Request<B>) -> Result<(), Refusal>
    where
        T: TokenOf<B>,
        P: ResourceOf<B>,
    {
        let token = self.token.token(request);
        let token = token.map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let Some(token) = token else {
            return match *request.method() {
                Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE => Ok(()),
                _ => Err((StatusCode::PRECONDITION_REQUIRED, T::MISSING.to_owned())),
            };
        };
        let admit = |resource: &str| self.gate.admit(resource, token);
        let admitted = self.resource.with(request, admit);
        admitted.map_err(|stale| (StatusCode::PRECONDITION_FAILED, stale.to_string()))
    }
}

pin_project! {
    /// The response of a [`Fence`].
    #[must_use = "futures do nothing unless polled"]
    pub struct FenceFuture<F> {
        #[pin]
        response: Option<F>,
        // Answered in place of `response`.
        refusal: Option<Refusal>,
    }
}

impl<F, ResB, E> Future for FenceFuture<F>
where
    F: Future<Output = Result<Response<ResB>, E>>,
    ResB: From<String>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Some((status, text)) = this.refusal.take() {
            return Poll::Ready(Ok(plain(status, text)));
        }
        match this.response.as_pin_mut() {
            Some(response) => response.poll(cx),
            None => Poll::Pending,
        }
    }
}
