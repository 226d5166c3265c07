//! Tests of the harness itself: every fault that other tests rely on must really happen. Otherwise those tests prove
//! nothing.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Fleet, Kind, Proxy, Server, ServerOptions, again, tls};
use redis::Value;

/// The limit for requests that must be answered, on a busy machine too.
const PATIENT: Duration = Duration::from_secs(5);
/// The time after which a request counts as not answered.
const IMPATIENT: Duration = Duration::from_millis(300);

/// A connection like that of a client of the library: through the port, or through a proxy.
fn client(url: &str, patience: Duration) -> redis::RedisResult<redis::Connection> {
    let conn = redis::Client::open(url)?.get_connection_with_timeout(patience)?;
    conn.set_read_timeout(Some(patience))?;
    Ok(conn)
}

fn ping(url: &str) -> redis::RedisResult<String> {
    redis::cmd("PING").query(&mut client(url, PATIENT)?)
}

fn is_silent(url: &str) -> bool {
    client(url, IMPATIENT).is_err_and(|error| error.is_timeout())
}

fn get(server: &Server, key: &str) -> Option<String> {
    redis::cmd("GET")
        .arg(key)
        .query(&mut server.conn())
        .unwrap()
}

fn is_alive(pid: u32) -> bool {
    // The command line of a zombie is empty. A container without an init process may keep zombies.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn panic_text(action: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(action)).expect_err("should have panicked");
    panic.downcast_ref::<String>().expect("a text").clone()
}

#[test]
fn starts_the_kind_that_was_asked_for_and_ends_it() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let is_valkey = server.info("valkey_version").is_some();
        assert_eq!(is_valkey, kind == Kind::Valkey, "{server}");
        assert_eq!(ping(&server.url()).unwrap(), "PONG");
        assert_eq!(ping(&server.unix_url()).unwrap(), "PONG");
        assert_eq!(server.info("process_id").unwrap(), server.pid().to_string());
        assert_eq!(server.info("tcp_port").unwrap(), server.port().to_string());
        assert_eq!(server.info("maxmemory_policy").unwrap(), "noeviction");

        let (pid, dir) = (server.pid(), server.dir().to_owned());
        drop(server);
        assert!(!is_alive(pid) && !dir.exists());
    }
}

#[test]
fn killed_and_restarted_empty_it_has_forgotten_everything() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        let run_id = server.info("run_id");
        server.cmd(&["SET", "a", "1"]);
        server.cmd(&["SAVE"]);

        server.kill9();
        assert!(!server.is_up());
        assert!(ping(&server.url()).unwrap_err().is_connection_refusal());

        server.start_again();
        assert_eq!(get(&server, "a").as_deref(), Some("1"), "from its dump");
        assert_ne!(server.info("run_id"), run_id);

        server.restart_empty();
        assert_eq!(get(&server, "a"), None);
        assert_eq!(ping(&server.url()).unwrap(), "PONG", "on the same port");
    }
}

#[test]
fn restarted_with_a_snapshot_it_is_back_in_the_past() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        server.cmd(&["SET", "a", "old"]);
        server.save_snapshot();
        server.cmd(&["SET", "a", "new"]);
        server.cmd(&["SAVE"]);
        server.restart_with_snapshot();
        assert_eq!(get(&server, "a").as_deref(), Some("old"));
    }
}

#[test]
fn with_appendonly_nothing_is_lost() {
    for kind in Kind::ALL {
        let server = ServerOptions::new(kind).appendonly().start();
        server.cmd(&["SET", "a", "1"]);
        server.kill9();
        server.start_again();
        assert_eq!(get(&server, "a").as_deref(), Some("1"));
        server.restart_empty();
        assert_eq!(get(&server, "a"), None);
    }
}

#[test]
fn shutdown_is_in_order_even_when_stopped() {
    for kind in Kind::ALL {
        let server = ServerOptions::new(kind).save("3600 1").start();
        server.cmd(&["SET", "a", "1"]);
        server.sigstop();
        server.shutdown();
        server.start_again();
        assert_eq!(
            get(&server, "a").as_deref(),
            Some("1"),
            "saved on its way out"
        );
    }
}

#[test]
fn stopped_it_is_silent_and_then_goes_on() {
    for kind in Kind::ALL {
        let server = Server::start(kind);
        server.sigstop();
        assert!(is_silent(&server.url()));
        server.sigcont();
        assert_eq!(ping(&server.url()).unwrap(), "PONG");
    }
}

#[test]
fn a_replica_has_its_masters_data_and_can_leave() {
    for kind in Kind::ALL {
        let master = ServerOptions::new(kind).password("secret").start();
        let replica = Server::start(kind);
        master.cmd(&["SET", "a", "master"]);
        replica.cmd(&["SET", "a", "own"]);

        replica.replicaof(&master);
        assert_eq!(replica.info("role").unwrap(), "slave");
        assert_eq!(get(&replica, "a").as_deref(), Some("master"));
        assert!(replica.try_cmd(&["SET", "a", "own"]).is_err(), "read-only");

        replica.replicaof_no_one();
        assert_eq!(replica.info("role").unwrap(), "master");
        replica.cmd(&["SET", "a", "own"]);
    }
}

#[test]
fn options_reach_the_server() {
    for kind in Kind::ALL {
        let server = ServerOptions::new(kind)
            .password("secret")
            .acl("alice on >wonder ~allowed:* +get +ping")
            .maxmemory_policy("allkeys-lru")
            .config("maxmemory 77mb")
            .start();
        assert_eq!(ping(&server.url()).unwrap(), "PONG");
        assert!(ping(&server.url_with("default", "wrong")).is_err());
        assert!(ping(&format!("redis://127.0.0.1:{}", server.port())).is_err());
        let mut alice = client(&server.url_with("alice", "wonder"), PATIENT).unwrap();
        let seen: Option<String> = redis::cmd("GET")
            .arg("allowed:1")
            .query(&mut alice)
            .unwrap();
        assert_eq!(seen, None);
        let refused: redis::RedisResult<Value> = redis::cmd("GET").arg("other").query(&mut alice);
        assert!(refused.is_err());
        assert_eq!(server.info("maxmemory_policy").unwrap(), "allkeys-lru");
        assert_eq!(server.info("maxmemory_human").unwrap(), "77.00M");

        let server = ServerOptions::new(kind).cluster().start();
        assert_eq!(server.info("cluster_enabled").unwrap(), "1");
    }
}

#[test]
fn tls_is_spoken_and_trusted_by_its_own_authority_only() {
    let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let certificates = tls::certificates(ours.path());
    let server = ServerOptions::new(Kind::Redis).tls(&certificates).start();
    assert!(server.url().starts_with("rediss://"));
    assert!(
        ping(&format!("redis://127.0.0.1:{}", server.port())).is_err(),
        "no plain text"
    );

    // This uses openssl, so that it is also tested without the library's TLS feature.
    let ping_by_openssl = |ca: &Path| {
        let mut openssl = Command::new("openssl")
            .args([
                "s_client",
                "-quiet",
                "-verify_return_error",
                "-verify_ip",
                "127.0.0.1",
            ])
            .args([
                "-connect",
                &format!("127.0.0.1:{}", server.port()),
                "-CAfile",
            ])
            .arg(ca)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It may have refused the server already, and be gone.
        let _ = openssl
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"PING\r\nQUIT\r\n");
        String::from_utf8(openssl.wait_with_output().unwrap().stdout).unwrap()
    };
    assert!(ping_by_openssl(&certificates.ca).contains("+PONG"));
    let strangers = tls::certificates(others.path());
    assert!(!ping_by_openssl(&strangers.ca).contains("+PONG"));
}

#[test]
fn leftover_locks_are_keys_with_a_ttl_and_the_prefix_on_live_nodes() {
    for kind in Kind::ALL {
        let fleet = Fleet::start(3, kind);
        assert_eq!(fleet.urls().len(), 3);
        assert_eq!(fleet.leftover_locks(""), [""; 0]);
        fleet[0].cmd(&["SET", "q:counter", "1"]);
        fleet[0].cmd(&["SET", "other", "1", "PX", "60000"]);
        fleet[1].cmd(&["SET", "q:lock", "1", "PX", "60000"]);
        fleet[2].cmd(&["SET", "q:brief", "1", "PX", "60000"]);
        let found = fleet.leftover_locks("q:");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("q:lock"), "{found:?}");

        fleet[1].kill9();
        let patience = Duration::from_millis(20);
        assert_eq!(fleet.leftover_locks_after(patience, "q:").len(), 1);
        fleet[2].cmd(&["PEXPIRE", "q:brief", "100"]);
        assert_eq!(fleet.leftover_locks_after(PATIENT, "q:"), [""; 0]);
    }
}

#[test]
fn a_proxy_delays_each_direction() {
    let server = ServerOptions::new(Kind::Redis).password("secret").start();
    let proxy = Proxy::start(&server);
    let mut conn = client(proxy.url(), PATIENT).unwrap();
    let mut round_trip = || {
        let start = Instant::now();
        // Two commands are sent in one go, and must keep their order.
        let mut two = redis::pipe();
        two.cmd("ECHO").arg("first").cmd("ECHO").arg("second");
        let answers: Vec<String> = two.query(&mut conn).unwrap();
        assert_eq!(answers, ["first", "second"]);
        start.elapsed()
    };
    let one_way = Duration::from_millis(100);
    assert!(round_trip() < one_way);
    proxy.delay(one_way);
    assert!(round_trip() >= 2 * one_way);
    proxy.delay(Duration::ZERO);
    assert!(round_trip() < one_way);
}

#[test]
fn a_cut_proxy_closes_connections_until_it_is_healed() {
    let server = Server::start(Kind::Valkey);
    let proxy = Proxy::start(&server);
    let mut conn = client(proxy.url(), PATIENT).unwrap();
    proxy.cut();
    let broken: redis::RedisResult<String> = redis::cmd("PING").query(&mut conn);
    assert!(!broken.unwrap_err().is_timeout(), "closed, not silent");
    assert!(ping(proxy.url()).is_err());
    proxy.heal();
    assert_eq!(ping(proxy.url()).unwrap(), "PONG");
}

#[test]
fn data_that_a_proxy_holds_back_arrives_late() {
    let server = Server::start(Kind::Valkey);
    let proxy = Proxy::start(&server);
    let mut conn = client(proxy.url(), IMPATIENT).unwrap();
    let set = |conn: &mut redis::Connection, value: &str| -> redis::RedisResult<String> {
        redis::cmd("SET").arg("a").arg(value).query(conn)
    };

    proxy.hold_replies(true);
    assert!(set(&mut conn, "heard").unwrap_err().is_timeout());
    assert_eq!(
        get(&server, "a").as_deref(),
        Some("heard"),
        "the server has acted"
    );
    proxy.heal();

    let mut conn = client(proxy.url(), IMPATIENT).unwrap();
    proxy.blackhole(true);
    assert!(set(&mut conn, "late").unwrap_err().is_timeout());
    assert!(is_silent(proxy.url()), "accepted, then silence");
    assert_eq!(get(&server, "a").as_deref(), Some("heard"));
    proxy.blackhole(false);
    let deadline = Instant::now() + PATIENT;
    while get(&server, "a").as_deref() != Some("late") {
        assert!(Instant::now() < deadline, "what was sent never arrived");
    }
}

#[test]
fn many_start_side_by_side() {
    std::thread::scope(|scope| {
        let fleets: Vec<_> = (0..4)
            .map(|i| scope.spawn(move || Fleet::start(8, Kind::ALL[i % 2])))
            .collect();
        // The threads that started the servers have ended by now, but the servers have not.
        let fleets: Vec<Fleet> = fleets.into_iter().map(|t| t.join().unwrap()).collect();
        for server in fleets.iter().flat_map(|fleet| fleet.iter()) {
            assert_eq!(server.info("process_id").unwrap(), server.pid().to_string());
        }
    });
}

#[test]
fn a_start_that_fails_says_why() {
    for kind in Kind::ALL {
        let why = panic_text(|| drop(ServerOptions::new(kind).config("nonsense 1").start()));
        assert!(why.contains("nonsense"), "{why}");
    }
    // If another program took a port, the start does not fail at once: it tries another port. Here every try gets the
    // same port, which is taken.
    let taken = Server::start(Kind::Redis);
    let same = ServerOptions::new(Kind::Redis).config(&format!("port {}", taken.port()));
    let why = catch_unwind(|| drop(same.start())).expect_err("should have panicked");
    assert_eq!(
        *why.downcast_ref::<&str>().unwrap(),
        "ten ports in a row were taken by others"
    );
}

/// Runs the named test of this file alone, in a process of its own.
fn in_another_process(test: &str, variable: &str, value: &str) -> std::process::Output {
    again(module_path!(), test)
        .env(variable, value)
        .output()
        .unwrap()
}

#[test]
fn no_server_outlives_its_test_process() {
    if std::env::var_os("SELFTEST_ABORT").is_some() {
        let server = Server::start(Kind::Redis);
        server.sigstop(); // a stopped server is killed too
        println!("\npid={}\ndir={}", server.pid(), server.dir().display());
        std::process::abort();
    }
    let output = in_another_process("no_server_outlives_its_test_process", "SELFTEST_ABORT", "1");
    let text = String::from_utf8_lossy(&output.stdout);
    let printed = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.expect("a server was started")
    };
    let pid: u32 = printed("pid=").parse().unwrap();
    let deadline = Instant::now() + PATIENT;
    while is_alive(pid) {
        assert!(Instant::now() < deadline, "process {pid} is still there");
    }
    // An aborted process cannot delete its files.
    std::fs::remove_dir_all(printed("dir=")).unwrap();
}

#[test]
fn a_missing_server_tells_how_to_get_it() {
    let test = "shutdown_is_in_order_even_when_stopped";
    let output = in_another_process(test, "QUORATE_TEST_REDIS", "/nowhere/redis-server");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("run tests/install-servers.sh"), "{text}");
}
