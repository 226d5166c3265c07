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
    /// The URL may hold a password, so no text has it.
    pub(super) fn new(url: &str, prefix: &str) -> Result<Self, String> {
        let client = Client::open(url).map_err(|error| format!("--store: {error}"))?;
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
        let [fenced, plain] = self.keys(name);
        // First through the check: what the other says is then no older.
        let mut connection = connection;
        let fenced = fence::get::<Option<u64>>(&mut connection, fenced, token).await;
        let plain = cmd("GET")
            .arg(plain)
            .query_async::<Option<u64>>(&mut connection)
            .await;
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
        let Ok(mut connection) = self.connection().await else {
            return (Access::UNKNOWN, Access::UNKNOWN);
        };
        let [fenced, plain] = self.keys(name);
        // The check comes last: a holder that is refused was stale when it wrote without the check, or became so
        // meanwhile.
        let wrote_plain = match read.1.value() {
            Some(value) => {
                let mut set = cmd("SET");
                set.arg(plain).arg(value + 1);
                let set = set.query_async::<()>(&mut connection).await;
                self.heard(set.map(|()| value + 1).map_err(Error::from))
            }
            None => read.1,
        };
        let wrote_fenced = match read.0.value() {
            Some(value) => {
                let set = fence::set(&mut connection, fenced, value + 1, token).await;
                self.heard(set.map(|()| value + 1))
            }
            None => read.0,
        };
        (wrote_fenced, wrote_plain)
    }

    /// host:port, or the path of its socket.
    pub(super) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// Both counters as they are, for a reader that will not write.
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
