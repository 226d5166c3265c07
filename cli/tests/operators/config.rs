//! The configuration file of `--config` and `QUORATE_CONFIG`: the order of options, variables and the file, the
//! environment of a locked command, and errors that show no password.

use std::{
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::command::{Done, QUORATE, Running, STAY, Wire, leftovers, ms, quorate};
use crate::support::{Fleet, Kind, ServerOptions};
use rustix::process::Signal;
use tempfile::TempDir;

const PASSWORD: &str = "hunter2";
/// No server answers there.
const NOBODY: &str = "redis://127.0.0.1:1";

/// A configuration file that only its owner may read.
struct File {
    dir: TempDir,
    path: PathBuf,
}

impl File {
    fn new(text: impl AsRef<[u8]>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quorate.toml");
        std::fs::write(&path, text).unwrap();
        let file = Self { dir, path };
        file.mode(0o600);
        file
    }

    /// The servers of a fleet that votes, and further lines.
    fn of(fleet: &Fleet, lines: &str) -> Self {
        let file = Self::new(format!("nodes = {:?}\n{lines}", fleet.urls()));
        // The lines may have settings that the whole fleet agrees on.
        file.run(&["bootstrap", "--force"]).is(0);
        file
    }

    fn mode(&self, mode: u32) {
        std::fs::set_permissions(&self.path, Permissions::from_mode(mode)).unwrap();
    }

    /// `quorate --config FILE ..`
    fn quorate(&self, args: &[&str]) -> Command {
        let path = self.path.to_str().unwrap();
        quorate(&[], &[&["--config", path], args].concat())
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Done {
        Running::start(self.quorate(args)).done()
    }
}

/// `quorate ..` with the path in `QUORATE_CONFIG`.
fn with_variable(path: &Path, args: &[&str]) -> Command {
    let mut command = quorate(&[], args);
    command.env("QUORATE_CONFIG", path);
    command
}

fn with_password(n: usize) -> Fleet {
    Fleet::start_with(n, ServerOptions::new(Kind::Redis).password(PASSWORD))
}

#[test]
fn a_lock_on_real_servers_needs_only_the_file() {
    let fleet = with_password(3);
    let file = File::of(
        &fleet,
        "key_prefix = \"mine\"\nlabel = \"batch-7\"\nmax_ttl = \"6s\"\n",
    );
    let wire = Wire::new();
    let script = format!("exec 9>'{}'\n{STAY}", wire.path().display());
    let holder = file.quorate(&["lock", "nightly", "--ttl", "6s", "--", "sh", "-c", &script]);
    let holder = Running::start(holder);
    wire.expect("up");
    let seen = file.run(&["--json", "inspect", "nightly"]).is(0).json();
    assert_eq!(seen["holder"]["label"], "batch-7", "{seen}");
    let keys = fleet[0].keys();
    assert!(!keys.is_empty(), "the lock is there");
    assert!(
        keys.iter().all(|(key, _)| key.starts_with("mine:")),
        "{keys:?}"
    );
    let mut other = with_variable(&file.path, &["lock", "nightly", "--no-wait", "--", "true"]);
    other.env("QUORATE_LABEL", "other");
    Running::start(other).done().is(75).says("batch-7");
    holder.signal(Signal::TERM);
    holder.done().is(143);
    assert_eq!(leftovers(&fleet), Vec::<String>::new());
}

/// The settings that a locked command finds, as `NAME=value` in the order of their names.
fn settings(command: Command) -> Vec<String> {
    let done = Running::start(command).done().is(0);
    let mut lines: Vec<String> = done
        .out
        .lines()
        .filter(|line| line.starts_with("QUORATE_"))
        .filter(|line| !line.starts_with("QUORATE_TOKEN=") && !line.starts_with("QUORATE_NAME="))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

const PRINT: [&str; 5] = ["lock", "a", "--keep-env", "--", "env"];

#[test]
fn an_option_comes_before_a_variable_and_a_variable_before_the_file() {
    let fleet = Fleet::start(1, Kind::Redis);
    let lines =
        "fleet = \"file\"\nmax_ttl = \"6s\"\nallow_eviction = true\nnode_timeout = \"901ms\"\n";
    let file = File::of(&fleet, lines);
    let path = file.path.to_str().unwrap();
    let from_the_file = [
        "QUORATE_ALLOW_EVICTION=1".to_owned(),
        format!("QUORATE_CONFIG={path}"),
        "QUORATE_FLEET=file".to_owned(),
        "QUORATE_MAX_TTL=6s".to_owned(),
        "QUORATE_NODES=".to_owned(),
        "QUORATE_NODE_TIMEOUT=901ms".to_owned(),
    ];
    assert_eq!(settings(file.quorate(&PRINT)), from_the_file);
    assert_eq!(settings(with_variable(&file.path, &PRINT)), from_the_file);

    let variables = |command: &mut Command| {
        command.env("QUORATE_MAX_TTL", "5s");
        command.env("QUORATE_ALLOW_EVICTION", "0");
        command.env("QUORATE_NODE_TIMEOUT", "902ms");
    };
    let mut command = file.quorate(&PRINT);
    variables(&mut command);
    let found = settings(command);
    for line in [
        "QUORATE_ALLOW_EVICTION=0",
        "QUORATE_FLEET=file",
        "QUORATE_MAX_TTL=5s",
        "QUORATE_NODE_TIMEOUT=902ms",
    ] {
        assert!(found.contains(&line.to_owned()), "{line}: {found:?}");
    }

    let options = ["--allow-eviction", "--node-timeout", "903ms"];
    let mut command = file.quorate(&[&options[..], &PRINT].concat());
    variables(&mut command);
    let found = settings(command);
    for line in [
        "QUORATE_ALLOW_EVICTION=1",
        "QUORATE_FLEET=file",
        "QUORATE_MAX_TTL=5s",
        "QUORATE_NODE_TIMEOUT=903ms",
    ] {
        assert!(found.contains(&line.to_owned()), "{line}: {found:?}");
    }
}

#[test]
fn the_servers_of_an_option_or_a_variable_replace_all_of_the_file() {
    let file = File::new(format!(
        "nodes = [\"{NOBODY}\", \"redis://127.0.0.1:2\"]\nconnect_timeout = \"100ms\"\n"
    ));
    let nodes = |command: Command| {
        let seen = Running::start(command).done().is(69).json();
        let nodes = seen["nodes"].as_array().unwrap().clone();
        let names = nodes.iter().map(|node| node["node"].as_str().unwrap());
        names.map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    let asked = ["--json", "nodes"];
    assert_eq!(nodes(file.quorate(&asked)), "127.0.0.1:1 127.0.0.1:2");
    let mut variable = file.quorate(&asked);
    variable.env("QUORATE_NODES", "redis://127.0.0.1:3");
    assert_eq!(nodes(variable), "127.0.0.1:3");
    let list = file.dir.path().join("nodes");
    std::fs::write(&list, "redis://127.0.0.1:4\n").unwrap();
    let mut variable = file.quorate(&asked);
    variable.env("QUORATE_NODES_FILE", &list);
    assert_eq!(nodes(variable), "127.0.0.1:4");
    let mut option = file.quorate(&[&["--node", "redis://127.0.0.1:5"], &asked[..]].concat());
    option.env("QUORATE_NODES", "redis://127.0.0.1:3");
    assert_eq!(nodes(option), "127.0.0.1:5");
    // --config comes before QUORATE_CONFIG, which is not even read.
    let mut option = file.quorate(&asked);
    option.env("QUORATE_CONFIG", "/no/such/file");
    assert_eq!(nodes(option), "127.0.0.1:1 127.0.0.1:2");
}

#[test]
fn the_command_inherits_the_file_and_no_password() {
    let fleet = with_password(1);
    let file = File::of(&fleet, "label = \"outer\"\n");
    let print = ["lock", "a", "--", "env"];
    for command in [
        file.quorate(&print),
        with_variable(&file.path, &print),
        file.quorate(&PRINT),
        with_variable(&file.path, &PRINT),
    ] {
        let done = Running::start(command).done().is(0);
        assert!(!done.out.contains(PASSWORD), "{done:#?}");
    }
    // As with QUORATE_NODES_FILE, a variable is inherited, and an option only with --keep-env.
    let nested = ["lock", "a", "--", QUORATE, "nodes"];
    Running::start(with_variable(&file.path, &nested))
        .done()
        .is(0);
    file.run(&nested).is(64).says("--keep-env");
    let elsewhere = format!("cd / && exec '{QUORATE}' nodes");
    let nested = ["lock", "a", "--keep-env", "--", "sh", "-c", &elsewhere];
    file.run(&nested).is(0);
    let relative = &[&["--config", "quorate.toml"], &nested[..]].concat();
    let mut relative = quorate(&[], relative);
    relative.current_dir(file.dir.path());
    Running::start(relative).done().is(0);
    let mut relative = with_variable(Path::new("quorate.toml"), &nested);
    relative.current_dir(file.dir.path());
    Running::start(relative).done().is(0);
    // `limit` becomes its command. A new server has no room until it has run for the interval.
    let rate = [
        "limit",
        "b",
        "--rate",
        "9/200ms",
        "--keep-env",
        "--",
        QUORATE,
        "nodes",
    ];
    file.run(&rate).is(0);
}

/// As `--config <(vault ..)` in bash: it can be read only once.
#[test]
fn the_servers_of_a_pipe_are_passed_on_with_keep_env() {
    let fleet = with_password(1);
    let file = File::of(&fleet, "");
    let line = format!(
        "'{QUORATE}' --config <(cat '{}') \"$@\"",
        file.path.display()
    );
    let piped = |args: &[&str]| {
        let mut bash = Command::new("bash");
        bash.args(["-c", &line, "bash"]).args(args);
        let like = quorate(&[], &[]);
        let mut bash = crate::command::in_env_of(&like, bash);
        // It must not be read by the locked command either.
        bash.env("QUORATE_CONFIG", "/no/such/file");
        Running::start(bash).done()
    };
    piped(&["lock", "a", "--keep-env", "--", QUORATE, "nodes"]).is(0);
    let done = piped(&["lock", "a", "--", "env"]).is(0);
    assert!(!done.out.contains(PASSWORD), "{done:#?}");
}

#[test]
fn a_file_with_a_password_that_others_may_read_is_refused() {
    let secret =
        format!("nodes = [\"redis://u:{PASSWORD}@127.0.0.1:1\"]\nconnect_timeout = \"100ms\"\n");
    let file = File::new(&secret);
    file.run(&["nodes"]).is(69);
    for mode in [0o644, 0o660, 0o604] {
        file.mode(mode);
        let path = format!("{:?}", file.path);
        for args in [
            &["nodes"][..],
            &["--json", "nodes"],
            &["nodes", "--node", NOBODY],
        ] {
            let done = file.run(args).is(64).says("chmod 600");
            let done = done.says(&format!("mode {mode:04o}"));
            let said = done.err.replace("\\\"", "\"");
            assert!(said.contains(&path), "{path}: {said}");
            assert!(!said.contains(PASSWORD), "{said}");
        }
    }
    // Without a password everybody may read it.
    let file = File::new(format!(
        "nodes = [\"{NOBODY}\"]\nconnect_timeout = \"100ms\"\n"
    ));
    file.mode(0o644);
    file.run(&["nodes"]).is(69);
}

#[test]
fn a_mistake_in_the_file_is_named_by_its_line_and_without_a_password() {
    for (text, says) in [
        (
            "max_ttl = \"9s\"\nmax_tll = \"9s\"",
            "line 2, column 1: unknown field `max_tll`",
        ),
        (
            "\nmax_ttl = \"90\"",
            "line 2: max_ttl: it is not a valid duration",
        ),
        ("max_ttl = 90", "line 1: max_ttl: invalid type: a number"),
        (
            "max_ttl = \"48h\"",
            "line 1: max_ttl: max_ttl must be between",
        ),
        (
            "allow_eviction = \"redis://u:hunter2@h\"",
            "line 1: allow_eviction",
        ),
        (
            "fleet = \"redis://u:hunter2@h\"",
            "line 1: fleet: the fleet name must be",
        ),
        (
            "nodes = \"redis://u:hunter2@h\"",
            "line 1: nodes: invalid type: text",
        ),
        (
            "nodes = [\n\"redis://h\",\n\"redis://u:hunter/2@h\"]",
            "line 3: nodes: \"redis://***@h\"",
        ),
        ("nodes = [redis://u:hunter2@h]", "line 1, column"),
        (
            "\"redis://u:hunter2@h\" = 1",
            "line 1, column 1: the name of a setting has only",
        ),
        ("nodes = [\"redis://u:hunter2@h]", "line 1, column"),
    ] {
        let file = File::new(text);
        for args in [&["nodes"][..], &["--json", "nodes"]] {
            let done = file.run(args).is(64);
            let said = done.err.replace("\\\"", "\"");
            assert!(said.contains(says), "{text}: {said}");
            assert!(said.contains("quorate.toml"), "{text}: {said}");
            assert!(!said.contains("hunter"), "{text}: {said}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_a_configuration_is_refused() {
    let file = File::new("");
    let dir = file.dir.path();
    let missing = dir.join("missing");
    for (path, says) in [
        (missing.as_path(), "cannot be read: No such file"),
        (dir, "cannot be read: Is a directory"),
        (Path::new("/dev/zero"), "is longer than 1048576 bytes"),
        (Path::new("redis://u:hunter2@h"), "looks like a URL"),
        (Path::new("u:hunter2@h"), "looks like a URL"),
    ] {
        let option = quorate(&[], &["nodes", "--config", path.to_str().unwrap()]);
        for (command, named_by) in [
            (option, "--config"),
            (with_variable(path, &["nodes"]), "QUORATE_CONFIG"),
        ] {
            let done = Running::start(command)
                .done()
                .is(64)
                .says(says)
                .says(named_by);
            assert!(!done.err.contains("hunter2"), "{done:#?}");
        }
    }
    let done = file.run(&["nodes"]).is(64).says("no servers are named");
    done.says("has no nodes = [..]");
    File::new(b"label = \"a\"\nfleet = \"\xff\"")
        .run(&["nodes"])
        .is(64)
        .says("is not valid UTF-8 in line 2");
    let marked = File::new(format!(
        "\u{feff}nodes = [\"{NOBODY}\"]\nconnect_timeout = \"100ms\""
    ));
    marked.run(&["nodes"]).is(69);
    // An empty variable counts as not set.
    Running::start(with_variable(Path::new(""), &["nodes"]))
        .done()
        .is(64)
        .says("no servers are named");
    let mut bytes = quorate(&[], &["nodes"]);
    let word: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"/a/\xff");
    bytes.env("QUORATE_CONFIG", word);
    Running::start(bytes)
        .done()
        .is(64)
        .says("QUORATE_CONFIG is not valid UTF-8");
}

#[test]
fn a_fifo_is_read_and_does_not_block_signals() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    let made = Command::new("mkfifo")
        .args(["-m", "600"])
        .arg(&path)
        .status();
    assert!(made.unwrap().success());
    let running = Running::start(with_variable(&path, &["nodes"]));
    std::thread::sleep(ms(300));
    running.signal(Signal::TERM);
    assert_eq!(running.done().code, -1, "the signal itself ended it");

    let running = Running::start(with_variable(&path, &["nodes"]));
    let text =
        format!("nodes = [\"redis://u:{PASSWORD}@127.0.0.1:1\"]\nconnect_timeout = \"100ms\"");
    std::fs::write(&path, text).unwrap();
    running.done().is(69);
}

#[cfg(feature = "consul")]
#[test]
fn beside_consul_only_the_label_of_the_file_is_used() {
    let agent = crate::support::Agent::start();
    // The settings of masters would be refused as options, and the ttl of 10 s would exceed this max_ttl.
    let lines = format!(
        "nodes = [\"{NOBODY}\"]\nmax_ttl = \"1s\"\nnode_timeout = \"1ms\"\nlabel = \"batch-7\"\n"
    );
    let file = File::new(lines);
    let url = agent.url();
    let lock = ["lock", "a", "--consul", &url];
    let wire = Wire::new();
    let script = format!("exec 9>'{}'\n{STAY}", wire.path().display());
    let holder = with_variable(
        &file.path,
        &[&lock[..], &["--", "sh", "-c", &script]].concat(),
    );
    let holder = Running::start(holder);
    wire.expect("up");
    let other = [&lock[..], &["--no-wait", "--", "true"]].concat();
    file.run(&other).is(75).says("batch-7");
    holder.signal(Signal::TERM);
    holder.done().is(143);
    // The file is checked all the same.
    let file = File::new("max_tll = \"1s\"");
    let done = Running::start(with_variable(&file.path, &other)).done();
    done.is(64).says("max_tll");
}

#[test]
fn the_recipe_is_a_valid_file() {
    let recipe = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../examples/deploy/quorate.toml"
    );
    let file = File::new(std::fs::read(recipe).unwrap());
    let done = file.run(&["--json", "nodes", "--connect-timeout", "100ms"]);
    let seen = done.is(69).json();
    assert_eq!(seen["nodes"].as_array().unwrap().len(), 3, "{seen}");
    // It has passwords.
    file.mode(0o644);
    file.run(&["nodes"]).is(64).says("chmod 600");
}

#[test]
fn completions_and_man_pages_need_no_setting() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("new/man1");
    let man = man.to_str().unwrap();
    let spoilt = |args: &[&str]| {
        let mut command = with_variable(Path::new("/no/such/file"), args);
        command.env("QUORATE_MAX_TTL", "soon");
        Running::start(command).done()
    };
    // They are longer than a pipe holds.
    let mut completions = with_variable(Path::new("/no/such/file"), &["completions", "bash"]);
    let bash = completions.env("QUORATE_MAX_TTL", "soon").output().unwrap();
    let bash = (bash.status.code(), String::from_utf8(bash.stdout).unwrap());
    assert!(
        bash.0 == Some(0) && bash.1.contains("_quorate()"),
        "{bash:?}"
    );
    let done = spoilt(&["--json", "man", man]).is(0).json();
    let pages = std::fs::read_dir(man).unwrap().count();
    assert_eq!(done["pages"], pages, "{done}");
    assert!(pages > 15, "{pages}");
    let done = spoilt(&["man", man]).is(0);
    assert_eq!(done.out, format!("wrote {pages} pages to {man}\n"));

    let taken = dir.path().join("file");
    std::fs::write(&taken, "").unwrap();
    let path = taken.to_str().unwrap();
    spoilt(&["man", path])
        .is(70)
        .says(&format!("cannot write {path}"));
    let blocked = dir.path().join("blocked");
    std::fs::create_dir_all(blocked.join("quorate.1")).unwrap();
    let done = spoilt(&["man", blocked.to_str().unwrap()]).is(70);
    done.says("quorate.1: Is a directory");
}

#[test]
fn completions_whose_reader_has_gone_are_not_an_error() {
    let mut running = Running::start(quorate(&[], &["completions", "zsh"]));
    running.reader_goes();
    let done = running.done().is(0);
    assert_eq!(done.err, "");
}
