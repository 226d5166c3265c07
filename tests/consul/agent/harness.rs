//! The agents of `support`: every fault that the tests rely on must really happen.

use std::path::Path;

use super::*;
use crate::support::{Cluster, again, tls};

/// The command line of a zombie is empty.
fn is_alive(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Reads this key with the real `consul`. Returns the output, and whether the command succeeded.
fn get(agent: &Agent, key: &str, variables: &[(&str, &Path)]) -> (String, bool) {
    let mut command = agent.consul(&["kv", "get", key]);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (text, output.status.success())
}

#[test]
fn starts_on_its_port_and_ends() {
    let agent = Agent::start();
    agent.put("a", 7, "1");
    let pair = agent.pairs("a").remove(0);
    assert_eq!((pair.value.as_str(), pair.flags), ("1", 7));
    assert_eq!(get(&agent, "a", &[]), ("1".into(), true));
    assert_eq!(agent.session_ids(), [""; 0], "nothing is left of its start");

    let (pid, dir) = (agent.pid(), agent.dir().to_owned());
    assert!(is_alive(pid));
    drop(agent);
    assert!(!is_alive(pid) && !dir.exists());
}

/// The power is not really cut, so data that only the kernel had would be found again too.
#[test]
fn killed_and_started_again_it_has_its_keys_and_sessions_and_counts_on() {
    let agent = Agent::start();
    let holder = session(&agent, "0s");
    assert!(acquire(&agent, "held", &holder));
    agent.put("last", 0, "1");
    let last = agent.pairs("last")[0].modify_index;

    agent.kill9();
    assert!(!agent.is_up());
    agent.start_again();
    assert_eq!(
        agent.pairs("held")[0].session.as_deref(),
        Some(holder.as_str())
    );
    assert_eq!(agent.session_ids(), [holder.as_str()]);
    let (status, _) = agent.ask("PUT", &format!("/v1/session/renew/{holder}"), "");
    assert_eq!(status, 200);
    assert_eq!(agent.pairs("last")[0].modify_index, last);
    agent.put("new", 0, "1");
    assert!(agent.pairs("new")[0].modify_index > last);

    agent.kill9();
    agent.start_empty();
    assert!(agent.keys("").is_empty() && agent.sessions().is_empty());
}

#[test]
fn paused_it_is_silent_and_then_goes_on() {
    let agent = Agent::start();
    agent.pause();
    let asks = agent.consul(&["kv", "put", "a", "1"]).spawn();
    let mut asks = asks.unwrap();
    std::thread::sleep(secs(1));
    assert!(asks.try_wait().unwrap().is_none(), "it waits");
    agent.resume();
    assert!(asks.wait().unwrap().success());
    assert_eq!(agent.keys(""), ["a"]);
}

#[test]
fn with_acls_a_token_may_do_what_its_rules_say() {
    let agent = Agent::with().acl().start();
    agent.put("ours/a", 0, "1");
    agent.put("theirs/a", 0, "1");
    let ours = agent.token(r#"key_prefix "ours/" { policy = "read" }"#);
    let (ours, nobody) = (Path::new(&ours), Path::new(""));
    let read = |key, token| get(&agent, key, &[("CONSUL_HTTP_TOKEN", token)]).1;
    assert!(read("ours/a", ours) && get(&agent, "theirs/a", &[]).1);
    assert!(!read("theirs/a", ours) && !read("ours/a", nobody));
}

#[test]
fn over_tls_certificates_are_checked_on_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let files = tls::certificates(directory.path());
    let anybody = Agent::with().tls(&files).start();
    let certified = Agent::with().tls(&files).asks_for_certificates().start();
    let (ca, cert, key) = (
        ("CONSUL_CACERT", files.ca.as_path()),
        ("CONSUL_CLIENT_CERT", files.cert.as_path()),
        ("CONSUL_CLIENT_KEY", files.key.as_path()),
    );
    let read = |agent: &Agent, variables: &[_]| {
        agent.put("a", 0, "1");
        let url = agent.tls_url();
        let address = ("CONSUL_HTTP_ADDR", Path::new(&url));
        get(agent, "a", &[&[address], variables].concat()).1
    };
    assert!(read(&anybody, &[ca]) && !read(&anybody, &[]));
    assert!(read(&certified, &[ca, cert, key]) && !read(&certified, &[ca]));
}

#[test]
fn on_a_unix_socket_it_answers_also_after_a_crash() {
    let agent = Agent::with().socket().start();
    agent.put("a", 0, "1");
    let url = format!("unix://{}", agent.socket().display());
    let read = || get(&agent, "a", &[("CONSUL_HTTP_ADDR", Path::new(&url))]).0;
    assert_eq!(read(), "1");
    agent.kill9();
    agent.start_again();
    assert_eq!(read(), "1");
}

#[test]
fn a_cluster_elects_another_leader_and_without_a_majority_it_has_none() {
    let cluster = Cluster::start(3);
    let leader = cluster.leader();
    let holder = session(&cluster[leader], "0s");
    assert!(acquire(&cluster[leader], "a", &holder));
    let index = cluster[leader].pairs("a")[0].modify_index;

    cluster[leader].kill9();
    let next = cluster.leader();
    assert_ne!(next, leader);
    until("a write", || {
        cluster[next].ask("PUT", "/v1/kv/b", "").0 == 200
    });
    // The data that another member was told is there.
    let held = cluster[next].pairs("a").remove(0);
    assert_eq!(
        (held.session.as_deref(), held.modify_index),
        (Some(holder.as_str()), index)
    );
    assert!(cluster[next].pairs("b")[0].modify_index > index);

    let last = 3 - leader - next;
    cluster[next].kill9();
    // At first it may say that the connection to the old leader broke.
    until("it knows of no leader", || {
        let (status, body) = cluster[last].ask("PUT", "/v1/kv/c", "");
        assert_eq!(status, 500, "{body}");
        body.trim() == "No cluster leader"
    });

    cluster.start_again();
    for agent in cluster.iter() {
        assert_eq!(agent.keys(""), ["a", "b"], "{agent}");
    }
    let leader = cluster.leader();
    cluster[leader].pause();
    // Its threads stop one by one, so it may still answer a request that came at that moment.
    until("another one leads", || cluster.leader() != leader);
    cluster[leader].resume();
}

#[test]
fn no_agent_outlives_its_test_process() {
    if std::env::var_os("SELFTEST_ABORT").is_some() {
        let agent = Agent::start();
        println!("\npid={}\ndir={}", agent.pid(), agent.dir().display());
        std::process::abort();
    }
    let output = again(module_path!(), "no_agent_outlives_its_test_process")
        .env("SELFTEST_ABORT", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let printed = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap_or_else(|| panic!("no agent was started: {output:?}"))
    };
    let pid = printed("pid=").parse().unwrap();
    until("it is gone", || !is_alive(pid));
    // An aborted process cannot delete its files.
    std::fs::remove_dir_all(Path::new(printed("dir="))).unwrap();
}

#[test]
fn a_missing_agent_tells_how_to_get_it() {
    let output = again(module_path!(), "starts_on_its_port_and_ends")
        .env("QUORATE_TEST_CONSUL", "/nowhere")
        .output()
        .unwrap();
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("run tests/install-servers.sh"), "{text}");
}
