//! The store that the sections write to: for every name a counter with a check of the fencing token
//! ([`quorate::fence::redis`]) and one without.

use std::time::Duration;

use quorate::{
    FencingToken,
    fence::redis::{self as fence, Error},
    redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection, cmd},
};

use super::history::Access;

/// Longer than a client is frozen: what it then hears is the store's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the store, dialled anew after an error. Cheap to clone before its first use.
#[derive(Clone)]
pub(super) struct Store {
    client: Client,
    prefix: String,
    connection: Option<MultiplexedConnection>,
}

impl Store {
    pub(super) fn new(url: &str, prefix: &str) -> Result<Self, String> {
        let client = Client::open(url).map_err(|error| format!("the store {url:?}: {error}"))?;
        Ok(Self {
            client,
            prefix: format!("{prefix}:torture-store"),
            connection: None,
        })
    }

    /// (fenced, plain)
    pub(super) async fn read(&mut self, name: &str, token: FencingToken) -> (Access, Access) {
        let Ok(connection) = self.connection().await else {
            return (Access::UNKNOWN, Access::UNKNOWN);
        };
        let (mut one, mut other) = (connection.clone(), connection);
        let [fenced, plain] = self.keys(name);
        let (fenced, plain) =
            tokio::join!(fence::get::<Option<u64>>(&mut one, fenced, token), async {
                cmd("GET")
                    .arg(plain)
                    .query_async::<Option<u64>>(&mut other)
                    .await
            },);
        let fenced = self.heard(fenced.map(|value| value.unwrap_or(0)));
        let plain = self.heard(plain.map(|value| value.unwrap_or(0)).map_err(Error::from));
        (fenced, plain)
    }

    /// Writes one more than was read, where something was. (fenced, plain)
    pub(super) async fn write(
        &mut self,
        name: &str,
        token: FencingToken,
        read: (Access, Access),
    ) -> (Access, Access) {
        let Ok(connection) = self.connection().await else {
            return (Access::UNKNOWN, Access::UNKNOWN);
        };
        let (mut one, mut other) = (connection.clone(), connection);
        let keys = self.keys(name);
        let [fenced, plain] = keys;
        let (fenced, plain) = tokio::join!(
            async {
                let next = read.0.value()? + 1;
                Some(
                    fence::set(&mut one, fenced, next, token)
                        .await
                        .map(|()| next),
                )
            },
            async {
                let next = read.1.value()? + 1;
                let set = cmd("SET")
                    .arg(plain)
                    .arg(next)
                    .query_async::<()>(&mut other)
                    .await;
                Some(set.map(|()| next).map_err(Error::from))
            },
        );
        let fenced = fenced.map_or(read.0, |answer| self.heard(answer));
        (fenced, plain.map_or(read.1, |answer| self.heard(answer)))
    }

    /// Both counters as they are, for nobody who would write.
    pub(super) async fn look(&mut self, name: &str) -> Result<(u64, u64), String> {
        let keys = self.keys(name);
        let mut connection = self.connection().await.map_err(|error| error.to_string())?;
        let read = cmd("MGET").arg(&keys).query_async(&mut connection).await;
        let (fenced, plain): (Option<u64>, Option<u64>) =
            read.map_err(|error| error.to_string())?;
        Ok((fenced.unwrap_or(0), plain.unwrap_or(0)))
    }

    async fn connection(&mut self) -> Result<MultiplexedConnection, RedisError> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connection = self
            .client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(self.connection.insert(connection).clone())
    }

    fn heard(&mut self, answer: Result<u64, Error>) -> Access {
        match answer {
            Ok(value) => Access::Value(value),
            Err(Error::Stale(_)) => Access::REFUSED,
            Err(_) => {
                self.connection = None;
                Access::UNKNOWN
            }
        }
    }

    fn keys(&self, name: &str) -> [String; 2] {
        ["fenced", "plain"].map(|what| format!("{}:{what}:{name}", self.prefix))
    }
}
