//! Certificates and passwords from files and commands.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::command::{Done, PATIENCE, QUORATE, Running, ms, quorate, run};
use crate::support::{
    Kind, Server, ServerOptions,
    tls::{certificates, client_certificate},
};
use rustix::process::Signal;

fn server() -> Server {
    let options = ServerOptions::new(Kind::Redis).password("of-the-harness");
    options.acl("app on >hunter2 ~* &* +@all").start()
}

fn url(server: &Server) -> String {
    format!("redis://127.0.0.1:{}", server.port())
}

fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn done(mut command: Command) -> Done {
    command.env("QUORATE_CONNECT_TIMEOUT", "2s");
    Running::start(command).done()
}

/// The result with the same servers by TLS.
fn done_of_tls(urls: &[String], args: &[&str]) -> Done {
    let urls: Vec<String> = urls
        .iter()
        .map(|url| url.replace("redis:", "rediss:"))
        .collect();
    done(quorate(&urls, args))
}

#[test]
fn a_password_comes_from_a_file_or_a_command() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let urls = [url(&server)];
    let file = dir.path().join("password");
    fs::write(&file, "hunter2\n").unwrap();
    let file = file.display().to_string();
    let with_file = ["--username", "app", "--password-file", &file];
    let bootstrap = [&["bootstrap", "--new"][..], &with_file].concat();
    done(quorate(&urls, &bootstrap)).is(0);
    let lock = |options: &[&str]| {
        let all = [&["lock", "a"][..], options, &["--", "echo", "held"]].concat();
        quorate(&urls, &all)
    };
    done(lock(&with_file)).is(0).prints("held");
    let json = r#"{"username": "app", "password": "hunter2", "expires_in_s": 900}"#;
    let json = script(dir.path(), "json", &format!("echo '{json}'"));
    let json = json.display().to_string();
    done(lock(&["--password-command", &json]))
        .is(0)
        .prints("held");
    // Variables, and an option in place of one of them.
    let mut variables = lock(&[]);
    variables
        .env("QUORATE_USERNAME", "app")
        .env("QUORATE_PASSWORD_FILE", &file);
    done(variables).is(0).prints("held");
    let mut option = lock(&["--username", "app"]);
    option
        .env("QUORATE_USERNAME", "nobody")
        .env("QUORATE_PASSWORD_FILE", &file);
    done(option).is(0).prints("held");
    // An option replaces the other source too.
    let mut option = lock(&["--password-command", &json]);
    option.env("QUORATE_PASSWORD_FILE", "/nowhere");
    done(option).is(0).prints("held");
    // So it does for a `quorate` inside.
    let nested = ["lock", "a", "--keep-env", "--password-command", &json, "--"];
    let nested = [&nested[..], &[QUORATE, "lock", "b", "--", "echo", "inside"]].concat();
    let mut nested = quorate(&urls, &nested);
    nested.env("QUORATE_PASSWORD_FILE", "/nowhere");
    done(nested).is(0).prints("inside");
    // The file with the settings says where the password is.
    let config = dir.path().join("quorate.toml");
    let text = format!(
        "nodes = [\"{}\"]\n[credentials]\nusername = \"app\"\npassword_file = \"password\"\n",
        urls[0]
    );
    fs::write(&config, text).unwrap();
    let config = config.display().to_string();
    let mut by_file = quorate(
        &[],
        &["lock", "a", "--config", &config, "--", "echo", "held"],
    );
    by_file.env_remove("QUORATE_NODES");
    done(by_file).is(0).prints("held");
}

/// The command runs for longer than a login lasts, and `quorate` waits for its own children by itself.
#[test]
fn a_login_is_renewed_while_the_command_runs() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let urls = [url(&server)];
    let json = r#"{"username": "app", "password": "hunter2", "expires_in_s": 2}"#;
    let counted = format!("echo >> {}/asked; echo '{json}'", dir.path().display());
    let counted = script(dir.path(), "counted", &counted)
        .display()
        .to_string();
    let with = ["--password-command", &counted];
    done(quorate(
        &urls,
        &[&["bootstrap", "--new"][..], &with].concat(),
    ))
    .is(0);
    fs::remove_file(dir.path().join("asked")).unwrap();
    let run = [
        "--",
        "sh",
        "-c",
        "for n in 1 2 3 4 5 6 7 8; do (true) & sleep 1; done; echo held",
    ];
    let all = [&["lock", "a", "-v"][..], &with, &run].concat();
    let done = done(quorate(&urls, &all)).is(0).prints("held");
    assert!(!done.err.contains("could not be renewed"), "{done:?}");
    let asked = fs::read_to_string(dir.path().join("asked")).unwrap();
    assert!(
        asked.lines().count() >= 4,
        "asked {} times",
        asked.lines().count()
    );
}

#[test]
fn a_source_that_fails_is_named_and_shows_no_password() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let urls = [url(&server)];
    let nodes = |options: &[&str]| {
        let all = [&["nodes"][..], options].concat();
        let done = done(quorate(&urls, &all));
        assert!(!format!("{done:?}").contains("hunter"), "{done:?}");
        done
    };
    nodes(&[]).prints("it asks for a password");
    let missing = nodes(&["--username", "app", "--password-file", "/nowhere/password"]);
    missing
        .prints("the credentials provider: the password file \"/nowhere/password\" cannot be read");
    let fails = script(
        dir.path(),
        "fails",
        "echo hunter2; echo the token service is away >&2; exit 3",
    );
    let fails = fails.display().to_string();
    let done = nodes(&["--password-command", &fails]);
    done.prints("exit status: 3")
        .says("the token service is away");
    let wrong = script(dir.path(), "wrong", "echo hunter3");
    let wrong = wrong.display().to_string();
    nodes(&["--username", "app", "--password-command", &wrong])
        .prints("it does not know user \"app\" with the password of the credentials provider");
    let hangs = script(dir.path(), "hangs", "exec sleep 60");
    let hangs = hangs.display().to_string();
    nodes(&["--password-command", &hangs, "--dial-timeout", "300ms"])
        .prints("the credentials provider gives no answer within 300 ms");
    let fifo = dir.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let fifo = fifo.display().to_string();
    nodes(&["--username", "app", "--password-file", &fifo]).prints("it is not a regular file");
    for option in ["--cacert", "--client-cert"] {
        let all = ["nodes", option, &fifo, "--client-key", &fifo];
        let all = if option == "--cacert" {
            &all[..3]
        } else {
            &all
        };
        done_of_tls(&urls, all)
            .is(64)
            .says("it is not a regular file");
    }
}

#[test]
fn the_locked_command_does_not_inherit_the_password_command() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let urls = [url(&server)];
    let prints = script(dir.path(), "prints", "echo hunter2");
    let with_secret = format!("{} sesame", prints.display());
    let with = |args: &[&str]| {
        let mut command = quorate(&urls, args);
        command
            .env("QUORATE_USERNAME", "app")
            .env("QUORATE_PASSWORD_COMMAND", &with_secret);
        done(command).is(0)
    };
    with(&["bootstrap", "--force"]);
    for run in [
        &["lock", "a"][..],
        &["semaphore", "s", "--limit", "1"],
        &["limit", "l", "--rate", "9/200ms"],
    ] {
        let kept = [run, &["--keep-env", "--", "env"]].concat();
        with(&kept).prints("sesame").prints(&urls[0]);
        let done = with(&[run, &["--", "env"]].concat()).prints("QUORATE_USERNAME=app");
        assert!(!done.out.contains("sesame"), "{run:?}: {done:#?}");
    }
}

/// Waits until the processes whose numbers are in this file are dead, or waiting for a parent that does not ask.
#[track_caller]
fn until_dead(file: &Path) {
    let numbers = fs::read_to_string(file).unwrap();
    let deadline = Instant::now() + PATIENCE;
    for number in numbers.lines() {
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            let rest = stat.rsplit(')').next()?.trim().chars().next();
            rest.filter(|state| *state != 'Z')
        };
        while state().is_some() {
            assert!(Instant::now() < deadline, "{number} is alive");
            std::thread::sleep(ms(5));
        }
    }
}

#[test]
fn a_password_command_that_hangs_is_ended_with_quorate() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let pids = dir.path().join("pids");
    let text = format!("sleep 600 &\necho \"$$\n$!\" >> {}\nwait", pids.display());
    let hangs = script(dir.path(), "hangs", &text);
    let start = |urls: &[String], args: &[&str]| {
        fs::write(&pids, "").unwrap();
        let mut command = quorate(urls, args);
        command
            .env("QUORATE_PASSWORD_COMMAND", &hangs)
            .env("QUORATE_DIAL_TIMEOUT", "60s")
            .env("QUORATE_CONNECT_TIMEOUT", "60s");
        Running::start(command)
    };
    let until_it_runs = || {
        let deadline = Instant::now() + PATIENCE;
        while fs::read_to_string(&pids).unwrap().lines().count() < 2 {
            assert!(Instant::now() < deadline, "it is not started");
            std::thread::sleep(ms(5));
        }
    };
    // Ctrl-C does not reach its group.
    let urls = [url(&server)];
    for args in [
        &["nodes"][..],
        &["nodes", "--wait", "all"],
        &["inspect", "a"],
        &["bootstrap"],
        &["lock", "a", "--", "true"],
    ] {
        let running = start(&urls, args);
        until_it_runs();
        running.signal(Signal::INT);
        let _ = running.done();
        until_dead(&pids);
    }
    // `limit` becomes its command while the command for the third server still runs.
    let servers = [server, self::server(), self::server()];
    let with_password = |server: &Server| server.url_with("app", "hunter2");
    let mut urls: Vec<String> = servers.iter().map(with_password).collect();
    let _ = run(&urls, &["bootstrap", "--force"]).is(0);
    urls[2] = url(&servers[2]);
    let wait = "until test -s \"$1\"; do sleep 0.01; done; echo done";
    let pids = pids.display().to_string();
    let limit = [
        "limit", "l", "--rate", "9/200ms", "--", "sh", "-c", wait, "sh", &pids,
    ];
    start(&urls, &limit).done().is(0).prints("done");
    until_dead(Path::new(&pids));
}

#[test]
fn settings_that_do_not_go_together_are_usage_errors() {
    let urls = ["redis://127.0.0.1:1".to_owned()];
    for (options, says) in [
        (
            &["--client-cert", "a"][..],
            "client_cert (QUORATE_CLIENT_CERT, tls.certificate) is set without",
        ),
        (
            &["--client-key", "a"],
            "client_key (QUORATE_CLIENT_KEY, tls.key) is set without",
        ),
        (
            &["--username", "a"],
            "username (QUORATE_USERNAME) is set without",
        ),
        (
            &["--password-file", "a", "--password-command", "b"],
            "(QUORATE_PASSWORD_COMMAND) are both set",
        ),
        (&["--cacert", "/nowhere/ca.crt"], "\"/nowhere/ca.crt\""),
        (
            &["--client-cert", "/nowhere/a", "--client-key", "/nowhere/b"],
            "\"/nowhere/a\" cannot be read",
        ),
    ] {
        let all = [&["nodes"][..], options].concat();
        done(quorate(&urls, &all)).is(64).says(says);
    }
}

#[test]
fn a_client_certificate_comes_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let files = certificates(dir.path());
    let client = client_certificate(dir.path(), "client", "client", 2);
    let options = ServerOptions::new(Kind::Redis).tls(&files);
    let server = options.config("tls-auth-clients yes").start();
    let text = |path: &Path| path.display().to_string();
    let (ca, cert, key) = (text(&files.ca), text(&client.cert), text(&client.key));
    let urls = [server.url()];
    let all = ["bootstrap", "--new", "--cacert", &ca];
    done(quorate(&urls, &all))
        .is(69)
        .says("asks for a TLS certificate of this client");
    let all = [&all[..], &["--client-cert", &cert, "--client-key", &key]].concat();
    done(quorate(&urls, &all)).is(0);
    let mut variables = quorate(&urls, &["lock", "a", "--", "echo", "held"]);
    variables.env("QUORATE_CACERT", &ca);
    variables
        .env("QUORATE_CLIENT_CERT", &cert)
        .env("QUORATE_CLIENT_KEY", &key);
    done(variables).is(0).prints("held");
}
