use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use super::*;

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
    let run = |path: &PathBuf| command("app", &path.display().to_string());
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
    let words = command("app", "  printf  %s:%s  $HOME  'a  ");
    assert_eq!(login(words).await.1, "$HOME:'a");
}

#[tokio::test]
async fn a_command_that_fails_is_named_and_its_output_is_not_shown() {
    let dir = tempfile::tempdir().unwrap();
    let fails = script(&dir, "fails", "echo hunter2; exit 3");
    let silent = script(&dir, "silent", "true");
    let two = script(&dir, "two", "echo hunter2; echo more");
    let json = script(&dir, "json", "echo '{\"pass\": \"hunter2\"}'");
    let missing = dir.path().join("missing");
    for (path, says) in [
        (&fails, "exit status: 3"),
        (&silent, "printed nothing"),
        (&two, "more than one line"),
        (&json, "not of the form"),
        (&missing, "cannot be run: No such file"),
    ] {
        let path = path.display().to_string();
        let why = refused(command("app", &path)).await;
        assert!(why.contains(says) && why.contains(&path), "{why}");
        assert!(!why.contains("hunter2"), "{why}");
    }
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
