//! The texts of `quorate --help` and its commands, for somebody who has never seen it. A paragraph is one line, which the
//! terminal wraps.

use clap::error::{ContextKind, ContextValue};

pub(super) const ABOUT: &str = "\
Quorum locks over independent Redis or Valkey masters.

A lock is held when a majority of the masters grant it: of five, any two may be down. It is held for a \
ttl and renewed while it is needed, so that a holder that vanishes blocks others for at most one ttl. \
Every holder gets a token that is greater than all before it; let whatever the lock protects refuse a \
smaller one, and even a holder that was paused for an hour does no harm.

No servers at hand? `quorate demo` shows all of it within this process.";

pub(super) const AFTER: &str = "\
Examples:
  export QUORATE_NODES=redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1
  quorate bootstrap --new                         once, for servers that have never held a lock
  quorate bootstrap                               at every start: wait until the servers vote
  quorate lock nightly -- ./report.sh             wait for the lock, then run
  quorate lock nightly --no-wait -- ./report.sh   run now or not at all (75)
  quorate lock prices --read -- ./quote.sh        beside others who read; --write: alone
  quorate lock a:7 a:12 -- ./transfer.sh 7 12     both names, or neither
  quorate lock a --consul http://h:8500 -- ./a    in Consul, without any Redis
  quorate semaphore thumbs --limit 4 -- ./thumbs  at most four at once
  quorate limit api --rate 2000/min -- ./call     at most so many a minute
  quorate inspect nightly                         who holds it, who waits
  quorate evict nightly --yes                     free it, no matter who holds it
  quorate resize thumbs --limit 8                 more slots, for all programs
  quorate nodes                                   which servers vote, and why not
  quorate nodes --wait all --timeout 2m           after a restart: until all of them vote
  quorate watch                                   every change of that, as a service
  quorate torture                                 does it hold under load and faults?

Environment:
  QUORATE_NODES            the servers, separated by commas (--node)
  QUORATE_NODES_FILE
      a file with the servers, one on each line, for passwords that are to stand in no environment; \
lines that begin with # are ignored
  QUORATE_KEY_PREFIX       --key-prefix         QUORATE_MAX_TTL         --max-ttl
  QUORATE_NODE_TIMEOUT     --node-timeout       QUORATE_RESTART_MARGIN  --restart-margin
  QUORATE_CONNECT_TIMEOUT  --connect-timeout    QUORATE_FLEET           --fleet
  QUORATE_ALLOW_EVICTION   --allow-eviction     QUORATE_LABEL           --label
  SSL_CERT_FILE            the certificates that rediss:// trusts [default: the system's]

Exit status:
  0     done
  64    wrong usage or setting
  69    no majority of nodes, no Consul, too slow, or refused
  75    held by others, or no room, until the wait ran out
  79    the lock was lost while the command ran
`lock`, `semaphore` and `limit` otherwise end with the status of their command: see `quorate lock --help`.

Durations: 700ms, 3s, 10m, 24h.

With --json a result is one JSON object on stdout, and an error one on stderr:
  {\"error\":\"no_quorum\",\"message\":..,\"exit\":69,\"nodes\":[{\"node\":..,\"reason\":..}]}";

pub(super) const LOCK: &str = "\
Runs a command while holding a lock.

Waits in line for the lock (who asks first is served first), runs the command, and frees the lock when \
the command ends: the next in line gets it at once. The lock is renewed for as long as the command runs, \
so --ttl is not a limit of its running time: it is how long others wait when this machine dies.

With several names it takes the locks of all of them at once, or none, in whatever order they are named: \
commands whose names overlap never wait for each other for ever. Each is the lock of that name alone \
too. There is no line for a set: it lets those pass who wait in line for one of its names, and may wait \
for long beside names that are always taken.

With --read or --write it takes the read-write lock of that name: any number of commands read at once, \
or one writes. It is another lock than the one without these. A command that waits to write keeps new \
readers out; otherwise no order is promised.";

// By itself clap would call the name optional, as --name may stand for it.
pub(super) const LOCK_USAGE: &str = "quorate lock [OPTIONS] <NAME>... -- <CMD>...";
pub(super) const SEMAPHORE_USAGE: &str =
    "quorate semaphore [OPTIONS] --limit <N> <NAME> -- <CMD>...";

pub(super) const LOCK_AFTER: &str = "\
Examples:
  quorate lock nightly -- ./report.sh --full
  quorate lock nightly --wait 30s -- ./report.sh
  quorate lock nightly --no-wait --quiet -E 0 -- ./report.sh
  quorate lock deploy --no-wait -- sh -c 'deploy --fence \"$QUORATE_TOKEN\"'
  quorate lock prices --read -- ./quote.sh
  quorate lock prices --write --wait 1m -- ./reprice.sh
  quorate lock acc:7 acc:12 -- sh -c './transfer.sh 7 12 \"$QUORATE_TOKEN\"'
  quorate lock jobs/nightly --consul http://127.0.0.1:8500 -- ./report.sh

What is to be run stands behind `--`: all words before it are names, and options of quorate. A name that \
begins with a dash is given as --name=-x.

The command finds in its environment:
  QUORATE_NAME    the name; of several all of them, sorted, with \", \" between them
  QUORATE_TOKEN
      the fencing token: an integer greater than any holder had before, of several names greater than \
those of each. Hand it to what the lock protects, and let that refuse a smaller one. With --read it is \
an epoch: it says how new what is read is, and many have the same.
      With --read IT MUST NOT BE USED TO WRITE.
It does not find QUORATE_NODES there, which may hold passwords: --keep-env leaves it in.

Choose --consul if you run Consul already and need few locks a second. The lock is taken there, in place \
of Redis or Valkey masters, and is the one of `consul lock` with that name. A lock in Consul and one on \
masters do not know of each other: all who share a name have to take it in the same place. Of the \
variables QUORATE_* only QUORATE_LABEL counts then. CONSUL_HTTP_ADDR without --consul does nothing.

While all is well nothing is printed: cron has nothing to mail. On a terminal, or with -v, one line says \
who is waited for; what happens to the servers needs -v.

If the lock is lost (evicted, or too few nodes can be reached to renew it, or Consul cannot), the \
command's process group gets SIGTERM at once, and SIGKILL before the lock can be anybody else's. The \
time between the two is 80 % of a twentieth of the ttl, and at least 16 ms: 400 ms with the default ttl.

What a finished command has left running in the background goes on without the lock, beside the next \
holder. With --whole-group the lock is held until that has ended too.

Signals: INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the command's process group, unless they \
were ignored from the start (nohup). While waiting for the lock, the first four end the wait. A command \
that runs as another user (sudo) cannot be signalled: if the lock is lost it may run on, and the message \
says so.

Job control: the command has the terminal if quorate had it, wherever input and output go. Ctrl-C \
reaches it, and if it dies of that, so does the script that quorate is part of. With Ctrl-Z it is \
stopped before quorate is, and goes on (fg, bg) only if the lock is still held: while all is stopped \
nothing renews it, and after a ttl the command is killed instead. If quorate itself is killed with -9 \
the command dies too (on Linux), but not what the command started. Do not stop quorate alone (kill \
-STOP): it cannot end a command in time then.

Exit status:
  N        the command's own
  128+n    the command, or the wait, was ended by signal n
  126 127  the command cannot be run / was not found
  64       wrong usage or setting
  69       no majority of nodes, too few may vote yet (quarantined), no Consul, or too slow
  75       held by others until the wait ran out (--conflict-status)
  79       the lock was lost, or --max-hold was over, while the command ran: look at what it did

--json: an error is an object on stderr; `held` and `lost` also have name, and `held` has holder: \
{label, owner, entry, remaining_ms}|null, of several names also which: the first of them that is held; \
with --consul held_by: text|null.";

pub(super) const SEMAPHORE: &str = "\
Runs a command while holding one of the slots of a semaphore: at most --limit commands run at once, on \
all machines together, whatever server fails.

Waits in line for a slot (who asks first is served first, but for a few in front), runs the command, and \
frees the slot when the command ends. The slot is renewed for as long as the command runs: --ttl is how \
long the slot of a machine that died stays taken.";

pub(super) const SEMAPHORE_AFTER: &str = "\
Examples:
  quorate semaphore thumbs --limit 4 -- ./thumbs.sh
  quorate semaphore thumbs --limit 4 --wait 30s -- ./thumbs.sh
  quorate semaphore gpu --limit 8 --no-wait -- sh -c 'CUDA_VISIBLE_DEVICES=$QUORATE_SLOT ./train'
  quorate semaphore jobs/thumbs --limit 4 --consul http://127.0.0.1:8500 -- ./thumbs.sh

The command finds in its environment:
  QUORATE_NAME    the name
  QUORATE_SLOT    which slot it has: 0 to one less than the limit. No other command has it meanwhile
  QUORATE_TOKEN
      the fencing token: an integer greater than any holder of this slot had before. Hand it to what the \
slot protects, with the slot's number, and let that refuse a smaller one. Tokens of different slots tell \
nothing of each other.

Choose --consul if you run Consul already and need few slots a second. The slot is taken there, and is \
one of `consul lock -n LIMIT` with that name. Consul's slots have no numbers: QUORATE_SLOT is not there, \
and who has a smaller QUORATE_TOKEN may have a slot still.

All programs say the same limit: if the servers know another one for this name, this ends with 64 and \
names both. `quorate resize` changes it for all programs: from then on say the new one. The servers forget a \
limit when nobody has used the semaphore for four times --max-ttl, Consul when nobody has a slot.

All else is as for a lock, with a slot in its place: signals, job control, what happens if it is lost, \
exit status, --json (`held` has name, limit and taken, with --consul name and held_by; `lost` has name \
and slot): see `quorate lock --help`.";

pub(super) const INSPECT: &str = "\
Shows who holds a lock and who waits in line for it, on every node. Of a semaphore it shows the limit \
and who has which slot; of a read-write lock who reads, who writes, and who waits to write. Several \
names that are held at once are seen one by one.

A rate limit is counted under its name and its rates together. With the same --rate that `quorate limit` \
was given, this shows how much of it is left, and takes nothing.

Below the nodes stand those who wait, the longest first: for how long, and on how many nodes. Twenty are \
shown, the others are counted. How long somebody has waited is told by the waiter's clock when it asked \
and the node's clock now: if the two differ, it is wrong by as much. Who died while it waited stands \
there until its turn comes.

A slot is held where a majority of nodes name the same holder. Slots that fewer name are shown too: \
somebody asks for one at this moment, or has left it there. The same is true of those who read.

Of those who wait to write it is not known for how long. Who died while it waited is gone after some 2 \
s; who writes now and has waited may stand there too.

Exit status: 0 when a majority of nodes answered (whether the lock is held or not), else 69.
--json: {name, held: true|false|null, holder: {label, owner, entry, remaining_ms}|null, newest_token, \
waiting, line: [{label, owner, entry, waited_ms, nodes: [..]}], needed, answered, nodes: [{node, state, \
reason, holder, token, waiting, semaphore: {limit, taken, waiting}|null, rwlock: {writer, reading, \
waiting, token}|null}], semaphore: {limit, taken, slots: [{slot, held, holder, token, nodes: \
[..]}], waiting, line: [..]}|null, rwlock: {writer, reading, readers: [{held, holder, nodes: [..]}], \
waiting, waiting_writers: [{label, owner, entry, remaining_ms, nodes: [..]}], newest_token}|null}. held \
is null when too few answered to tell; lists have the first 100 of each node, waiting, taken and reading \
count all. semaphore and rwlock are null if nobody has used one by that name for long. With --rate: \
{name, remaining, limit, wait_ms}.";

pub(super) const EVICT: &str = "\
Frees a lock everywhere, no matter who holds it. If others wait in line, the first of them gets it. The \
read-write lock of that name is freed too, whoever reads or writes.

With --slot it frees that slot of the semaphore of this name, and no lock. `quorate inspect` shows who \
has which slot.

Examples:
  quorate evict nightly --yes
  quorate evict thumbs --slot 0 --slot 2 --yes

The holder learns of it when it next renews, after a third of its ttl at most; until then two may \
believe that they hold the lock, and only the token tells them apart. Who holds several names at once \
loses all of them with one. Without --yes nothing is done but to show who holds and who waits.

--json: {name, evicted: true|false, holder: {label, owner, entry, remaining_ms}|null, waiting, writer: \
{..}|null, reading, readers: [{..}]}; all but evicted tell of the moment before. With --slot: {name, evicted, slots: \
[{slot, evicted, holder: {..}|null}]}.";

pub(super) const RESIZE: &str = "\
Changes how many slots a semaphore has, for all programs that use it.

Programs that run follow by themselves. Those that start later have to say the new limit: `quorate \
semaphore` with another --limit ends with 64. A smaller limit takes no slot away: until enough of them \
are free nobody gets one. A limit is forgotten when nobody has used the semaphore for four times \
--max-ttl.

Every server has to answer. If one is away this ends with 69, and the limit may be changed on some of \
them: say it again when all vote.

Example:
  quorate resize thumbs --limit 8

--json: {name, limit, before: N|null}; before is null if no server knew a limit.";

pub(super) const NODES: &str = "\
Shows every server's state: whether it votes, and if not why. And the fleet's word: clients of the same \
servers must have the same one (--fleet).

A server that restarted does not vote until it has been watched for a little more than --max-ttl. With \
--wait this command watches until that is over, and then shows the states.

Exit status: 0 when locks can be taken now, else 69; with --wait 0 when as many vote as were waited for, \
69 when the timeout came first, and 128+n when signal n ended the wait.
--json: {voting, needed, spare, votes_in_ms, fleet, nodes: [{node, state, reason, note, round_trip_ms}]}";

pub(super) const WATCH: &str = "\
Prints every server's state, then one line for each change, until it is told to end. It also says when \
locks can be taken, and when no longer.

A server that restarted does not vote until clients have watched it for a little more than --max-ttl. \
Where only commands of some seconds use the servers (cron jobs), run this as a service: it watches all \
the time. Servers that are down or refused do not end it.

Exit status: 0 when INT, TERM, HUP or QUIT ended it, or nobody reads its output any more; 64 for a wrong \
setting.
--json: one object a line: {at_ms, node, state, reason, note, remaining_ms, voting, needed}; \
remaining_ms is how long a quarantine still takes; locks can be taken while voting >= needed.";

pub(super) const BOOTSTRAP: &str = "\
Waits until the servers vote; with --new admits servers that have never held a lock.

A server that is new, or that restarted, is in quarantine: it does not vote until no lock from before \
can be left, for a little more than --max-ttl. That is how a server that lost its memory cannot give a \
lock away twice.

Without --new nothing is admitted. It waits until a majority votes and no server that answers is in \
quarantine any more, and ends with 0. Servers that cannot be reached or are refused are named, and not \
waited for. It may stand in every start-up script, on every machine. With a greater --max-ttl or \
--restart-margin than the fleet's it raises that. For this every server has to vote: \
those in quarantine are waited for. Only when it has ended well may clients ask for more.

--new says: these servers have never held a lock. It takes about seven seconds, in which every client \
that is running can say otherwise. It is refused (69) unless all servers answer, none votes while \
another does not, none has given out a lock, and no client knows them as servers in use. That does not \
see everything: a person says it once, a start-up script never does.

Exit status:
  0        a majority votes; with --new or --force, or after a raise, every server does
  69       too few servers answer for longer than --connect-timeout, or it was refused
  128+n    ended by signal n

--json: {changed, nodes: [{node, before, after}]}";

pub(super) const DEMO: &str = "\
Tells the whole story on in-process nodes, no server needed.

Three who want one lock and wait in line, two of five nodes dying, a third, and a paused holder whose \
late write is refused. Takes about ten seconds; faster where nobody watches (no terminal).

--json: one object per line: {who, says}";

/// Names of commands in other lock programs, and the command that does the same here.
const OTHER_WORDS: &[(&[&str], &str)] = &[
    (
        &["unlock", "release", "free", "break", "kill", "rm", "delete"],
        "a lock is freed when its command ends. `quorate evict NAME` frees one that somebody else holds",
    ),
    (
        &["ls", "list", "ps", "show", "get", "info", "who", "locks"],
        "`quorate inspect NAME` shows who holds a lock, and `quorate nodes` shows the servers. There is no list of all locks",
    ),
    (
        &[
            "status", "state", "health", "ping", "check", "doctor", "servers",
        ],
        "`quorate nodes` shows whether locks can be taken, and `quorate inspect NAME` shows who holds a lock",
    ),
    (
        &[
            "acquire", "run", "exec", "with", "mutex", "flock", "read", "write",
        ],
        "`quorate lock NAME -- CMD` runs a command under a lock",
    ),
    (
        &["rate", "throttle", "ratelimit"],
        "`quorate limit NAME --rate N/PERIOD -- CMD` waits for a rate limit",
    ),
    (
        &["init", "setup", "start", "admit"],
        "`quorate bootstrap` waits until the servers vote",
    ),
];

/// Names the command that is meant by a word that is not a command.
pub(super) fn suggest_a_command(error: &mut clap::Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return;
    };
    let mut meant = OTHER_WORDS.iter();
    if let Some((_, advice)) = meant.find(|(words, _)| words.contains(&word.as_str())) {
        let advice = ContextValue::StyledStrs(vec![(*advice).into()]);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, advice);
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::args::Args;

    /// As wide as no terminal is: every paragraph is one line there.
    fn help_of_all() -> Vec<(String, String)> {
        let mut command = Args::command().term_width(10_000).max_term_width(10_000);
        command.build();
        let mut all = vec![command.clone()];
        all.extend(command.get_subcommands().cloned());
        let help = |mut command: clap::Command| {
            let text = command.render_long_help().to_string();
            (command.get_name().to_owned(), text)
        };
        all.into_iter().map(help).collect()
    }

    #[test]
    fn help_is_wrapped_by_the_terminal_alone() {
        for (command, text) in help_of_all() {
            let lines: Vec<&str> = text.lines().collect();
            for pair in lines.windows(2) {
                let is_prose = |line: &str| line.starts_with(|c: char| c.is_alphabetic());
                let ends = |line: &str| line.ends_with(['.', ':', ']']);
                assert!(
                    !(is_prose(pair[0]) && is_prose(pair[1])) || ends(pair[0]),
                    "{command}: wrapped by hand: {pair:#?}"
                );
            }
            let examples = lines.iter().filter(|line| line.starts_with("  quorate "));
            for line in examples {
                assert!(line.len() < 100, "{command}: {line}");
            }
        }
    }

    #[test]
    fn a_word_of_another_program_is_answered_by_the_command_that_is_meant() {
        for (word, meant) in [
            ("unlock", "quorate evict NAME"),
            ("ls", "quorate inspect NAME"),
            ("status", "quorate nodes"),
            ("run", "quorate lock NAME -- CMD"),
        ] {
            let mut error = Args::try_parse_from(["quorate", word, "a"]).unwrap_err();
            suggest_a_command(&mut error);
            let text = error.render().to_string();
            assert!(text.contains(meant) && text.contains(word), "{text}");
        }
        let mut error = Args::try_parse_from(["quorate", "lokc"]).unwrap_err();
        suggest_a_command(&mut error);
        assert!(error.render().to_string().contains("'lock'"), "{error}");
    }
}
