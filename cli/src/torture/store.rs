//! The store that the sections write to: for every name a counter with a check of the fencing token
//! ([`quorate::fence::redis`]) and one without.

use std::time::Duration;

use quorate::{
    FencingToken,
    fence::redis::{self as fence, Error},
    redis::{AsyncConnectionConfig, Client, RedisError, aio::MultiplexedConnection, cmd},
};

use super::history::{Access, Accesses, Side};

/// Longer than a client is frozen, so that the client still gets the store's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection to the store, which is dialled again after an error. It is cheap to clone before its first use.
#[derive(Clone)]
pub(super) struct Store {
    client: Client,
    prefix: String,
    connection: Option<MultiplexedConnection>,
}

impl Store {
    /// The URL may hold a password, so no text contains it.
    pub(super) fn new(url: &str, prefix: &str) -> Result<Self, String> {
        let client = Client::open(url).map_err(|error| format!("--store: {error}"))?;
        Ok(Self {
            client,
            prefix: format!("{prefix}:torture-store"),
            connection: None,
        })
    }

    /// The first access of a section on this side: reads both counters of each record.
    pub(super) async fn read(
        &mut self,
        records: &[String],
        token: FencingToken,
        side: Option<Side>,
    ) -> Vec<Accesses> {
        let mut read = Vec::new();
        for record in records {
            read.push(match side {
                Some(Side::Reader) => self.peek(record, token).await,
                _ => self.get(record, token).await,
            });
        }
        read
    }

    /// The last access of a section: writes one more than it read, where it read something. A reader reads once more.
    pub(super) async fn write(
        &mut self,
        records: &[String],
        token: FencingToken,
        side: Option<Side>,
        read: &[Accesses],
    ) -> Vec<Accesses> {
        if side == Some(Side::Reader) {
            return self.read(records, token, side).await;
        }
        let mut wrote = Vec::new();
        for (record, read) in records.iter().zip(read) {
            wrote.push(self.set(record, token, *read).await);
        }
        wrote
    }

    async fn get(&mut self, name: &str, token: FencingToken) -> Accesses {
        let Ok(connection) = self.connection().await else {
            return Accesses::UNKNOWN;
        };
        let [fenced, plain] = self.keys(name);
        // The checked counter is read first, so that the value of the other one is not older.
        let mut connection = connection;
        let fenced = fence::get::<Option<u64>>(&mut connection, fenced, token).await;
        let plain = cmd("GET")
            .arg(plain)
            .query_async::<Option<u64>>(&mut connection)
            .await;
        let fenced = self.heard(fenced.map(|value| value.unwrap_or(0)));
        let plain = self.heard(plain.map(|value| value.unwrap_or(0)).map_err(Error::from));
        Accesses { fenced, plain }
    }

    /// A reader's token is an epoch, and other readers beside it may have greater ones. So a reader does not raise the
    /// mark in the store. Only the mark of a later writer refuses it.
    async fn peek(&mut self, name: &str, token: FencingToken) -> Accesses {
        let Ok(mut connection) = self.connection().await else {
            return Accesses::UNKNOWN;
        };
        let [fenced, plain] = self.keys(name);
        let mark = format!("{fenced}:fence");
        let mut get = cmd("MGET");
        get.arg(&[mark, fenced, plain]);
        let read = get.query_async::<[Option<u64>; 3]>(&mut connection).await;
        match read {
            Ok([mark, fenced, plain]) => Accesses {
                fenced: match mark.is_some_and(|mark| mark > token.as_u64()) {
                    true => Access::REFUSED,
                    false => Access::Value(fenced.unwrap_or(0)),
                },
                plain: Access::Value(plain.unwrap_or(0)),
            },
            Err(_) => {
                self.connection = None;
                Accesses::UNKNOWN
            }
        }
    }

    async fn set(&mut self, name: &str, token: FencingToken, read: Accesses) -> Accesses {
        let Ok(mut connection) = self.connection().await else {
            return Accesses::UNKNOWN;
        };
        let [fenced, plain] = self.keys(name);
        // The check comes last. So a holder that is refused was already stale when it wrote without the check, or
        // became stale since.
        let plain = match read.plain.value() {
            Some(value) => {
                let mut set = cmd("SET");
                set.arg(plain).arg(value + 1);
                let set = set.query_async::<()>(&mut connection).await;
                self.heard(set.map(|()| value + 1).map_err(Error::from))
            }
            None => read.plain,
        };
        let fenced = match read.fenced.value() {
            Some(value) => {
                let set = fence::set(&mut connection, fenced, value + 1, token).await;
                self.heard(set.map(|()| value + 1))
            }
            None => read.fenced,
        };
        Accesses { fenced, plain }
    }

    /// The store's host:port, or the path of its socket.
    pub(super) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// Both counters as they are, without a check of tokens.
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
