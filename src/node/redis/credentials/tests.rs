use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use super::*;
use crate::node::redis::support::HANG;

async fn asked(provider: Provider) -> Result<GivenLogin, String> {
    let user = Some("of-the-url".into());
    let logins = Logins::new(provider, "h:1", user, Duration::from_secs(5));
    Arc::new(logins).ask_again().await
}

async fn login(provider: Provider) -> (String, String) {
    let given = asked(provider).await.unwrap_or_else(|why| panic!("{why}"));
    (given.login.user, given.login.password)
}

async fn refused(provider: Provider) -> String {
    match asked(provider).await {
        Ok(_) => panic!("it gave credentials"),
        Err(why) => why,
    }
}

/// A script with this content.
fn script(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

#[tokio::test]
async fn the_file_is_read_each_time_without_its_line_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    let provider = file("app", &path);
    for (text, password) in [("one\n", "one"), ("two\r\n", "two"), (" three ", " three ")] {
        fs::write(&path, text).unwrap();
        assert_eq!(
            login(provider.clone()).await,
            ("app".into(), password.into())
        );
    }
    assert_eq!(login(file("", &path)).await.0, "of-the-url");
}

#[tokio::test]
async fn a_file_without_one_password_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("password");
    let provider = file("app", &path);
    let why = refused(provider.clone()).await;
    assert!(why.contains("cannot be read: No such file"), "{why}");
    for (text, says) in [
        ("\n", "is empty"),
        ("hunter2\nmore\n", "more than one line"),
    ] {
        fs::write(&path, text).unwrap();
        let why = refused(provider.clone()).await;
        assert!(why.contains(says) && why.contains("/password\""), "{why}");
        assert!(!why.contains("hunter2"), "{why}");
    }
    fs::write(&path, b"\xff\xfe").unwrap();
    let why = refused(provider).await;
    assert!(why.contains("valid UTF-8"), "{why}");
}

#[tokio::test]
async fn a_command_prints_the_password_or_json() {
    let dir = tempfile::tempdir().unwrap();
    let echo = |name: &str, text: &str| script(&dir, name, &format!("printf '%s\\n' '{text}'"));
    let plain = echo("plain", "hunter 2");
    let run = |path: &PathBuf| command("app", &path.display().to_string(), HANG);
    assert_eq!(login(run(&plain)).await, ("app".into(), "hunter 2".into()));
    let json = echo(
        "json",
        r#"{"username": "me", "password": "p", "expires_in_s": 900, "x": 1}"#,
    );
    let given = asked(run(&json))
        .await
        .unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(
        (given.login.user, given.login.password),
        ("me".into(), "p".into())
    );
    let left = given.ends.unwrap().duration_since(Instant::now());
    assert!(left > Duration::from_secs(890) && left <= Duration::from_secs(900));
    let short = echo("short", r#"{"password": "p"}"#);
    assert_eq!(login(run(&short)).await.0, "app");
    // Its words are separated by blanks, and no shell reads them.
    let words = command("app", "  printf  %s:%s  $HOME  'a  ", HANG);
    assert_eq!(login(words).await.1, "$HOME:'a");
}

#[tokio::test]
async fn a_command_that_fails_is_named_and_its_output_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let fails = script(&dir, "fails", "echo hunter2; exit 3");
    let silent = script(&dir, "silent", "true");
    let two = script(&dir, "two", "echo hunter2; echo more");
    let json = script(&dir, "json", "echo '{\"pass\": \"hunter2\"}'");
    let endless = script(&dir, "endless", "yes hunter2");
    let missing = dir.path().join("missing");
    for (path, says) in [
        (&fails, "exit status: 3"),
        (&endless, "printed 65536 bytes or more"),
        (&silent, "printed nothing"),
        (&two, "more than one line"),
        (&json, "not of the form"),
        (&missing, "cannot be run: No such file"),
    ] {
        let path = path.display().to_string();
        let why = refused(command("app", &path, HANG)).await;
        assert!(why.contains(says) && why.contains(&path), "{why}");
        assert!(!why.contains("hunter2"), "{why}");
    }
}

/// The processes that wrote their numbers into this file, and that have not ended.
fn alive(file: &std::path::Path) -> Vec<String> {
    let numbers = fs::read_to_string(file).unwrap_or_default();
    let is_alive = |number: &&str| {
        let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
        // A zombie waits for its parent, which in a container may be a process that never asks.
        let state = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.trim().chars().next());
        state.is_some_and(|state| state != 'Z')
    };
    let lines = numbers.lines().filter(is_alive);
    lines.map(str::to_owned).collect()
}

async fn until_all_are_dead(file: &std::path::Path) {
    let deadline = Instant::now() + HANG;
    while !alive(file).is_empty() {
        assert!(Instant::now() < deadline, "alive: {:?}", alive(file));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_command_that_hangs_is_ended_with_its_children_and_runs_once_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, children) = (dir.path().join("runs"), dir.path().join("children"));
    let text = format!(
        "echo $$ >> {}\nsleep 600 &\necho $! >> {}\nwait",
        runs.display(),
        children.display()
    );
    let hangs = script(&dir, "hangs", &text).display().to_string();
    // It is ended at the limit, or when nobody waits any more.
    let soon = Duration::from_secs(3);
    for limit in [soon, HANG] {
        fs::write(&runs, "").unwrap();
        fs::write(&children, "").unwrap();
        let provider = command("app", &hangs, limit);
        let patience = if limit == HANG { None } else { Some(HANG) };
        let asking = || {
            let user = Some("app".into());
            let within = patience.unwrap_or(soon);
            Arc::new(Logins::new(provider.clone(), "h:1", user, within)).ask_again()
        };
        // Five connections ask at once.
        let asked = futures::future::join_all((0..5).map(|_| asking())).await;
        for given in asked {
            let why = given.err().expect("it hangs");
            let says = match patience {
                Some(_) => "because it ran for 3",
                None => "no answer within 3",
            };
            assert!(why.contains(says), "{why}");
        }
        until_all_are_dead(&runs).await;
        until_all_are_dead(&children).await;
        let runs = fs::read_to_string(&runs).unwrap();
        assert_eq!(runs.lines().count(), 1, "{limit:?}: {runs}");
    }
}

#[tokio::test]
async fn a_process_that_a_command_leaves_behind_keeps_neither_the_answer_nor_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join("left");
    let text = format!("echo hunter2\nsleep 600 &\necho $! >> {}", left.display());
    let leaves = script(&dir, "leaves", &text).display().to_string();
    assert_eq!(
        login(command("app", &leaves, HANG)).await.1,
        "hunter2",
        "the process has its output open"
    );
    let left = alive(&left);
    assert_eq!(left.len(), 1, "an agent may be left on purpose");
    let pid = rustix::process::Pid::from_raw(left[0].parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// Each retry would leave one more.
#[tokio::test]
async fn a_command_that_fails_leaves_no_process_behind() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join("left");
    let text = format!("sleep 600 &\necho $! >> {}\nexit 1", left.display());
    let fails = script(&dir, "fails", &text).display().to_string();
    let why = refused(command("app", &fails, HANG)).await;
    assert!(why.contains("exit status: 1"), "{why}");
    assert_eq!(fs::read_to_string(&left).unwrap().lines().count(), 1);
    until_all_are_dead(&left).await;
}

#[tokio::test]
async fn connections_that_ask_while_a_command_runs_get_its_answer_and_its_age() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, go) = (dir.path().join("runs"), dir.path().join("go"));
    let text = format!(
        "echo run >> {}\nuntil test -e {}; do sleep 0.01; done\n\
         echo '{{\"password\": \"p\", \"expires_in_s\": 900}}'",
        runs.display(),
        go.display()
    );
    let slow = script(&dir, "slow", &text).display().to_string();
    let provider = command("app", &slow, HANG);
    let first = tokio::spawn(asked(provider.clone()));
    while !runs.exists() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let second_asked = Instant::now();
    let second = tokio::spawn(asked(provider.clone()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    fs::write(&go, "").unwrap();
    let ends = |given: Result<GivenLogin, String>| given.ok().unwrap().ends.unwrap();
    assert!(first.await.unwrap().is_ok());
    let second = second.await.unwrap();
    let second = ends(second);
    let life = Duration::from_secs(900);
    assert!(second < second_asked + life, "it counts from the start");
    assert_eq!(fs::read_to_string(&runs).unwrap().lines().count(), 1);
    // The next connection runs it again.
    assert!(asked(provider).await.is_ok());
    assert_eq!(fs::read_to_string(&runs).unwrap().lines().count(), 2);
}

#[tokio::test]
async fn a_password_file_that_is_a_fifo_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let why = refused(file("app", &path)).await;
    assert!(
        why.contains("cannot be read: it is not a regular file"),
        "{why}"
    );
}

#[tokio::test]
async fn a_provider_that_hangs_is_dropped_after_the_limit() {
    let (told, mut dropped) = tokio::sync::mpsc::channel::<()>(1);
    let provider = Provider::new(move |_| {
        let told = told.clone();
        async move {
            let _told = told;
            std::future::pending().await
        }
    });
    let logins = Logins::new(provider, "h:1", None, Duration::from_millis(50));
    let logins = Arc::new(logins);
    let Err(why) = Arc::clone(&logins).ask_again().await else {
        panic!("it gave credentials")
    };
    assert_eq!(why, "the credentials provider: no answer within 50 ms");
    drop(logins);
    assert_eq!(dropped.recv().await, None, "its future was dropped");
}

#[tokio::test]
async fn an_error_of_the_provider_hides_an_old_password() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let provider = Provider::new(move |_| {
        let n = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        async move {
            match n {
                0 => Ok(Credentials::new("app", "hunter2")),
                _ => Err("no other than hunter2".into()),
            }
        }
    });
    let logins = Arc::new(Logins::new(provider, "h:1", None, Duration::from_secs(5)));
    assert!(Arc::clone(&logins).ask_again().await.is_ok());
    let why = logins.ask_again().await.err().unwrap();
    assert_eq!(why, "the credentials provider: ***");
}

#[test]
fn debug_shows_neither_user_nor_password() {
    let credentials = Credentials::new("hunter1", "hunter2").expires_in(Duration::from_secs(9));
    assert_eq!(
        format!("{credentials:?}"),
        "Credentials { expires_in: Some(9s), .. }"
    );
}
