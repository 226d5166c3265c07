use redis::{Client, IntoConnectionInfo as _};

use super::*;
use crate::Error;
#[cfg(feature = "tls-rustls")]
use crate::base::tls::Trust;

fn address(node: impl IntoNode) -> Address {
    match node.into_node() {
        Ok(Target::Server(address)) => address,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_hint_is_given_where_a_password_may_be() {
    for (url, hint) in [
        ("redis://me:se/secret@host", true),
        ("redis://me:1?secret@host", true),
        ("redis://me:sec#ret@host", true),
        ("redis://me:secret", true),
        ("unix:///s?pass=a#b", true),
        ("redis://h/x", false),
        ("redis://h:6379/x", false),
        ("redis://h:99999", false),
        ("redis://[::1]:1/x", false),
        ("127.0.0.1:6379", false),
        ("http://h", false),
    ] {
        assert_eq!(invalid(url).contains("(@ is %40)"), hint, "{url}");
    }
}

#[test]
fn url_parts_that_another_parser_would_drop_are_refused() {
    for (url, why) in [
        (
            "redis://me:12?hunter2@h",
            "after the ? only protocol= is allowed",
        ),
        (
            "redis://h?password=hunter2",
            "after the ? only protocol= is allowed",
        ),
        ("redis://me:12/hunter2@h", "it has an @ after a /"),
        ("redis://:one@h/0redis://:two@i", "it has an @ after a /"),
        ("unix:///me:hunter2@/run/r.sock", "it has an @ after a /"),
        (
            "unix:///r.sock?PASS=hunter2",
            "only db=, user=, pass= and protocol=",
        ),
        (
            "unix:///r.sock?password=hunter2",
            "only db=, user=, pass= and protocol=",
        ),
        ("me:hunter2@h:6379", "it has no scheme: write redis://"),
        ("redis:///1", "its host is missing"),
        ("redis://me%3Ahunter2", "not a valid name"),
        ("redis:/:hunter2@h", "it has an @ after a /"),
        (
            "redis://h?protocol=hunter2",
            "not a valid node: Invalid protocol version;",
        ),
        (
            "redis://%ff:x@h",
            "not a valid node: Username is not valid UTF-8 string;",
        ),
        ("unix://host/s", "not a valid node: Missing path;"),
        (
            "redis://0.0.0.0",
            "not a valid node: Cannot connect to a wildcard address",
        ),
    ] {
        let text = invalid(url);
        assert!(
            text.contains(why) && !text.contains("hunter2"),
            "{url}: {text}"
        );
    }
    for url in [
        "redis://h?protocol=resp3",
        "unix:///run/a%40b?p%61ss=x@y",
        "redis://h?",
    ] {
        address(url);
    }
    assert_eq!(address("unix:///run/a%40b?p%61ss=x@y").id(), "/run/a@b");
}

#[test]
fn a_login_in_a_host_is_refused_and_not_shown() {
    let info = ("me:hunter2@h", 6379).into_connection_info().unwrap();
    let text = invalid(info);
    assert!(
        text.contains("host has an @") && !text.contains("hunter2"),
        "{text}"
    );
}

fn invalid(node: impl IntoNode) -> String {
    match node.into_node() {
        Err(Error::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_url_gives_the_address_the_database_and_the_login() {
    for (url, id, db, login) in [
        ("redis://localhost", "localhost:6379", 0, None),
        ("valkey://localhost:7/3", "localhost:7", 3, None),
        (
            "redis://:secret@10.0.0.1:7",
            "10.0.0.1:7",
            0,
            Some(("default", "secret")),
        ),
        (
            "redis://me:s%40:ret@[::1]:7/2",
            "[::1]:7",
            2,
            Some(("me", "s@:ret")),
        ),
        ("redis://me@h:7", "h:7", 0, Some(("me", ""))),
        ("redis://:@h:7", "h:7", 0, None),
        (
            "unix:///run/r.sock?db=4&user=me&pass=secret",
            "/run/r.sock",
            4,
            Some(("me", "secret")),
        ),
    ] {
        let address = address(url);
        let found = address
            .login
            .as_ref()
            .map(|l| (l.user.as_str(), l.password.as_str()));
        assert_eq!(
            (address.id().as_str(), address.db, found),
            (id, db, login),
            "{url}"
        );
        assert!(!format!("{address:?}").contains("secret"), "{address:?}");
    }
}

#[test]
fn a_server_may_be_named_by_a_url_a_client_or_its_info() {
    let client = Client::open("redis://h:7/1").unwrap();
    let info = client.get_connection_info().clone();
    let string = String::from("redis://h:7/1");
    let same = address("redis://h:7/1");
    assert_eq!(address(&string), same);
    assert_eq!(address(["redis://h:7/1"].first().unwrap()), same);
    assert_eq!(address(string), same);
    assert_eq!(address(&client), same);
    assert_eq!(address(client), same);
    assert_eq!(address(&info), same);
    assert_eq!(address(info), same);
}

#[test]
fn two_urls_of_one_server_are_equal() {
    assert_eq!(address("redis://H:7"), address("redis://user:pw@h:7/3"));
    assert_ne!(address("redis://h:7"), address("redis://h:8"));
    assert_ne!(address("redis://h:7"), address("redis://i:7"));
    assert_eq!(address("unix:///a?db=1"), address("unix:///a"));
    assert_ne!(address("unix:///a"), address("unix:///A"));
}

#[test]
fn an_invalid_url_is_shown_without_its_password() {
    for url in [
        "http://me:secret@host",
        "me:secret@host:6379",
        "redis://me:se/secret@host",
        "redis://me:secret@host:port",
        "redis://me:secret@host/-1",
        "redis://me:secret@host/x",
        "unix://me:secret@/run?pass=secret",
        "tcp:///run/s?pass=secret&user=me",
        "unix:///run/s?pass=secret&db=x",
        "redis://a/@:secret@host:port",
    ] {
        let why = invalid(url);
        assert!(!why.contains("secret"), "{why}");
        assert!(
            why.contains("redis://, rediss:// (TLS) and unix://"),
            "{why}"
        );
    }
    assert!(
        invalid("redis://h/x")
            .contains("\"redis://h/x\" is not a valid node: Invalid database number;")
    );
}

#[cfg(feature = "tls-rustls")]
#[test]
fn a_url_can_ask_for_tls_and_for_insecure_tls() {
    for (url, insecure) in [
        ("rediss://h:7", false),
        ("VALKEYS://h:7/#insecure", true),
        ("rediss://h:7/2#insecure", true),
    ] {
        match address(url).endpoint {
            Endpoint::Tls { tls, .. } => {
                assert_eq!(matches!(tls.trust, Trust::Anybody), insecure, "{url}")
            }
            _ => panic!("{url}"),
        }
    }
    for url in ["rediss://h:7/#secure", "redis://h:7/#insecure"] {
        assert!(invalid(url).contains("#insecure"));
    }
}

#[cfg(not(feature = "tls-rustls"))]
#[test]
fn tls_without_the_feature_names_it() {
    assert!(invalid("rediss://me:secret@h:7").contains("`tls-rustls`"));
}
