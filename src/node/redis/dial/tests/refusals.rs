use super::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[tokio::test]
async fn credentials() {
    for kind in Kind::ALL {
        let server = ServerOptions::new(kind)
            .password("sesame")
            .acl("alice on >wonder ~* &* +@all")
            .acl("bob on >builder ~* &* +@all -script")
            .acl("dave on nopass ~* &* +@all")
            .acl("eve off >apple ~* +@all")
            .start();
        let with = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port());
        for (login, user) in [
            (":sesame@", "default"),
            ("alice:wonder@", "alice"),
            ("dave@", "dave"),
        ] {
            let connection = connected(&with(login)).await;
            let seen = client(&server, &*connection);
            assert!(seen.contains(&format!(" user={user} ")), "{seen}");
        }
        for (login, why) in [
            ("", "it asks for a password: put it into the node's URL"),
            (
                ":wrongpw@",
                "it does not know user \"default\" with this password",
            ),
            (
                "alice:wrongpw@",
                "it does not know user \"alice\" with this password",
            ),
            (
                "alice@",
                "it does not know this user without a password: correct the node's URL",
            ),
            (
                "sesame@",
                "it does not know this user without a password: correct the node's URL",
            ),
            (
                "nobody:wrongpw@",
                "it does not know user \"nobody\" with this password",
            ),
            (
                "eve:apple@",
                "it does not know user \"eve\" with this password",
            ),
            (
                "bob:builder@",
                "its ACL withholds SCRIPT LOAD from user \"bob\": \
                 grant it with ACL SETUSER (+script|load)",
            ),
        ] {
            let said = refused(&with(login)).await;
            assert!(said.starts_with(why), "{login}: {said}");
            for secret in ["sesame", "wonder", "builder", "wrongpw", "apple"] {
                assert!(!said.contains(secret), "{said}");
            }
        }
    }
}

#[tokio::test]
async fn unusable_servers_are_refused_with_the_reason() {
    let server = ServerOptions::new(Kind::Redis)
        .config("databases 2")
        .start();
    let why = refused(&format!("{}/2", server.url())).await;
    assert_eq!(
        why,
        "it does not let this client use database 2: ERR DB index is out of range"
    );
    let cluster = ServerOptions::new(Kind::Redis).cluster().start();
    for db in ["", "/1"] {
        let why = refused(&format!("{}{db}", cluster.url())).await;
        assert!(why.starts_with("it runs in cluster mode"), "{why}");
    }
    let full = ServerOptions::new(Kind::Redis)
        .config("maxclients 1")
        .start();
    let _one = connected(&full.url()).await;
    assert_eq!(
        unreachable(&full.url()).await,
        "it accepts no more clients (maxclients)"
    );
}

/// A server that says this to every client, once it has received something.
async fn scripted(said: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://me:sesame@{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut heard = vec![0; 1 << 20];
            let _ = stream.read(&mut heard).await;
            let _ = stream.write_all(said).await;
            // Everything is read before the end. Otherwise the connection would be reset, and the words be lost.
            let _ = stream.shutdown().await;
            while stream.read(&mut heard).await.is_ok_and(|read| read > 0) {}
        }
    });
    url
}

#[tokio::test]
async fn strange_greetings_are_reported_with_the_reason() {
    for (said, why) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "it does not speak RESP: it says \"HTTP/1.1 400\"",
        ),
        (
            b"-ERR unknown command `HELLO`, with args: `3`, `AUTH`, `me`, `sesame`\r\n",
            "it does not know HELLO: it is older than Redis 7.0, or a proxy",
        ),
        (
            b"-NOPROTO unsupported protocol version\r\n",
            "it does not speak RESP3: it is older than Redis 7.0, or a proxy",
        ),
        (
            b"-ERR not with c2VzYW1l\r\n",
            "it refuses this client: ERR (its message is hidden, because it may repeat the password)",
        ),
        (
            b"-Not with c2VzYW1l\r\n",
            "it refuses this client: its message is hidden, because it may repeat the password",
        ),
        (
            b"%1\r\n$2\r\nid\r\n:3\r\n+OK\r\n+OK\r\n-ERR not with sesame\r\n",
            "it does not accept quorate's scripts: ERR",
        ),
        (b"c2VzYW1l\r\n", "it does not speak RESP: it says \"***\""),
        (
            b"-DENIED Redis is running in protected mode because ...\r\n",
            "it is in protected mode and serves its own host only: \
             give it a password, or set `protected-mode no`",
        ),
        (
            b"+OK\r\n",
            "it does not answer HELLO as Redis and Valkey do: \
             quorate needs the server itself, no proxy",
        ),
        (
            b"%2\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n$2\r\nid\r\n:3\r\n",
            "it runs in sentinel mode: \
             quorate needs independent masters, without cluster or sentinel",
        ),
        (b"$9999999\r\n", "it sends an answer of more than 1024 KiB"),
    ] {
        assert_eq!(refused(&scripted(said).await).await, why);
    }
    for (said, why) in [
        (
            &b""[..],
            "it closes the connection without an answer; if this is a TLS port, use rediss://",
        ),
        (
            b"%1\r\n$2\r\nid\r\n:3\r\n",
            "it closes the connection without an answer; if this is a TLS port, use rediss://",
        ),
        (
            b"%1\r\n$2\r\nid\r\n:3\r\n-ERR\r\n-LOADING x\r\n-LOADING x\r\n",
            "it is loading its data",
        ),
        (
            b"-LOADING Redis is loading the dataset in memory\r\n",
            "it is loading its data",
        ),
        (
            b"-MASTERDOWN x\r\n",
            "it is a replica that waits for its master",
        ),
        (b"-BUSY x\r\n", "it is busy with a script that does not end"),
    ] {
        assert_eq!(unreachable(&scripted(said).await).await, why);
    }
}
