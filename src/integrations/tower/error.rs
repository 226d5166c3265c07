//! The reasons why a request was not let through.

use std::{fmt, time::Duration};

use http::{
    HeaderMap, HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName, RETRY_AFTER},
};

use crate::Decision;

/// When a client may try again, if nothing better is known.
const SOON: Duration = Duration::from_secs(1);

/// The reason why a layer did not let a request through.
#[derive(Clone, Debug)]
pub enum Rejected {
    /// The limit is used up.
    Denied(Denied),
    /// The limit could not be asked, or can never give what the request needs. Too few masters answer, the quorum was
    /// shut down, the key or the cost is not valid, or the permit was lost while the request was served.
    Quorum(crate::Error),
}

/// The limit is used up.
#[derive(Clone, Debug)]
pub struct Denied(Why);

#[derive(Clone, Debug)]
enum Why {
    Rate(Decision),
    Permits { limit: u32 },
}

impl Denied {
    pub(super) fn rate(decision: Decision) -> Self {
        Self(Why::Rate(decision))
    }

    pub(super) fn permits(limit: u32) -> Self {
        Self(Why::Permits { limit })
    }

    /// How long to wait before the next try. For a rate limit: until there are units, unless others take them. For
    /// permits 1 s, because nobody knows when one is given back.
    pub fn retry_after(&self) -> Duration {
        match &self.0 {
            Why::Rate(decision) => decision.wait(),
            Why::Permits { .. } => SOON,
        }
    }

    /// The answer of the rate limiter. `None` for a [`ConcurrencyLimitLayer`](super::ConcurrencyLimitLayer).
    pub fn decision(&self) -> Option<&Decision> {
        match &self.0 {
            Why::Rate(decision) => Some(decision),
            Why::Permits { .. } => None,
        }
    }

    /// The limit: units in an interval, or permits at a time.
    pub fn limit(&self) -> u32 {
        match &self.0 {
            Why::Rate(decision) => decision.limit(),
            Why::Permits { limit } => *limit,
        }
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Why::Rate(decision) => write!(
                f,
                "too many requests: try again in {} s",
                whole_seconds(decision.wait())
            ),
            Why::Permits { limit } => write!(f, "too many requests: at most {limit} at a time"),
        }
    }
}

impl Rejected {
    /// The HTTP status for it:
    /// - 429 Too Many Requests, if the request is denied;
    /// - 400 Bad Request, if the key or the cost is not valid (call `validate()` when the program starts, so that the
    ///   limit itself cannot be the reason);
    /// - 503 Service Unavailable, if the limit could not be asked, or the permit was lost;
    /// - 500 Internal Server Error, if programs that share a semaphore disagree about its limit, the operating
    ///   system refused something, or the limiter's runtime is gone.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Denied(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Quorum(error) => match error {
                crate::Error::Invalid(_) => StatusCode::BAD_REQUEST,
                crate::Error::LimitConflict(_)
                | crate::Error::System(_)
                | crate::Error::RuntimeGone => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }

    /// How long the client should wait before the next try. `None` if waiting does not help, or the time is not known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Denied(denied) => Some(denied.retry_after()),
            Self::Quorum(error) => error.retry_after(),
        }
    }

    /// A response with [`status`](Self::status), a line of text, and `Retry-After` if that helps (in whole seconds, at
    /// least 1; RFC 9110, section 10.2.3). A denial by a rate limit also has its [headers](Decision::headers). The text
    /// names no key and no server.
    ///
    /// For a body that cannot be made from a text, and for gRPC, write a closure of your own.
    pub fn into_response<B: From<String>>(self) -> Response<B> {
        let text = match &self {
            Self::Denied(denied) => denied.to_string(),
            Self::Quorum(crate::Error::Invalid(why)) => why.clone(),
            Self::Quorum(crate::Error::Lost(_)) => {
                "the permit for this request was lost while it was served: the request may have been executed, in part or completely".to_owned()
            }
            Self::Quorum(error) => not_asked(error).to_owned(),
        };
        let mut response = plain(self.status(), text);
        let headers = response.headers_mut();
        if let Self::Denied(Denied(Why::Rate(decision))) = &self {
            add_headers(headers, decision);
        }
        if let Some(wait) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        response
    }
}

/// Adds the headers of a decision, unless the response has those of a limit already: a limit behind this one has denied
/// the request, or a supplier has.
pub(super) fn add_headers(to: &mut HeaderMap, decision: &Decision) {
    if to.contains_key("ratelimit-remaining") {
        return;
    }
    for (name, value) in decision.headers() {
        let name = HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
            to.entry(name).or_insert(value);
        }
    }
}

/// The reason why the limit could not be asked, in words for the client.
fn not_asked(error: &crate::Error) -> &'static str {
    match error {
        crate::Error::NoQuorum(_) => {
            "the limit cannot be checked now: too few of its servers answer"
        }
        crate::Error::Quarantined(_) => {
            "the limit cannot be checked now: too few of its servers know yet what was used before"
        }
        crate::Error::TooSlow(_) => "the limit cannot be checked now: its servers answer too late",
        crate::Error::Closed => "the limit cannot be checked now: this service is shutting down",
        crate::Error::LimitConflict(_) => {
            "the limit cannot be checked: the programs that share it disagree about its size"
        }
        _ => "the limit cannot be checked",
    }
}

/// A plain response with this text and a line break.
pub(super) fn plain<B: From<String>>(status: StatusCode, mut text: String) -> Response<B> {
    text.push('\n');
    let mut response = Response::new(B::from(text));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Rounded up, and at least one.
fn whole_seconds(d: Duration) -> u64 {
    (d.as_secs() + u64::from(d.subsec_nanos() > 0)).max(1)
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denied) => denied.fmt(f),
            Self::Quorum(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Rejected {}

impl From<crate::Error> for Rejected {
    fn from(error: crate::Error) -> Self {
        Self::Quorum(error)
    }
}

/// The error of a limited service: the error of the inner service, or the reason why the request did not get there.
///
/// It is a `std::error::Error` whatever the inner error is, even a boxed one. So it does not pass on the `source` of
/// the inner error, but its text. Match [`Inner`](Self::Inner) for all of it.
#[derive(Clone, Debug)]
pub enum Error<E> {
    /// The inner service failed.
    Inner(E),
    /// The limit is used up. The inner service was not called.
    Denied(Denied),
    /// As for [`Rejected::Quorum`].
    Quorum(crate::Error),
}

impl<E> Error<E> {
    /// The reason why the request was not let through, to make a response of it elsewhere, as in axum's
    /// `HandleErrorLayer`.
    ///
    /// # Errors
    /// The error of the inner service, if it is one.
    pub fn into_rejected(self) -> Result<Rejected, E> {
        match self {
            Self::Inner(error) => Err(error),
            Self::Denied(denied) => Ok(Rejected::Denied(denied)),
            Self::Quorum(error) => Ok(Rejected::Quorum(error)),
        }
    }
}

impl<E> From<Rejected> for Error<E> {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Denied(denied) => Self::Denied(denied),
            Rejected::Quorum(error) => Self::Quorum(error),
        }
    }
}

impl<E: fmt::Display> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(error) => error.fmt(f),
            Self::Denied(denied) => denied.fmt(f),
            Self::Quorum(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for Error<E> {}
