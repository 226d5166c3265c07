//! `quorate conformance`: a page about one server, which is empty before and after.

use redis::FromRedisValue;
use rustix::process::Signal;

use crate::command::{Running, ms, quorate, run};
use crate::support::{Fleet, Kind, Server, ServerOptions};

fn keys(server: &Server) -> u64 {
    u64::from_redis_value(server.cmd(&["DBSIZE"])).unwrap()
}

#[test]
fn redis_and_valkey_conform() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = Server::start(kind);
        let done = run(&[server.url()], &["conformance"]).is(0);
        let done = done.prints("redis_version:").prints(" 0 failed, ");
        assert_eq!((done.err.as_str(), keys(&server)), ("", 0), "{done:#?}");
        let page = run(&[server.url()], &["conformance", "--json"])
            .is(0)
            .json();
        assert!(page["passed"].as_u64().unwrap() > 100, "{page}");
        // Those that need other settings.
        let not_run = page["not_run"].as_array().unwrap();
        let needs = |case: &serde_json::Value| case["needs"].to_string();
        let is_setting = |needs: String| {
            let settings = ["Full", "Replica", "Rights"];
            settings.iter().any(|setting| needs.contains(setting))
        };
        assert!(not_run.iter().map(needs).all(is_setting), "{page}");
    }
}

#[test]
fn a_case_that_fails_is_on_the_page() {
    let user = "poor on >secret ~* &* +@all -client|kill";
    let fleet = Fleet::start_with(1, ServerOptions::new(Kind::Redis).acl(user));
    let server = &fleet[0];
    let url = server.url_with("poor", "secret");
    let done = run(std::slice::from_ref(&url), &["conformance"])
        .is(1)
        .prints(" 2 failed, ");
    let done = done.prints("FAILED an_older_connection_can_be_ended");
    assert!(
        done.err.is_empty() && !done.out.contains("secret"),
        "{done:#?}"
    );
    let page = run(&[url], &["conformance", "--json"]).is(1).json();
    assert_eq!(
        page["failed"][1]["case"],
        "an_older_connection_can_be_ended"
    );
    assert_eq!(keys(server), 0);
}

#[test]
fn a_server_in_use_is_left_alone() {
    let server = Server::start(Kind::Redis);
    server.cmd(&["SET", "invoice:42", "paid"]);
    let done = run(&[server.url()], &["conformance"]).is(69);
    done.says("it has 1 keys: the cases need an empty server");
    assert_eq!(keys(&server), 1);
}

#[test]
fn one_server_is_asked_for() {
    let urls = ["redis://127.0.0.1:1", "redis://127.0.0.1:2"].map(String::from);
    run(&urls, &["conformance"])
        .is(64)
        .says("give one --node URL");
    run(&urls[..1], &["conformance"])
        .is(69)
        .says("no connection");
}

#[test]
fn an_interrupt_leaves_no_key() {
    let server = Server::start(Kind::Redis);
    let running = Running::start(quorate(&[server.url()], &["conformance"]));
    while keys(&server) == 0 {
        std::thread::sleep(ms(1));
    }
    running.signal(Signal::TERM);
    running
        .done()
        .is(143)
        .says("the keys of the cases are deleted");
    assert_eq!(keys(&server), 0);
}
