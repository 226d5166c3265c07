use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::Quorum;

fn read(json: Json) -> Config {
    serde_json::from_value(json).unwrap()
}

fn refused(json: Json) -> String {
    serde_json::from_value::<Config>(json)
        .unwrap_err()
        .to_string()
}

/// The rows that stand in a table of their own: the setting, the table and the field.
const IN_TABLES: [(&str, &str, &str); 6] = [
    ("cacert", "tls", "ca"),
    ("client_cert", "tls", "certificate"),
    ("client_key", "tls", "key"),
    ("username", "credentials", "username"),
    ("password_file", "credentials", "password_file"),
    ("password_command", "credentials", "password_command"),
];

/// A value of each other row that is not its default, as it stands in a file.
fn each_row() -> impl Iterator<Item = (&'static str, Json)> {
    let is_field = |setting: &&crate::quorum::settings::Setting| {
        IN_TABLES.iter().all(|(name, ..)| *name != setting.name)
    };
    SETTINGS.iter().filter(is_field).map(|setting| {
        let value = match setting.kind {
            Kind::Duration => json!("1500ms"),
            Kind::File | Kind::Word => json!("mine"),
            Kind::Flag => json!(true),
        };
        (setting.name, value)
    })
}

#[test]
fn each_row_of_the_table_is_a_field_that_reaches_its_setting() {
    let mut all = json!({"nodes": ["redis://a", "redis://b"]});
    for (name, value) in each_row() {
        let config = read(json!({name: value}));
        let options = config.options();
        for setting in SETTINGS {
            let shown = setting.show(&options);
            assert_eq!(shown.is_some(), setting.name == name, "{name}: {shown:?}");
        }
        all[name] = value;
    }
    let config = read(all.clone());
    assert_eq!(serde_json::to_value(&config).unwrap(), all);
    let text = Quorum::builder().config(config).shown();
    for said in [
        "nodes: [\"a:6379\", \"b:6379\"]",
        "prefix: \"mine\"",
        "list: \"throwaway\"",
        "node_timeout: 1.5s",
        "max_ttl: 1.5s, margin: 1.5s",
        "label: Label(\"mine\")",
        "allow_eviction: true",
        "connect_timeout: 1.5s",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn files_and_logins_stand_in_tables() {
    let mut all = json!({"tls": {}, "credentials": {}});
    for (name, table, field) in IN_TABLES {
        let config = read(json!({table: {field: "mine"}}));
        let options = config.options();
        for setting in SETTINGS {
            let shown = setting.show(&options);
            let wanted = (setting.name == name).then_some("mine");
            assert_eq!(shown.as_deref(), wanted, "{name}");
        }
        all[table][field] = json!("mine");
    }
    let config = read(all.clone());
    assert_eq!(serde_json::to_value(&config).unwrap(), all);
    for (_, table, _) in IN_TABLES {
        let why = refused(json!({table: {"password": "hunter2"}}));
        assert!(why.contains("unknown field `password`"), "{why}");
        for value in [json!("hunter2"), json!(4711), json!(-4711), json!(47.11)] {
            let why = refused(json!({table: value}));
            let is_hidden = !why.contains("hunter2") && !why.contains("47");
            assert!(is_hidden && why.contains("expected a table"), "{why}");
        }
        assert_eq!(read(json!({table: null})), Config::default());
    }
}

#[test]
fn debug_shows_no_argument_of_a_password_command() {
    let command = "curl -u app:hunter2 http://h";
    let config = read(json!({"credentials": {"password_command": command}}));
    for shown in [format!("{config:?}"), format!("{:?}", config.credentials)] {
        assert!(
            shown.contains("curl") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_later_call_replaces_files_and_logins_of_the_config() {
    let nowhere = json!({
        "nodes": ["rediss://127.0.0.1:1"],
        "tls": {"ca": "/nowhere", "certificate": "/nowhere", "key": "/nowhere"},
        "credentials": {"password_file": "/nowhere"},
    });
    let why = |builder: crate::Builder| builder.connect_lazy().unwrap_err().to_string();
    let builder = || Quorum::builder().config(read(nowhere.clone()));
    assert!(why(builder()).contains("cacert: the file \"/nowhere\""));
    let dir = tempfile::tempdir().unwrap();
    let files = crate::node::redis::support::tls::certificates(dir.path());
    let (ca, cert, key) = [&files.ca, &files.cert, &files.key]
        .map(|path| std::fs::read(path).unwrap())
        .into();
    let later = builder().ca_certificates(&ca);
    assert!(why(later).contains("client_certificate_files: the file \"/nowhere\""));
    let later = builder()
        .ca_certificates(&ca)
        .client_certificate(cert.clone(), key.clone());
    assert!(later.connect_lazy().is_ok());
    // The file comes last.
    let earlier = Quorum::builder()
        .ca_certificates(&ca)
        .client_certificate(cert, key);
    assert!(why(earlier.config(read(nowhere))).contains("cacert: the file"));
}

#[test]
fn a_field_that_is_not_given_is_not_set_and_not_written() {
    let null: serde_json::Map<_, _> = each_row()
        .map(|(name, _)| (name.to_owned(), Json::Null))
        .collect();
    for empty in [json!({}), Json::Object(null), json!({"nodes": null})] {
        let config = read(empty);
        assert_eq!(config, Config::default());
        assert_eq!(serde_json::to_string(&config).unwrap(), "{}");
    }
}

#[test]
fn an_unknown_field_is_refused_by_its_name() {
    let why = refused(json!({"max_tll": "30s"}));
    assert!(
        why.contains("max_tll") && why.contains("`max_ttl`"),
        "{why}"
    );
}

#[test]
fn a_value_of_the_wrong_type_is_refused_and_not_repeated() {
    let secret = "redis://u:4711@h";
    for (name, _) in each_row() {
        let setting = SETTINGS.iter().find(|s| s.name == name).unwrap();
        let mut wrong = vec![json!(4711), json!(-4711), json!(47.11), json!([secret])];
        wrong.push(json!({secret: 1}));
        if setting.kind != Kind::Word {
            wrong.push(json!(secret));
        }
        if setting.kind != Kind::Flag {
            wrong.push(json!(true));
        }
        for value in wrong {
            let why = refused(json!({name: value}));
            let is_hidden = !why.contains("47") && !why.contains("redis");
            assert!(is_hidden, "{name}: {value}: {why}");
        }
    }
    for value in [
        json!(secret),
        json!([secret, 4711]),
        json!([[secret]]),
        json!([null]),
        json!(4711),
    ] {
        let why = refused(json!({"nodes": value}));
        let is_hidden = !why.contains(secret) && !why.contains("4711");
        assert!(is_hidden, "{value}: {why}");
    }
    let why = refused(json!({"max_ttl": 30}));
    assert!(
        why.contains("a number, expected a text such as \"700ms\""),
        "{why}"
    );
    let why = refused(json!({"max_ttl": "30"}));
    assert!(why.contains("it is not a valid duration"), "{why}");
    let why = refused(json!({"allow_eviction": "1"}));
    assert!(why.contains("text, expected true or false"), "{why}");
    let why = refused(json!({"nodes": "redis://a"}));
    assert!(why.contains("text, expected a list of URLs"), "{why}");
}

#[test]
fn the_last_call_on_the_builder_counts() {
    let config = read(json!({"nodes": ["redis://b"], "max_ttl": "60s", "label": "file"}));
    let builder = Quorum::builder().node("redis://a");
    let builder = builder
        .max_ttl(Duration::from_secs(7))
        .fleet("kept")
        .label("before");
    let builder = builder.config(config).label("after").node("redis://c");
    let text = builder.shown();
    for said in [
        "nodes: [\"a:6379\", \"b:6379\", \"c:6379\"]",
        "max_ttl: 60s",
        "list: \"kept\"",
        "Label(\"after\")",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn a_quorum_is_not_made_outside_of_a_runtime() {
    let why = Quorum::builder()
        .node("redis://127.0.0.1:1")
        .connect_lazy()
        .unwrap_err();
    assert!(
        matches!(why, crate::Error::Invalid(_))
            && why.to_string().contains("within a tokio runtime"),
        "{why}"
    );
}

#[test]
fn a_range_is_checked_when_the_builder_connects() {
    let config = read(json!({"nodes": ["redis://a"], "max_ttl": "48h"}));
    let why = Quorum::builder()
        .config(config)
        .connect_lazy()
        .unwrap_err()
        .to_string();
    assert!(why.contains("max_ttl must be between"), "{why}");
}

#[test]
fn debug_shows_no_password_and_serialize_keeps_it() {
    let url = "redis://user:hunter2@h:7";
    let mut config = read(json!({"nodes": [url, "hunter2", "unix:///run/a?pass=hunter2"]}));
    config.label = Some(url.to_owned());
    config.fleet = Some("ours".to_owned());
    let shown = format!("{config:?}");
    assert_eq!(
        shown,
        "Config { nodes: [\"h:7\", \"***\", \"/run/a\"], fleet: \"ours\", label: \"***\" }"
    );
    let written = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<Config>(&written).unwrap(), config);
}

#[test]
fn a_password_is_found_in_every_form_of_a_url() {
    for (url, has) in [
        ("redis://user:pw@h", true),
        ("redis://:pw@h", true),
        ("unix:///run/a?user=u&pass=pw", true),
        ("redis://user@h", false),
        ("redis://h", false),
        ("unix:///run/a", false),
    ] {
        assert_eq!(has_password(url).unwrap(), has, "{url}");
    }
    assert!(has_password("http://h").is_err());
}

#[test]
fn a_duration_that_the_text_cannot_hold_is_not_written() {
    let config = Config {
        node_timeout: Some(Duration::from_micros(1500)),
        ..Config::default()
    };
    let why = serde_json::to_string(&config).unwrap_err().to_string();
    assert!(why.contains("whole number of milliseconds"), "{why}");
}

proptest! {
    #[test]
    fn every_config_is_read_back_as_it_was(
        nodes in proptest::collection::vec(".*", 0..4),
        max_ttl in proptest::option::of(0..u64::MAX / 2),
        allow_eviction in proptest::option::of(any::<bool>()),
        label in proptest::option::of(".*"),
    ) {
        let config = Config {
            nodes,
            max_ttl: max_ttl.map(Duration::from_millis),
            allow_eviction,
            label,
            ..Config::default()
        };
        let text = serde_json::to_string(&config).unwrap();
        prop_assert_eq!(serde_json::from_str::<Config>(&text).unwrap(), config);
    }
}
