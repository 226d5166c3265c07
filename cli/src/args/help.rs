//! The texts of `quorate --help` and of its commands, for a reader who has never seen quorate. Each paragraph is one
//! line, and the terminal wraps it.

use clap::error::{ContextKind, ContextValue};

pub(super) const ABOUT: &str = "\
Quorum locks over independent Redis or Valkey masters.

You hold a lock when a majority of the masters grants it, so two of five masters may be down. A lock is granted for \
a ttl and renewed while it is needed, so a holder that vanishes blocks others for at most one ttl. Every holder gets \
a token that is greater than all tokens before it. If the resource behind the lock refuses smaller tokens, even a \
holder that was paused for an hour does no harm.

No servers at hand? `quorate demo` shows all of it within one process.";

pub(super) const AFTER: &str = "\
Examples:
  export QUORATE_NODES=redis://10.0.0.1,redis://10.0.1.1,redis://10.0.2.1
  quorate bootstrap --new                         once, for new servers
  quorate nodes --wait majority --timeout 2m      at every start
  quorate lock nightly -- ./report.sh             wait for the lock, then run
  quorate lock nightly --no-wait -- ./report.sh   run now or not at all (75)
  quorate lock prices --read -- ./quote.sh        beside readers; --write: alone
  quorate lock a:7 a:12 -- ./transfer.sh 7 12     both names, or neither
  quorate lock a --consul http://h:8500 -- ./a    in Consul, without any Redis
  quorate semaphore thumbs --limit 4 -- ./thumbs  at most four at once
  quorate limit api --rate 2000/min -- ./call     at most 2000 calls a minute
  quorate inspect nightly                         show holder and waiters
  quorate evict nightly --yes                     free it from any holder
  quorate resize thumbs --limit 8                 more slots, for all programs
  quorate nodes                                   which servers vote, or why not
  quorate nodes --wait all --timeout 2m           after a restart: all must vote
  quorate watch                                   print changes, as a service
  quorate torture                                 does it hold under faults?
  quorate completions bash                        print them, for a shell

Environment:
  QUORATE_NODES            the servers, separated by commas (--node)
  QUORATE_NODES_FILE
      a file with the servers, one on each line, which keeps passwords out of the environment; lines that begin with \
# are ignored
  QUORATE_CONFIG           a configuration file (--config)
  QUORATE_KEY_PREFIX       --key-prefix         QUORATE_FLEET    --fleet
  QUORATE_CONNECT_TIMEOUT  --connect-timeout    QUORATE_LABEL    --label
  QUORATE_ALLOW_EVICTION   --allow-eviction     QUORATE_MAX_TTL  --max-ttl
  QUORATE_RESTART_MARGIN   --restart-margin     QUORATE_CACERT   --cacert
  QUORATE_NODE_TIMEOUT     --node-timeout       QUORATE_THROWAWAY --throwaway
  QUORATE_DIAL_TIMEOUT     --dial-timeout
  QUORATE_CLIENT_CERT      --client-cert
  QUORATE_CLIENT_KEY       --client-key
  QUORATE_SERVER_NAME      --server-name
  QUORATE_USERNAME         --username
  QUORATE_PASSWORD_FILE    --password-file
  QUORATE_PASSWORD_COMMAND --password-command
  SSL_CERT_FILE            what rediss:// trusts [default: the system's]

Configuration file (TOML): nodes, and the settings by the names of their options, with _ for -.
  nodes = [\"redis://10.0.0.1\", \"redis://10.0.1.1\", \"redis://10.0.2.1\"]
  max_ttl = \"10m\"
  [tls]            ca, certificate, key: files
  [credentials]    username, password_file, password_command
An option replaces its variable, and a variable replaces the value in the file. --node and QUORATE_NODES replace all \
nodes of the file. A file whose URLs have passwords is refused if other users may read it: chmod 600, or 640 if root \
owns it.

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

Waits in the queue for the lock (first come, first served), runs the command, and frees the lock when the command \
ends. The next waiter gets it at once. The lock is renewed for as long as the command runs, so --ttl does not limit \
the running time: it is how long others wait if this machine dies.

With several names it takes the locks of all of them at once, or none. The order of the names does not matter: \
commands whose names overlap never deadlock. The lock of a name is the same whether it is taken alone or with \
others. A set of names has no place in a queue: it lets the waiters for each single name go first, and may wait for \
long if some of its names are always taken.

With --read or --write it takes the read-write lock of that name: any number of commands read at once, or one \
writes. This is not the lock that `quorate lock` takes without these options. A command that waits to write keeps \
new readers out; otherwise no order is promised.";

// clap's own usage line would show the name as optional, because --name can stand for it.
pub(super) const LOCK_USAGE: &str = "quorate lock [OPTIONS] <NAME>... -- <CMD>...";
pub(super) const SEMAPHORE_USAGE: &str =
    "quorate semaphore [OPTIONS] --limit <N> <NAME> -- <CMD>...";
pub(super) const INSPECT_USAGE: &str = "quorate inspect [OPTIONS] <NAME>";
pub(super) const EVICT_USAGE: &str = "quorate evict [OPTIONS] <NAME>";
pub(super) const RESIZE_USAGE: &str = "quorate resize [OPTIONS] --limit <N> <NAME>";

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

The command to run comes after `--`. All words before it are names of locks and options of quorate. Write a name \
that begins with a dash as --name=-x.

The command finds in its environment:
  QUORATE_NAME    the name; of several, all names, sorted and joined by \", \"
  QUORATE_TOKEN
      the fencing token: an integer greater than the token of every earlier holder; with several names, of every \
earlier holder of any of them. Pass it to the resource behind the lock, which has to refuse smaller tokens. With \
--read it is an epoch: it tells how new the data is, and many readers have the same.
      With --read IT MUST NOT BE USED TO WRITE.
QUORATE_NODES and QUORATE_PASSWORD_COMMAND are removed from it, because they may hold passwords; --keep-env keeps \
them. QUORATE_NODES_FILE and QUORATE_CONFIG stay: their passwords are in the files.

Choose --consul if you run Consul already and need few locks a second. It takes the lock in Consul instead of on \
Redis or Valkey masters: the same lock as `consul lock` with that name. A lock in Consul and one on masters do not \
know of each other, so all programs that share a name have to take it in the same place. With --consul only \
QUORATE_LABEL, or the label in a configuration file, is used; the settings of masters are ignored. CONSUL_HTTP_ADDR without --consul does nothing.

Nothing is printed while all is well, so cron has nothing to mail. On a terminal, or with -v, one line names the \
holder that is waited for. Changes of the servers are printed with -v only.

If the lock is lost (it was evicted, or it could not be renewed because too few nodes, or no Consul, could be \
reached), the command's process group gets SIGTERM at once, and then SIGKILL: before anybody else can get the lock, \
unless it was evicted. The time between the two is 4 % of the ttl, and at least 16 ms: 400 ms with the default ttl.

Processes that a finished command leaves in the background run on without the lock, beside the next holder. With \
--whole-group the lock is held until they have ended too.

Signals: INT, TERM, HUP, QUIT, USR1 and USR2 are passed on to the command's process group, unless they \
were ignored from the start (nohup). While waiting for the lock, the first four end the wait. A command \
that runs as another user (sudo) cannot be signalled: if the lock is lost it may run on, and the message \
says so.

Job control: the command has the terminal if quorate had it, wherever input and output go. Ctrl-C reaches the \
command. If it dies of that, so does the script that quorate is part of. Ctrl-Z stops the command before quorate. It \
goes on (fg, bg) only if the lock is still held: nothing renews the lock while both are stopped, and after a ttl the \
command is killed instead. If quorate itself is killed with -9, the command dies too (on Linux), but not the \
processes that the command started. Do not stop quorate alone (kill -STOP): it cannot end the command in time then.

Exit status:
  N        the command's own
  128+n    the command, or the wait, was ended by signal n
  126 127  the command cannot be run / was not found
  64       wrong usage or setting
  69       no majority of nodes, too few vote yet, no Consul, or too slow
  75       held by others until the wait ran out (--conflict-status)
  79       the lock was lost, or --max-hold over, while the command ran

--json: an error is an object on stderr. `held` and `lost` also have name. `held` also has holder: {label, owner, \
entry, remaining_ms}|null; with several names also which, the first of them that is held; with --consul instead \
held_by: text|null.";

pub(super) const SEMAPHORE: &str = "\
Runs a command while holding one of the slots of a semaphore: at most --limit commands run at once, on all machines \
together, even if servers fail.

Waits in the queue for a slot (first come, first served, except for the first few waiters), runs the command, and \
frees the slot when the command ends. The slot is renewed for as long as the command runs. --ttl is how long the \
slot of a machine that died stays taken.";

pub(super) const SEMAPHORE_AFTER: &str = "\
Examples:
  quorate semaphore thumbs --limit 4 -- ./thumbs.sh
  quorate semaphore thumbs --limit 4 --wait 30s -- ./thumbs.sh
  quorate semaphore gpu --limit 8 --no-wait -- sh -c 'CUDA_VISIBLE_DEVICES=$QUORATE_SLOT ./train'
  quorate semaphore jobs/thumbs --limit 4 --consul http://127.0.0.1:8500 -- ./thumbs.sh

The command finds in its environment:
  QUORATE_NAME    the name
  QUORATE_SLOT    the number of its slot, from 0 to one less than the limit
  QUORATE_TOKEN
      the fencing token: an integer greater than the token of every earlier holder of this slot. Pass it, with the \
slot's number, to the resource behind the slot, which has to refuse smaller tokens. Tokens of different slots cannot \
be compared.

Choose --consul if you run Consul already and need few slots a second. It takes the slot in Consul: one of `consul \
lock -n LIMIT` with that name. Slots in Consul have no numbers, so QUORATE_SLOT is not set, and a holder with a \
smaller QUORATE_TOKEN may still have a slot.

All programs must give the same limit: if the servers know another one for this name, this ends with 64 and names \
both. `quorate resize` changes it for all programs; give the new limit from then on. The servers forget a limit when \
nobody has used the semaphore for three to four times --max-ttl, Consul when nobody has a slot.

Everything else is as for a lock: signals, job control, the loss of the slot, exit status and --json. See `quorate \
lock --help`. In JSON `held` has name, limit and taken, with --consul name and held_by; `lost` has name and slot.";

pub(super) const INSPECT: &str = "\
Shows, for every node, the holder of a lock and how many wait for it. For a semaphore it shows the limit and the \
holder of each slot; for a read-write lock the readers, the writer, and the writers that wait. Names that are held \
together are inspected one by one.

A rate limit is counted under its name and the interval of each rate. With the same --rate as `quorate limit`, this \
shows how much of it is left, and takes nothing.

The waiters are listed below the nodes, the longest wait first, each with the time it has waited and on how many \
nodes. Twenty are listed, and the others are counted. The time is the node's clock now minus the waiter's clock when \
it asked, so it is wrong by as much as the two clocks differ. A waiter that died stays in the list until its turn \
comes.

A slot is held if a majority of nodes name the same holder. Slots that fewer nodes name are listed too: an attempt \
is under way, or has left them there. The same is true of readers.

It is not known how long the waiting writers have waited. One that died disappears from the list after about 2 s. A \
writer that waited and now holds the lock may still be listed.

Exit status: 0 when a majority of nodes answered (whether the lock is held or not), otherwise 69.
--json: {name, held: true|false|null, holder: {label, owner, entry, remaining_ms}|null, newest_token, \
waiting, line: [{label, owner, entry, waited_ms, nodes: [..]}], needed, answered, nodes: [{node, state, \
reason, holder, token, waiting, semaphore: {limit, taken, waiting}|null, rwlock: {writer, reading, \
waiting, token}|null}], semaphore: {limit, taken, slots: [{slot, held, holder, token, nodes: \
[..]}], waiting, line: [..]}|null, rwlock: {writer, reading, readers: [{held, holder, nodes: [..]}], \
waiting, waiting_writers: [{label, owner, entry, remaining_ms, nodes: [..]}], newest_token}|null}. held is null if \
too few nodes answered. Lists have the first 100 entries of each node; waiting, taken and reading count all. \
semaphore and rwlock are null if nobody has used one by that name for long. With --rate: \
{name, remaining, limit, wait_ms}.";

pub(super) const EVICT: &str = "\
Frees a lock on all nodes that vote, no matter who holds it. If others wait in the queue, the first of them gets it. The \
read-write lock of that name is freed too, from its readers or its writer.

With --slot it frees that slot of the semaphore of this name, and no lock. `quorate inspect` shows who \
has which slot.

Examples:
  quorate evict nightly --yes
  quorate evict thumbs --slot 0 --slot 2 --yes

The holder learns of it at its next renewal, after a third of its ttl at most. Until then two may believe that they \
hold the lock, and only the token tells them apart. A holder of several names at once loses all of them with one. \
Without --yes nothing is freed: the command only shows the holders and the waiters.

--json: {name, evicted: true|false, holder: {label, owner, entry, remaining_ms}|null, waiting, writer: \
{..}|null, reading, readers: [{..}]}; all fields but evicted describe the moment before. With --slot: {name, evicted, slots: \
[{slot, evicted, holder: {..}|null}]}.";

pub(super) const RESIZE: &str = "\
Changes how many slots a semaphore has, for all programs that use it.

Running programs follow by themselves. Programs that start later have to give the new limit: `quorate semaphore` \
with another --limit ends with 64. A smaller limit takes no slot away from its holder: nobody gets a slot until \
enough of them are free. A limit is forgotten when nobody has used the semaphore for three to four times --max-ttl.

Every server has to answer. If one is away this ends with 69, and the limit may be changed on some of them: run it \
again when all vote.

Example:
  quorate resize thumbs --limit 8

--json: {name, limit, before: N|null}; before is null if no server knew a limit.";

pub(super) const NODES: &str = "\
Shows every server's state: whether it votes, and the reason if it does not. It also shows the fleet id, which must \
be the same for all clients of the same servers (--fleet).

A server that restarted does not vote until it has been watched for a little more than --max-ttl. With --wait this \
command waits until that is over, and then shows the states.

Exit status: 0 when locks can be taken now, otherwise 69. With --wait: 0 when enough servers vote, 69 when the \
timeout came first, and 128+n when signal n ended the wait.
--json: {voting, needed, spare, votes_in_ms, fleet, nodes: [{node, state, reason, note, round_trip_ms}]}";

#[cfg(feature = "conformance")]
pub(super) const CONFORMANCE: &str = "\
Checks that a server does what quorate needs of each of its masters, and prints a page about it. It is for servers that \
are not plain Redis or Valkey: managed services, forks, proxies.

The server must be empty, and nobody else may use it. No setting is changed. All keys begin with \
`quorate:conformance-` and a random word, and are deleted at the end. It takes less than a minute on a near server. The user needs the \
rights of a client, and also SCAN, DEL, GET, SET, HSET, INFO, DBSIZE and TIME.

Exit status: 0 when every case that was run passed, 1 when one failed, 69 when the server cannot be used at all, and \
128+n when signal n ended it.

Example:
  quorate conformance --node rediss://locker:secret@cache.example.com:6380

--json: {version, server: [lines of INFO], passed, failed: [{case, rule, why}], not_run: [{case, needs}]}";

pub(super) const WATCH: &str = "\
Prints every server's state, then one line for each change, until a signal ends it. It also tells when locks can be \
taken, and when they no longer can.

A server that restarted does not vote until clients have watched it for a little more than --max-ttl. If only short \
commands use the servers (cron jobs), run this as a service, so that the servers are always watched. Servers that \
are down or refused do not end it.

Exit status: 0 when INT, TERM, HUP or QUIT ended it, or its output was closed; 64 for a wrong setting.
--json: one object a line: {at_ms, node, state, reason, note, remaining_ms, voting, needed}; \
remaining_ms is how long a quarantine still takes; locks can be taken while voting >= needed.";

pub(super) const BOOTSTRAP: &str = "\
Admits servers that have never held a lock, without their quarantine.

A server that is new, or that restarted, is in quarantine: it does not vote until every earlier lock has expired, \
which takes a little more than --max-ttl. So a server that lost its memory cannot grant a lock twice. In a start-up \
script use `quorate nodes --wait majority` or `quorate raise-terms`, which wait for the quarantine and admit nothing.

--new declares that these servers have never held a lock. It takes about seven seconds, in which every running \
client can object. It is refused (69) unless all servers answer, either all vote or none does, none has given \
out a lock, and no client knows them as servers in use. These checks do not find everything, so run it once, by \
hand, and never in a start-up script.

Without --new and --force nothing is admitted: it then does what `quorate raise-terms` does, and says so.

Exit status:
  0        every server votes
  69       not every server answers, or it was refused
  128+n    ended by signal n

--json: {changed, nodes: [{node, before, after}]}";

pub(super) const RAISE_TERMS: &str = "\
Waits until the servers vote, and raises the fleet's --max-ttl and --restart-margin to those given here if these are \
greater. It admits nothing, so a start-up script may run it, on every machine.

It waits until a majority votes and no server that answers is in quarantine any more, and ends with 0. It does not \
wait for servers that cannot be reached or are refused, but names them.

To raise a value, every server has to vote, so it waits for those in quarantine. Clients may use the greater value \
only after it has ended with 0. If it was interrupted, run it again.

Exit status:
  0        a majority votes, and none is in quarantine; after a raise, every server votes
  69       too few servers answer for longer than --connect-timeout
  128+n    ended by signal n

Example:
  quorate raise-terms --max-ttl 60s

--json: {changed, nodes: [{node, before, after}]}";

pub(super) const DEMO: &str = "\
Shows how quorate works, on nodes within this process, without a server.

Three clients want one lock and wait in the queue, two of five nodes die, then a third, and the late write of a \
paused holder is refused. It takes about ten seconds, or less if the output is not a terminal.

--json: one object per line: {who, says}";

pub(super) const COMPLETIONS: &str = "\
Prints the completions for a shell.

Examples:
  quorate completions bash > /usr/share/bash-completion/completions/quorate
  quorate completions zsh > /usr/share/zsh/site-functions/_quorate
  quorate completions fish > /usr/share/fish/vendor_completions.d/quorate.fish";

pub(super) const MAN: &str = "\
Writes the man pages into a directory: quorate.1, and one for each command, such as quorate-lock.1.

Example:
  quorate man /usr/local/share/man/man1

Exit status: 0 when all pages are written, otherwise 70.
--json: {pages, directory}.";

/// Names of commands in other lock programs, and the command that does the same here.
const OTHER_WORDS: &[(&[&str], &str)] = &[
    (
        &["unlock", "release", "free", "break", "kill", "rm", "delete"],
        "a lock is freed when its command ends. `quorate evict NAME` frees one that somebody else holds",
    ),
    (
        &["ls", "list", "ps", "show", "get", "info", "who", "locks"],
        "`quorate inspect NAME` shows who holds a lock, and `quorate nodes` shows the servers. quorate cannot list all locks",
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
        "`quorate bootstrap --new` admits servers that have never held a lock, once and by hand",
    ),
];

/// Adds to the error the command that the unknown word probably means.
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

    /// All help texts, rendered wider than any terminal so that each paragraph is one line.
    fn help_of_all() -> Vec<(String, String)> {
        help_at(10_000)
    }

    fn help_at(width: usize) -> Vec<(String, String)> {
        let mut command = Args::command().term_width(width).max_term_width(width);
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

    /// clap continues a row at its left edge, so that a word of its second column stands alone below the first one.
    #[test]
    fn no_row_of_a_table_is_wrapped_at_80_columns_or_more() {
        let is_row = |line: &&str| {
            let text = line.trim_start();
            line.starts_with("  ") && !line.starts_with("   ") && text.contains("  ")
        };
        let mut seen = 0;
        for width in [80, 100, 120] {
            let at_width = help_at(width);
            for ((command, wide), (_, narrow)) in help_of_all().iter().zip(&at_width) {
                // Clap continues the texts that it makes itself, such as the list of commands, below the second column.
                let own = |text: &str| text.split_once("Examples:").map(|(_, own)| own.to_owned());
                for row in own(wide).unwrap_or_default().lines().filter(is_row) {
                    seen += 1;
                    assert!(
                        narrow.lines().any(|line| line == row),
                        "{command} at {width}: {row}"
                    );
                }
            }
        }
        assert!(seen > 100, "{seen}");
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
