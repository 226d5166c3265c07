//! Behaviour that cron jobs and scripts rely on. `quorate` is silent while nothing fails, keeps to the times that
//! it was given, prints errors as JSON, and shows no password.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::command::{QUORATE, Running, STAY, Wire, fleet, leftovers, ms, quorate, run};
use crate::support::{Fleet, Kind, Server};
use rustix::process::Signal;

#[test]
fn a_run_that_keeps_its_lock_prints_nothing_despite_lost_nodes() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    // One server comes back empty and is in quarantine, and one dies meanwhile.
    fleet[0].restart_empty();
    let done = run(&urls, &["lock", "a", "--", "sh", "-c", "sleep 0.2"]).is(0);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""));
    let done = run(&urls, &["lock", "a", "-v", "--", "true"]).is(0);
    done.says("quarantined").says(&fleet[0].port().to_string());
    // Two of three servers are left, which is enough.
    let short = ["lock", "a", "--ttl", "3s", "--", "sleep", "5"];
    let done = run(&urls, &short).is(0);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("", ""));
}

#[test]
fn with_v_one_line_names_the_holder_that_is_waited_for() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let wire = Wire::new();
    let holder = wire.lock(&urls, &["nightly", "--label", "batch-3"], STAY);
    wire.expect("up");
    for (args, lines) in [(&["-v"][..], 1), (&[], 0), (&["-v", "--json"], 0)] {
        let all = [args, &["lock", "nightly", "--wait", "1500ms", "--", "true"]].concat();
        let done = run(&urls, &all).is(75);
        let line = "quorate: waiting for \"nightly\", held by batch-3";
        let found = done.err.lines().filter(|it| *it == line).count();
        assert_eq!(found, lines, "{done:#?}");
    }
    holder.signal(Signal::TERM);
    holder.done().is(143);
}

#[test]
fn a_command_that_hangs_is_ended_after_max_hold() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let hang = ["lock", "a", "--max-hold", "1s", "--", "sleep", "60"];
    let done = run(&urls, &hang)
        .is(79)
        .says("as long as --max-hold allows");
    // The longest hold, and the time of the process on a busy machine. The command is told to end a little earlier.
    assert!(
        done.took >= ms(500) && done.took < ms(1000 + 3000),
        "{:?}",
        done.took
    );
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
    run(&urls, &["lock", "a", "--max-hold", "1m", "--", "true"]).is(0);
}

#[test]
fn a_quarantined_fleet_is_reported_in_one_line() {
    let fleet = Fleet::start(3, Kind::Redis);
    let urls = fleet.urls();
    let done = run(&urls, &["lock", "a", "--no-wait", "--", "true"]).is(69);
    assert_eq!(done.err.lines().count(), 1, "{done:#?}");
    let error = run(&urls, &["lock", "a", "--no-wait", "--json", "--", "true"]);
    let error = error.is(69).json_error();
    assert_eq!(error["error"], "quarantined");
    assert_eq!(error["nodes"].as_array().unwrap().len(), 3);
    // A node that does not recover by itself is named all the same.
    fleet[2].kill9();
    let done = run(&urls, &["lock", "a", "--no-wait", "--", "true"]).is(69);
    assert_eq!(done.err.lines().count(), 2, "{done:#?}");
    done.says(&fleet[2].port().to_string());
}

#[test]
fn settings_are_checked_before_any_server_is_asked() {
    // The listener accepts connections and never answers.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let urls = [format!("redis://{}", mute.local_addr().unwrap())];
    for (args, says) in [
        (
            &["lock", "a", "--ttl", "0s", "--", "true"][..],
            "ttl must be at least",
        ),
        (&["lock", "a", "--ttl", "31s", "--", "true"], "max_ttl"),
        (
            &["lock", "a", "--max-hold", "1ms", "--", "true"],
            "max_hold",
        ),
        (&["lock", "", "--", "true"], "the name is empty"),
        (&["inspect", ""], "the name is empty"),
        (&["evict", "", "--yes"], "the name is empty"),
    ] {
        let done = run(&urls, &[&["--connect-timeout", "30s"], args].concat());
        let done = done.is(64).says(says);
        // This is far less than the connect timeout.
        assert!(done.took < ms(10_000), "{done:#?}");
    }
}

#[test]
fn servers_that_do_not_answer_cost_no_more_than_the_connect_timeout() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    fleet[0].sigstop();
    fleet[1].sigstop();
    let args = [
        "lock",
        "a",
        "--no-wait",
        "--connect-timeout",
        "700ms",
        "--",
        "true",
    ];
    let done = run(&urls, &args).is(69).says("no majority");
    // The connect timeout, and the time of the process on a busy machine.
    assert!(
        done.took >= ms(700) && done.took < ms(700 + 800),
        "{done:#?}"
    );
    let done = run(&urls, &["nodes", "--connect-timeout", "700ms"]).is(69);
    assert!(done.took < ms(700 + 800), "{done:#?}");
    fleet[0].sigcont();
    fleet[1].sigcont();
}

/// A way to a server that stops answering at the first request that contains this word.
fn mute_at(word: &'static str, server: &Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let port = server.port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (mut replies, mut to_client) =
                (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut replies, &mut to_client));
            std::thread::spawn(move || {
                let (mut client, mut server, mut bytes) = (client, server, [0; 65_536]);
                let mut mute = false;
                while let Ok(n @ 1..) = client.read(&mut bytes) {
                    mute |= bytes[..n]
                        .windows(word.len())
                        .any(|it| it == word.as_bytes());
                    if !mute {
                        server.write_all(&bytes[..n]).unwrap();
                    }
                }
            });
        }
    });
    url
}

#[test]
fn servers_that_fall_silent_once_connected_cost_the_node_timeout() {
    let fleet = fleet(3);
    let name = "asked-for-once";
    // The fleet's own id, because these addresses would lead to another one.
    let word = run(&fleet.urls(), &["nodes", "--json"]).is(0).json();
    let word = word["fleet"].as_str().unwrap();
    let urls = [
        mute_at(name, &fleet[0]),
        mute_at(name, &fleet[1]),
        fleet[2].url(),
    ];
    let args = [
        "lock",
        name,
        "--no-wait",
        "--node-timeout",
        "1s",
        "--fleet",
        word,
        "--",
        "true",
    ];
    let done = run(&urls, &args).is(69).says("no majority");
    // The node timeout, and the time of the process on a busy machine.
    assert!(
        done.took >= ms(1000) && done.took < ms(1000 + 1000),
        "{done:#?}"
    );
}

#[test]
fn json_errors_name_unrunnable_commands_and_the_holder() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let done = run(&urls, &["lock", "a", "--json", "--", "/no/such/command"]).is(127);
    let error = done.json_error();
    assert_eq!(
        (&error["error"], &error["exit"]),
        (&"not_found".into(), &127.into())
    );
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("/no/such/command")
    );
    let done = run(&urls, &["lock", "a", "--json", "--", "/etc/passwd"]).is(126);
    assert_eq!(done.json_error()["error"], "cannot_run");

    let wire = Wire::new();
    let holder = wire.lock(&urls, &["a", "--label", "web-3"], STAY);
    wire.expect("up");
    let error = run(&urls, &["lock", "a", "--no-wait", "--json", "--", "true"]);
    let error = error.is(75).json_error();
    assert_eq!(
        (&error["name"], &error["holder"]["label"]),
        (&"a".into(), &"web-3".into())
    );
    let left = error["holder"]["remaining_ms"].as_u64().unwrap();
    assert!((1..=10_000).contains(&left), "{left}");
    holder.signal(Signal::TERM);
    holder.done().is(143);
}

#[test]
fn the_command_does_not_inherit_the_servers_passwords() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let print = [
        "--",
        "sh",
        "-c",
        "echo \"<$QUORATE_NODES><$QUORATE_NODES_FILE>\"",
    ];
    let locked =
        |urls: &[String], args: &[&str]| run(urls, &[&["lock", "a"], args, &print].concat()).is(0);
    locked(&urls, &[]).prints("<><>");
    let all = urls.join(",");
    locked(&urls, &["--keep-env"]).prints(&format!("<{all}><>"));
    let node: Vec<&str> = urls.iter().flat_map(|url| ["--node", url]).collect();
    locked(&[], &node).prints("<><>");
    let kept = [&["--keep-env"], &node[..]].concat();
    locked(&[], &kept).prints(&format!("<{all}><>"));
    // The error says what removed them.
    let nested = ["lock", "a", "--", QUORATE, "nodes"];
    run(&urls, &nested).is(64).says("--keep-env");
    run(&urls, &["lock", "a", "--keep-env", "--", QUORATE, "nodes"]).is(0);
}

#[test]
fn a_file_may_name_the_servers() {
    let fleet = fleet(3);
    let urls = fleet.urls();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nodes");
    let with_file = |args: &[&str]| {
        let mut command = quorate(&[], args);
        command.env("QUORATE_NODES_FILE", &path);
        Running::start(command)
    };
    with_file(&["nodes"]).done().is(64).says("cannot be read");
    std::fs::write(&path, "# none yet\n\n").unwrap();
    with_file(&["nodes"]).done().is(64).says("names no server");
    std::fs::write(
        &path,
        format!("# ours\n{}\n  {} , {}\n", urls[0], urls[1], urls[2]),
    )
    .unwrap();
    with_file(&["nodes"]).done().is(0).prints("3 of 3 vote");
    // The command may run quorate itself: the secret is kept in the file, not in the environment.
    with_file(&["lock", "a", "--", QUORATE, "nodes"])
        .done()
        .is(0);
    let mut both = quorate(&urls, &["nodes"]);
    both.env("QUORATE_NODES_FILE", &path);
    Running::start(both).done().is(64).says("both set");
    // Servers that --node names come first.
    let node: Vec<&str> = urls.iter().flat_map(|url| ["--node", url]).collect();
    std::fs::remove_file(&path).unwrap();
    with_file(&[&["nodes"], &node[..]].concat()).done().is(0);
}

#[test]
fn a_url_in_the_wrong_place_does_not_show_its_password() {
    for args in [
        &["lock", "a", "redis://me:hunter2@h", "--", "true"][..],
        &["nodes", "--nod", "redis://me:hunter2@h"],
        &["nodes", "--max-ttl", "redis://me:hunter2@h"],
        &["redis://me:hunter2@h"],
    ] {
        let done = run(&[], args).is(64);
        assert!(!done.err.contains("hunter2"), "{done:#?}");
        let with_json = [&["--json"], args].concat();
        let done = run(&[], &with_json).is(64);
        assert!(!done.err.contains("hunter2"), "{done:#?}");
    }
}

#[test]
fn a_max_hold_that_leaves_the_command_no_time_is_wrong_usage() {
    let alone = ["redis://127.0.0.1:1".to_owned()];
    for args in [
        &["lock", "a", "--max-hold", "500ms", "--", "true"][..],
        &[
            "lock",
            "a",
            "--ttl",
            "30s",
            "--max-hold",
            "1500ms",
            "--",
            "true",
        ],
    ] {
        run(&alone, args).is(64).says("--max-hold").says("--ttl");
    }
}

#[test]
fn arguments_that_are_not_utf8_are_wrong_usage() {
    use std::os::unix::ffi::OsStrExt;
    let word = std::ffi::OsStr::from_bytes(b"redis://u:sekret\xff@h");
    for args in [
        &["lock"][..],
        &["--node"],
        &["--json", "lock", "x", "--bogus"],
    ] {
        let mut command = quorate(&[], args);
        command.arg(word);
        let done = Running::start(command).done().is(64);
        assert!(!done.err.contains("sekret"), "{done:#?}");
    }
}

#[test]
fn no_setting_in_the_wrong_place_shows_a_password() {
    for (args, variable) in [
        (&["nodes", "--max-ttl=redis://u:sekret@h"][..], None),
        (&["--json=redis://u:sekret@h", "nodes"], None),
        (&["nodes", "--wait=redis://u:sekret@h"], None),
        (&["--max-ttl", "redis://u:sek\"ret@h", "nodes"], None),
        (&["u:sekret@h"], None),
        (&["nodes", "--label", "redis://u:sekret@h"], None),
        (&["nodes", "--fleet", "u:sekret@h"], None),
        (&["nodes"], Some("QUORATE_MAX_TTL")),
        (&["nodes"], Some("QUORATE_FLEET")),
        (&["nodes"], Some("QUORATE_LABEL")),
        (&["nodes"], Some("QUORATE_KEY_PREFIX")),
        (&["nodes"], Some("QUORATE_ALLOW_EVICTION")),
        (&["nodes"], Some("QUORATE_NODES_FILE")),
    ] {
        let alone = match variable {
            Some("QUORATE_NODES_FILE") => vec![],
            _ => vec!["redis://127.0.0.1:1".to_owned()],
        };
        let mut command = quorate(&alone, args);
        if let Some(variable) = variable {
            command.env(variable, "redis://u:sekret@h");
        }
        let done = Running::start(command).done().is(64);
        assert!(!done.err.contains("sek"), "{done:#?}");
        if let Some(variable) = variable.filter(|it| it.ends_with("TTL") || it.ends_with("FILE")) {
            done.says(variable);
        }
    }
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let fleet = fleet(1);
    let mut command = quorate(&fleet.urls(), &["lock", "a", "--", "true"]);
    for variable in [
        "MAX_TTL",
        "LABEL",
        "FLEET",
        "NODE_TIMEOUT",
        "ALLOW_EVICTION",
        "NODES_FILE",
    ] {
        command.env(format!("QUORATE_{variable}"), "");
    }
    Running::start(command).done().is(0);
}

#[test]
fn with_keep_env_the_command_finds_all_settings_of_the_servers() {
    let fleet = Fleet::start(1, Kind::Redis);
    let url = fleet.urls().remove(0);
    let settings = [
        "--node",
        &url,
        "--max-ttl",
        "6s",
        "--key-prefix",
        "mine",
        "--fleet",
        "ours",
    ];
    run(&[], &[&settings[..], &["bootstrap", "--force"]].concat()).is(0);
    let inner = [
        "lock",
        "a",
        "--keep-env",
        "--",
        QUORATE,
        "lock",
        "b",
        "--ttl",
        "6s",
        "--",
        "true",
    ];
    run(&[], &[&settings[..], &inner].concat()).is(0);
    let keys = fleet[0].keys();
    assert!(
        keys.iter().all(|(key, _)| key.starts_with("mine:")),
        "{keys:?}"
    );
}

#[test]
fn a_result_that_cannot_be_written_exits_70() {
    let fleet = fleet(1);
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = quorate(&fleet.urls(), &["nodes"]);
    let status = command
        .stdout(full)
        .stderr(std::process::Stdio::null())
        .status();
    assert_eq!(status.unwrap().code(), Some(70));
}

#[test]
fn a_nodes_file_that_blocks_does_not_block_signals() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let mut command = quorate(&[], &["lock", "a", "--", "true"]);
    command.env("QUORATE_NODES_FILE", &path);
    let running = Running::start(command);
    std::thread::sleep(ms(300));
    running.signal(Signal::TERM);
    assert_eq!(running.done().code, -1, "the signal itself ended it");
}
