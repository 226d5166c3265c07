//! `quorate lock` at a terminal: Ctrl-Z and Ctrl-C, fg and bg, pipes, prompts, editors. A real shell on a real terminal
//! runs it. The tests use only typed keys and the output that is shown.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::command::{QUORATE, fleet, ms, quorate, run};
use crate::pty::{CTRL_C, CTRL_Z, Terminal};
use crate::support::Fleet;

/// This is longer than it takes to stop a job: the command has 100 ms to obey, and the kernel needs a moment.
const A_STOP: Duration = ms(400);

/// Writes its process id to the file `pid`, and then prints the time, in nanoseconds, again and again. It needs `bash`.
/// Other shells start a program by vfork, and a stop during the vfork is not visible to anybody. Such a shell also dies
/// of a Ctrl-C only if the program that it waits for does.
const TICKS: &str =
    "trap 'trap - INT; kill -INT $$' INT; echo $$ > pid; while :; do date +%s%N; sleep 0.02; done";

/// A shell at a prompt, in which the lock's command can be `sh NAME` for each of these scripts.
fn shell(fleet: &Fleet, scripts: &[(&str, &str)]) -> Terminal {
    let folder = Path::new(QUORATE).parent().unwrap();
    let terminal = Terminal::shell(&quorate(&fleet.urls(), &[]), folder);
    for (name, script) in scripts {
        terminal.write(name, script);
    }
    terminal
}

/// Waits until it has written more.
#[track_caller]
fn ticks_on(terminal: &Terminal, log: &str) {
    let before = terminal.read(log).len();
    terminal.until("more ticks", || terminal.read(log).len() > before);
}

/// Waits until it has gone on writing for longer than a stop takes.
#[track_caller]
fn is_not_stopped(terminal: &Terminal, log: &str) {
    let enough = (SystemTime::UNIX_EPOCH.elapsed().unwrap() + A_STOP).as_nanos();
    let is_late = |tick: &str| tick.parse::<u128>().is_ok_and(|tick| tick > enough);
    terminal.until("ticks beyond a stop", || {
        // The last line may be incomplete.
        terminal.read(log).lines().any(is_late)
    });
}

#[track_caller]
fn is_free(fleet: &Fleet, name: &str) {
    let seen = run(&fleet.urls(), &["inspect", name, "--json"])
        .is(0)
        .json();
    assert_eq!(seen["held"], false, "{seen}");
}

// ---- stopped, and going on ------------------------------------------------------------------

#[test]
fn ctrl_z_stops_the_command_before_quorate_and_fg_lets_it_go_on() {
    let fleet = fleet(3);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    // Standard output is not a terminal.
    terminal.line("quorate lock z --ttl 20s -- bash ticks > log");
    let command = terminal.pid("pid");
    ticks_on(&terminal, "log");
    for _ in 0..2 {
        terminal.keys(CTRL_Z);
        terminal.expect_stopped();
        assert!(command.parent().is_stopped());
        assert!(
            command.is_stopped(),
            "the shell's prompt is shown, and it runs on"
        );
        terminal.line("fg");
        ticks_on(&terminal, "log");
        assert!(!command.parent().is_stopped());
    }
    terminal.keys(CTRL_Z);
    terminal.expect_stopped();
    terminal.line("bg");
    terminal.expect_prompt();
    ticks_on(&terminal, "log");
    terminal.line("fg");
    // The shell prints the command before it hands over the terminal.
    terminal.until("the keys go to it", || command.parent().is_in_foreground());
    terminal.keys(CTRL_C);
    terminal.expect_status(130);
    is_free(&fleet, "z");
}

#[test]
fn a_command_that_was_stopped_beyond_its_lease_never_goes_on() {
    let fleet = fleet(3);
    // The command writes a byte every microsecond. If it went on before the kill, some bytes would have been written.
    let bytes = "echo $$ > pid; exec dd if=/dev/zero of=bytes bs=1";
    let mut terminal = shell(&fleet, &[("bytes.sh", bytes)]);
    let written = |terminal: &Terminal| {
        std::fs::metadata(terminal.path("bytes")).map_or(0, |file| file.len())
    };
    terminal.line("quorate lock z --ttl 1s -- sh bytes.sh > log");
    let command = terminal.pid("pid");
    terminal.until("it writes", || written(&terminal) > 0);
    terminal.keys(CTRL_Z);
    terminal.expect_stopped();
    let before = written(&terminal);
    // Another process gets the lock meanwhile, and the first command is continued while that one holds it.
    let script = format!(
        "cd '{}'; echo > second; while [ ! -e end ]; do sleep 0.02; done",
        terminal.path("").display()
    );
    let urls = fleet.urls();
    let second = std::thread::spawn(move || run(&urls, &["lock", "z", "--", "sh", "-c", &script]));
    terminal.until("the second holder", || terminal.path("second").exists());
    terminal.line("fg");
    terminal.expect("quorate: the lock \"z\" was lost");
    terminal.expect_status(79);
    assert!(command.is_gone());
    assert_eq!(
        written(&terminal),
        before,
        "it went on beside the second holder"
    );
    terminal.write("end", "");
    second.join().unwrap().is(0);
}

#[test]
fn a_command_that_does_not_obey_is_stopped_too() {
    let fleet = fleet(1);
    let deaf = format!("trap '' TSTP\n{TICKS}");
    let mut terminal = shell(&fleet, &[("deaf", &deaf)]);
    terminal.line("quorate lock z --ttl 20s -- bash deaf > log");
    let command = terminal.pid("pid");
    ticks_on(&terminal, "log");
    // The terminal's key reaches only the command, which ignores it, so nothing is stopped.
    terminal.keys(CTRL_Z);
    is_not_stopped(&terminal, "log");
    assert!(!command.parent().is_stopped());
    command.parent().signal("TSTP");
    terminal.expect_stopped();
    assert!(command.is_stopped());
    terminal.line("fg");
    ticks_on(&terminal, "log");
    terminal.keys(CTRL_C);
    terminal.expect_status(130);
}

#[test]
fn a_signal_ends_a_command_that_is_stopped() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    terminal.line("quorate lock z --ttl 20s -- bash ticks > log");
    let command = terminal.pid("pid");
    terminal.keys(CTRL_Z);
    terminal.expect_stopped();
    let holder = command.parent();
    // The shell continues the job together with the signal.
    terminal.line("kill %1");
    terminal.until("it ends", || holder.is_gone());
    // The job has ended, but the shell may not have noticed that yet.
    terminal.line("wait %1; echo \"job <$?>\"");
    terminal.expect("job <143>");
    is_free(&fleet, "z");

    // A command that was stopped alone, without a terminal.
    terminal.line("setsid -w quorate lock z --ttl 20s -- bash ticks > log; echo \"status <$?>\"");
    terminal.until("another", || {
        terminal.read("pid") != format!("{}\n", command.0)
    });
    let command = terminal.pid("pid");
    command.signal("STOP");
    terminal.until("it stops", || command.is_stopped());
    std::thread::sleep(A_STOP);
    assert!(!command.parent().is_stopped());
    command.parent().signal("TERM");
    terminal.expect("status <143>");
}

#[test]
fn ctrl_z_stops_a_wait_for_the_lock() {
    let fleet = fleet(3);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    terminal.line("quorate lock z --label batch-3 -- bash ticks > log &");
    let holder = terminal.pid("pid").parent();
    terminal.line("quorate lock z -- echo r''an");
    // One line is printed, because a terminal is watched.
    terminal.expect("quorate: waiting for \"z\", held by batch-3");
    terminal.keys(CTRL_Z);
    terminal.expect_stopped();
    holder.signal("TERM");
    terminal.until("the holder ends", || holder.is_gone());
    terminal.line("fg");
    terminal.expect("ran");
    terminal.expect_status(0);
}

#[test]
fn without_a_shell_ctrl_z_does_not_stop_the_command() {
    let fleet = fleet(1);
    let script = format!("trap 'echo went on >> cont' CONT; {TICKS} > log");
    let command = quorate(&fleet.urls(), &["lock", "z", "--", "bash", "-c", &script]);
    let mut terminal = Terminal::of(command);
    let command = terminal.pid("pid");
    ticks_on(&terminal, "log");
    terminal.keys(CTRL_Z);
    terminal.until("it goes on", || !terminal.read("cont").is_empty());
    is_not_stopped(&terminal, "log");
    command.parent().signal("TSTP");
    is_not_stopped(&terminal, "log");
    terminal.keys(CTRL_C);
    assert_eq!(terminal.ended(), Some(130));
}

// ---- pipes ----------------------------------------------------------------------------------

/// Asks twice, and prints the answers.
const ASK: &str = "echo $$ > pid; echo 'name?'; read x; echo \"got <$x>\"; echo 'again?'; read x; echo \"got <$x>\"";

#[test]
fn a_command_in_a_pipe_reads_from_the_terminal() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("ask", ASK)]);
    terminal.line("quorate lock d -- sh ask | tee log");
    terminal.expect("name?\r\n");
    terminal.line("joe");
    terminal.expect("got <joe>");
    terminal.expect("again?\r\n");
    let command = terminal.pid("pid");
    terminal.keys(CTRL_Z);
    terminal.expect_stopped();
    assert!(command.is_stopped());
    terminal.line("fg");
    terminal.expect("quorate lock");
    terminal.line("ann");
    terminal.expect("got <ann>");
    terminal.expect_status(0);
    assert_eq!(
        terminal.read("log"),
        "name?\ngot <joe>\nagain?\ngot <ann>\n"
    );
}

#[test]
fn a_prompt_for_a_password_needs_neither_of_its_streams() {
    let fleet = fleet(1);
    let prompt = "old=$(stty -g < /dev/tty); stty -echo < /dev/tty; echo 'Password:' > /dev/tty
        read p < /dev/tty; stty $old < /dev/tty; echo \"pass <$p>\"; cat";
    let mut terminal = shell(&fleet, &[("prompt", prompt)]);
    terminal.line("echo in''put | quorate lock d -- sh prompt 2>&1 | cat");
    terminal.expect("Password:\r\n");
    terminal.line("secret");
    terminal.expect("pass <secret>");
    terminal.expect("input");
    terminal.line("stty -a");
    terminal.expect(" echo ");
}

#[test]
fn ctrl_c_ends_a_command_in_a_pipe() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    terminal.line("quorate lock d -- bash ticks | cat > log");
    terminal.pid("pid");
    ticks_on(&terminal, "log");
    terminal.keys(CTRL_C);
    terminal.expect_status(130);
    is_free(&fleet, "d");
}

#[test]
fn a_closed_pipe_ends_the_command() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[]);
    terminal.line("quorate lock d -- yes | head -1 > log");
    terminal.expect_status(141);
    assert_eq!(terminal.read("log"), "y\n");
    is_free(&fleet, "d");
}

/// Works like `less`: keys come from the terminal, no matter what the standard input is.
const PAGER: &str = "old=$(stty -g < /dev/tty); stty -icanon -echo < /dev/tty; echo 'PAGER UP' > /dev/tty
    exec 3<&0; cat <&3 > paged &
    while k=$(dd bs=1 count=1 2> /dev/null < /dev/tty); do echo \"key <$k>\" > /dev/tty; [ \"$k\" = q ] && break; done
    stty $old < /dev/tty; wait";

#[test]
fn a_pager_gets_its_keys_while_the_command_runs() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("ticks", TICKS), ("pager", PAGER)]);
    terminal.line("quorate lock d --ttl 20s -- bash ticks | bash pager");
    let command = terminal.pid("pid");
    terminal.expect("PAGER UP");
    for key in ["j", "k"] {
        terminal.keys(key);
        terminal.expect(&format!("key <{key}>"));
        ticks_on(&terminal, "paged");
    }
    terminal.keys(CTRL_Z);
    terminal.expect_stopped();
    assert!(command.is_stopped());
    terminal.line("fg");
    ticks_on(&terminal, "paged");
    // The shell has changed the terminal's modes meanwhile. A real pager would set its own modes again.
    terminal.line("q");
    terminal.expect("key <q>");
    // The pager has restored the terminal's modes, so this key is a signal again.
    terminal.keys(CTRL_C);
    terminal.expect_prompt();
    assert!(command.is_gone());
    is_free(&fleet, "d");
}

// ---- in the background ----------------------------------------------------------------------

#[test]
fn its_own_output_does_not_stop_it_in_the_background() {
    let fleet = fleet(3);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    terminal.line("stty tostop");
    terminal.expect_prompt();
    terminal.line("quorate -vv lock z --ttl 10s -- bash ticks > log &");
    let command = terminal.pid("pid");
    terminal.expect("quorate: debug acquired");
    fleet[2].kill9();
    terminal.expect("quorate: a node does not vote");
    ticks_on(&terminal, "log");
    assert!(!command.parent().is_stopped() && !command.is_stopped());
    terminal.line("jobs");
    terminal.expect("Running");
    terminal.line("kill %1; wait %1; echo \"status <$?>\"");
    terminal.expect("status <143>");
}

#[test]
fn a_job_in_the_background_that_wants_the_terminal_is_stopped() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("ask", ASK)]);
    terminal.line("quorate lock d --ttl 20s -- sh ask &");
    let command = terminal.pid("pid");
    terminal.until("quorate stops", || command.parent().is_stopped());
    assert!(command.is_stopped());
    // The shell prints this at a prompt, once all threads are stopped.
    terminal.ask_until("", "Stopped");
    // The job is still not in the foreground.
    terminal.line("bg");
    terminal.expect("sh ask &");
    terminal.expect_prompt();
    terminal.ask_until("jobs", "Stopped");
    assert!(command.is_stopped() && command.parent().is_stopped());
    terminal.line("fg");
    terminal.expect("quorate lock");
    terminal.line("joe");
    terminal.expect("got <joe>");
    terminal.line("ann");
    terminal.expect("got <ann>");
    terminal.expect_status(0);
}

// ---- programs that take over the terminal ----------------------------------------------------

/// Works like `vi`: it handles every key itself, Ctrl-Z too.
const EDITOR: &str = "echo $$ > pid; old=$(stty -g); stty raw -echo
    while :; do
        echo EDITING; k=$(dd bs=1 count=1 2> /dev/null | od -An -tx1)
        case $k in
            ' 71') break ;;
            ' 1a') stty $old; kill -TSTP 0; stty raw -echo ;;
            *) echo \"key <$k>\" ;;
        esac
    done
    stty $old";

#[test]
fn an_editor_is_stopped_goes_on_and_leaves_the_terminal_in_order() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("editor", EDITOR)]);
    terminal.line("quorate lock d --ttl 20s -- sh -c 'sh editor; echo e''nd'");
    for _ in 0..2 {
        terminal.expect("EDITING");
        terminal.keys("a");
        terminal.expect("key < 61>");
        terminal.expect("EDITING");
        terminal.keys(CTRL_Z);
        terminal.expect_stopped();
        assert!(terminal.pid("pid").is_stopped());
        terminal.line("fg");
    }
    terminal.expect("EDITING");
    terminal.keys("q");
    terminal.expect("end");
    terminal.expect_status(0);
}

#[test]
fn a_shell_inside_has_jobs_of_its_own() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    terminal
        .line("PS1='INNER> ' quorate lock d --ttl 20s -- bash --norc --noprofile --noediting -i");
    terminal.expect("INNER> ");
    terminal.line("bash ticks > log");
    let command = terminal.pid("pid");
    ticks_on(&terminal, "log");
    terminal.keys(CTRL_Z);
    terminal.expect("Stopped");
    terminal.expect("INNER> ");
    assert!(command.is_stopped());
    assert!(
        !command.parent().parent().is_stopped(),
        "the outer one has not been asked"
    );
    terminal.line("fg");
    ticks_on(&terminal, "log");
    terminal.keys(CTRL_C);
    terminal.expect("INNER> ");
    // The whole job is stopped, and continued.
    terminal.line("suspend");
    terminal.expect_stopped();
    terminal.line("fg");
    terminal.line("echo in''side; exit 7");
    terminal.expect("inside");
    terminal.expect_status(7);
}

#[test]
fn after_a_kill_the_terminal_is_as_it_was() {
    let fleet = fleet(1);
    let raw = "stty raw -echo; echo $$ > pid; while :; do sleep 0.02; done";
    let mut terminal = shell(&fleet, &[("raw", raw)]);
    // This is not read by the shell at the prompt, which has its own modes.
    terminal.write(
        "job",
        "quorate lock d --ttl 5s -- sh raw; echo \"status <$?>\"; stty -a > modes; echo o''ver",
    );
    let mut before = None;
    for (kill, status) in [("evict", 79), ("KILL", 137)] {
        terminal.line("stty -a > before; sh job");
        let command = terminal.pid("pid");
        match kill {
            "evict" => {
                run(&fleet.urls(), &["evict", "d", "--yes"]).is(0);
            }
            signal => command.signal(signal),
        }
        terminal.expect(&format!("status <{status}>"));
        terminal.expect("over");
        terminal.expect_prompt();
        assert_eq!(terminal.read("modes"), terminal.read("before"));
        before.get_or_insert_with(|| terminal.read("before"));
        std::fs::remove_file(terminal.path("pid")).unwrap();
    }
    assert!(before.unwrap().contains(" icanon"));
}

// ---- the jobs around it ---------------------------------------------------------------------

/// The key reaches only the command's group. A shell ends its script if the program that it waits for dies of the
/// signal.
#[test]
fn ctrl_c_ends_a_script_that_locks() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    terminal.write(
        "loop",
        "for i in 1 2; do quorate lock z -- bash ticks > log; done; echo sur''vived",
    );
    terminal.line("bash loop");
    terminal.pid("pid");
    ticks_on(&terminal, "log");
    terminal.keys(CTRL_C);
    terminal.expect_status(130);
}

/// A command that a script has put in the background has never asked for the terminal.
#[test]
fn ctrl_c_ends_a_script_that_locks_in_the_background() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    terminal.write("job", "quorate lock z --ttl 20s -- bash ticks > log & wait");
    terminal.line("bash job");
    terminal.pid("pid");
    ticks_on(&terminal, "log");
    terminal.keys(CTRL_C);
    terminal.expect_status(130);
}

/// A terminal that is held, or a pipe that nobody reads, does not stop the renewal of a lock.
#[test]
fn blocked_terminal_output_does_not_stop_renewals() {
    let fleet = fleet(3);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    terminal.line("quorate -v lock z --ttl 3s -- bash ticks > log");
    let command = terminal.pid("pid");
    ticks_on(&terminal, "log");
    // This is Ctrl-S.
    terminal.keys("\x13");
    // quorate has something to print about this. The lease is renewed all the same: otherwise it would be over.
    fleet[0].kill9();
    std::thread::sleep(std::time::Duration::from_secs(5));
    ticks_on(&terminal, "log");
    let seen = run(&fleet.urls(), &["inspect", "z", "--json"]).is(0).json();
    assert_eq!(seen["held"], true);
    assert!(!command.is_gone());
    // When the lock is lost the command is ended.
    run(&fleet.urls(), &["evict", "z", "--yes"]).is(0);
    terminal.until("the command's end", || command.is_gone());
    terminal.keys("\x11");
    terminal.expect_status(79);
}

/// SIGCONT cancels a pending stop, as it does in the kernel.
#[test]
fn a_stop_followed_by_sigcont_stops_nothing() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[("ticks", TICKS)]);
    terminal.line("quorate lock z --ttl 10s -- bash ticks > log &");
    terminal.pid("pid");
    ticks_on(&terminal, "log");
    for pause in ["", "sleep 0.05;"] {
        terminal.line(&format!(
            "kill -TSTP $!; {pause} kill -CONT $!; echo sent$?"
        ));
        terminal.expect("sent0");
        ticks_on(&terminal, "log");
        ticks_on(&terminal, "log");
    }
}

/// Two commands of one pipeline want the terminal in turn.
#[test]
fn commands_of_one_job_share_the_terminal() {
    let fleet = fleet(1);
    let mut terminal = shell(&fleet, &[]);
    terminal.line(
        "quorate lock a -- sh -c 'read x </dev/tty; echo first=$x' | quorate lock b -- sh -c 'read y; read z </dev/tty; echo $y second=$z'",
    );
    terminal.until("both run", || {
        ["a", "b"]
            .iter()
            .all(|name| run(&fleet.urls(), &["inspect", name, "--json"]).json()["held"] == true)
    });
    terminal.line("one");
    terminal.line("two");
    terminal.expect("first=one second=two");
    terminal.expect_status(0);
}
