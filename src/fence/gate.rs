//! A fence in this process: the newest token of every resource, in memory.

use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
};

use crate::FencingToken;

/// Remembers the newest token of every resource, and refuses an older one.
///
/// Put it where all writes to a resource come by: the service that owns it, the task that writes
/// the file. It is `Send + Sync`; share it by reference or in an `Arc`.
///
/// It promises that once a token was admitted for a resource, no smaller one ever is.
///
/// It does not make the write: between [`admit`](Self::admit) and a write, a newer holder may be
/// admitted and write first. Where that matters, keep one lock around both, or let the store itself
/// compare tokens in the statement that writes. It does not reach beyond this process, it forgets
/// everything with it, and it keeps every resource that it was ever asked about: not for an
/// unbounded number of names.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use quorate::{Quorum, fence::Gate};
/// let gate = Gate::new();
/// let mutex = Quorum::in_memory(3).mutex("invoice:42");
///
/// let first = mutex.lock().await?;
/// let old = first.token();
/// gate.admit("invoice:42", old)?;
/// first.release().await?;
///
/// let second = mutex.lock().await?;
/// gate.admit("invoice:42", second.token())?;
/// gate.admit("invoice:42", second.token())?; // a holder may write many times
/// assert!(gate.admit("invoice:42", old).is_err(), "too late");
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
pub struct Gate {
    newest: Mutex<HashMap<String, FencingToken>>,
}

impl Gate {
    /// A gate that has seen nothing: the first token of a resource always passes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `token` through to `resource` unless a newer one was there before. An equal one passes.
    ///
    /// # Errors
    /// [`StaleToken`]: do not write. Whoever holds that token has lost its lock, and somebody else
    /// has written since.
    pub fn admit(&self, resource: &str, token: FencingToken) -> Result<(), StaleToken> {
        // A panic elsewhere cannot leave a half-made entry behind: it is one insertion.
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        match newest.get_mut(resource) {
            Some(newest) if token < *newest => Err(StaleToken {
                resource: resource.to_owned(),
                token,
                newest: *newest,
            }),
            Some(newest) => {
                *newest = token;
                Ok(())
            }
            None => {
                newest.insert(resource.to_owned(), token);
                Ok(())
            }
        }
    }
}

/// A token was refused because the resource has seen a newer one: a later holder was there.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleToken {
    /// What was to be written.
    pub resource: String,
    /// The token that was refused.
    pub token: FencingToken,
    /// The newest token that the resource has seen.
    pub newest: FencingToken,
}

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            resource,
            token,
            newest,
        } = self;
        write!(
            f,
            "token {token} is stale for {resource:?}: token {newest} was there already"
        )
    }
}

impl std::error::Error for StaleToken {}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> FencingToken {
        FencingToken::try_from(number).unwrap()
    }

    #[test]
    fn equal_and_newer_tokens_pass_and_older_ones_do_not() {
        let gate = Gate::new();
        assert_eq!(gate.admit("a", token(5)), Ok(()));
        assert_eq!(
            gate.admit("a", token(5)),
            Ok(()),
            "one holder writes many times"
        );
        assert!(gate.admit("a", token(4)).is_err());
        assert_eq!(gate.admit("a", token(6)), Ok(()));
        assert!(
            gate.admit("a", token(5)).is_err(),
            "what passed once does not pass for ever"
        );
    }

    #[test]
    fn a_refused_token_changes_nothing() {
        let gate = Gate::new();
        gate.admit("a", token(5)).unwrap();
        let _ = gate.admit("a", token(1));
        assert!(gate.admit("a", token(4)).is_err());
        assert_eq!(gate.admit("a", token(5)), Ok(()));
    }

    #[test]
    fn resources_do_not_know_each_other() {
        let gate = Gate::new();
        gate.admit("a", token(9)).unwrap();
        assert_eq!(gate.admit("b", token(1)), Ok(()));
    }

    #[test]
    fn the_error_says_the_resource_and_both_tokens() {
        let gate = Gate::default();
        gate.admit("invoice:42", token(9)).unwrap();
        let stale = gate.admit("invoice:42", token(7)).unwrap_err();
        assert_eq!((stale.token, stale.newest), (token(7), token(9)));
        let text = stale.to_string();
        assert!(
            text.contains("invoice:42") && text.contains('7') && text.contains('9'),
            "{text}"
        );
    }

    #[test]
    fn of_many_threads_the_newest_token_stays() {
        let gate = Gate::new();
        std::thread::scope(|scope| {
            for start in 0..4_u64 {
                let gate = &gate;
                scope.spawn(move || {
                    let mut last = None;
                    for number in (start..4_000).step_by(4) {
                        if gate.admit("a", token(number)).is_ok() {
                            assert!(last < Some(number));
                            last = Some(number);
                        }
                    }
                });
            }
        });
        assert!(gate.admit("a", token(3_998)).is_err());
        assert_eq!(gate.admit("a", token(3_999)), Ok(()));
    }

    #[test]
    fn it_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Gate>();
        shared::<StaleToken>();
    }
}
