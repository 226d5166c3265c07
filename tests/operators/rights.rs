//! A node votes only if its user may do everything that taking, renewing and freeing a lock need. Other missing rights
//! lead to a note (operations: the line for ACL SETUSER). The tests use real servers.

use std::time::{Duration, Instant};

use crate::support::{Fleet, Kind, Server, ServerOptions};
use quorate::{Builder, Error, NodeState, NodeStatus, Quorum};

/// The rights that a voting node may lack, with the beginning of the note. The right to connect cannot be withheld.
const USEFUL: [&str; 5] = [
    "EXISTS",
    "CLIENT KILL",
    "CLIENT REPLY",
    "SSUBSCRIBE",
    "SPUBLISH",
];
const ALWAYS: &str = "HELLO";

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The words after `ACL SETUSER quorate` in the documentation.
fn documented() -> Vec<&'static str> {
    let text = include_str!("../../src/docs/operations.md");
    let line = text.split("ACL SETUSER quorate").nth(1).unwrap();
    let line = line.split("```").next().unwrap();
    line.split_whitespace().collect()
}

/// The name of the command: `+script|load` is SCRIPT LOAD.
fn name(grant: &str) -> String {
    let name = grant.strip_prefix('+').unwrap();
    name.to_uppercase().replace('|', " ")
}

fn grants() -> impl Iterator<Item = &'static str> {
    documented()
        .into_iter()
        .filter(|word| word.starts_with('+') && *word != "+@all")
}

/// Makes a user with the documented line. The words in `more` are added at the end, to give or withdraw rights.
fn user(server: &Server, user: &str, more: &[&str]) -> String {
    let mut words = vec!["ACL", "SETUSER", user, "reset"];
    words.extend(documented());
    words.extend(more);
    server.cmd(&words);
    server.url_with(user, "SECRET")
}

fn builder() -> Builder {
    Quorum::builder()
        .fleet("tests")
        .max_ttl(ms(2_000))
        .restart_margin(ms(100))
        .connect_timeout(ms(4_000))
}

async fn admitted(urls: &[String]) -> Quorum {
    let quorum = builder().nodes(urls).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    quorum
}

/// Waits for a handshake to show it. Two handshakes come within this time.
async fn wait_for(quorum: &Quorum, is_so: impl Fn(&NodeStatus) -> bool) -> Vec<NodeStatus> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let nodes = quorum.nodes();
        if nodes.iter().all(&is_so) {
            return nodes;
        }
        assert!(Instant::now() < deadline, "{nodes:?}");
        tokio::time::sleep(ms(5)).await;
    }
}

fn votes(node: &NodeStatus) -> bool {
    node.state == NodeState::Voting
}

/// Everything that a lock needs during its life.
async fn cycle(quorum: &Quorum) {
    let lease = quorum.mutex("a").try_lock().await.unwrap().unwrap();
    assert!(quorum.mutex("a").try_lock().await.unwrap().is_none());
    lease.extend().await.unwrap();
    lease.release().await.unwrap();
}

/// The reason why the only node, or the first one, is refused. The error of `connect` says the same.
async fn refusal(url: &str) -> String {
    let error = builder().node(url).connect().await.expect_err("refused");
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    let quorum = builder().node(url).connect_lazy().unwrap();
    let nodes = wait_for(&quorum, |node| node.state != NodeState::Connecting).await;
    let NodeState::Refused(why) = &nodes[0].state else {
        panic!("{nodes:?}")
    };
    assert!(error.to_string().contains(why), "{error}: {why}");
    let locked = quorum.mutex("a").try_lock().await.unwrap_err();
    assert!(locked.to_string().contains(why), "{locked}");
    why.clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_right_of_the_documented_line_is_needed_or_noted() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        admitted(&[server.url()]).await;
        for grant in grants() {
            let name = name(grant);
            let url = user(&server, "locker", &[&grant.replace('+', "-")]);
            if name == ALWAYS || USEFUL.contains(&&*name) {
                let quorum = builder().node(&url).connect().await.unwrap();
                cycle(&quorum).await;
                let note = quorum.nodes()[0].note.clone().unwrap_or_default();
                match &*name {
                    ALWAYS => assert_eq!(note, ""),
                    _ => assert!(
                        note.starts_with(&format!("its ACL withholds {name}: ")),
                        "{note}"
                    ),
                }
            } else {
                let why = format!(
                    "its ACL withholds {name} from user \"locker\": \
                     grant it with ACL SETUSER ({grant})"
                );
                assert_eq!(refusal(&url).await, why);
            }
        }
        let url = user(
            &server,
            "locker",
            &["-hmget", "-exists", "-script|load", "-pexpire"],
        );
        assert_eq!(
            refusal(&url).await,
            "its ACL withholds SCRIPT LOAD, HMGET and PEXPIRE from user \"locker\": \
             grant them with ACL SETUSER (+script|load +hmget +pexpire)"
        );
        let url = user(
            &server,
            "locker",
            &[
                "-exists",
                "-client|kill",
                "-client|reply",
                "-ssubscribe",
                "-spublish",
            ],
        );
        let quorum = builder().node(&url).connect().await.unwrap();
        let note = quorum.nodes()[0].note.clone().unwrap();
        for name in USEFUL {
            assert!(
                note.contains(&format!("its ACL withholds {name}: ")),
                "{note}"
            );
        }
    }
}

/// A bootstrap needs EXISTS, as the note says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bootstrap_needs_exists() {
    let server = Server::start(Kind::Valkey);
    let url = user(&server, "locker", &["-exists"]);
    let quorum = builder()
        .max_ttl(ms(30_000))
        .node(&url)
        .connect()
        .await
        .unwrap();
    let error = quorum.bootstrap().await.unwrap_err();
    assert!(error.to_string().contains("'exists'"), "{error}");
    quorum.bootstrap_forced().await.unwrap();
    cycle(&quorum).await;
}

/// The documented line does not contain HRANDFIELD, so a refusal says how to find the locks.
async fn a_bootstrap_names_a_lock_where_it_may(kind: Kind) {
    let server = Server::start(kind);
    let url = user(&server, "locker", &[]);
    server.cmd(&["HSET", "quorate:c0", "_", "1", "@mutex:invoice:42", "7"]);
    let quorum = builder()
        .max_ttl(ms(30_000))
        .node(&url)
        .connect()
        .await
        .unwrap();
    let refused = async || {
        let error = quorum.bootstrap().await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        error.to_string()
    };
    let port = server.port();
    let why = refused().await;
    let which = format!(
        "{port} holds counters, so it has given out locks (HKEYS quorate:c0 there names them)"
    );
    assert!(why.contains(&which), "{why}");
    // A missing HRANDFIELD is not reported.
    let node = &quorum.nodes()[0];
    assert!(matches!(node.state, NodeState::Quarantined(_)), "{node:?}");
    assert_eq!(node.note, None);

    user(&server, "locker", &["+hrandfield"]);
    let why = refused().await;
    let which =
        format!("{port} holds counters, so it has given out locks (\"invoice:42\" is one of them)");
    assert!(why.contains(&which), "{why}");

    // A right that is not needed is not refused.
    user(&server, "locker", &[]);
    server.cmd(&["DEL", "quorate:c0"]);
    quorum.bootstrap().await.unwrap();
    cycle(&quorum).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bootstrap_names_a_lock_where_it_may_on_redis() {
    a_bootstrap_names_a_lock_where_it_may(Kind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bootstrap_names_a_lock_where_it_may_on_valkey() {
    a_bootstrap_names_a_lock_where_it_may(Kind::Valkey).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_needs_its_own_right() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let url = user(&server, "locker", &[]);
        assert_eq!(
            refusal(&format!("{url}/3")).await,
            "its ACL withholds SELECT from user \"locker\": grant it with ACL SETUSER (+select)"
        );
        let url = user(&server, "locker", &["+select"]);
        let quorum = admitted(&[format!("{url}/3")]).await;
        cycle(&quorum).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_line_is_enough_for_everything() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        let urls = fleet.iter().map(|server| user(server, "locker", &[]));
        let urls: Vec<String> = urls.collect();
        let quorum = builder()
            .max_ttl(ms(30_000))
            .nodes(&urls)
            .connect()
            .await
            .unwrap();
        // This includes all its questions to new servers.
        quorum.bootstrap().await.unwrap();
        cycle(&quorum).await;
        // The counters are older than 2 days, so new ones are begun.
        for server in fleet.iter() {
            server.cmd(&["HSET", "quorate:c0", "_", "1"]);
        }
        let lease = quorum.mutex("a").lock().await.unwrap();
        let inspected = quorum.inspect("a").await.unwrap();
        assert!(inspected.holder().is_some());
        quorum.evict("a").await.unwrap();
        assert!(lease.extend().await.is_err(), "evicted");
        for node in quorum.nodes() {
            assert_eq!((node.state, node.note), (NodeState::Voting, None));
        }
        for server in fleet.iter() {
            let keys: Vec<String> = server.keys().into_iter().map(|(key, _)| key).collect();
            assert!(keys.contains(&"quorate:c1".into()), "rotated: {keys:?}");
        }
    }
}

/// This holds on an empty server, and on one in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tries_change_nothing() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let changes = || server.info("rdb_changes_since_last_save").unwrap();
        // Without INFO nothing follows the trial commands.
        let url = user(&server, "locker", &["-info"]);
        let before = changes();
        refusal(&url).await;
        assert_eq!((server.keys(), changes()), (Vec::new(), before));

        let quorum = admitted(&[server.url()]).await;
        let lease = quorum.mutex("a").lock().await.unwrap();
        quorum.shutdown().await;
        drop(lease);
        server.cmd(&["HSET", "quorate:c1", "_", "1"]);
        server.cmd(&["SET", "quorate:@mutex:b", "x", "PX", "100000"]);
        let dump = || {
            let keys = server.keys().into_iter();
            let dump =
                |(key, _): (String, i64)| (format!("{:?}", server.cmd(&["DUMP", &key])), key);
            keys.map(dump).collect::<Vec<_>>()
        };
        let (before, held) = ((dump(), changes()), dump().len());
        refusal(&url).await;
        assert_eq!((dump(), changes()), before);
        assert!(held >= 5, "there was something to change: {before:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_server_misses_no_rights() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let url = user(&server, "locker", &[]);
        let quorum = admitted(&[server.url()]).await;
        let lease = quorum.mutex("a").lock().await.unwrap();
        server.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
        let other = builder().node(&url).connect().await.unwrap();
        let is_full = |node: &NodeStatus| matches!(node.state, NodeState::RefusesWrites(_));
        let nodes = wait_for(&other, is_full).await;
        assert_eq!(nodes[0].note, None);
        let error = other.mutex("b").try_lock().await.unwrap_err();
        assert!(error.to_string().contains("OOM"), "it is full: {error}");
        lease.extend().await.unwrap();
        let url = user(&server, "locker", &["-hset"]);
        assert!(
            refusal(&url)
                .await
                .starts_with("its ACL withholds HSET from")
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_a_user_may_not_touch() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        for keys in [
            &["~others:*"][..],
            &["~quorate"],
            &["%R~quorate:*"],
            &["%W~quorate:*"],
            &["~quorate:@mutex:*"],
            // All except one.
            &[
                "~quorate:boot",
                "~quorate:open",
                "~quorate:time",
                "~quorate:c0",
                "~quorate:c1",
            ],
            &[
                "~quorate:boot",
                "~quorate:open",
                "~quorate:time",
                "~quorate:c0",
                "~quorate:@mutex:*",
            ],
            &[
                "~quorate:boot",
                "~quorate:open",
                "~quorate:time",
                "~quorate:c0",
                "~quorate:c1",
                "~quorate:@mutex*",
            ],
        ] {
            let url = user(&server, "locker", &[&["resetkeys"], keys].concat());
            assert_eq!(
                refusal(&url).await,
                "its ACL withholds keys of quorate from user \"locker\": \
                 grant them with ACL SETUSER (~quorate:*)",
                "{keys:?}"
            );
        }
        // Another prefix needs rights to other keys.
        let url = user(&server, "locker", &[]);
        let quorum = builder()
            .key_prefix("jobs")
            .node(&url)
            .connect_lazy()
            .unwrap();
        let refused = |node: &NodeStatus| node.to_string().contains("ACL SETUSER (~jobs:*)");
        wait_for(&quorum, refused).await;
        user(&server, "locker", &["~jobs:*"]);
        wait_for(&quorum, |node| !refused(node)).await;
    }
}

/// A node without its channel votes, and its note says that it is polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_that_a_user_may_not_use() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        admitted(&[server.url()]).await;
        for (prefix, channels, note) in [
            ("quorate", &[][..], None),
            ("quorate", &["allchannels"], None),
            ("quorate", &["resetchannels"], Some("&quorate:wake:*")),
            (
                "quorate",
                &["resetchannels", "&others:*"],
                Some("&quorate:wake:*"),
            ),
            // The user may listen to its own channel, but may not publish.
            (
                "quorate",
                &["resetchannels", "&quorate:wake:?*"],
                Some("&quorate:wake:*"),
            ),
            ("jobs", &["~jobs:*"], Some("&jobs:wake:*")),
            ("jobs", &["~jobs:*", "&jobs:wake:*"], None),
        ] {
            let url = user(&server, "locker", channels);
            let quorum = builder().key_prefix(prefix).node(&url);
            let quorum = quorum.connect().await.unwrap();
            if prefix == "jobs" {
                quorum.bootstrap_forced().await.unwrap();
            }
            cycle(&quorum).await;
            let seen = quorum.nodes()[0].note.clone();
            let note = note.map(|channels| {
                format!(
                    "its ACL withholds channels of quorate ({channels}): waiters are not told here when a lock is \
                     free, and ask from time to time"
                )
            });
            assert_eq!(seen, note, "{channels:?}");
        }
    }
}

/// A user may be limited to some names. A request for another name costs the others nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_may_lock_some_names_only() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let keys = "resetkeys ~quorate:boot ~quorate:open ~quorate:time ~quorate:c0 ~quorate:c1 \
                    ~quorate:waiting ~quorate:@mutex: ~quorate:@mutex:jobs-* \
                    ~quorate:@mutex-evicted: ~quorate:@mutex-evicted:jobs-* \
                    ~quorate:@mutex-line: ~quorate:@mutex-line:jobs-* \
                    ~quorate:@mutex-waiters: ~quorate:@mutex-waiters:jobs-* \
                    ~quorate:@semaphore: ~quorate:@semaphore-ends: ~quorate:@semaphore-line: \
                    ~quorate:@many: ~quorate:@many-ends: ~quorate:@many-line: \
                    ~quorate:@units: ~quorate:@units-ends: ~quorate:@units-line: ~quorate:@rate: \
                    ~quorate:@rwlock: ~quorate:@rwlock-window: ~quorate:@rwlock-readers: ~quorate:@rwlock-writers: \
                    ~quorate:@rwlock-refused: ~quorate:@rwlock-wakes: ~quorate:@rwlock-evicted:";
        let keys: Vec<&str> = keys.split_whitespace().collect();
        let quorum = admitted(&[user(&server, "locker", &keys)]).await;
        let lease = quorum.mutex("jobs-1").lock().await.unwrap();
        let connections = || server.info("total_connections_received").unwrap();
        let clients = || {
            let list = server.cmd(&["CLIENT", "LIST"]);
            let list: String = redis::FromRedisValue::from_redis_value(list).unwrap();
            let ours = list.lines().filter(|line| line.contains("user=locker"));
            ours.map(|line| line.split(' ').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let before = clients();
        assert_eq!(before.len(), 1, "{} ever", connections());
        // It sees the lock, although it may not ask about a semaphore or a read-write lock.
        let seen = quorum.inspect("jobs-1").await.unwrap();
        assert!(seen.holder().is_some(), "{seen}");
        assert_eq!(seen.nodes[0].silence, None);
        let error = quorum.mutex("other").try_lock().await.unwrap_err();
        assert!(error.to_string().contains("NOPERM"), "{error}");
        // In one batch with others it is refused together with them, once. From then on every request goes alone.
        let mut refused = 0;
        for _ in 0..4 {
            let names = ["other", "jobs-2", "jobs-3", "jobs-4"];
            let asked = names.map(|name| quorum.mutex(name).try_lock());
            let got = futures::future::join_all(asked).await;
            assert!(got[0].is_err());
            refused += usize::from(got[1..].iter().any(Result::is_err));
        }
        assert!(refused <= 1, "{refused} rounds");
        // A RELEASE that was refused in that batch is sent again after 250 ms.
        for name in ["jobs-2", "jobs-3", "jobs-4"] {
            drop(quorum.mutex(name).lock().await.unwrap());
        }
        assert_eq!(clients(), before, "the same connection");
        assert!(quorum.nodes().iter().all(votes));
        lease.extend().await.unwrap();
        // Its mutex can be freed, although the read-write lock of that name cannot.
        assert!(quorum.evict("jobs-1").await.unwrap());
        assert!(matches!(lease.extend().await, Err(Error::Lost(_))));
    }
}

/// As after `rename-command`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_a_server_does_not_have() {
    for kind in Kind::ALL {
        let options = ServerOptions::new(kind)
            .config("rename-command HMGET \"\"")
            .config("rename-command UNLINK \"\"");
        assert_eq!(
            refusal(&options.start().url()).await,
            "it does not know UNLINK and HMGET: quorate needs each under its own name"
        );
        let options = ServerOptions::new(kind).config("rename-command EXISTS \"\"");
        let quorum = admitted(&[options.start().url()]).await;
        let note = quorum.nodes()[0].note.clone().unwrap();
        assert!(note.starts_with("it does not know EXISTS: "), "{note}");
    }
}

/// When a right is withdrawn from a voting node, the node is refused as soon as something needs the right. When it is
/// given back, the node votes again by itself.
async fn withdrawn_and_given_back(kind: Kind) {
    let fleet = Fleet::start(3, kind);
    let urls = fleet.iter().map(|server| user(server, "locker", &[]));
    let urls: Vec<String> = urls.collect();
    let quorum = admitted(&urls).await;
    let set = |right: &str| {
        for server in fleet.iter() {
            server.cmd(&["ACL", "SETUSER", "locker", right]);
        }
    };
    // A handshake notices missing keys, and it comes every 5 s.
    set("resetkeys");
    assert!(quorum.mutex("a").try_lock().await.is_err());
    let refused = |node: &NodeStatus| matches!(&node.state, NodeState::Refused(why) if why.contains("ACL SETUSER"));
    wait_for(&quorum, refused).await;
    set("~quorate:*");
    for right in ["hmget", "evalsha", "info"] {
        wait_for(&quorum, votes).await;
        set(&format!("-{right}"));
        let error = quorum.mutex("a").try_lock().await;
        let withheld = format!("its ACL withholds {}", right.to_uppercase());
        let refused = |node: &NodeStatus| match &node.state {
            NodeState::Refused(why) => why.starts_with(&withheld),
            _ => false,
        };
        let start = Instant::now();
        wait_for(&quorum, refused).await;
        match right {
            // Only a handshake needs it, and it comes every 5 s.
            "info" => assert!(error.is_ok(), "{error:?}"),
            _ => {
                assert!(error.is_err(), "{error:?}");
                // A handshake would not have noticed it this soon.
                assert!(start.elapsed() < ms(3_000), "{:?}", start.elapsed());
            }
        }
        let error = quorum.mutex("a").try_lock().await.unwrap_err();
        assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
        assert!(error.to_string().contains(&withheld), "{error}");
        set(&format!("+{right}"));
    }
    wait_for(&quorum, votes).await;
    // A node's note appears and disappears with its connection.
    assert!(quorum.nodes().iter().all(|node| node.note.is_none()));
    let lease = quorum.mutex("b").lock().await.unwrap();
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_withdrawn_and_given_back_on_redis() {
    withdrawn_and_given_back(Kind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_withdrawn_and_given_back_on_valkey() {
    withdrawn_and_given_back(Kind::Valkey).await;
}

/// Where the other nodes are a majority, one node that withholds a right costs no lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_of_three() {
    let fleet = Fleet::start(3, Kind::Valkey);
    let urls = fleet.iter().map(|server| user(server, "locker", &[]));
    let urls: Vec<String> = urls.collect();
    let quorum = admitted(&urls).await;
    let lease = quorum.mutex("a").lock().await.unwrap();
    fleet[0].cmd(&["ACL", "SETUSER", "locker", "-pexpire", "-hset"]);
    lease.extend().await.unwrap();
    let other = quorum.mutex("b").lock().await.unwrap();
    lease.extend().await.unwrap();
    // Callers do not wait for the answer of this node, because the others were enough. It comes at once, and is read
    // late only on a busy machine.
    let deadline = Instant::now() + Duration::from_secs(5);
    while quorum.health().voting != 2 {
        assert!(Instant::now() < deadline, "{:?}", quorum.nodes());
        tokio::time::sleep(ms(5)).await;
    }
    other.release().await.unwrap();
    lease.release().await.unwrap();
}

/// A user may do one thing on some keys, but not on others (selectors).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_on_the_wrong_keys_is_missing() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        admitted(&[server.url()]).await;
        let url = user(&server, "locker", &["-hmget", "(~quorate:@mutex:* +hmget)"]);
        let why = refusal(&url).await;
        assert!(
            why.contains("HMGET") || why.contains("keys of quorate"),
            "{why}"
        );
    }
}

/// A server answers each RELEASE with an error, and the RELEASE is sent again. The caller gets that error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_release_is_reported() {
    let server = Server::start(Kind::Redis);
    let quorum = admitted(&[user(&server, "locker", &[])]).await;
    let lease = quorum.mutex("a").lock().await.unwrap();
    // Only the key is withdrawn, because a withdrawn command would end the connection.
    let keys = "~quorate:boot ~quorate:open ~quorate:time ~quorate:c0 ~quorate:c1";
    let mut words = vec!["ACL", "SETUSER", "locker", "resetkeys"];
    words.extend(keys.split(' '));
    server.cmd(&words);
    let error = lease.release().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("with an error") && text.contains("key"),
        "{text}"
    );
}
