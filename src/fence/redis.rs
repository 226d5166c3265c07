//! A fence in Redis or Valkey. A command is done only if the token is not older than the newest that its resource has
//! seen, in one atomic step and one round trip.
//!
//! The data may live on any server, which need not be one of the masters that vote. Beside the key, at `<key>:fence`,
//! is the **mark**: the newest token seen. Every function of this module compares its token with the mark and raises
//! the mark. Commands that do not go through this module are not checked.
//!
//! ```no_run
//! # async fn example(lease: quorate::Lease) -> Result<(), Box<dyn std::error::Error>> {
//! use quorate::fence;
//!
//! let client = quorate::redis::Client::open("redis://10.0.9.1")?;
//! let mut store = client.get_multiplexed_async_connection().await?;
//!
//! let total: Option<u64> = fence::redis::get(&mut store, "total:42", lease.token()).await?;
//! fence::redis::set(&mut store, "total:42", total.unwrap_or(0) + 1, lease.token()).await?;
//! # Ok(()) }
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | read a value that a later write depends on | [`get`], and [`Guard`] for other kinds |
//! | write a string | [`set`], [`get_set`] |
//! | write a field, append to a list or a stream | [`hset`], [`rpush`], [`xadd`] |
//! | delete | [`del`]: the mark stays |
//! | run any commands, several at once, or several keys under one resource | [`Guard`] |
//!
//! # The mark
//!
//! The mark is a plain string. By default it never expires and is never deleted: not when the key is deleted, and not
//! when the key expires. Deleting it lets every old token in again.
//!
//! If new names never stop coming, the marks fill the memory, one small key each. Then let them expire
//! ([`Guard::keep_mark`]). Keep them **longer than any holder can be paused and still come back**, counted from the
//! last command that passed. A day is little. The masters keep their own counters for at least two days; a week is a
//! good choice here.
//!
//! **All writers of one resource should ask for the same time.** If they differ, the longest time counts: a command
//! never shortens the time that is left, and once a command has kept the mark for ever, it stays for ever. But until
//! such a command comes, a mark that others let expire can expire.
//!
//! The mark is as durable as the server makes it. A server that restarts with `appendonly yes` and `appendfsync always`
//! remembers what it answered. A server with a snapshot or with `everysec`, and a failover to a replica, lose the
//! latest marks together with the latest data, and FLUSHALL loses all of them. An old token then passes until the next
//! holder's first command. The server has to run with `maxmemory-policy noeviction`, or marks may be evicted.
//!
//! In a cluster the mark has to live in the key's slot: give the key a hash tag (`{invoice:42}`).
//!
//! A mark that is not a valid token (not digits, or 2^53 and more) lets nobody in until it is repaired. A user of the
//! server's ACL needs `+get +pttl +set` on the mark, `+eval +evalsha +script|load`, and the rights that the commands
//! need.
//!
//! # Limits
//!
//! - `<key>:fence` is reserved for the mark: a key of your own by that name is taken for one.
//! - A [`Guard`] takes the commands that a script may run: no transactions and no subscriptions. Blocking commands
//!   answer at once, as if their time were over.
//! - A command has at most 7,000 words, its name among them. A longer one is refused before anything is sent.
//! - Integers in replies are Lua's: exact up to 2^53. A stored integer is exact beyond that; read it as a string.
//!
//! # One holder's own writes
//!
//! The fence orders holders. It does not order the writes of one holder, which all have one token. After an error of
//! the connection a command may still be on its way. If you send it again on another connection, the first one may
//! arrive later and set an older value. Send it again on the same connection, or release the lock and take it again:
//! the new token refuses the late command.
//!
//! # Errors and cancellation
//!
//! - [`Error::Stale`]: nothing was done.
//! - [`Error::Redis`]: the server answered with an error, or no answer came. Without an answer the command may have
//!   been done or not.
//!
//! Repeating a command with the same token on the same connection is right for `set`, `hset` and `del`. With `rpush`
//! and `xadd` it may append twice. The same holds for a future that is dropped.

use std::{fmt, sync::LazyLock, time::Duration};

use redis::{
    Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, Script, ToRedisArgs, ToSingleRedisArg,
    Value, aio::ConnectionLike, from_redis_value,
};

use super::StaleToken;
use crate::FencingToken;

/// The script behind everything here, for other clients: `EVAL GUARD <number of keys> <KEYS> <ARGV>`.
///
/// - KEYS: the mark (`<key>:fence`), then the keys that the commands touch.
/// - ARGV: the token; for how many ms the mark is kept (0: for ever); then, for each command, the number of its words
///   (some 7,000 at most), and the words. Token and time are digits, for a number below 2^53.
/// - Returns: `{1, a reply for each command}`, or `{0, the newest token}` if the token is stale.
///
/// If a command fails, the commands after it are not done. The commands before it stay done, and the mark is raised.
pub const GUARD: &str = include_str!("redis/guard.lua");

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(GUARD));

/// The limit of words in a command: Lua unpacks only about 8,000 values.
const WORDS: usize = 7_000;

/// The reason why a command was not done, or may not have been done.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Error {
    /// A newer holder was there. Nothing was done.
    Stale(StaleToken),
    /// An error of the server, or of the connection. The command may have been done.
    Redis(RedisError),
}

impl Error {
    /// The details about the newer holder, if that is the reason.
    pub fn stale(&self) -> Option<&StaleToken> {
        match self {
            Self::Stale(stale) => Some(stale),
            Self::Redis(_) => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::Redis(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // `Display` shows the error itself, and that of RedisError shows its source.
            Self::Stale(stale) => stale.source(),
            Self::Redis(error) => error.source()?.source(),
        }
    }
}

impl From<RedisError> for Error {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl From<StaleToken> for Error {
    fn from(stale: StaleToken) -> Self {
        Self::Stale(stale)
    }
}

/// GET, for a read that a later write depends on.
///
/// # Errors
/// See [the module](self).
pub async fn get<T: FromRedisValue>(
    conn: &mut impl ConnectionLike,
    key: impl ToSingleRedisArg,
    token: FencingToken,
) -> Result<T, Error> {
    let key = bytes(&key);
    one(conn, &key, token, Cmd::get(&key)).await
}

/// SET. It removes a time to live that the key had, as SET does.
///
/// # Errors
/// See [the module](self).
pub async fn set(
    conn: &mut impl ConnectionLike,
    key: impl ToSingleRedisArg,
    value: impl ToSingleRedisArg,
    token: FencingToken,
) -> Result<(), Error> {
    let key = bytes(&key);
    one(conn, &key, token, Cmd::set(&key, value)).await
}

/// SET, which returns the value that was there before.
///
/// # Errors
/// See [the module](self).
pub async fn get_set<T: FromRedisValue>(
    conn: &mut impl ConnectionLike,
    key: impl ToSingleRedisArg,
    value: impl ToSingleRedisArg,
    token: FencingToken,
) -> Result<T, Error> {
    let key = bytes(&key);
    let mut cmd = Cmd::set(&key, value);
    cmd.arg("GET");
    one(conn, &key, token, cmd).await
}

/// HSET of one field.
///
/// # Errors
/// See [the module](self).
pub async fn hset(
    conn: &mut impl ConnectionLike,
    key: impl ToSingleRedisArg,
    field: impl ToSingleRedisArg,
    value: impl ToSingleRedisArg,
    token: FencingToken,
) -> Result<(), Error> {
    let key = bytes(&key);
    let _: u64 = one(conn, &key, token, Cmd::hset(&key, field, value)).await?;
    Ok(())
}

/// DEL. Returns true if the key was there. The mark stays, so that an older holder cannot bring the key back.
///
/// # Errors
/// See [the module](self).
pub async fn del(
    conn: &mut impl ConnectionLike,
    key: impl ToSingleRedisArg,
    token: FencingToken,
) -> Result<bool, Error> {
    let key = bytes(&key);
    one(conn, &key, token, Cmd::del(&key)).await
}

/// RPUSH. Returns the new length of the list.
///
/// # Errors
/// See [the module](self).
pub async fn rpush(
    conn: &mut impl ConnectionLike,
    key: impl ToSingleRedisArg,
    value: impl ToRedisArgs,
    token: FencingToken,
) -> Result<u64, Error> {
    let key = bytes(&key);
    let mut cmd = redis::cmd("RPUSH");
    cmd.arg(&key).arg(value);
    one(conn, &key, token, cmd).await
}

/// XADD with an id that the server makes. Returns that id. `fields` are names and values in turn.
///
/// # Errors
/// See [the module](self).
pub async fn xadd(
    conn: &mut impl ConnectionLike,
    key: impl ToSingleRedisArg,
    fields: impl ToRedisArgs,
    token: FencingToken,
) -> Result<String, Error> {
    let key = bytes(&key);
    let mut cmd = redis::cmd("XADD");
    cmd.arg(&key).arg("*").arg(fields);
    one(conn, &key, token, cmd).await
}

async fn one<T: FromRedisValue>(
    conn: &mut impl ConnectionLike,
    key: &[u8],
    token: FencingToken,
    cmd: Cmd,
) -> Result<T, Error> {
    let mut commands = Pipeline::with_capacity(1);
    commands.add_command(cmd);
    let (reply,) = Guard::new(key).run(conn, token, &commands).await?;
    Ok(reply)
}

/// Runs any commands in one step, if the token is not older than the newest that the resource has seen.
///
/// ```no_run
/// # async fn example(lease: quorate::Lease, mut store: quorate::redis::aio::MultiplexedConnection) -> Result<(), quorate::fence::redis::Error> {
/// use quorate::{fence::redis::Guard, redis::pipe};
///
/// let account = Guard::new("account:42");
/// let (balance, _): (i64, u64) = account
///     .run(&mut store, lease.token(), pipe().decr("account:42", 30).lpush("account:42:log", "-30"))
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Guard {
    resource: Vec<u8>,
    keys: Vec<Vec<u8>>,
    /// In ms; 0 for ever.
    keep_mark: u64,
}

impl Guard {
    /// Makes a guard for a resource. The mark of `key` is at `<key>:fence`.
    ///
    /// The commands may touch other keys too. You decide what one resource is, as long as all programs decide the same.
    pub fn new(key: impl ToSingleRedisArg) -> Self {
        Self {
            resource: bytes(&key),
            keys: Vec::new(),
            keep_mark: 0,
        }
    }

    /// Declares one more key that the commands touch, as servers want it of a script. A cluster checks that the key is
    /// in the same slot, and a proxy learns where to send the script. A single server does not need it.
    pub fn key(mut self, key: impl ToSingleRedisArg) -> Self {
        self.keys.push(bytes(&key));
        self
    }

    /// Lets the mark expire this long after the last command that passed; at least 1 ms. Default: it never expires.
    ///
    /// A mark that is already kept for longer, or for ever, stays so. [The module](self) says how long is right: too
    /// short a time lets old tokens in.
    pub fn keep_mark(mut self, d: Duration) -> Self {
        self.keep_mark = u64::try_from(d.as_millis())
            .unwrap_or(u64::MAX)
            .clamp(1, 1 << 50);
        self
    }

    /// Runs the commands in one atomic step, and returns all their replies in order. The pipeline's `ignore` and
    /// `atomic` mean nothing here.
    ///
    /// If a command fails, the commands after it are not done, and the commands before it stay done. A command of more
    /// than 7,000 words is an error of the client ([`ErrorKind::Client`]), and nothing is sent.
    ///
    /// # Errors
    /// See [the module](self).
    pub async fn run<T: FromRedisValue>(
        &self,
        conn: &mut impl ConnectionLike,
        token: FencingToken,
        commands: &Pipeline,
    ) -> Result<T, Error> {
        let mark = [&self.resource, b":fence".as_slice()].concat();
        let mut call = SCRIPT.key(mark);
        call.key(self.resource.as_slice());
        for key in &self.keys {
            call.key(key.as_slice());
        }
        call.arg(token.as_u64()).arg(self.keep_mark);
        for command in commands.cmd_iter() {
            let words = command.args_iter();
            if words.len() > WORDS {
                let what = "a fenced command has at most 7,000 words";
                let error = (
                    ErrorKind::Client,
                    what,
                    format!("{} are too many", words.len()),
                );
                return Err(RedisError::from(error).into());
            }
            call.arg(words.len());
            for word in words {
                match word {
                    redis::Arg::Simple(word) => call.arg(word),
                    // The place of a cursor: an iteration is at its start.
                    _ => call.arg(0),
                };
            }
        }
        let mut replies: Vec<Value> = call.invoke_async(conn).await?;
        let rest = replies.split_off(replies.len().min(1));
        match replies.first() {
            Some(Value::Int(1)) => {
                Ok(from_redis_value(Value::Array(rest)).map_err(RedisError::from)?)
            }
            _ => {
                let (newest,): (u64,) =
                    from_redis_value(Value::Array(rest)).map_err(RedisError::from)?;
                let newest = FencingToken::from_counter(newest.min(FencingToken::MAX));
                let resource = String::from_utf8_lossy(&self.resource);
                Err(StaleToken::new(resource, token, newest, false).into())
            }
        }
    }
}

fn bytes(key: &impl ToSingleRedisArg) -> Vec<u8> {
    key.to_redis_args().concat()
}
