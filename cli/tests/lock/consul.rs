//! `quorate lock` and `quorate semaphore` in Consul, on real agents, together with the real `consul lock`.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::command::{self, Done, PATIENCE, Running, STAY, Wire, ms, on_a_terminal, quorate};
use crate::support::{Agent, MASTER};
use rustix::process::Signal;

/// The shortest ttl in Consul.
const TTL: Duration = Duration::from_secs(10);

/// `quorate lock NAME ..` with the agent's address, and without the settings of this process. `words` are separated by
/// spaces. `then` follows `--`.
fn at(url: &str, words: &str, then: &[&str]) -> Command {
    let mut command = quorate(&[], &words.split(' ').collect::<Vec<_>>());
    command.args(["--consul", url]).env_remove("QUORATE_NODES");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CONSUL_") {
            command.env_remove(name);
        }
    }
    command.arg("--").args(then);
    command
}

#[track_caller]
fn run(agent: &Agent, words: &str, then: &[&str]) -> Done {
    Running::start(at(&agent.url(), words, then)).done()
}

/// Runs a script with the wire as its descriptor 9.
fn on(wire: &Wire, agent: &Agent, words: &str, script: &str) -> Running {
    let script = format!("exec 9>'{}'\n{script}", wire.path().display());
    Running::start(at(&agent.url(), words, &["sh", "-c", &script]))
}

/// Runs the real `consul lock`.
fn consul_lock(wire: &Wire, agent: &Agent, words: &[&str], script: &str) -> Running {
    let script = format!("exec 9>'{}'\n{script}", wire.path().display());
    let words = [&["lock", "-shell=false"], words, &["sh", "-c", &script]].concat();
    Running::start(agent.consul(&words))
}

#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not yet");
        std::thread::sleep(ms(10));
    }
}

/// Returns true if there is neither a key nor a session.
fn is_empty(agent: &Agent) -> bool {
    agent.pairs("").is_empty() && agent.sessions().is_empty()
}

/// The number of processes that have an entry, as holders or as waiters.
fn entries(agent: &Agent, name: &str) -> usize {
    let record = format!("{name}/.lock");
    let keys = agent.keys(&format!("{name}/"));
    keys.iter().filter(|key| **key != record).count()
}

// ---- a lock -------------------------------------------------------------------------------------

#[test]
fn the_command_runs_with_its_token_and_nothing_is_left_of_it() {
    let agent = Agent::start();
    let script = "echo $QUORATE_NAME:$QUORATE_TOKEN:$QUORATE_SLOT; exit 7";
    let mut last = 0;
    // A short lock, and a lock that is held for long enough to look at Consul.
    for script in [script, &format!("sleep 0.3; {script}")] {
        let done = run(&agent, "lock jobs/a", &["sh", "-c", script]).is(7);
        let said: Vec<&str> = done.out.trim().split(':').collect();
        assert_eq!((said[0], said[2]), ("jobs/a", ""));
        let token: u64 = said[1].parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(done.err, "");
        assert!(is_empty(&agent), "{:?}", agent.sessions());
    }
    run(&agent, "lock jobs/a", &["no-such-command"]).is(127);
    let pool = "semaphore pool --limit 2";
    run(&agent, pool, &["sh", "-c", script])
        .is(7)
        .prints("pool:");
    assert!(is_empty(&agent), "{:?}", agent.sessions());
}

#[test]
fn every_kind_of_address_is_taken() {
    let agent = Agent::with().socket().start();
    let socket = format!("unix://{}", agent.socket().display());
    for url in [agent.url(), agent.address(), socket] {
        Running::start(at(&url, "lock a --datacenter dc1", &["echo", "ran"]))
            .done()
            .is(0)
            .prints("ran");
    }
    run(&agent, "lock a --datacenter elsewhere", &["true"])
        .is(69)
        .says("quorate: Consul could not be used:\n")
        .says(&format!("quorate:   {}: refused: No path", agent.address()));
}

#[test]
fn a_refused_lock_names_the_holder_and_its_session() {
    let agent = Agent::start();
    let wire = Wire::new();
    let holder = on(&wire, &agent, "lock a --label web-1:77", STAY);
    wire.expect("up");
    let session = agent.session_ids().remove(0);
    let by = format!("\"a\" is held by web-1:77 (session {session})");
    let now = "without --no-wait this waits for it";
    run(&agent, "lock a --no-wait", &["true"])
        .is(75)
        .says(&format!("quorate: {by}; {now}\n"));
    let done = run(&agent, "lock a --wait 300ms", &["true"]).is(75);
    let done = done.says(&format!("{by}; a longer --wait waits for it\n"));
    // The wait, a second at most to ask who holds the lock, and the time of the process.
    assert!(done.took < ms(300 + 1_000 + 1_700), "{:?}", done.took);
    let error = run(&agent, "lock a --no-wait --json", &["true"]);
    let error = error.is(75).json_error();
    assert_eq!(
        (&error["error"], &error["name"]),
        (&"held".into(), &"a".into())
    );
    assert_eq!(error["held_by"], format!("web-1:77 (session {session})"));

    // A waiter on a terminal, or with -v, prints what it waits for.
    let waiter = Running::start(at(&agent.url(), "lock a -v", &["echo", "ran"]));
    until("it waits", || entries(&agent, "a") == 1);
    std::thread::sleep(ms(1_000));
    holder.signal(Signal::TERM);
    holder.done().is(143);
    let waited = format!("waiting for \"a\", held by web-1:77 (session {session})\n");
    waiter.done().is(0).prints("ran").says(&waited);
    assert!(is_empty(&agent));
}

#[test]
fn a_lock_excludes_consul_lock_of_the_same_key() {
    let agent = Agent::start();
    let wire = Wire::new();
    let go = wire.dir.path().join("go");
    let script = format!(
        "echo theirs >&9; while [ ! -e '{}' ]; do sleep 0.02; done; sleep 1; echo gone >&9",
        go.display()
    );
    let theirs = consul_lock(&wire, &agent, &["jobs/a"], &script);
    // The waiter has not opened it yet.
    let _open = std::fs::File::options()
        .write(true)
        .open(wire.path())
        .unwrap();
    wire.expect("theirs");
    run(&agent, "lock jobs/a --no-wait", &["true"])
        .is(75)
        .says("\"jobs/a\" is held by \"Consul lock for ");
    std::fs::write(&go, "").unwrap();
    let ours = on(
        &wire,
        &agent,
        "lock jobs/a",
        "echo ours >&9; sleep 1; echo done >&9",
    );
    wire.expect("gone");
    wire.expect("ours");
    theirs.done().is(0);
    let theirs = consul_lock(&wire, &agent, &["jobs/a"], "echo again >&9");
    wire.expect("done");
    wire.expect("again");
    ours.done().is(0);
    theirs.done().is(0);
}

// ---- a semaphore --------------------------------------------------------------------------------

#[test]
fn a_semaphore_shares_its_slots_with_consul_lock_with_a_limit() {
    let agent = Agent::start();
    let wire = Wire::new();
    let theirs = consul_lock(&wire, &agent, &["-n=2", "pool"], "echo up >&9; sleep 60");
    wire.expect("up");
    let ours = on(&wire, &agent, "semaphore pool --limit 2", STAY);
    wire.expect("up");
    run(&agent, "semaphore pool --limit 2 --no-wait", &["true"])
        .is(75)
        .says("quorate: \"pool\": all 2 slots are taken, by ")
        .says("; without --no-wait this waits for one\n");
    run(&agent, "semaphore pool --limit 3", &["true"])
        .is(64)
        .says("\"pool\" has a limit of 2, and 3 was asked for");
    run(&agent, "lock pool", &["true"])
        .is(64)
        .says("is a semaphore");
    let next = consul_lock(&wire, &agent, &["-n=2", "pool"], "echo next >&9");
    ours.signal(Signal::TERM);
    ours.done().is(143);
    wire.expect("next");
    next.done().is(0);
    drop(theirs);
}

#[test]
fn a_lost_slot_is_called_a_slot() {
    let agent = Agent::start();
    let words = "semaphore pool --limit 2 --max-hold 1500ms";
    run(&agent, words, &["sleep", "60"])
        .is(79)
        .says("quorate: a slot of \"pool\" was held for as long as --max-hold allows");
    assert!(is_empty(&agent), "{:?}", agent.sessions());
}

// ---- signals, and loss of the lock --------------------------------------------------------------

#[test]
fn a_signal_reaches_the_command_and_the_lock_is_free_at_once() {
    let agent = Agent::start();
    let wire = Wire::new();
    let holder = on(&wire, &agent, "lock a", STAY);
    wire.expect("up");
    let waiter = Running::start(at(&agent.url(), "lock a", &["true"]));
    until("it waits", || entries(&agent, "a") == 1);
    waiter.signal(Signal::TERM);
    waiter
        .done()
        .is(143)
        .says("quorate: ended while waiting for the lock; nothing was run");
    assert_eq!(entries(&agent, "a"), 0, "its place in line is gone");
    holder.signal(Signal::TERM);
    holder.done().is(143);
    assert!(is_empty(&agent), "{:?}", agent.sessions());
}

#[test]
fn ctrl_c_leaves_nothing_behind() {
    let agent = Agent::start();
    let script = format!(
        "'{}' lock a --consul {} -- sh -c 'echo up; exec sleep 60'",
        command::QUORATE,
        agent.url()
    );
    let mut running = on_a_terminal(&at(&agent.url(), "lock a", &[]), &script);
    running.until("up");
    std::io::Write::write_all(running.child.stdin.as_mut().unwrap(), b"\x03").unwrap();
    running.done().is(130);
    assert!(is_empty(&agent), "{:?}", agent.sessions());
}

#[test]
fn a_session_that_somebody_destroys_ends_the_command() {
    let agent = Agent::start();
    for (words, what) in [
        ("lock a", "the lock \"a\""),
        ("semaphore a --limit 2", "a slot of \"a\""),
    ] {
        let wire = Wire::new();
        let running = on(&wire, &agent, words, STAY);
        wire.expect("up");
        agent.destroy(&agent.session_ids()[0]);
        let destroyed = Instant::now();
        running.done().is(79).says(&format!(
            "quorate: {what} was lost while the command ran: Consul says that it no longer belongs to \
             this holder; the command was told to end, and ended in time\n"
        ));
        // This is less than a third of the ttl: Consul reported it, not a renewal.
        assert!(destroyed.elapsed() < ms(3_000), "{:?}", destroyed.elapsed());
    }
}

#[test]
fn if_consul_dies_the_command_is_dead_before_its_lock_expires() {
    loses_it_when(Agent::kill9);
}

#[test]
fn if_consul_hangs_the_command_is_dead_before_its_lock_expires() {
    loses_it_when(Agent::pause);
}

fn loses_it_when(happens: fn(&Agent)) {
    let agent = Agent::start();
    let wire = Wire::new();
    let running = on(&wire, &agent, "lock a --json", STAY);
    let up = wire.expect("up");
    happens(&agent);
    let (dead, line) = wire.next();
    assert_eq!(line, None, "the command is dead");
    assert!(dead - up < TTL, "{:?}", dead - up);
    let error = running.done().is(79).json_error();
    let message = error["message"].as_str().unwrap();
    let why = "the lock \"a\" was lost while the command ran: its session could not be renewed in Consul in time";
    assert!(message.starts_with(why), "{message}");
    // This is far less than the 5 s for which it waits for an answer.
    assert!(dead.elapsed() < ms(2_000), "Consul is not waited for again");
}

#[test]
fn a_release_that_consul_does_not_confirm_is_a_warning() {
    let agent = Agent::start();
    let wire = Wire::new();
    let go = wire.dir.path().join("go");
    let script = format!(
        "echo up >&9; while [ ! -e '{}' ]; do sleep 0.02; done; exit 3",
        go.display()
    );
    let running = on(&wire, &agent, "lock a", &script);
    wire.expect("up");
    agent.kill9();
    std::fs::write(&go, "").unwrap();
    let killed = Instant::now();
    running
        .done()
        .is(3)
        .says("the command is done, but Consul did not confirm that \"a\" is free; it expires within twice the ttl of 10.0 s")
        .says(&agent.address());
    // The release is refused at once. The bound is the time that a process takes to end on a busy machine.
    assert!(killed.elapsed() < ms(2_000), "{:?}", killed.elapsed());
}

// ---- errors -------------------------------------------------------------------------------------

#[test]
fn an_unreachable_agent_is_named() {
    let agent = Agent::start();
    agent.kill9();
    let done = run(&agent, "lock a --connect-timeout 500ms", &["true"]).is(69);
    let unreachable = format!("quorate:   {}: unreachable: ", agent.address());
    let done = done
        .says("quorate: Consul could not be used:\n")
        .says(&unreachable);
    // The connect timeout, and the time of the process on a busy machine.
    assert!(done.took < ms(500 + 1_500), "{:?}", done.took);
    let error = run(&agent, "lock a --connect-timeout 500ms --json", &["true"]);
    let error = error.is(69).json_error();
    assert_eq!(error["error"], "no_quorum");
    assert_eq!(error["nodes"][0]["node"], agent.address());

    let nowhere = at(
        "unix:///nowhere",
        "lock a --connect-timeout 500ms",
        &["true"],
    );
    let done = Running::start(nowhere).done().is(69);
    done.says("quorate:   /nowhere: unreachable: ");

    // The command waits for an agent that is about to start.
    let waiter = Running::start(at(
        &agent.url(),
        "lock a --connect-timeout 20s",
        &["echo", "ran"],
    ));
    agent.start_again();
    waiter.done().is(0).prints("ran");

    // The command waits no longer for an agent that exists and does not answer.
    agent.pause();
    let done = run(&agent, "lock a --connect-timeout 500ms", &["true"]).is(69);
    let done = done.says("quorate: Consul did not answer within 500 ms\n");
    // The connect timeout, and the time of the process on a busy machine.
    assert!(done.took < ms(500 + 1_500), "{:?}", done.took);
}

#[test]
fn a_refused_acl_token_is_reported_with_the_rights_it_needs() {
    let agent = Agent::with().acl().start();
    let with = |token: &str| {
        let mut command = at(
            &agent.url(),
            "lock a",
            &["sh", "-c", "echo $CONSUL_HTTP_TOKEN"],
        );
        command.env("CONSUL_HTTP_TOKEN", token);
        Running::start(command).done()
    };
    let wrong = "6b1dbd5d-2c4a-4f4e-9d5c-6f2f3a1c7e66";
    for token in [wrong, ""] {
        let done = with(token)
            .is(69)
            .says("CONSUL_HTTP_TOKEN")
            .says("session_prefix");
        assert!(!done.err.contains(wrong), "{done:?}");
        // This is far less than the default connect timeout of 5 s.
        assert!(done.took < ms(2_000), "it is not asked again: {done:?}");
    }
    // The command gets the user's settings.
    with(MASTER).is(0).prints(MASTER);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("{MASTER}\n")).unwrap();
    let mut command = at(
        &agent.url(),
        "lock a",
        &["sh", "-c", "echo token=$CONSUL_HTTP_TOKEN"],
    );
    command.env("CONSUL_HTTP_TOKEN_FILE", file.path());
    Running::start(command).done().is(0).prints("token=\n");
}

#[test]
fn wrong_usage_with_consul_exits_64() {
    // No agent is asked.
    let nowhere = "127.0.0.1:1";
    let run = |words: &str| Running::start(at(nowhere, words, &["true"])).done();
    for (option, value) in [
        ("--node", " redis://h"),
        ("--key-prefix", " p"),
        ("--fleet", " f"),
        ("--max-ttl", " 30s"),
        ("--restart-margin", " 5s"),
        ("--allow-eviction", ""),
        ("--throwaway", ""),
    ] {
        let says = format!("--consul cannot be used with {option}, ");
        run(&format!("lock a {option}{value}")).is(64).says(&says);
        run(&format!("{option}{value} semaphore a --limit 2"))
            .is(64)
            .says(&says);
    }
    run("lock a --ttl 5s")
        .is(64)
        .says("a ttl of 5s is not allowed");
    run("lock a//b").is(64).says("\"a//b\"");
    run("semaphore a --limit 0").is(64).says("a limit of 0");
    run("lock a --max-hold 500ms")
        .is(64)
        .says("--max-hold 500ms is too short");
    run("inspect a")
        .is(64)
        .says("only `quorate lock` and `quorate semaphore` take --consul");
    let words = ["lock", "a", "--datacenter", "dc1", "--", "true"];
    Running::start(quorate(&[], &words))
        .done()
        .is(64)
        .says("--consul <URL>");
    let secret = "http://me:pw@h:x";
    let done = Running::start(at(secret, "lock a", &["true"])).done();
    let done = done.is(64).says("Consul's address cannot be read");
    assert!(!done.err.contains("pw"), "{done:?}");
}

#[test]
fn settings_of_masters_in_the_environment_do_not_count() {
    let agent = Agent::start();
    let script = "echo $QUORATE_NODES:$QUORATE_MAX_TTL";
    let mut command = at(&agent.url(), "lock a", &["sh", "-c", script]);
    command.env("QUORATE_NODES", "redis://127.0.0.1:1");
    command.env("QUORATE_MAX_TTL", "not-a-time");
    Running::start(command).done().is(0).prints(":not-a-time\n");
    let mut command = at(&agent.url(), "lock a --keep-env", &["sh", "-c", script]);
    command.env("QUORATE_NODES", "redis://127.0.0.1:1");
    let done = Running::start(command).done().is(0);
    done.prints("redis://127.0.0.1:1:\n");

    // The address for Consul's own tools does not choose Consul.
    let mut command = quorate(&[], &["lock", "a", "--", "true"]);
    command.env_remove("QUORATE_NODES");
    command.env("CONSUL_HTTP_ADDR", agent.url());
    let done = Running::start(command).done();
    done.is(64).says("no servers are named");
}
