//! A fence in Postgres: one row per resource keeps the newest token, and one statement at the start of
//! a transaction compares with it and raises it.
//!
//! [`SCHEMA`] and [`ADMIT_SQL`] are plain SQL, for any driver; [`admit`] (feature `postgres`) is the same for
//! `tokio-postgres`.
//!
//! The row stays locked until the transaction ends. So of two holders that come at once the second waits
//! for the first: an older one that is half-way is waited for by the newer one, and an older one
//! that comes later finds the newer token and is refused. This is right under READ COMMITTED, the
//! default: after the wait Postgres looks at the row as it then is ([Transaction Isolation, 13.2.1]).
//! Under REPEATABLE READ and SERIALIZABLE a concurrent admission ends one of the two transactions with
//! a serialization failure (40001); do the whole transaction again.
//!
//! Let it be the first statement, before any read that a write depends on. It is as durable as the
//! commit: with `synchronous_commit = off`, or after a failover to a replica that had not got it, the
//! newest token may be lost together with the newest data.
//!
//! Where what is protected is one row, a column in it does the same without a table:
//!
//! ```sql
//! ALTER TABLE invoice ADD COLUMN fence bigint NOT NULL DEFAULT 0;
//!
//! UPDATE invoice SET status = $2, fence = $3 WHERE id = $1 AND fence <= $3;  -- no row: stale, or no such row
//! ```
//!
//! [Transaction Isolation, 13.2.1]: https://www.postgresql.org/docs/current/transaction-iso.html#XACT-READ-COMMITTED

/// The table: `quorate_fence`, found by the `search_path`. It may be created again and again.
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
    use std::fmt;

    use tokio_postgres::{Transaction, types::Type};

    use super::ADMIT_SQL;
    use crate::{FencingToken, fence::StaleToken};

    const NEWEST_SQL: &str = "SELECT token FROM quorate_fence WHERE resource = $1";

    /// Why the transaction may not go on.
    #[non_exhaustive]
    #[derive(Debug)]
    pub enum Error {
        /// A newer holder was there. Roll the transaction back: dropping it does.
        Stale(StaleToken),
        /// The database's, or the connection's.
        Postgres(tokio_postgres::Error),
    }

    impl fmt::Display for Error {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Stale(stale) => stale.fmt(f),
                Self::Postgres(error) => error.fmt(f),
            }
        }
    }

    impl std::error::Error for Error {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            match self {
                Self::Stale(stale) => Some(stale),
                Self::Postgres(error) => Some(error),
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
    /// An equal one passes. The table is [`SCHEMA`](super::SCHEMA)'s.
    ///
    /// One statement and one round trip; none of its own if the next statement is sent along:
    ///
    /// ```no_run
    /// # async fn example(client: &mut tokio_postgres::Client, lease: quorate::Lease) -> Result<(), quorate::fence::postgres::Error> {
    /// use quorate::fence::postgres::{Error, admit};
    /// use tokio_postgres::types::Type;
    ///
    /// let transaction = client.transaction().await?;
    /// let paid = transaction.execute_typed("UPDATE invoice SET paid = true WHERE id = $1", &[(&42_i64, Type::INT8)]);
    /// tokio::try_join!(
    ///     biased; // in this order: the admission is sent first
    ///     admit(&transaction, "invoice:42", lease.token()),
    ///     async { paid.await.map_err(Error::from) },
    /// )?; // stale: the transaction is dropped here, and all of it rolled back
    /// transaction.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Stale`]: roll back. [`Error::Postgres`]: nothing is known; do not commit.
    ///
    /// # Cancel safety
    /// A dropped future may have been admitted: that takes effect only if the transaction commits.
    pub async fn admit(
        transaction: &Transaction<'_>,
        resource: &str,
        token: FencingToken,
    ) -> Result<(), Error> {
        let number = i64::try_from(token.as_u64()).unwrap_or(i64::MAX);
        let admitted = transaction
            .execute_typed(ADMIT_SQL, &[(&resource, Type::TEXT), (&number, Type::INT8)])
            .await?;
        if admitted > 0 {
            return Ok(());
        }
        let newest = transaction
            .query_typed_one(NEWEST_SQL, &[(&resource, Type::TEXT)])
            .await?
            .try_get::<_, i64>(0)?;
        let newest = u64::try_from(newest).ok();
        let newest = newest.and_then(|newest| FencingToken::try_from(newest).ok());
        Err(StaleToken::new(resource, token, newest.unwrap_or(token), false).into())
    }
}
