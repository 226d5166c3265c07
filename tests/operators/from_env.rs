//! A program that takes its settings from the environment, as the command does. The environment belongs to a whole
//! process, so each case runs in a process of its own.

use crate::support::{Fleet, Kind, again};
use quorate::{Builder, Quorum};

/// Runs the program in an environment with only these variables, and returns its output.
fn program(variables: &[(&str, &str)]) -> String {
    let mut command = again(module_path!(), "the_program");
    command.arg("--ignored");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUORATE_") {
            command.env_remove(name);
        }
    }
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let mut lines = said.lines().filter_map(|line| line.split_once("says: "));
    let (_, said) = lines.next().unwrap_or_else(|| panic!("{said}"));
    said.to_owned()
}

#[tokio::test]
#[ignore = "started by the other tests"]
async fn the_program() {
    let held = async {
        let quorum = Quorum::from_env().await?;
        quorum.bootstrap_forced().await?;
        let lease = quorum.mutex("a").lock().await?;
        let seen = quorum.inspect("a").await?;
        // A setting that is made afterwards wins.
        let other = Builder::from_env()?.fleet("another").connect_lazy()?;
        let label = seen.holder().map(|holder| holder.label.clone());
        lease.release().await?;
        Ok::<_, quorate::Error>((label, quorum.fleet().to_owned(), other.fleet().to_owned()))
    };
    match held.await {
        Ok(all) => println!("says: {all:?}"),
        Err(error) => println!("says: {error}"),
    }
}

#[test]
fn from_env_reads_the_servers_and_their_common_settings() {
    let fleet = Fleet::start(3, Kind::Redis);
    let urls = fleet.urls().join(",");
    let said = program(&[
        ("QUORATE_NODES", &urls),
        ("QUORATE_KEY_PREFIX", "mine"),
        ("QUORATE_FLEET", "ours"),
        ("QUORATE_LABEL", "web-3"),
        ("QUORATE_MAX_TTL", "20s"),
        ("QUORATE_RESTART_MARGIN", ""),
    ]);
    assert_eq!(said, r#"(Some("web-3"), "ours", "another")"#);
    let keys = fleet[0].keys();
    assert!(
        keys.iter().all(|(key, _)| key.starts_with("mine:")),
        "{keys:?}"
    );
    let boot = fleet[0].cmd(&["GET", "mine:boot"]);
    let boot: String = redis::from_redis_value(boot).unwrap();
    assert!(boot.contains("ours 20000 5000"), "{boot}");
}

#[test]
fn without_servers_it_says_what_to_set() {
    let said = program(&[]);
    assert!(said.contains("set QUORATE_NODES"), "{said}");
    let said = program(&[("QUORATE_NODES", "redis://me:sekret@h:x")]);
    assert!(said.starts_with("QUORATE_NODES: "), "{said}");
    assert!(!said.contains("sek"), "{said}");
}
