//! The store with the balance: in this process, in Redis or in Postgres. It is used once with the check of tokens and
//! once without it.

use std::{
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};

use quorate::{
    FencingToken,
    fence::{self, Gate},
    redis,
};
use tokio::runtime::Builder;

const ACCOUNT: &str = "account:42";

#[derive(Clone)]
pub(crate) struct Store {
    kind: Kind,
    checks: bool,
}

#[derive(Clone)]
enum Kind {
    /// The lock around the balance is held during the check and the write, so nothing can come between them.
    InProcess(Arc<Mutex<i64>>, Arc<Gate>),
    Redis(Box<redis::Client>),
    #[cfg(feature = "postgres")]
    Postgres(String),
}

impl Store {
    pub(crate) fn open(url: &str, checks: bool) -> Result<Self, Box<dyn Error>> {
        let kind = match url.split_once(':') {
            None => Kind::InProcess(Arc::default(), Arc::default()),
            Some(("redis" | "rediss" | "unix", _)) => {
                Kind::Redis(Box::new(redis::Client::open(url)?))
            }
            #[cfg(feature = "postgres")]
            Some(("postgres" | "postgresql", _)) => Kind::Postgres(url.to_owned()),
            Some(_) => {
                return Err(format!(
                    "{url}: redis://.., or postgres://.. with --features postgres"
                )
                .into());
            }
        };
        Ok(Self { kind, checks })
    }

    /// Creates the tables. In production a migration does this once.
    pub(crate) fn create_tables(&self) -> Result<(), Box<dyn Error>> {
        #[cfg(feature = "postgres")]
        if let Kind::Postgres(url) = &self.kind {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let client = postgres::connect(url).await?;
                client.batch_execute(fence::postgres::SCHEMA).await?;
                client.batch_execute(postgres::SCHEMA).await
            })?;
        }
        Ok(())
    }

    pub(crate) fn checks(&self) -> bool {
        self.checks
    }

    /// Reads the balance for a holder that will write a new balance based on it. So the read is checked too.
    pub(crate) async fn read(&self, token: FencingToken) -> Result<i64, Box<dyn Error>> {
        match &self.kind {
            Kind::InProcess(balance, gate) => {
                let balance = balance.lock().unwrap_or_else(PoisonError::into_inner);
                if self.checks {
                    gate.admit(ACCOUNT, token)?;
                }
                Ok(*balance)
            }
            Kind::Redis(client) => {
                let mut conn = client.get_multiplexed_async_connection().await?;
                match self.checks {
                    true => Ok(fence::redis::get(&mut conn, ACCOUNT, token).await?),
                    false => Ok(redis::cmd("GET")
                        .arg(ACCOUNT)
                        .query_async(&mut conn)
                        .await?),
                }
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres(url) => {
                let mut client = postgres::connect(url).await?;
                let transaction = client.transaction().await?;
                if self.checks {
                    fence::postgres::admit(&transaction, ACCOUNT, token).await?;
                }
                let balance = transaction
                    .query_one(postgres::READ, &[&ACCOUNT])
                    .await?
                    .get(0);
                transaction.commit().await?;
                Ok(balance)
            }
        }
    }

    pub(crate) async fn write(&self, new: i64, token: FencingToken) -> Result<(), Box<dyn Error>> {
        match &self.kind {
            Kind::InProcess(balance, gate) => {
                let mut balance = balance.lock().unwrap_or_else(PoisonError::into_inner);
                if self.checks {
                    gate.admit(ACCOUNT, token)?;
                }
                *balance = new;
                Ok(())
            }
            Kind::Redis(client) => {
                let mut conn = client.get_multiplexed_async_connection().await?;
                match self.checks {
                    true => Ok(fence::redis::set(&mut conn, ACCOUNT, new, token).await?),
                    false => Ok(redis::cmd("SET")
                        .arg(ACCOUNT)
                        .arg(new)
                        .query_async(&mut conn)
                        .await?),
                }
            }
            #[cfg(feature = "postgres")]
            Kind::Postgres(url) => {
                let mut client = postgres::connect(url).await?;
                let transaction = client.transaction().await?;
                if self.checks {
                    // If the token is refused, the transaction is dropped with everything in it.
                    fence::postgres::admit(&transaction, ACCOUNT, token).await?;
                }
                transaction
                    .execute(postgres::WRITE, &[&ACCOUNT, &new])
                    .await?;
                Ok(transaction.commit().await?)
            }
        }
    }

    /// Sets the balance with which the example begins.
    pub(crate) fn deposit(&self, amount: i64) -> Result<(), Box<dyn Error>> {
        let unchecked = Self {
            checks: false,
            ..self.clone()
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(unchecked.write(amount, FencingToken::try_from(0)?))
    }

    /// Reads the balance for a reader that will not write.
    pub(crate) fn balance(&self) -> Result<i64, Box<dyn Error>> {
        let unchecked = Self {
            checks: false,
            ..self.clone()
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(unchecked.read(FencingToken::try_from(0)?))
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use tokio_postgres::{Client, Error, NoTls};

    pub(crate) const READ: &str = "SELECT amount FROM balance WHERE account = $1";
    pub(crate) const WRITE: &str = "INSERT INTO balance (account, amount) VALUES ($1, $2)
        ON CONFLICT (account) DO UPDATE SET amount = excluded.amount";
    pub(crate) const SCHEMA: &str =
        "CREATE TABLE IF NOT EXISTS balance (account text PRIMARY KEY, amount bigint NOT NULL);";

    pub(crate) async fn connect(url: &str) -> Result<Client, Error> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}
