//! The common part of the handles of locks and semaphores: their settings, checked, and the start of an acquisition.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::Instrument;

use super::{
    agreed::Agreed,
    place::Place,
    record::{Form, RECORD},
    root::Root,
    sessions::Kind,
    wish::{self, Wish},
};
use crate::{
    Error, Lease,
    base::{logs, name::Name},
    lease::response::Response,
    locks::options::LeaseOptions,
};

/// Consul's bounds for a session's TTL, and for its lock-delay.
const SHORTEST: Duration = Duration::from_secs(10);
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// A handle: the name and the settings of its acquisitions.
#[derive(Clone)]
pub(super) struct Asks {
    pub(super) root: Arc<Root>,
    pub(super) name: Arc<str>,
    pub(super) form: Form,
    pub(super) limit: Arc<Agreed>,
    pub(super) options: LeaseOptions,
}

impl Asks {
    /// Waits for this many permits, or tries once.
    pub(super) fn ask(
        &self,
        count: u32,
        waits: bool,
    ) -> impl Future<Output = Result<Option<Lease>, Error>> + Send + 'static + use<> {
        let this = self.clone();
        async move {
            let (name, kind, label) = this.check()?;
            if this.root.agent.is_closing() {
                return Err(Error::Closed);
            }
            let limit = this.options.wait_timeout;
            let wait = match (waits, limit) {
                (false, _) => wish::Wait::Never,
                (true, Some(Duration::ZERO)) => wish::Wait::Once,
                (true, None) => wish::Wait::Until(None),
                // A time that cannot be represented has no end.
                (true, Some(limit)) => wish::Wait::Until(Instant::now().checked_add(limit)),
            };
            let span = logs::span!(
                "acquire",
                name = name.as_str(),
                wait_ms = if waits { limit.map(logs::ms) } else { Some(0) }
            );
            let wish = Wish {
                place: this.place(&name),
                agent: Arc::clone(&this.root.agent),
                pool: Arc::clone(&this.root.sessions),
                name,
                form: this.form,
                limit: this.limit,
                count,
                kind,
                renewal: this.options.renewal,
                label,
                wait,
            };
            let (reply, answer) = Response::channel(Arc::clone(this.root.agent.ending()));
            this.root.agent.spawn(wish.run(reply).instrument(span));
            answer.await
        }
    }

    pub(super) fn place(&self, name: &Name) -> Arc<Place> {
        let prefix = &self.root.agent.prefix;
        self.root.places.at(&format!("{prefix}{}/", name.as_str()))
    }

    /// The name, the kind of its sessions, and the label of the holder.
    ///
    /// # Errors
    /// `Invalid`.
    pub(super) fn check(&self) -> Result<(Name, Kind, Arc<str>), Error> {
        let name = Name::new(Arc::clone(&self.name))?;
        check_path("name", name.as_str())?;
        let (ttl, lock_delay) = (
            self.options.ttl.unwrap_or(SHORTEST),
            self.options.lock_delay,
        );
        if ttl < SHORTEST || ttl > LONGEST {
            return Err(Error::Invalid(format!(
                "a ttl of {ttl:?} is not allowed: Consul's sessions have a TTL of {SHORTEST:?} to {LONGEST:?}"
            )));
        }
        if lock_delay > LONGEST_DELAY {
            return Err(Error::Invalid(format!(
                "a lock_delay of {lock_delay:?} is not allowed: Consul's longest is {LONGEST_DELAY:?}"
            )));
        }
        self.options.renewal.check()?;
        let label = match self.options.label.clone()? {
            Some(label) => label.as_str().into(),
            None => Arc::clone(&self.root.agent.label),
        };
        Ok((name, Kind { ttl, lock_delay }, label))
    }
}

/// Checks a text that becomes a part of Consul's keys. `consul lock` would clean up the paths that are refused here,
/// and use another key.
pub(super) fn check_path(what: &str, path: &str) -> Result<(), Error> {
    let why = if path.chars().any(char::is_control) {
        "has a control character"
    } else if path
        .split('/')
        .any(|part| matches!(part, "" | "." | ".." | RECORD))
    {
        "has a part between slashes that is empty, `.`, `..` or `.lock`"
    } else {
        return Ok(());
    };
    Err(Error::Invalid(format!(
        "the {what} {path:?} {why}: it must be a path of Consul's keys, such as `jobs/nightly`"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_that_consul_lock_would_not_change() {
        for good in ["a", "jobs/nightly", "we ird/?#%", "ü", ".locks", "a.b"] {
            check_path("name", good).unwrap();
        }
        for bad in ["/a", "a/", "a//b", "a/./b", "..", "a/.lock", "a\nb", ""] {
            assert!(check_path("name", bad).is_err(), "{bad:?}");
        }
    }
}
