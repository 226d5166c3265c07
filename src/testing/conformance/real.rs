//! A Redis or Valkey server as a subject.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rand::Rng as _;
use redis::{
    Arg, AsyncConnectionConfig, Client, Cmd, FromRedisValue, InfoDict, RedisError, Value,
    aio::MultiplexedConnection, cmd,
};

use super::{
    PREFIX, node_with_prefix,
    subject::{Change, Doing, Key, Power, Subject},
};
use crate::{
    base::printable::printable,
    node::{DialError, Node},
};

/// A server that nobody else uses. No setting of it is changed. Each subject has a prefix of its own for its keys, so
/// that a fleet which starts to use the server meanwhile loses nothing.
pub struct Server {
    node: Arc<dyn Node>,
    prefix: String,
    client: Client,
    /// The connection for changes.
    raw: Mutex<MultiplexedConnection>,
    about: Vec<String>,
}

/// The fields of INFO that tell which server it is, and how it is set up.
const FIELDS: [&str; 9] = [
    "server_name",
    "valkey_version",
    "redis_version",
    "redis_mode",
    "os",
    "arch_bits",
    "role",
    "maxmemory_policy",
    "aof_enabled",
];

impl Server {
    /// Connects to the server at this URL. Fails if the library cannot use the server, if it has keys, or if a second
    /// connection leads to another server.
    pub async fn connect(url: &str) -> Result<Self, String> {
        let prefix = format!("{PREFIX}:conformance-{:016x}", rand::rng().next_u64());
        let node = node_with_prefix(url, &prefix).map_err(|error| error.to_string())?;
        // This says best what is wrong with a server that does not fit.
        let dialled = node.dial(&Arc::from("")).await;
        dialled.map(drop).map_err(|error| match error {
            DialError::Unreachable(why) | DialError::Refused(why) => why,
        })?;
        let client = Client::open(url).map_err(shown)?;
        let mut raw = open(&client).await?;
        let info: InfoDict = ask(&mut raw, cmd("INFO").arg("everything")).await?;
        let keys: u64 = ask(&mut raw, &cmd("DBSIZE")).await?;
        if keys > 0 {
            return Err(format!(
                "it has {keys} keys: the cases need an empty server that nobody else uses (a run that was killed leaves \
                 keys that begin with {PREFIX}:conformance-)"
            ));
        }
        let mut second = open(&client).await?;
        let other: InfoDict = ask(&mut second, cmd("INFO").arg("server")).await?;
        if info.get::<String>("run_id") != other.get("run_id") {
            let why = "two connections lead to two servers: name one server, no balancer";
            return Err(why.to_owned());
        }
        let lines = FIELDS.iter().filter_map(|field| {
            let value: String = info.get(field)?;
            Some(format!("{field}:{}", printable(value)))
        });
        Ok(Self {
            node,
            prefix,
            client,
            raw: Mutex::new(raw),
            about: lines.collect(),
        })
    }

    /// The lines of INFO that tell which server it is, such as `redis_version:7.0.15`.
    pub fn about(&self) -> &[String] {
        &self.about
    }

    /// Deletes everything that the cases have written.
    pub async fn clean(&self) -> Result<(), String> {
        let mut raw = open(&self.client).await?;
        let mut cursor = 0_u64;
        loop {
            let mut scan = cmd("SCAN");
            scan.arg(cursor)
                .arg("MATCH")
                .arg(format!("{}:*", self.prefix));
            let (next, keys): (u64, Vec<String>) =
                ask(&mut raw, scan.arg("COUNT").arg(1_000)).await?;
            if !keys.is_empty() {
                ask::<u64>(&mut raw, cmd("DEL").arg(keys)).await?;
            }
            cursor = next;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    /// Panics if it fails, as a case does.
    async fn once<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let kept = || self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let mut raw = kept().clone();
        if let Ok(answer) = ask(&mut raw, command).await {
            return answer;
        }
        // The server may have restarted since the last command. Each command here can be repeated.
        let answered = match open(&self.client).await {
            Ok(mut raw) => {
                *kept() = raw.clone();
                ask(&mut raw, command).await
            }
            Err(why) => Err(why),
        };
        answered.unwrap_or_else(|why| panic!("{why}"))
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    fn tell(&self, command: Cmd) -> Doing<'_, ()> {
        Box::pin(async move {
            self.once::<Value>(&command).await;
        })
    }
}

impl Subject for Server {
    fn name(&self) -> &str {
        self.node.id()
    }

    fn node(&self) -> Arc<dyn Node> {
        Arc::clone(&self.node)
    }

    fn fresh(&self) -> Doing<'_, ()> {
        Box::pin(async { self.clean().await.unwrap_or_else(|why| panic!("{why}")) })
    }

    /// All but [`Power::Full`], [`Power::Replica`] and [`Power::Rights`], which need other settings.
    fn powers(&self) -> &[Power] {
        &[Power::Flush, Power::Keys, Power::Counters, Power::Kill]
    }

    fn change(&self, change: Change) -> Doing<'_, ()> {
        let counter = |field: String, counter: u64| {
            let mut set = cmd("HSET");
            set.arg(self.key("c0")).arg(field).arg(counter);
            self.tell(set)
        };
        match change {
            Change::Flush => self.fresh(),
            Change::Put(place, Some(text)) => {
                let mut set = cmd("SET");
                set.arg(self.key(name(place))).arg(text);
                self.tell(set)
            }
            Change::Put(place, None) => {
                let mut delete = cmd("DEL");
                delete.arg(self.key(name(place)));
                self.tell(delete)
            }
            Change::Age(age) => Box::pin(async move {
                let age = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
                let begun = self.wall_us().await.saturating_sub(age);
                let mut set = cmd("HSET");
                set.arg(self.key("c0")).arg("_").arg(format!("{begun:<65}"));
                self.tell(set).await
            }),
            Change::Counter(name, to) => counter(format!("@mutex:{name}"), to),
            Change::RwlockCounter(name, to) => counter(format!("@rwlock:{name}"), to),
            Change::SlotCounter(pool, slot, to) => {
                counter(format!("@semaphore:{slot}:{}", pool.name), to)
            }
            Change::Full(_) | Change::Replica(_) | Change::Withdraw(_) | Change::NoReplicas(_) => {
                unreachable!("it has no power to {change:?}")
            }
        }
    }

    fn stands(&self, place: Key) -> Doing<'_, Option<String>> {
        Box::pin(async move { self.once(cmd("GET").arg(self.key(name(place)))).await })
    }

    fn wall_us(&self) -> Doing<'_, u64> {
        Box::pin(async {
            let (seconds, us): (u64, u64) = self.once(&cmd("TIME")).await;
            seconds * 1_000_000 + us
        })
    }
}

fn name(key: Key) -> &'static str {
    match key {
        Key::Boot => "boot",
        Key::Open => "open",
        Key::Time => "time",
    }
}

/// The longest wait for a connection, and for one answer.
const ANSWER: Duration = Duration::from_secs(20);

async fn open(client: &Client) -> Result<MultiplexedConnection, String> {
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER));
    let opened = client.get_multiplexed_async_connection_with_config(&patient);
    opened.await.map_err(shown)
}

async fn ask<T: FromRedisValue>(
    raw: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<T, String> {
    let name = command.args_iter().next();
    let name = match name {
        Some(Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    };
    let answer = command.query_async(raw).await;
    answer.map_err(|error| format!("{name}: {}", shown(error)))
}

fn shown(error: RedisError) -> String {
    printable(error)
}
