//! The number of round trips, measured through a slow network.

use std::time::{Duration, Instant};

use quorate::fence::postgres::{Error, admit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tokio::try_join;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

use super::{WRITE, start, token};
use crate::support::Postgres;

const ONE_WAY: Duration = Duration::from_millis(40);

/// Forwards bytes. Every byte arrives this much later.
async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let (arrived, mut due) = mpsc::unbounded_channel::<(tokio::time::Instant, Vec<u8>)>();
    let read = async move {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            let at = tokio::time::Instant::now() + ONE_WAY;
            let _ = arrived.send((at, buffer[..n].to_vec()));
        }
    };
    let write = async move {
        while let Some((at, bytes)) = due.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}

async fn connect_slowly(server: &Postgres) -> Client {
    let (client_end, proxy_end) = tokio::io::duplex(64 * 1024);
    let stream = TcpStream::connect(("127.0.0.1", server.port()))
        .await
        .unwrap();
    stream.set_nodelay(true).unwrap();
    let (from_client, to_client) = tokio::io::split(proxy_end);
    let (from_server, to_server) = stream.into_split();
    tokio::spawn(pump(from_client, to_server));
    tokio::spawn(pump(from_server, to_client));
    let config: tokio_postgres::Config = server.url().parse().unwrap();
    let (client, connection) = config.connect_raw(client_end, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Bare,
    AdmitFirst,
    SentAlong,
    Stale,
}

/// A transaction with one write.
async fn transaction(client: &mut Client, way: Way) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    let parameters = [(&5_i64 as _, Type::INT8)];
    let write = async {
        let write = transaction.execute_typed(WRITE, &parameters);
        write.await.map_err(Error::from)
    };
    match way {
        Way::Bare => drop(write.await?),
        Way::AdmitFirst => {
            admit(&transaction, "a", token(5)).await?;
            write.await?;
        }
        Way::SentAlong => drop(try_join!(biased; admit(&transaction, "a", token(5)), write)?),
        Way::Stale => drop(try_join!(biased; admit(&transaction, "a", token(4)), write)?),
    }
    Ok(transaction.commit().await?)
}

/// The fastest of several runs. The machine may stall, but it cannot be faster than the network.
async fn round_trips(client: &mut Client, way: Way) -> f64 {
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        let answer = transaction(client, way).await;
        assert_eq!(answer.is_err(), matches!(way, Way::Stale), "{answer:?}");
        fastest = fastest.min(start.elapsed());
    }
    let trips = fastest.as_secs_f64() / (2 * ONE_WAY).as_secs_f64();
    println!("{way:?}: {fastest:?}, {trips:.2} round trips");
    trips
}

#[tokio::test]
async fn admission_is_one_round_trip_and_none_if_the_write_is_sent_along() {
    let (server, _client) = start().await;
    let mut client = connect_slowly(&server).await;
    // BEGIN, the write and COMMIT, with the admission in between.
    for (way, expected) in [
        (Way::Bare, 3.0),
        (Way::AdmitFirst, 4.0),
        (Way::SentAlong, 3.0),
    ] {
        let trips = round_trips(&mut client, way).await;
        assert!(
            (expected..expected + 0.9).contains(&trips),
            "{way:?}: {trips}"
        );
    }
    // BEGIN, and a refusal that names the newest token. Before it comes the rollback of the last transaction, which
    // nobody waits for.
    let trips = round_trips(&mut client, Way::Stale).await;
    assert!((2.0..2.9).contains(&trips), "{trips}");
}
