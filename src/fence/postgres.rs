//! A fence in Postgres. One row per resource keeps the newest token, and one statement at the start of a transaction
//! compares with it and raises it.
//!
//! [`SCHEMA`] and [`ADMIT_SQL`] are plain SQL, for any driver. [`admit`] (feature `postgres`) is the same for
//! `tokio-postgres`.
//!
//! # How to use it
//!
//! Make it the first statement, before any read that a write depends on. Do not put it in a savepoint, because rolling
//! the savepoint back takes the admission back. A transaction that is admitted to several resources must ask in a fixed
//! order. Two that ask in opposite orders deadlock, and Postgres ends one of them (40P01).
//!
//! A holder that is paused **inside** its admitted transaction blocks every later holder of the resource for as long as
//! its connection lives. Keep such transactions short, and limit them, on the server or in each session:
//! - `idle_in_transaction_session_timeout` (a few seconds) ends the session of a paused holder, undoes its writes, and
//!   lets the next one in. The paused holder's commit then fails.
//! - With `lock_timeout` the waiting transactions get an error (55P03) instead of waiting on.
//!
//! Keep the row when you delete the data it protects. Deleting the row forgets its token, and older tokens pass again.
//!
//! A name is the key of an index, which refuses more than about 2,700 bytes (54000), and a text of Postgres cannot hold
//! a NUL (22021). All programs have to find the same table by the `search_path`.
//!
//! # How it works
//!
//! The row stays locked until the transaction ends. So of two holders that come at once the second waits for the first.
//! A newer holder waits for an older one that is half-way. An older holder that comes later finds the newer token and
//! is refused.
//!
//! This is right under READ COMMITTED, the default: after the wait Postgres looks at the row as it is then
//! ([Transaction Isolation, 13.2.1]). Under REPEATABLE READ and SERIALIZABLE a concurrent admission ends one of the two
//! transactions with a serialization failure (40001). Then do the whole transaction again.
//!
//! # What it does not promise
//!
//! It orders holders, not the writes of one holder, which all have one token. After an error of the connection a
//! transaction may have been committed, or may be committed later. If you repeat it on another connection, the first
//! one may commit later, and its older values then stand. Make the statements idempotent (first look whether it was
//! done), or release the lock and take it again: the new token refuses the late transaction.
//!
//! The newest token is as durable as the commit. With `synchronous_commit = off`, or after a failover to a replica that
//! had not received it, it may be lost together with the newest data.
//!
//! # A single row
//!
//! To protect a single row, a column in it does the same without a table:
//!
//! ```sql
//! ALTER TABLE invoice ADD COLUMN fence bigint NOT NULL DEFAULT 0;
//!
//! UPDATE invoice SET status = $2, fence = $3 WHERE id = $1 AND fence <= $3;  -- no row: stale, or no such row
//! ```
//!
//! If the row is deleted, its token is gone: see [deleting](crate::docs::fencing#deleting).
//!
//! [Transaction Isolation, 13.2.1]: https://www.postgresql.org/docs/current/transaction-iso.html#XACT-READ-COMMITTED

/// The table `quorate_fence`, found by the `search_path`.
///
/// The statement may be repeated. But if two programs run it at once while there is no table yet, one of them fails
/// (23505). So run it once, in a migration, and not in each program at its start.
///
/// The fill factor leaves room in each page, so that raising a token in place touches no index.
pub const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS quorate_fence (
  resource text PRIMARY KEY,
  token bigint NOT NULL CHECK (token >= 0)
) WITH (fillfactor = 50);";

/// Admits a token. `$1` is the resource (text), `$2` the token (bigint). If one row changed, the token is admitted. If
/// none changed, it is stale: roll back.
pub const ADMIT_SQL: &str = "\
INSERT INTO quorate_fence AS mark (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE mark.token <= excluded.token";

#[cfg(feature = "postgres")]
pub use with_tokio_postgres::{Error, admit};

#[cfg(feature = "postgres")]
mod with_tokio_postgres {
    use std::{error::Error as _, fmt};

    use tokio_postgres::{Transaction, types::Type};

    use crate::{FencingToken, fence::StaleToken};

    /// Like `ADMIT_SQL`, but it always answers with the newest token. Asking for that after a refusal would take
    /// another round trip. It would also fail if a statement that was sent along has failed.
    const NEWEST_SQL: &str = "\
INSERT INTO quorate_fence AS mark (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = greatest(mark.token, excluded.token)
RETURNING token";

    /// The reason why the transaction may not go on.
    #[non_exhaustive]
    #[derive(Debug)]
    pub enum Error {
        /// A newer holder was there. Roll the transaction back; dropping it does that.
        Stale(StaleToken),
        /// An error of the database, or of the connection.
        Postgres(tokio_postgres::Error),
    }

    impl Error {
        /// The details about the newer holder, if that is the reason.
        pub fn stale(&self) -> Option<&StaleToken> {
            match self {
                Self::Stale(stale) => Some(stale),
                Self::Postgres(_) => None,
            }
        }
    }

    impl fmt::Display for Error {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Stale(stale) => stale.fmt(f),
                // Alone, the error says no more than "db error".
                Self::Postgres(error) => match error.source() {
                    Some(cause) => write!(f, "{error}: {cause}"),
                    None => error.fmt(f),
                },
            }
        }
    }

    impl std::error::Error for Error {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            match self {
                // `Display` shows the error itself and its source.
                Self::Stale(stale) => stale.source(),
                Self::Postgres(error) => error.source()?.source(),
            }
        }
    }

    impl From<tokio_postgres::Error> for Error {
        fn from(error: tokio_postgres::Error) -> Self {
            Self::Postgres(error)
        }
    }

    impl From<StaleToken> for Error {
        fn from(stale: StaleToken) -> Self {
            Self::Stale(stale)
        }
    }

    /// Lets `token` through to `resource` for this transaction, unless a newer one was there before. An equal token
    /// passes.
    ///
    /// The table is that of [`SCHEMA`](super::SCHEMA). The transaction is one of tokio-postgres 0.7.
    ///
    /// It takes one statement and one round trip, whether the token is refused or not. If you send the next statement
    /// along, it takes no round trip of its own:
    ///
    /// ```no_run
    /// # async fn example(client: &mut tokio_postgres::Client, lease: quorate::Lease) -> Result<(), quorate::fence::postgres::Error> {
    /// use quorate::fence::postgres::{Error, admit};
    /// use tokio_postgres::types::Type;
    ///
    /// let transaction = client.transaction().await?;
    /// let paid = transaction.execute_typed("UPDATE invoice SET paid = true WHERE id = $1", &[(&42_i64, Type::INT8)]);
    /// tokio::try_join!(
    ///     biased; // in this order
    ///     admit(&transaction, "invoice:42", lease.token()),
    ///     async { paid.await.map_err(Error::from) },
    /// )?; // stale: the transaction is dropped here, and all of it rolled back
    /// transaction.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Stale`]: roll back.
    /// - [`Error::Postgres`]: nothing is known. Do not commit.
    ///
    /// # Cancel safety
    /// If you drop the future, its answer is lost: do not commit. A commit would keep an admission, and the writes of a
    /// stale holder too.
    pub async fn admit(
        transaction: &Transaction<'_>,
        resource: &str,
        token: FencingToken,
    ) -> Result<(), Error> {
        let number = token.as_i64();
        let newest: i64 = transaction
            .query_typed_one(
                NEWEST_SQL,
                &[(&resource, Type::TEXT), (&number, Type::INT8)],
            )
            .await?
            .try_get(0)?;
        if newest <= number {
            return Ok(());
        }
        // quorate did not write a number above all tokens. The greatest token is the nearest to it.
        let newest = newest.unsigned_abs().min(FencingToken::MAX);
        let newest = FencingToken::from_counter(newest);
        Err(StaleToken::new(resource, token, newest, false).into())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_docs_say_the_same_sql() {
        let docs = include_str!("../docs/fencing.md");
        assert!(docs.contains(super::SCHEMA));
        assert!(docs.contains(super::ADMIT_SQL));
    }
}
