//! Credentials that change: they are asked for when a connection is opened, and again before they expire.

mod sources;
#[cfg(test)]
mod tests;

use std::{
    error, fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::{task::JoinSet, time::timeout};

pub(crate) use self::sources::{command, file};
use super::{
    address::{Login, Source},
    secret::Secret,
};
use crate::base::{
    printable::{HIDDEN, printable},
    text::seconds,
};

/// An error of the function that was given to [`Builder::credentials`](crate::Builder::credentials).
pub(crate) type BoxError = Box<dyn error::Error + Send + Sync>;

/// The user and the password for one connection, as [`Builder::credentials`](crate::Builder::credentials) returns them.
///
/// `Debug` shows neither of them.
#[derive(Clone)]
pub struct Credentials {
    user: String,
    password: String,
    expires_in: Option<Duration>,
}

impl Credentials {
    /// These credentials do not expire. An empty user stands for the user in the node's URL, or for `default` if the URL
    /// names none.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
            expires_in: None,
        }
    }

    /// The servers accept them for this long, counted from the moment at which they were asked for. Connections log in
    /// again when about 80 % of it has passed.
    #[must_use]
    pub fn expires_in(mut self, d: Duration) -> Self {
        self.expires_in = Some(d);
        self
    }

    /// The same credentials, which were asked for `age` ago.
    fn aged(self, age: Duration) -> Self {
        Self {
            expires_in: self.expires_in.map(|d| d.saturating_sub(age)),
            ..self
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The user is left out, because it may be a password that was written in the wrong place.
        f.debug_struct("Credentials")
            .field("expires_in", &self.expires_in)
            .finish_non_exhaustive()
    }
}

type Answer = Pin<Box<dyn Future<Output = Result<Credentials, BoxError>> + Send>>;

/// The function that returns the credentials for a node.
#[derive(Clone)]
pub(crate) struct Provider {
    function: Arc<dyn Fn(Arc<str>) -> Answer + Send + Sync>,
    /// The last passwords for any node, which no error of the function may show.
    seen: Arc<Mutex<Secret>>,
}

impl Provider {
    pub(crate) fn new<P, F>(provider: P) -> Self
    where
        P: Fn(Arc<str>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        Self {
            function: Arc::new(move |node| Box::pin(provider(node))),
            seen: Arc::new(Mutex::new(Secret::new(""))),
        }
    }
}

/// The source of the logins to one server.
pub(crate) struct Logins {
    provider: Provider,
    node: Arc<str>,
    /// The user in the URL.
    user: Option<String>,
    /// How long the provider may take.
    limit: Duration,
}

/// A login, and the time at which the server stops to accept it.
pub(crate) struct GivenLogin {
    pub(crate) login: Login,
    pub(crate) ends: Option<Instant>,
}

impl Logins {
    pub(crate) fn new(
        provider: Provider,
        node: &str,
        user: Option<String>,
        limit: Duration,
    ) -> Self {
        Self {
            provider,
            node: node.into(),
            user,
            limit,
        }
    }

    /// Asks the provider. The caller limits the time. It runs as a task of its own: on a runtime with threads, code
    /// of a user that blocks or panics does not stop other tasks. Dropping the future stops it.
    pub(crate) async fn ask(&self) -> Result<GivenLogin, String> {
        let asked_at = Instant::now();
        let (provider, node) = (self.provider.clone(), Arc::clone(&self.node));
        let mut task = JoinSet::new();
        task.spawn(async move { (provider.function)(node).await });
        let given = match task.join_next().await {
            Some(Ok(Ok(given))) => given,
            Some(Ok(Err(error))) => {
                return Err(self.failed(&printable(self.hidden(&error.to_string()))));
            }
            Some(Err(_)) | None => return Err(self.failed("it panicked")),
        };
        if given.password.is_empty() {
            return Err(self.failed("it gave an empty password"));
        }
        self.seen().add(&given.password);
        let (user, source) = match (&self.user, given.user.is_empty()) {
            (Some(user), true) => (user.clone(), Source::ProviderAndUrl),
            (None, true) => ("default".to_owned(), Source::Provider),
            (_, false) => (given.user, Source::Provider),
        };
        Ok(GivenLogin {
            login: Login {
                user,
                password: given.password,
                source,
            },
            // A time that cannot be represented never comes.
            ends: given.expires_in.and_then(|d| asked_at.checked_add(d)),
        })
    }

    /// Asks the provider for a connection that is open already.
    pub(crate) async fn ask_again(self: Arc<Self>) -> Result<GivenLogin, String> {
        match timeout(self.limit, self.ask()).await {
            Ok(given) => given,
            Err(_) => Err(self.failed(&format!("no answer within {}", seconds(self.limit)))),
        }
    }

    fn failed(&self, why: &str) -> String {
        format!("the credentials provider: {why}")
    }

    fn hidden(&self, text: &str) -> String {
        self.seen().hidden(text).to_owned()
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Secret> {
        self.provider
            .seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// Replaces the reason why a server refuses a login, which may repeat the password.
pub(crate) fn refusal(code: &str) -> String {
    let code = if code.is_empty() { HIDDEN } else { code };
    format!("it refuses the new credentials ({code}), so the connection stays with the old login")
}
