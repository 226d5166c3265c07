//! The store that the sections write to: for every name a counter with a check of the fencing token
//! and one without.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, RedisError, Script, aio::MultiplexedConnection};

use super::history::Access;

/// Longer than a client is frozen: what it then hears is the store's answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reads both counters. A read that a later write depends on has to pass the check too: a holder
/// that only read would else be overtaken by an older one's write.
/// KEYS mark, fenced, plain · ARGV token · RETURNS {fenced or nil where refused, plain}
const READ: &str = "\
local mark = tonumber(redis.call('GET', KEYS[1]) or '0')
local fenced = false
if tonumber(ARGV[1]) >= mark then
  redis.call('SET', KEYS[1], ARGV[1])
  fenced = tonumber(redis.call('GET', KEYS[2]) or '0')
end
return {fenced, tonumber(redis.call('GET', KEYS[3]) or '0')}";

/// Writes both. ARGV token, fenced value or '' for none, plain value · RETURNS 1 or 0 where refused
const WRITE: &str = "\
redis.call('SET', KEYS[3], ARGV[3])
if ARGV[2] == '' or tonumber(ARGV[1]) < tonumber(redis.call('GET', KEYS[1]) or '0') then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return 1";

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
    pub(super) async fn read(&mut self, name: &str, token: u64) -> (Access, Access) {
        let script = Script::new(READ);
        let mut call = script.prepare_invoke();
        for key in self.keys(name) {
            call.key(key);
        }
        let mut connection = match self.connection().await {
            Ok(connection) => connection,
            Err(_) => return (Access::UNKNOWN, Access::UNKNOWN),
        };
        match call.arg(token).invoke_async(&mut connection).await {
            Ok((fenced, plain)) => {
                let fenced: Option<u64> = fenced;
                (
                    fenced.map_or(Access::REFUSED, Access::Value),
                    Access::Value(plain),
                )
            }
            Err(_) => self.lost(),
        }
    }

    /// Writes one more than was read, where something was. (fenced, plain)
    pub(super) async fn write(
        &mut self,
        name: &str,
        token: u64,
        read: (Access, Access),
    ) -> (Access, Access) {
        let Some(plain) = read.1.value().map(|plain| plain + 1) else {
            return read;
        };
        let fenced = read.0.value().map(|fenced| fenced + 1);
        let script = Script::new(WRITE);
        let mut call = script.prepare_invoke();
        for key in self.keys(name) {
            call.key(key);
        }
        call.arg(token)
            .arg(fenced.map_or_else(String::new, |it| it.to_string()))
            .arg(plain);
        let mut connection = match self.connection().await {
            Ok(connection) => connection,
            Err(_) => return (Access::UNKNOWN, Access::UNKNOWN),
        };
        match call.invoke_async(&mut connection).await {
            Ok(1) => (
                fenced.map_or(Access::REFUSED, Access::Value),
                Access::Value(plain),
            ),
            Ok::<u64, _>(_) => (Access::REFUSED, Access::Value(plain)),
            Err(_) => self.lost(),
        }
    }

    /// Both counters as they are, for nobody who would write.
    pub(super) async fn look(&mut self, name: &str) -> Result<(u64, u64), String> {
        let [_, fenced, plain] = self.keys(name);
        let mut connection = self.connection().await.map_err(|error| error.to_string())?;
        let read: Result<(Option<u64>, Option<u64>), _> = redis::cmd("MGET")
            .arg(fenced)
            .arg(plain)
            .query_async(&mut connection)
            .await;
        let (fenced, plain) = read.map_err(|error| error.to_string())?;
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

    fn lost(&mut self) -> (Access, Access) {
        self.connection = None;
        (Access::UNKNOWN, Access::UNKNOWN)
    }

    fn keys(&self, name: &str) -> [String; 3] {
        ["mark", "fenced", "plain"].map(|what| format!("{}:{what}:{name}", self.prefix))
    }
}
