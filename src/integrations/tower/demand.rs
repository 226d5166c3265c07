//! The demand of a request: whose limit it uses, and how much of it.

/// The key of a request's limit: [`Whole`], or a closure that makes a key from the request.
pub trait KeyOf<Req> {
    /// Calls `then` with the key.
    fn with<T>(&self, request: &Req, then: impl FnOnce(Option<&str>) -> T) -> T;
}

/// One limit for all requests: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whole;

impl<Req> KeyOf<Req> for Whole {
    fn with<T>(&self, _: &Req, then: impl FnOnce(Option<&str>) -> T) -> T {
        then(None)
    }
}

/// A limit for each key: [`RateLimitLayer::key`](super::RateLimitLayer::key).
impl<Req, F, K> KeyOf<Req> for F
where
    F: Fn(&Req) -> K,
    K: AsRef<str>,
{
    fn with<T>(&self, request: &Req, then: impl FnOnce(Option<&str>) -> T) -> T {
        then(Some(self(request).as_ref()))
    }
}

/// The cost of a request: [`One`], or a closure that looks at the request.
pub trait CostOf<Req> {
    /// How many units or permits the request needs.
    fn cost(&self, request: &Req) -> u32;
}

/// One unit or permit for each request: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct One;

impl<Req> CostOf<Req> for One {
    fn cost(&self, _: &Req) -> u32 {
        1
    }
}

/// As many as the request needs: [`RateLimitLayer::cost`](super::RateLimitLayer::cost).
impl<Req, F> CostOf<Req> for F
where
    F: Fn(&Req) -> u32,
{
    fn cost(&self, request: &Req) -> u32 {
        self(request)
    }
}
