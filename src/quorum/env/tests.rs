use std::{path::Path, time::Duration};

use super::*;
use crate::quorum::settings::duration;

/// An environment in which these variables are set.
fn with(set: &[(&'static str, &str)]) -> Variables {
    let set: Vec<(&str, OsString)> = set.iter().map(|(name, it)| (*name, it.into())).collect();
    Variables(Box::new(move |variable| {
        let found = set.iter().find(|(name, _)| *name == variable);
        found.map(|(_, value)| value.clone())
    }))
}

fn invalid(set: &[(&'static str, &str)]) -> String {
    match from(&with(set)) {
        Err(Error::Invalid(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("accepted: {set:?}"),
    }
}

const NODE: (&str, &str) = (NODES, "redis://127.0.0.1:1");

#[test]
fn every_variable_reaches_its_setting() {
    // Each error names the setting, so it shows which setting the variable reached.
    for (variable, wrong, says) in [
        (
            "QUORATE_KEY_PREFIX",
            "a b",
            "the key prefix \"a b\" must be 1 to 64 characters",
        ),
        (
            "QUORATE_FLEET",
            "a b",
            "the fleet name \"a b\" must be 1 to 64 characters",
        ),
        (
            "QUORATE_LABEL",
            "a b",
            "the label \"a b\" must be 1 to 128 printable ASCII characters",
        ),
        (
            "QUORATE_MAX_TTL",
            "48h",
            "max_ttl must be between 100ms and 24 h (got 172800s)",
        ),
        (
            "QUORATE_MAX_TTL",
            "99ms",
            "max_ttl must be between 100ms and 24 h (got 99ms)",
        ),
        (
            "QUORATE_RESTART_MARGIN",
            "25h",
            "restart_margin must be at most 24 h (got 90000s)",
        ),
        (
            "QUORATE_CONNECT_TIMEOUT",
            "0s",
            "connect_timeout must be greater than zero",
        ),
        (
            "QUORATE_NODE_TIMEOUT",
            "2h",
            "node_timeout must be at most an hour (got 7200s)",
        ),
        ("QUORATE_NODE_TIMEOUT", "3", "it is not a valid duration"),
    ] {
        let why = invalid(&[NODE, (variable, wrong)]);
        assert!(why.starts_with(&format!("{variable}: {says}")), "{why}");
    }
    let why = invalid(&[NODE, ("QUORATE_ALLOW_EVICTION", "yes")]);
    assert_eq!(why, "QUORATE_ALLOW_EVICTION: it must be 1 or 0");

    let all = from(&with(&[
        (
            NODES,
            " redis://127.0.0.1:1 ,redis://127.0.0.1:2,, redis://127.0.0.1:3",
        ),
        ("QUORATE_KEY_PREFIX", "mine"),
        ("QUORATE_FLEET", "ours"),
        ("QUORATE_LABEL", "web-3"),
        ("QUORATE_MAX_TTL", "10m"),
        ("QUORATE_RESTART_MARGIN", "7s"),
        ("QUORATE_CONNECT_TIMEOUT", "700ms"),
        ("QUORATE_NODE_TIMEOUT", "100ms"),
        ("QUORATE_ALLOW_EVICTION", "1"),
    ]));
    let text = all.unwrap().shown();
    for said in [
        "nodes: [\"127.0.0.1:1\", \"127.0.0.1:2\", \"127.0.0.1:3\"]",
        "list: \"ours\"",
        "prefix: \"mine\"",
        "node_timeout: 100ms",
        "max_ttl: 600s, margin: 7s",
        "label: Label(\"web-3\")",
        "allow_eviction: true",
        "connect_timeout: 700ms",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[tokio::test]
async fn settings_that_work_together_are_checked() {
    for (set, says) in [
        (
            &[("QUORATE_CLIENT_CERT", "a")][..],
            "client_cert (QUORATE_CLIENT_CERT, tls.certificate) is set without client_key",
        ),
        (
            &[("QUORATE_CLIENT_KEY", "a")],
            "client_key (QUORATE_CLIENT_KEY, tls.key) is set without client_cert",
        ),
        (
            &[
                ("QUORATE_PASSWORD_FILE", "a"),
                ("QUORATE_PASSWORD_COMMAND", "b"),
            ],
            "password_file (QUORATE_PASSWORD_FILE) and password_command",
        ),
        (
            &[("QUORATE_USERNAME", "a")],
            "username (QUORATE_USERNAME) is set without password_file",
        ),
    ] {
        let builder = from(&with(&[&[NODE], set].concat())).unwrap();
        match builder.connect_lazy() {
            Err(Error::Invalid(why)) => assert!(why.starts_with(says), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    let tls = ("QUORATE_NODES", "rediss://127.0.0.1:1");
    let nowhere = [
        (
            &[("QUORATE_CACERT", "/nowhere")][..],
            "cacert: the file \"/nowhere\"",
        ),
        (
            &[
                ("QUORATE_CLIENT_CERT", "/nowhere"),
                ("QUORATE_CLIENT_KEY", "/nowhere"),
            ],
            "client_certificate_files: the file \"/nowhere\" cannot be read",
        ),
    ];
    for (set, says) in nowhere {
        let builder = from(&with(&[&[tls], set].concat())).unwrap();
        match builder.connect_lazy() {
            Err(Error::Invalid(why)) => assert!(why.starts_with(says), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    // Setters of the builder replace the files.
    let file = [
        tls,
        ("QUORATE_CACERT", "/nowhere"),
        ("QUORATE_PASSWORD_FILE", "/nowhere"),
    ];
    let dir = tempfile::tempdir().unwrap();
    let ca = crate::node::redis::support::tls::certificates(dir.path()).ca;
    let builder = from(&with(&file))
        .unwrap()
        .ca_certificates(std::fs::read(ca).unwrap());
    let credentials = |_| async { Ok(crate::Credentials::new("a", "b")) };
    let quorum = builder.credentials(credentials).connect_lazy();
    assert!(quorum.is_ok(), "{quorum:?}");
}

#[test]
fn later_settings_win_and_empty_variables_are_ignored() {
    let environment = [
        NODE,
        ("QUORATE_MAX_TTL", "10m"),
        ("QUORATE_LABEL", "env"),
        ("QUORATE_FLEET", ""),
        ("QUORATE_NODE_TIMEOUT", "  "),
        (NODES_FILE, ""),
        ("QUORATE_ALLOW_EVICTION", "0"),
    ];
    let builder = from(&with(&environment)).unwrap();
    let builder = builder.max_ttl(Duration::from_secs(60)).label("ours");
    let text = builder.node("redis://127.0.0.1:9").shown();
    for said in [
        "nodes: [\"127.0.0.1:1\", \"127.0.0.1:9\"]",
        "max_ttl: 60s, margin: 5s",
        "node_timeout: 500ms",
        "Label(\"ours\")",
        "allow_eviction: false",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn a_config_that_only_the_command_reads_is_mentioned_when_no_nodes_are_named() {
    let why = invalid(&[(CONFIG, "/etc/quorate.toml")]);
    assert!(
        why.contains("QUORATE_CONFIG is set, but only the `quorate` command reads"),
        "{why}"
    );
    for set in [&[][..], &[(CONFIG, " ")]] {
        assert!(!invalid(set).contains(CONFIG), "{set:?}");
    }
    assert!(from(&with(&[NODE, (CONFIG, "/no/such/file")])).is_ok());
}

#[test]
fn a_comma_in_a_password_does_not_split_a_url() {
    let nodes = |variable, value: &str| with(&[(variable, value)]).nodes().unwrap().0;
    let list = "redis://me:a,b,@h:1,rediss://me:a,,b@h:2 , unix:///run/a,b.sock,";
    let urls = [
        "redis://me:a,b,@h:1",
        "rediss://me:a,,b@h:2",
        "unix:///run/a,b.sock",
    ];
    assert_eq!(nodes(NODES, list), urls);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nodes");
    std::fs::write(&path, urls.join("\n")).unwrap();
    assert_eq!(nodes(NODES_FILE, path.to_str().unwrap()), urls);
    // A word that is not a URL must not be taken for a host.
    for (list, says) in [
        (
            "redis://a,localhost:7",
            "node 2 of 2: \"***\" is not a valid node",
        ),
        (
            "redis://127.0.0.1:1,127.0.0.1:x",
            "node 2 of 2: \"***\" is not a valid node",
        ),
        (
            "redis://me:a,b@h:1,h:2,redis://c",
            "node 2 of 3: \"***\" is not a valid node",
        ),
        (
            "redis://me:hunter2,x",
            "node 1 of 2: \"redis://me:***\" is not a valid node",
        ),
    ] {
        let why = invalid(&[(NODES, list)]);
        assert!(why.contains(says), "{list}: {why}");
    }
}

#[test]
fn blanks_between_urls_are_named_and_no_port_is_hidden() {
    for list in [
        "redis://10.0.0.1:6379 redis://10.0.1.1:6379",
        "redis://10.0.0.1:6379\nredis://10.0.1.1:6379",
    ] {
        let why = invalid(&[(NODES, list)]);
        let shown = "QUORATE_NODES: \"redis://10.0.0.1:6379 redis://10.0.1.1:6379\" is not a valid node: it contains \
                     a blank";
        assert!(why.starts_with(shown), "{why}");
    }
    let why = invalid(&[(NODES, "redis://me:sekret@h:6379 redis://me:sekret@i:6379")]);
    assert!(
        why.contains("redis://***@h:6379 redis://***@i:6379"),
        "{why}"
    );
    let why = invalid(&[(NODES, "redis://h:77 sekret")]);
    assert!(
        why.contains("\"redis://h:***\"") && why.contains("a blank"),
        "{why}"
    );
}

#[test]
fn without_masters_it_says_what_to_set() {
    for set in [&[][..], &[(NODES, " ")], &[(NODES, " , ,")]] {
        let why = invalid(set);
        assert!(
            why.starts_with("no nodes are named: set QUORATE_NODES (separated by commas), as in")
                && why.contains("QUORATE_NODES_FILE"),
            "{why}"
        );
        assert!(!why.contains("--keep-env"), "{why}");
    }
    // The command runs under `quorate limit`, for example, which does not pass these variables on to it.
    let why = invalid(&[("QUORATE_NAME", "api")]);
    assert!(why.contains("--keep-env"), "{why}");
}

#[test]
fn a_file_may_name_the_masters() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nodes");
    let named = |path: &Path| with(&[(NODES_FILE, path.to_str().unwrap())]).nodes();
    let why = named(&path).unwrap_err().to_string();
    assert!(
        why.contains(NODES_FILE) && why.contains("cannot be read"),
        "{why}"
    );
    std::fs::write(&path, "# none yet\n\n").unwrap();
    let why = named(&path).unwrap_err().to_string();
    assert!(
        why.contains(NODES_FILE) && why.contains("names no server"),
        "{why}"
    );
    std::fs::write(
        &path,
        "\u{feff}# ours\nredis://a\n\n  redis://b , redis://c\n",
    )
    .unwrap();
    let urls = ["redis://a", "redis://b", "redis://c"].map(str::to_owned);
    assert_eq!(named(&path).unwrap(), (urls.into(), Some(NODES_FILE)));
    let why = invalid(&[NODE, (NODES_FILE, "nodes")]);
    assert!(why.contains("are both set"), "{why}");
    std::fs::write(&path, "redis://a\nhttp://b").unwrap();
    let why = invalid(&[(NODES_FILE, path.to_str().unwrap())]);
    assert!(
        why.starts_with("QUORATE_NODES_FILE: node 2 of 2: \"http://b\""),
        "{why}"
    );
}

#[test]
fn no_password_is_shown_and_the_variable_is_named() {
    for (variable, value) in [
        (NODES, "redis://me:sekret@"),
        (NODES, "redis://127.0.0.1, sekret"),
        (NODES, "redis://u:sek/ret@h"),
        (NODES_FILE, "redis://u:sekret@h"),
        ("QUORATE_KEY_PREFIX", "redis://u:sekret@h"),
        ("QUORATE_FLEET", "u:sekret@h"),
        ("QUORATE_LABEL", "u:sekret@h"),
        ("QUORATE_MAX_TTL", "redis://u:sekret@h"),
        ("QUORATE_RESTART_MARGIN", "sekret"),
        ("QUORATE_CONNECT_TIMEOUT", "sekret"),
        ("QUORATE_NODE_TIMEOUT", "sekret"),
        ("QUORATE_ALLOW_EVICTION", "sekret"),
    ] {
        let set = [(variable, value), NODE];
        let alone = matches!(variable, NODES | NODES_FILE);
        let why = invalid(if alone { &set[..1] } else { &set });
        assert!(why.starts_with(variable) && !why.contains("sek"), "{why}");
    }
}

#[cfg(unix)]
#[test]
fn a_variable_that_is_not_utf8_is_reported() {
    use std::os::unix::ffi::OsStrExt as _;
    let said = std::ffi::OsStr::from_bytes(b"sekret\xff");
    let variables = Variables(Box::new(move |_| Some(said.into())));
    let why = variables.word("QUORATE_FLEET").unwrap_err().to_string();
    assert_eq!(why, "QUORATE_FLEET is not valid UTF-8");
    assert!(variables.fill(&mut Options::default()).is_err() && variables.nodes().is_err());
}

#[test]
fn durations_are_a_whole_number_and_a_unit() {
    assert_eq!(duration("700ms"), Ok(Duration::from_millis(700)));
    assert_eq!(duration("3s"), Ok(Duration::from_secs(3)));
    assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
    assert_eq!(duration("24h"), Ok(Duration::from_secs(86_400)));
    for wrong in [
        "",
        "3",
        "s",
        "3 s",
        " 3s",
        "3S",
        "-3s",
        "+3s",
        "1.5s",
        "3s4",
        "3d",
        "99999999999999999999s",
        "9999999999999999999h",
    ] {
        assert!(duration(wrong).is_err(), "{wrong:?}");
    }
}
