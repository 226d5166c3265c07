//! Messages that real servers publish, and their receivers.

use super::*;
use crate::node::{Push, Says, answer::Answer, redis::support::HANG};

const ENTRY: &str = "000000000000000000000000000000ab@web-1:77";

/// Publishes a push that tells a waiter that it is next. The number shows which push it was.
fn publish(server: &Server, number: u64) -> i64 {
    let text = format!("N {ENTRY} {number}");
    let heard = server.cmd(&["SPUBLISH", CHANNEL, &text]);
    redis::FromRedisValue::from_redis_value(heard).unwrap()
}

async fn next(connection: &mut dyn Connection) -> Incoming {
    let next = timeout(LIMIT, poll_fn(|cx| connection.poll_incoming(cx))).await;
    next.expect("within the limit").unwrap()
}

fn pushed(number: u64) -> Incoming {
    Incoming::Push(Push {
        entry: Entry::read(ENTRY).unwrap(),
        says: Says::Next {
            after: Duration::from_millis(number),
        },
    })
}

#[tokio::test]
async fn published_messages_arrive_while_the_connection_lives() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        assert_eq!(publish(&server, 0), 0, "nobody listens");
        let (mut one, mut two) = (
            connected(&server.url()).await,
            connected(&server.url()).await,
        );
        assert!(one.hears() && two.hears());
        assert_eq!((one.note(), publish(&server, 1)), (None, 2));
        for connection in [&mut one, &mut two] {
            assert_eq!(next(&mut **connection).await, pushed(1));
        }
        // An answer behind a push is still an answer.
        publish(&server, 2);
        one.send(Operation::new(server::Command::LoadScripts), Arc::default());
        poll_fn(|cx| one.poll_flush(cx)).await.unwrap();
        assert_eq!(next(&mut *one).await, pushed(2));
        let loaded = Incoming::Answer(Ok(Answer::Server(server::Reply::Loaded)));
        assert_eq!(next(&mut *one).await, loaded);
        assert_eq!(
            server.cmd(&["SPUBLISH", "quorate:wake:2", "x"]),
            redis::Value::Int(0)
        );

        drop(one);
        let deadline = Instant::now() + HANG;
        while publish(&server, 3) != 1 {
            assert!(Instant::now() < deadline, "it is closed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.cmd(&["CLIENT", "KILL", "ID", &two.client_id().to_string()]);
        assert_eq!(publish(&server, 4), 0);
    }
}

#[tokio::test]
async fn a_user_without_channel_rights_is_greeted_and_hears_nothing() {
    let all = "on nopass ~* -@all +@all";
    for kind in Kind::ALL {
        let server = ServerOptions::new(kind)
            .acl(&format!("all {all} &quorate:wake:*"))
            .acl(&format!("deaf {all} &* -ssubscribe"))
            .acl(&format!("mute {all} &* -spublish"))
            .acl(&format!("none {all} resetchannels"))
            .start();
        for (user, hears, note) in [
            ("all", true, None),
            ("deaf", false, Some("its ACL withholds SSUBSCRIBE: ")),
            ("mute", false, Some("its ACL withholds SPUBLISH: ")),
            (
                "none",
                false,
                Some("its ACL withholds channels of quorate (&quorate:wake:*): "),
            ),
        ] {
            let url = format!("redis://{user}@127.0.0.1:{}", server.port());
            let mut connection = connected(&url).await;
            assert_eq!(connection.hears(), hears, "{user}");
            let seen = connection
                .note()
                .map(|seen| &seen[..note.map_or(0, str::len)]);
            assert_eq!(seen, note, "{user}");
            let load = Command::Server(server::Command::LoadScripts);
            let loaded = Ok(Answer::Server(server::Reply::Loaded));
            assert_eq!(ask(&mut *connection, load).await, loaded);
        }
    }
}
