//! Requests to one Consul agent, and its answers.

use std::{sync::Arc, time::Duration};

use reqwest::{Client, Method, StatusCode, Url, header::HeaderValue};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Semaphore;

use super::{
    fault::Fault,
    wire::{NewSession, Outcome, Pair, Refusal, SessionInfo, SessionMade, Step},
};
use crate::base::printable::printable;

/// At most this many requests at once. Together with the waiting queries they take half of the connections that Consul
/// accepts.
pub(super) const REQUESTS: usize = 32;
/// How long Consul holds a query back while nothing changes.
const HELD_BACK: Duration = Duration::from_secs(15);
/// Consul adds up to this fraction to that time, so that not all queries come back at once.
const SPREAD: u32 = 16;
/// The timeout of the question for a leader, which is asked when an answer is late.
const LEADER: Duration = Duration::from_millis(300);
const TOKEN: &str = "X-Consul-Token";
const INDEX: &str = "X-Consul-Index";
/// The version in the paths of transactions, sessions and keys.
const VERSION: &str = "v1";
/// Consul's answer about a session that is gone. A proxy in front may answer 404 too.
const NO_SUCH_SESSION: &str = "Session id";
/// An id that no session has. The answer shows whether the token, the datacenter and the namespace are accepted.
const NO_SESSION: &str = "00000000-0000-0000-0000-000000000000";

/// An agent, and how to talk to it.
pub(super) struct Http {
    pub(super) client: Client,
    pub(super) base: Url,
    /// Datacenter and namespace.
    pub(super) scope: Vec<(&'static str, String)>,
    pub(super) token: Option<HeaderValue>,
    /// User and password of a proxy in front.
    pub(super) login: Option<(String, String)>,
    pub(super) timeout: Duration,
    /// Limits the requests at once, besides the queries that wait for changes.
    pub(super) requests: Semaphore,
    /// The agent's address, for people.
    pub(super) node: Arc<str>,
}

struct Answer {
    status: StatusCode,
    index: u64,
    body: Vec<u8>,
}

impl Http {
    /// Checks that the agent answers, has a leader, and accepts the token, the datacenter and the namespace.
    pub(super) async fn look(&self) -> Result<(), Fault> {
        self.session_info(NO_SESSION).await.map(drop)
    }

    /// Returns all keys that begin with `folder`, and the index of the answer. With the index of an earlier answer it
    /// waits, for some seconds, until something has changed.
    pub(super) async fn list(
        &self,
        folder: &str,
        since: Option<u64>,
    ) -> Result<(Vec<Pair>, u64), Fault> {
        let path = ["kv"].into_iter().chain(folder.split('/'));
        let mut query = vec![("recurse", String::new())];
        let mut timeout = self.timeout;
        if let Some(index) = since {
            query.push(("index", index.to_string()));
            query.push(("wait", format!("{}s", HELD_BACK.as_secs())));
            timeout += HELD_BACK + HELD_BACK / SPREAD;
        }
        let answer = self.send(Method::GET, path, &query, None, timeout).await?;
        match answer.status {
            // No key begins with it. An answer with a text would be a proxy's.
            StatusCode::NOT_FOUND if answer.body.is_empty() => Ok((Vec::new(), answer.index)),
            _ => Ok((answer.json()?, answer.index)),
        }
    }

    /// Does all of the steps or none.
    pub(super) async fn transact(&self, steps: &[Step]) -> Result<Result<Outcome, Refusal>, Fault> {
        let answer = self.put(["txn"], &[], &steps).await?;
        let outcome: Outcome = answer.json()?;
        Ok(match answer.status {
            StatusCode::CONFLICT => Err(outcome.refusal().map_err(|why| Fault::of_step(&why))?),
            _ => Ok(outcome),
        })
    }

    /// Locks a contender's entry for its session. Returns false if the session is gone.
    pub(super) async fn contend(
        &self,
        folder: &str,
        session: &str,
        flags: u64,
        label: &str,
    ) -> Result<bool, Fault> {
        let key = format!("{folder}{session}");
        let path = ["kv"].into_iter().chain(key.split('/'));
        let query = [
            ("acquire", session.to_owned()),
            ("flags", flags.to_string()),
        ];
        let body = Some(label.as_bytes().to_vec());
        let sent = self.send(Method::PUT, path, &query, body, self.timeout);
        match sent.await {
            Ok(answer) => answer.json(),
            Err(fault) if fault.text().contains("invalid session") => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    pub(super) async fn new_session(&self, session: &NewSession<'_>) -> Result<Arc<str>, Fault> {
        let answer = self.put(["session", "create"], &[], session).await?;
        Ok(answer.json::<SessionMade>()?.id)
    }

    /// Starts the session's TTL again. Returns false if the session is gone.
    pub(super) async fn renew(&self, session: &str) -> Result<bool, Fault> {
        let answer = self.put(["session", "renew", session], &[], &()).await?;
        match answer.status {
            StatusCode::NOT_FOUND if answer.says(NO_SUCH_SESSION) => Ok(false),
            StatusCode::NOT_FOUND => Err(Fault::of_answer(answer.status, &answer.body)),
            _ => Ok(true),
        }
    }

    /// Ends the session, which deletes the keys that it has locked. It is no error if the session is gone.
    pub(super) async fn destroy(&self, session: &str) -> Result<(), Fault> {
        self.put(["session", "destroy", session], &[], &())
            .await
            .map(drop)
    }

    pub(super) async fn session_info(&self, session: &str) -> Result<Option<SessionInfo>, Fault> {
        let path = ["session", "info", session].into_iter();
        let answer = self
            .send(Method::GET, path, &[], None, self.timeout)
            .await?;
        let found: Option<Vec<SessionInfo>> = answer.json()?;
        Ok(found.into_iter().flatten().next())
    }

    /// Returns true if there is no leader. Without one Consul holds a request back for seconds before it says so, but
    /// it answers this question at once.
    async fn has_no_leader(&self) -> bool {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments
                .pop_if_empty()
                .extend([VERSION, "status", "leader"]);
        }
        let request = self.client.get(url).query(&self.scope).timeout(LEADER);
        match request.send().await {
            Ok(answer) => answer
                .text()
                .await
                .is_ok_and(|leader| leader.trim() == "\"\""),
            Err(_) => false,
        }
    }

    async fn put<const N: usize>(
        &self,
        path: [&str; N],
        query: &[(&str, String)],
        body: &impl Serialize,
    ) -> Result<Answer, Fault> {
        let body = serde_json::to_vec(body).map_err(|why| Fault::unreadable(&why))?;
        self.send(
            Method::PUT,
            path.into_iter(),
            query,
            Some(body),
            self.timeout,
        )
        .await
    }

    async fn send(
        &self,
        method: Method,
        path: impl Iterator<Item = &str> + Send,
        query: &[(&str, String)],
        body: Option<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Answer, Fault> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(VERSION).extend(path);
        }
        let mut request = self.client.request(method, url).timeout(timeout);
        request = request.query(&self.scope).query(query);
        if let Some(token) = &self.token {
            request = request.header(TOKEN, token);
        }
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password));
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        // The semaphore is never closed.
        let _permit = match timeout > self.timeout {
            true => None,
            false => self.requests.acquire().await.ok(),
        };
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) if error.is_timeout() && self.has_no_leader().await => {
                return Err(Fault::no_leader());
            }
            Err(error) => return Err(Fault::of(&error)),
        };
        let status = answer.status();
        let index = answer.headers().get(INDEX);
        let index = index.and_then(|index| index.to_str().ok()?.parse().ok());
        let body = answer.bytes().await.map_err(|error| Fault::of(&error))?;
        match status {
            // "Not found" and "not now" are answers.
            StatusCode::OK | StatusCode::NOT_FOUND | StatusCode::CONFLICT => Ok(Answer {
                status,
                index: index.unwrap_or(0),
                body: body.into(),
            }),
            _ => Err(Fault::of_answer(status, &body)),
        }
    }
}

impl Answer {
    fn says(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.body).contains(text)
    }

    fn json<T: DeserializeOwned>(&self) -> Result<T, Fault> {
        serde_json::from_slice(&self.body).map_err(|why| {
            let begin: String = String::from_utf8_lossy(&self.body)
                .chars()
                .take(60)
                .collect();
            Fault::unreadable(&format!(
                "{} {}: {why}",
                self.status.as_u16(),
                printable(begin)
            ))
        })
    }
}
