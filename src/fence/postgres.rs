//! A fence in Postgres: one row per resource keeps the newest token, and one statement at the start of
//! a transaction compares with it and raises it.
//!
//! [`SCHEMA`] and [`ADMIT_SQL`] are plain SQL, for any driver; [`admit`] (feature `postgres`) is the same for
//! `tokio-postgres`.
//!
//! The row stays locked until the transaction ends. So of two holders that come at once the second waits for the
//! first: a newer holder waits for an older one that is half-way, and an older one that comes later finds the newer
//! token and is refused. This is right under READ COMMITTED, the default: after the wait Postgres looks at the row
//! as it is then ([Transaction Isolation, 13.2.1]). Under REPEATABLE READ and SERIALIZABLE a concurrent admission
//! ends one of the two transactions with a serialization failure (40001); do the whole transaction again.
//!
//! Make it the first statement, before any read that a write depends on. Do not put it in a savepoint, as rolling
//! that back takes the admission back. A transaction that is admitted to several resources asks in a fixed order:
//! two that ask in opposite orders deadlock, and Postgres ends one of them (40P01).
//!
//! So a holder that is paused **inside** its admitted transaction blocks every later holder of the resource, for as
//! long as its connection stands. Keep such transactions short, and limit them, on the server or in each session:
//! `idle_in_transaction_session_timeout` (a few seconds) ends the session of a paused holder, undoes what it wrote,
//! and lets the next one in; the paused holder's commit then fails. With `lock_timeout` those who wait get an error
//! (55P03) instead of waiting on.
//!
//! It orders holders, not the writes of one holder, as they all have one token. After an error of the connection a
//! transaction may have been committed, or be about to be. If it is repeated on another connection, the first one
//! may commit later, and its older values then stand. Make the statements idempotent (first look whether it was
//! done), or release the lock and take it again: the new token refuses what is late.
//!
//! Deleting a row of this table forgets its token: older ones pass again. Keep the row when what it protects is
//! deleted.
//!
//! A name is the key of an index, which refuses more than about 2,700 bytes (54000), and a text of Postgres cannot
//! hold a NUL (22021). Everybody has to find the same table by the `search_path`.
//!
//! It is as durable as the commit: with `synchronous_commit = off`, or after a failover to a replica that
//! had not got it, the newest token may be lost together with the newest data.
//!
//! Where what is protected is one row, a column in it does the same without a table:
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

/// The table: `quorate_fence`, found by the `search_path`. The statement may be repeated. But if two run it at once
/// while there is no table yet, one of them fails (23505). So run it once, in a migration, and not in each program
/// at its start.
///
/// The fill factor leaves room in each page, so that raising a token in place touches no index.
pub const SCHEMA: &str = "\
CREATE TABLE IF NOT EXISTS quorate_fence (
  resource text PRIMARY KEY,
  token bigint NOT NULL CHECK (token >= 0)
) WITH (fillfactor = 50);";

/// $1: the resource (text), $2: the token (bigint). One row changed: admitted. None: stale; roll back.
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

    /// Like `ADMIT_SQL`, but it always answers with the newest token: to ask for that after a refusal would be
    /// another round trip, and would fail if a statement that was sent along has failed.
    const NEWEST_SQL: &str = "\
INSERT INTO quorate_fence AS mark (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = greatest(mark.token, excluded.token)
RETURNING token";

    /// Why the transaction may not go on.
    #[non_exhaustive]
    #[derive(Debug)]
    pub enum Error {
        /// A newer holder was there. Roll the transaction back: dropping it does.
        Stale(StaleToken),
        /// The database's, or the connection's.
        Postgres(tokio_postgres::Error),
    }

    impl Error {
        /// What is known about the newer holder, if that is why.
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
                // Alone, it says no more than "db error".
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
                // `Display` has told the error itself, and its source.
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

    /// Lets `token` through to `resource` for this transaction, unless a newer one was there before.
    /// An equal one passes. The table is [`SCHEMA`](super::SCHEMA)'s; the transaction one of
    /// tokio-postgres 0.7.
    ///
    /// One statement and one round trip, refused or not; none of its own if the next statement is sent
    /// along:
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
    /// - [`Error::Postgres`]: nothing is known; do not commit.
    ///
    /// # Cancel safety
    /// A dropped future takes the answer with it: do not commit. A commit would keep an admission,
    /// and the writes of a stale holder too.
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
        // A number above all tokens was not written by quorate; the greatest token is the nearest to it.
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
