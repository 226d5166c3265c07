mod channel;
mod refusals;
#[cfg(feature = "tls-rustls")]
mod tls;

use std::{future::poll_fn, time::Instant};

use tokio::net::TcpListener;

use super::*;
use crate::node::answer::{Answer, Answered};
use crate::{
    base::owner::Entry,
    node::{
        Command, Connection, Incoming, Operation, admission, mutex,
        redis::{
            address::{IntoNode as _, Target},
            support::{Kind, Server, ServerOptions},
        },
        server,
    },
};
use DialError::Refused;

/// The default timeout of a dial.
const LIMIT: Duration = Duration::from_secs(3);
const CHANNEL: &str = "quorate:wake:1";

fn address(url: &str) -> Address {
    match url.into_node() {
        Ok(Target::Server(address)) => address,
        other => panic!("{other:?}"),
    }
}

async fn dialled(address: &Address) -> Dialled {
    dial(
        address,
        None,
        Arc::new(Keys::new("quorate")),
        &CHANNEL.into(),
        LIMIT,
    )
    .await
}

async fn connected(url: &str) -> Box<dyn Connection> {
    dialled(&address(url))
        .await
        .unwrap_or_else(|why| panic!("{url}: {why:?}"))
}

async fn fails(address: &Address) -> DialError {
    match dialled(address).await {
        Ok(_) => panic!("{address:?} is greeted"),
        Err(why) => why,
    }
}

async fn refused(url: &str) -> String {
    match fails(&address(url)).await {
        Refused(why) => why,
        other => panic!("{url}: {other:?}"),
    }
}

async fn unreachable(url: &str) -> String {
    match fails(&address(url)).await {
        Unreachable(why) => why,
        other => panic!("{url}: {other:?}"),
    }
}

async fn ask(connection: &mut dyn Connection, command: Command) -> Answered {
    connection.send(Operation::new(command), Arc::default());
    poll_fn(|cx| connection.poll_flush(cx)).await.unwrap();
    match poll_fn(|cx| connection.poll_incoming(cx)).await.unwrap() {
        Incoming::Answer(answer) => answer,
        other => panic!("no answer: {other:?}"),
    }
}

/// The server's description of the connection.
fn client(server: &Server, connection: &dyn Connection) -> String {
    let id = connection.client_id().to_string();
    let list = server.cmd(&["CLIENT", "LIST", "ID", &id]);
    redis::FromRedisValue::from_redis_value(list).unwrap()
}

#[tokio::test]
async fn a_connection_is_ready_for_commands() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let mut connection = connected(&format!("{}/3", server.url())).await;
        let seen = client(&server, &*connection);
        assert!(
            seen.contains(" db=3 ") && seen.contains(" resp=3"),
            "{seen}"
        );
        let knows_setinfo = server
            .try_cmd(&["CLIENT", "SETINFO", "lib-name", "test"])
            .is_ok();
        assert_eq!(seen.contains(" lib-name=quorate "), knows_setinfo, "{seen}");
        let release = Command::from(mutex::cases::release("a", 1));
        assert_eq!(
            ask(&mut *connection, release.clone()).await,
            Ok(Answer::ReleasedUnadmitted),
            "by a script"
        );
        server.cmd(&["SCRIPT", "FLUSH"]);
        assert_eq!(
            ask(&mut *connection, release).await,
            Err(crate::node::Fault::NoScript)
        );
        assert_eq!(
            ask(
                &mut *connection,
                Command::Server(server::Command::LoadScripts)
            )
            .await,
            Ok(Answer::Server(server::Reply::Loaded))
        );
        assert_eq!(
            ask(
                &mut *connection,
                Command::Admission(admission::Command::Survey)
            )
            .await,
            Ok(Answer::Admission(admission::Reply::Surveyed {
                used: false,
                lock: None
            }))
        );

        let other = connected(&server.unix_url()).await;
        assert!(client(&server, &*other).contains(" db=0 "));
        let kill = Command::Server(server::Command::Disconnect {
            client: connection.client_id(),
        });
        let mut third = connected(&server.url()).await;
        assert_eq!(
            ask(&mut *third, kill).await,
            Ok(Answer::Server(server::Reply::Disconnected(true)))
        );
        let over = poll_fn(|cx| connection.poll_incoming(cx))
            .await
            .expect_err("killed");
        assert_eq!(over.0, "the server closed the connection");
        server.kill9();
        poll_fn(|cx| third.poll_incoming(cx))
            .await
            .expect_err("killed");
        assert!(
            unreachable(&server.url())
                .await
                .contains("Connection refused")
        );
        assert!(
            unreachable(&server.unix_url())
                .await
                .starts_with("no connection: ")
        );
    }
}

#[tokio::test]
async fn a_silent_server_is_reported_within_the_limit() {
    // The kernel accepts the connection, and no program answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for (scheme, why) in [
        ("redis", "it accepts connections, but does not answer HELLO"),
        #[cfg(feature = "tls-rustls")]
        (
            "rediss",
            "it accepts connections, but does not answer in TLS \
             (if this is a plain port, use redis://)",
        ),
    ] {
        let address = address(&format!("{scheme}://{}", listener.local_addr().unwrap()));
        let mut limit = Duration::from_millis(200);
        loop {
            let start = Instant::now();
            let keys = Arc::new(Keys::new("quorate"));
            let dialled = dial(&address, None, keys, &CHANNEL.into(), limit).await;
            let Some(Unreachable(text)) = dialled.err() else {
                panic!("{scheme}: a silent server is not unreachable");
            };
            assert!((limit..LIMIT).contains(&start.elapsed()));
            // A busy machine may take longer for the system's certificates, which are read first.
            if text.contains("certificates") && limit < LIMIT / 2 {
                limit *= 2;
                continue;
            }
            let within = format!("{why} within {}", seconds(limit));
            assert_eq!(text, within);
            break;
        }
    }
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let why = unreachable(&format!("redis://127.0.0.1:{port}")).await;
    assert!(
        why.starts_with(&format!(
            "no connection to 127.0.0.1:{port}: Connection refused"
        )),
        "{why}"
    );
    let why = unreachable("redis://nowhere.invalid").await;
    assert!(
        why.starts_with("its address cannot be looked up: "),
        "{why}"
    );
}
