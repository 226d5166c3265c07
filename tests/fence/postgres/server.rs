//! The server: it keeps committed data over a crash, and none of its processes outlives the test.

use std::path::Path;
use std::time::Instant;

use quorate::fence::postgres::admit;

use super::{PATIENCE, admit_alone, connect, newest, stale, token};
use crate::support::{Postgres, again};

/// The command line of a zombie is empty.
fn is_alive(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

fn until_gone(pids: &[u32]) {
    let deadline = Instant::now() + PATIENCE;
    while pids.iter().any(|&pid| is_alive(pid)) {
        assert!(Instant::now() < deadline, "still there: {pids:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

async fn setting(server: &Postgres, name: &str) -> String {
    let sql = format!("SHOW {name}");
    connect(server)
        .await
        .query_one(&sql, &[])
        .await
        .unwrap()
        .get(0)
}

#[tokio::test]
async fn starts_on_its_port_and_ends() {
    let server = Postgres::start();
    assert_eq!(setting(&server, "port").await, server.port().to_string());
    assert_eq!(setting(&server, "fsync").await, "off");
    let version: u32 = setting(&server, "server_version_num")
        .await
        .parse()
        .unwrap();
    assert!(version >= 140_000, "{version}");

    let (pids, dir) = (server.pids(), server.dir().to_owned());
    assert!(pids.len() > 1, "{pids:?}");
    drop(server);
    assert!(!dir.exists() && !pids.into_iter().any(is_alive));
}

/// The power is not really cut, so data that only the kernel had would be found again too.
#[tokio::test]
async fn committed_marks_survive_a_crash() {
    let server = Postgres::start_durable();
    assert_eq!(setting(&server, "fsync").await, "on");
    let mut client = connect(&server).await;
    client.batch_execute(super::SCHEMA).await.unwrap();
    admit_alone(&mut client, "a", 8).await.unwrap();
    let half_way = client.transaction().await.unwrap();
    admit(&half_way, "a", token(9)).await.unwrap();
    let pids = server.pids();

    server.kill9();
    assert!(!server.is_up() && !pids.into_iter().any(is_alive));
    assert!(
        tokio_postgres::connect(&server.url(), tokio_postgres::NoTls)
            .await
            .is_err()
    );

    server.start_again();
    let mut client = connect(&server).await;
    assert_eq!(newest(&client, "a").await, Some(8));
    stale(admit_alone(&mut client, "a", 7).await);
    admit_alone(&mut client, "a", 8).await.unwrap();
}

#[test]
fn no_server_outlives_its_test_process() {
    if std::env::var_os("SELFTEST_ABORT").is_some() {
        let server = Postgres::start();
        println!("\npids={:?}\ndir={}", server.pids(), server.dir().display());
        std::process::abort();
    }
    let output = again(module_path!(), "no_server_outlives_its_test_process")
        .env("SELFTEST_ABORT", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let printed = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_else(|| panic!("no server was started: {output:?}"))
    };
    let pids: Vec<u32> = serde_json::from_str(printed("pids=")).unwrap();
    assert!(pids.len() > 1, "{pids:?}");
    until_gone(&pids);
    // An aborted process cannot delete its files.
    std::fs::remove_dir_all(Path::new(printed("dir="))).unwrap();
}

#[test]
fn a_missing_server_tells_how_to_get_it() {
    let output = again(module_path!(), "starts_on_its_port_and_ends")
        .env("QUORATE_TEST_POSTGRES", "/nowhere")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("run tests/install-servers.sh"), "{text}");
}
