//! Wrong settings and unfit servers are refused with the right kind of error, and with a text that says what is wrong
//! and what to do. No text contains a password (api: `Error`; protocol §2).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{Fleet, Kind, Proxy, Server, ServerOptions};
use quorate::{Builder, Error, NodeState, NodeStatus, Quorum, Renewal, Silence, Vote};

const PASSWORD: &str = "swordfish77";

const CONNECT_TIMEOUT: Duration = ms(4_000);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn builder() -> Builder {
    Quorum::builder()
        .fleet("tests") // some reach the masters through proxies
        .max_ttl(ms(2_000))
        .restart_margin(ms(100))
        .connect_timeout(CONNECT_TIMEOUT)
        .dial_timeout(ms(700))
}

/// Checks that the error and its report contain these words. No form of the error may contain more than it is allowed
/// to.
#[track_caller]
fn says(error: &Error, words: &[&str]) {
    let report = error.report().map(ToString::to_string);
    let text = format!("{error} {}", report.unwrap_or_default());
    for word in words {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
    silent(&text);
    silent(&format!("{error:?} {:?}", error.report()));
    if error.report().is_some() {
        let line = format!("{error:?}");
        assert!(
            !line.contains("127.0.0.1") && !line.contains('\n'),
            "{line}"
        );
        assert!(line.chars().count() < 1_500, "{line}");
    }
}

#[track_caller]
fn silent(text: &str) {
    assert!(!text.contains(PASSWORD), "the password is told: {text}");
}

#[track_caller]
fn invalid<T: std::fmt::Debug>(result: Result<T, Error>, words: &[&str]) {
    let error = result.expect_err("is refused");
    assert!(matches!(error, Error::Invalid(_)), "{error:?}");
    assert!(
        !error.is_retryable() && error.report().is_none(),
        "it needs another program"
    );
    says(&error, words);
}

// ---- settings, with no server --------------------------------------------------------------

#[tokio::test]
async fn names_and_settings_of_a_mutex() {
    let quorum = Quorum::in_memory(3);
    for name in ["a", "ü", " ", "\0\n", &"x".repeat(512)] {
        assert!(
            quorum.mutex(name).try_lock().await.unwrap().is_some(),
            "{name:?}"
        );
    }
    let empty = ["empty", "1 to 512 bytes"];
    invalid(quorum.mutex("").lock().await, &empty);
    invalid(quorum.mutex("").try_lock().await, &empty);
    invalid(quorum.mutex("").run(|_| async {}).await, &empty);
    invalid(quorum.mutex("").try_run(|_| async {}).await, &empty);
    invalid(quorum.inspect("").await, &empty);
    invalid(quorum.evict("").await, &empty);
    // 513 bytes, although it has 257 characters.
    let huge = format!("{}x", "ü".repeat(256));
    invalid(
        quorum.mutex(&huge).lock().await,
        &["513 bytes", "at most 512"],
    );
    invalid(quorum.inspect(&huge).await, &["513 bytes", "at most 512"]);

    let mutex = quorum.mutex("m");
    for ttl in [Duration::ZERO, ms(1), ms(99), Duration::from_micros(99_999)] {
        invalid(
            mutex.clone().ttl(ttl).lock().await,
            &["ttl must be at least", "100ms"],
        );
    }
    assert!(
        mutex
            .clone()
            .ttl(ms(100))
            .try_lock()
            .await
            .unwrap()
            .is_some()
    );
    let max_ttl = Duration::from_secs(30);
    let long = ["max_ttl of 30s", "lower", "raise"];
    invalid(mutex.clone().ttl(max_ttl + ms(1)).lock().await, &long);
    invalid(
        mutex
            .clone()
            .ttl(Duration::MAX)
            .lock_delay(Duration::MAX)
            .lock()
            .await,
        &long,
    );
    invalid(
        mutex
            .clone()
            .ttl(ms(20_000))
            .lock_delay(ms(10_001))
            .try_lock()
            .await,
        &long,
    );
    let whole = mutex.clone().ttl(ms(20_000)).lock_delay(ms(10_000));
    assert!(whole.try_lock().await.unwrap().is_some());

    let renewal = |renewal| mutex.clone().renewal(renewal).lock();
    invalid(
        renewal(Renewal::auto().max_hold(Duration::ZERO)).await,
        &["max_hold", "100ms"],
    );
    invalid(
        renewal(Renewal::auto().heartbeat(ms(99))).await,
        &["heartbeat", "100ms"],
    );
}

#[tokio::test]
async fn settings_of_a_quorum() {
    let node = || Quorum::builder().node("redis://127.0.0.1:1");
    let lazy = |builder: Builder| builder.connect_lazy();
    invalid(lazy(Quorum::builder()), &["no node", "at least one"]);
    invalid(Quorum::connect([""; 0]).await, &["no node", "at least one"]);
    invalid(
        lazy(node().node_timeout(Duration::ZERO)),
        &["node_timeout", "zero"],
    );
    invalid(
        lazy(node().connect_timeout(Duration::ZERO)),
        &["connect_timeout", "zero"],
    );
    invalid(
        lazy(node().dial_timeout(Duration::ZERO)),
        &["dial_timeout", "zero"],
    );
    for max_ttl in [
        Duration::ZERO,
        ms(99),
        Duration::from_secs(24 * 3_600 + 1),
        Duration::MAX,
    ] {
        invalid(lazy(node().max_ttl(max_ttl)), &["max_ttl", "24 h"]);
    }
    for label in [
        "",
        "a b",
        "a@b",
        "ü",
        "a\"b",
        "a'b",
        "a\\b",
        &"x".repeat(129),
    ] {
        invalid(
            lazy(node().label(label)),
            &["label", "1 to 128 printable ASCII"],
        );
    }
    for prefix in ["", "a b", "{a}", "a*", "ü", &"x".repeat(65)] {
        invalid(
            lazy(node().key_prefix(prefix)),
            &["prefix", "1 to 64 characters"],
        );
    }
    assert!(lazy(node().key_prefix("x".repeat(64)).label("web-1.b:7_7")).is_ok());
    assert!(lazy(node().label("https://[::1]:8080/a?b=1&c=%20#d")).is_ok());
    assert!(lazy(node().label("~".repeat(128))).is_ok());
}

#[tokio::test]
async fn invalid_addresses_are_refused() {
    let lazy = |url: &str| Quorum::builder().node(url).connect_lazy();
    for url in [
        "",
        "localhost",
        "127.0.0.1:6379",
        "http://127.0.0.1",
        "redis://",
        "redis://h:99999",
    ] {
        invalid(lazy(url), &["is not a valid node", "redis://"]);
    }
    for url in [
        format!("http://:{PASSWORD}@127.0.0.1"),
        format!("redis://:{PASSWORD}@127.0.0.1:port"),
        format!("redis://user:{PASSWORD}@127.0.0.1/notadb"),
        format!("redis://:{PASSWORD}@127.0.0.1#fragment"),
        format!("redis:/:{PASSWORD}@127.0.0.1"),
        format!("rediss://:{PASSWORD}@127.0.0.1:x"),
        format!("unix:///tmp/x?pass={PASSWORD}&db=x"),
    ] {
        let error = lazy(&url).map(|_| url.clone()).expect_err(&url);
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        says(&error, &[]);
    }
}

#[tokio::test]
async fn the_same_address_twice() {
    let with = |password: &str| format!("redis://:{password}@127.0.0.1:7001");
    let two = [
        with(PASSWORD),
        "redis://127.0.0.1:7002".into(),
        with("another"),
    ];
    invalid(
        Quorum::connect(&two).await,
        &["127.0.0.1:7001 is given twice", "one vote"],
    );
    let default = [
        "redis://localhost",
        "redis://LOCALHOST:6379/1",
        "redis://127.0.0.1",
    ];
    invalid(
        Quorum::connect(default).await,
        &["6379 is given twice", "one vote"],
    );
}

// ---- unfit servers --------------------------------------------------------------------------

/// Two addresses of one server are one vote. The client notices this at connect, by the server's run id. A second
/// address that is met too late for that is refused, and never counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_addresses_of_one_server() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(2, kind);
        let proxy = Proxy::start(&fleet[0]);
        let localhost = format!("redis://localhost:{}", fleet[0].port());
        // Another database of the server is not another server either.
        let database = format!("{}/3", proxy.url());
        for second in [localhost, proxy.url().into(), fleet[0].unix_url(), database] {
            let urls = [fleet[0].url(), fleet[1].url(), second.clone()];
            let mut refused = builder().nodes(&urls).connect().await;
            for _ in 0..5 {
                let Ok(quorum) = &refused else { break };
                let is_met = |states: &[NodeState]| !states.contains(&NodeState::Connecting);
                wait_for(quorum, is_met).await;
                let states = quorum.nodes();
                let refused_one = |node: &NodeStatus| matches!(node.state, NodeState::Refused(_));
                assert_eq!(
                    states.iter().filter(|node| refused_one(node)).count(),
                    1,
                    "{quorum:?}"
                );
                refused = builder().nodes(&urls).connect().await;
            }
            invalid(refused, &["is the same server as", "one address"]);
        }
    }
}

/// If two of five nodes are `bad`, the quorum works, and `nodes()` says why they do not vote. If three of them are bad,
/// there is an error that names all five, with the reasons.
async fn refused(bad: &[String], words: &[&str]) {
    assert_eq!(bad.len(), 3);
    let good = Fleet::start(3, Kind::Redis);
    let urls: Vec<String> = good
        .urls()
        .into_iter()
        .chain(bad[..2].iter().cloned())
        .collect();
    let builder = || builder().max_ttl(ms(300));
    let quorum = builder()
        .nodes(&urls)
        .connect()
        .await
        .expect("a majority is fine");
    wait_for(&quorum, |states| !states.contains(&NodeState::Connecting)).await;
    for node in &quorum.nodes()[3..] {
        let text = node.to_string();
        assert!(
            matches!(
                node.state,
                NodeState::Refused(_) | NodeState::Unreachable(..)
            ),
            "{text}"
        );
        for word in words {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
        silent(&format!("{text} {node:?}"));
    }
    let lease = quorum
        .mutex("a")
        .wait_timeout(ms(4_000))
        .lock()
        .await
        .unwrap();
    silent(&format!("{quorum:?} {lease:?}"));
    lease.release().await.unwrap();

    let urls: Vec<String> = good.urls()[..2].iter().chain(bad).cloned().collect();
    let start = Instant::now();
    let error = builder()
        .nodes(&urls)
        .connect()
        .await
        .expect_err("no majority");
    // One second is for a busy machine.
    assert!(start.elapsed() < CONNECT_TIMEOUT + ms(1_000));
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    says(&error, words);
    for url in &urls {
        let address = url.rsplit(['@', '/']).next().unwrap();
        says(&error, &[address]);
    }
    let report = error.report().unwrap();
    assert_eq!((report.nodes().len(), report.needed()), (5, 3), "{report}");
    for node in &report.nodes()[..2] {
        let text = node.vote.to_string();
        assert!(
            node.vote == Vote::Confirmed || text.contains("still connecting"),
            "{report}"
        );
    }
}

/// Waits for far longer than a dial, its timeout of 0.7 s and its back-off of a second.
async fn wait_for(quorum: &Quorum, is_so: impl Fn(&[NodeState]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let states: Vec<NodeState> = quorum.nodes().into_iter().map(|node| node.state).collect();
        if is_so(&states) {
            return;
        }
        assert!(Instant::now() < deadline, "{states:?}");
        tokio::time::sleep(ms(5)).await;
    }
}

async fn refused_servers(options: ServerOptions, words: &[&str]) {
    let bad = Fleet::start_with(3, options);
    refused(&bad.urls(), words).await;
}

fn with_password(kind: Kind) -> ServerOptions {
    ServerOptions::new(kind).password("another")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_where_nobody_is() {
    let bad = Fleet::start(3, Kind::Redis);
    bad.iter().for_each(Server::kill9);
    refused(&bad.urls(), &["unreachable", "no connection to", "refused"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_another_password() {
    for kind in Kind::ALL {
        let bad = Fleet::start_with(3, with_password(kind));
        let urls = |user| {
            bad.iter()
                .map(move |s| s.url_with(user, PASSWORD))
                .collect::<Vec<_>>()
        };
        refused(
            &urls("default"),
            &["refused", "user \"default\" with this password", "URL"],
        )
        .await;
        refused(
            &urls("nobody"),
            &["refused", "user \"nobody\" with this password", "URL"],
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_ask_for_a_password() {
    let bad = Fleet::start_with(3, with_password(Kind::Valkey));
    let urls: Vec<String> = bad
        .iter()
        .map(|server| format!("redis://127.0.0.1:{}", server.port()))
        .collect();
    refused(
        &urls,
        &["asks for a password", "redis://user:password@host"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_that_lack_permissions() {
    for lacking in ["-info", "-time", "-eval", "-script", "-set"] {
        let user = format!("locker on >{PASSWORD} ~quorate:* &quorate:* +@all {lacking}");
        let bad = Fleet::start_with(3, ServerOptions::new(Kind::Redis).acl(&user));
        let urls: Vec<String> = bad.iter().map(|s| s.url_with("locker", PASSWORD)).collect();
        refused(&urls, &["refused", "its ACL withholds", "ACL SETUSER"]).await;
    }
    let user = format!("locker on >{PASSWORD} ~others:* &* +@all");
    let bad = Fleet::start_with(3, ServerOptions::new(Kind::Valkey).acl(&user));
    let urls: Vec<String> = bad.iter().map(|s| s.url_with("locker", PASSWORD)).collect();
    refused(&urls, &["refused", "its ACL withholds", "ACL SETUSER"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas() {
    for kind in Kind::ALL {
        let master = Server::start(kind);
        let bad = Fleet::start(3, kind);
        bad.iter().for_each(|server| server.replicaof(&master));
        refused(&bad.urls(), &["refused", "it is a replica, not a master"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_nodes() {
    for kind in Kind::ALL {
        let words = ["refused", "cluster mode", "independent masters"];
        refused_servers(ServerOptions::new(kind).cluster(), &words).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_evict() {
    for kind in Kind::ALL {
        let options = ServerOptions::new(kind).maxmemory_policy("allkeys-lru");
        let words = [
            "refused",
            "maxmemory-policy is allkeys-lru",
            "noeviction",
            "allow_eviction",
        ];
        refused_servers(options.clone(), &words).await;

        let fleet = Fleet::start_with(3, options);
        let quorum = builder()
            .allow_eviction()
            .nodes(fleet.urls())
            .connect()
            .await
            .unwrap();
        quorum.bootstrap_forced().await.unwrap();
        assert!(
            quorum.mutex("a").try_lock().await.unwrap().is_some(),
            "knowing that"
        );
    }
}

// ---- listeners that are not Redis -----------------------------------------------------------

/// Listens for ever, and answers everything with this text. With `None` it never answers.
fn listener(answer: Option<&'static str>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let Some(answer) = answer else {
                silent.push(stream);
                continue;
            };
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(answer.as_bytes());
                // Without this, unread bytes would turn the end into a reset, which may overtake the answer.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
            });
        }
    });
    format!("redis://:{PASSWORD}@127.0.0.1:{port}")
}

/// Answers as Redis 6.2.7 does, for the requests of the test.
fn old_server() -> String {
    fake_server(meeting("6.2.7"))
}

fn meeting(version: &str) -> String {
    format!(
        "*9\r\n+master\r\n+standalone\r\n+noeviction\r\n+{version}\r\n+{}/0/-1\r\n_\r\n:0\r\n:0\r\n_\r\n",
        "b".repeat(40)
    )
}

/// Answers a handshake as a server does, and answers every script with this text.
fn fake_server(script: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for (id, stream) in listener.incoming().enumerate() {
            let script = script.clone();
            std::thread::spawn(move || answer_as_fake(id, stream.unwrap(), &script));
        }
    });
    format!("redis://127.0.0.1:{port}")
}

fn answer_as_fake(id: usize, mut stream: TcpStream, script: &str) -> Option<()> {
    let mut requests = BufReader::new(stream.try_clone().unwrap());
    let mut number = |sign: char| {
        let mut line = String::new();
        requests.read_line(&mut line).ok()?;
        let number = line.trim_end().strip_prefix(sign)?.parse::<usize>().ok()?;
        if sign == '*' {
            return Some((number, Vec::new()));
        }
        let mut text = vec![0; number + 2];
        requests.read_exact(&mut text).ok()?;
        text.truncate(number);
        Some((number, text))
    };
    loop {
        let (words, _) = number('*')?;
        let mut request = Vec::new();
        for _ in 0..words {
            request.push(String::from_utf8_lossy(&number('$')?.1).to_uppercase());
        }
        let answer = match &*request[0] {
            "HELLO" => {
                format!("%3\r\n+version\r\n+6.2.7\r\n+id\r\n:{id}\r\n+mode\r\n+standalone\r\n")
            }
            "SCRIPT" => format!("+{}\r\n", "a".repeat(40)),
            "SSUBSCRIBE" => {
                let channel = request[1].to_lowercase();
                let len = channel.len();
                format!(">3\r\n$10\r\nssubscribe\r\n${len}\r\n{channel}\r\n:1\r\n")
            }
            "EVAL" | "EVALSHA" => script.to_owned(),
            _ => "-ERR Unknown subcommand\r\n".to_owned(),
        };
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

fn listeners(answer: Option<&'static str>) -> [String; 3] {
    std::array::from_fn(|_| listener(answer))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_speaks_http() {
    let http = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    refused(
        &listeners(Some(http)),
        &["refused", "does not speak RESP", "HTTP/1.1 400"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_never_answers() {
    refused(
        &listeners(None),
        &["unreachable", "does not answer", "700 ms"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_too_old() {
    let old: [String; 3] = std::array::from_fn(|_| old_server());
    refused(&old, &["refused", "6.2.7", "Redis 7.0"]).await;
    let older = "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`\r\n";
    refused(
        &listeners(Some(older)),
        &["refused", "older than Redis 7.0"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_repeats_the_password() {
    let answer: &'static str =
        Box::leak(format!("-ERR unknown command, with args: '{PASSWORD}'\r\n").into_boxed_str());
    refused(&listeners(Some(answer)), &["refused"]).await;
    let garbage: &'static str = Box::leak(format!("hello {PASSWORD}\r\n").into_boxed_str());
    refused(
        &listeners(Some(garbage)),
        &["refused", "does not speak RESP"],
    )
    .await;
}

/// A terminal would be cleared, a log would get a line of its own, and a program would get many megabytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_says_too_much() {
    let loud = format!("ERR \x1b[2J\u{9b}31m\u{202e}{}", "loud \t".repeat(30_000));
    let error = format!("-{loud}\r\n");
    let quoted = r"ERR \u{1b}[2J\u{9b}31m\u{202e}loud \t";
    let blob = |kind| format!("{kind}{}\r\n{loud}\r\n", loud.len());
    let fake = |script: &str| [0; 3].map(|_| fake_server(script.to_owned()));
    let fakes = [
        (fake(&error), quoted),
        (fake(&blob('!')), quoted),
        (fake(&blob('$')), "not an answer to HANDSHAKE"),
        (fake(&meeting(&loud)), quoted),
        (
            listeners(Some(String::leak(error))),
            "ERR (its message is hidden",
        ),
    ];
    for (urls, words) in fakes {
        refused(&urls, &["refused", words]).await;
        let error = builder().nodes(&urls).connect().await.expect_err("refused");
        let lazy = builder().nodes(&urls).connect_lazy().unwrap();
        wait_for(&lazy, |states| !states.contains(&NodeState::Connecting)).await;
        let states = lazy.nodes().into_iter().map(|node| node.to_string());
        for text in states.chain([error.to_string(), format!("{error:?}")]) {
            assert!(text.len() < 3 * 2_000, "{} bytes", text.len());
            assert!(
                !text.contains(|c: char| c.is_control() || c == '\u{202e}'),
                "{text:?}"
            );
        }
    }
}

// ---- clients that do not fit the fleet -----------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_counts_other_masters() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(5, kind);
        let five = builder().nodes(fleet.urls()).connect().await.unwrap();
        five.bootstrap_forced().await.unwrap();
        let lease = five.mutex("a").lock().await.unwrap();

        let three = builder()
            .nodes(&fleet.urls()[..3])
            .connect()
            .await
            .unwrap_err();
        assert!(matches!(three, Error::NoQuorum(_)), "{three:?}");
        says(
            &three,
            &[
                "another fleet (5 masters",
                "this client: 3 masters",
                "the same masters",
            ],
        );
        let lazy = builder().nodes(&fleet.urls()[..3]).connect_lazy().unwrap();
        let locked = lazy.mutex("a").try_lock().await.unwrap_err();
        says(&locked, &["another fleet (5 masters"]);
        assert!(lazy.bootstrap().await.is_err(), "not even by hand");
        assert!(lazy.bootstrap_forced().await.is_err());
        assert!(lease.is_valid() && five.health().voting == 5);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_a_larger_max_ttl() {
    let fleet = Fleet::start(3, Kind::Redis);
    let ours = builder().nodes(fleet.urls()).connect().await.unwrap();
    ours.bootstrap_forced().await.unwrap();
    let larger = || builder().max_ttl(ms(3_000)).nodes(fleet.urls());
    let error = larger().connect().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    says(
        &error,
        &[
            "max_ttl is 3.0 s here and 2.0 s in the fleet",
            "lower it",
            "quorate raise-terms",
        ],
    );
    assert!(ours.mutex("a").try_lock().await.unwrap().is_some());

    // A smaller value is accepted, and the fleet's value stays.
    let smaller = builder()
        .max_ttl(ms(1_000))
        .nodes(fleet.urls())
        .connect()
        .await
        .unwrap();
    assert!(smaller.mutex("b").try_lock().await.unwrap().is_some());

    // An operator has raised it on all nodes, and clients with the smaller value go on.
    let raised = larger().connect_lazy().unwrap();
    raised.bootstrap().await.unwrap();
    assert!(
        raised
            .mutex("c")
            .ttl(ms(3_000))
            .try_lock()
            .await
            .unwrap()
            .is_some()
    );
    let lease = ours.mutex("d").wait_timeout(ms(2_000)).lock().await;
    assert!(lease.is_ok(), "{lease:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overwritten_record_is_reported_with_a_remedy() {
    let fleet = Fleet::start(1, Kind::Redis);
    for key in ["quorate:boot", "quorate:open"] {
        fleet[0].cmd(&["RPUSH", key, "x"]);
        let error = builder().nodes(fleet.urls()).connect().await.unwrap_err();
        says(
            &error,
            &["WRONGTYPE", "DEL quorate:boot quorate:open there"],
        );
        fleet[0].cmd(&["DEL", "quorate:boot", "quorate:open"]);
    }
    builder().nodes(fleet.urls()).connect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_majority_names_every_node_and_why() {
    let fleet = Fleet::start(5, Kind::Redis);
    let quorum = builder()
        .node_timeout(ms(300))
        .nodes(fleet.urls())
        .connect()
        .await
        .unwrap();
    quorum.bootstrap_forced().await.unwrap();
    fleet[0].kill9();
    fleet[1].sigstop();
    fleet[2].restart_empty();
    wait_for(&quorum, |states| {
        matches!(states[2], NodeState::Quarantined(_))
    })
    .await;
    let error = loop {
        match quorum.mutex("a").try_lock().await {
            // This happens on the way there: a node is not stalled yet, and nodes in quarantine would make a majority.
            Ok(_) | Err(Error::Quarantined(_)) if !seen_stalled(&quorum, 1) => {}
            other => break other.unwrap_err(),
        }
    };
    assert!(
        matches!(error, Error::Quarantined(_)),
        "the restarted one would do: {error:?}"
    );
    fleet[3].kill9();
    wait_for(&quorum, |states| {
        matches!(states[3], NodeState::Unreachable(..))
    })
    .await;
    let error = quorum.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    let votes: Vec<&Vote> = error
        .report()
        .unwrap()
        .nodes()
        .iter()
        .map(|node| &node.vote)
        .collect();
    assert!(
        matches!(votes[0], Vote::None(Silence::Unreachable(_))),
        "{error}"
    );
    assert!(
        matches!(
            votes[1],
            Vote::None(Silence::Stalled | Silence::Unreachable(_))
        ),
        "{error}"
    );
    assert!(
        matches!(votes[2], Vote::None(Silence::Quarantined(_))),
        "{error}"
    );
    assert!(
        matches!(votes[3], Vote::None(Silence::Unreachable(_))),
        "{error}"
    );
    says(
        &error,
        &[
            "\"a\"",
            "1 of 5 nodes are available and 3 are needed",
            "unreachable",
            "quarantined for",
        ],
    );
    for server in fleet.iter() {
        says(&error, &[&format!("127.0.0.1:{}: ", server.port())]);
    }
}

fn seen_stalled(quorum: &Quorum, node: usize) -> bool {
    !matches!(quorum.nodes()[node].state, NodeState::Voting)
}
