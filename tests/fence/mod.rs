//! Stores that check fencing tokens: they accept no older token after a newer one.

#[cfg(all(feature = "consul", feature = "fence-redis", feature = "postgres"))]
mod paused_holders;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "fence-redis")]
mod redis;

#[cfg(feature = "fence-redis")]
use ::redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection};

/// A connection that waits long for an answer. By default it gives up after 500 ms, which a slow machine may need.
#[cfg(feature = "fence-redis")]
async fn patient(client: &Client) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(crate::support::HANG))
        .set_response_timeout(Some(crate::support::HANG));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.unwrap()
}
