//! What a server's ACL has to permit. Each command is tried once on every connection, in the one
//! write that greets. Otherwise a missing right would show only when a script needs it, on a node that
//! votes.
//!
//! The tries change nothing. Those that could write have the key of the lock with the empty name,
//! which no client can take, so it never exists, and none of them changes anything where its key is
//! absent. Some are errors, which `INFO errorstats` counts. They are
//! sent as commands and not from a script: in a script, the error for a missing right has no code of
//! its own. A server checks rights first. So a full server or a replica that has them answers with
//! another code, which is ignored here.

use super::encode::Keys;

/// A command that a user may or may not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Right {
    /// As people know it.
    name: &'static str,
    /// The words of its try. `KEY` is the key that nobody uses, `OPEN`, `TIME`, `C0` and `C1` are four
    /// of the five others, `KEYS` is all.
    words: &'static str,
    /// What becomes of a node without it. None: no lock can be taken, kept and freed there for long.
    without: Option<&'static str>,
}

const fn needed(name: &'static str, words: &'static str) -> Right {
    let without = None;
    Right {
        name,
        words,
        without,
    }
}

const fn useful(name: &'static str, words: &'static str, without: &'static str) -> Right {
    let without = Some(without);
    Right {
        name,
        words,
        without,
    }
}

/// Where a URL names a database; the dial itself is the try.
pub(super) static SELECT: Right = needed("SELECT", "");

/// `return` is a whole script. EVALSHA comes after EVAL, which leaves it in the server's cache, and
/// any answer but a missing right will do.
pub(super) static TRIED: &[Right] = &[
    needed("SCRIPT LOAD", "SCRIPT LOAD return"),
    needed("EVAL", "EVAL return 6 KEYS"),
    needed(
        "EVALSHA",
        "EVALSHA 63143b6f8007b98c53ca2149822777b3566f9241 0",
    ),
    needed("INFO", "INFO quorate"),
    needed("TIME", "TIME"),
    needed("GET", "GET KEY"),
    needed("MGET", "MGET OPEN TIME"),
    needed("SET", "SET KEY x XX"),
    needed("DEL", "DEL KEY"),
    needed("UNLINK", "UNLINK KEY"),
    needed("RENAME", "RENAME KEY KEY"),
    // On the keys that they are needed for. No lock has a counter of this name.
    needed("HGET", "HGET C1 x"),
    needed("HMGET", "HMGET C0 x"),
    // A field without a value: an error, but no missing right.
    needed("HSET", "HSET C0 x x x"),
    needed("PTTL", "PTTL KEY"),
    needed("PEXPIRE", "PEXPIRE KEY 1 GT"),
    useful(
        "EXISTS",
        "EXISTS KEY",
        "bootstrap --new does not work, as it cannot look for tokens here",
    ),
    // No server has had so many connections.
    useful(
        "CLIENT KILL",
        "CLIENT KILL ID 9223372036854775807",
        "after a lost connection a late grant may block a name here for one ttl",
    ),
    // As it is anyway.
    useful(
        "CLIENT REPLY",
        "CLIENT REPLY ON",
        "a lease that is dropped as its program ends may stay here for its ttl",
    ),
];

impl Right {
    /// What is sent to try it.
    pub(super) fn words<'a>(&'static self, keys: &'a Keys) -> Vec<&'a [u8]> {
        let [_, _, open, time, c0, c1] = keys.all();
        let mut words = Vec::new();
        for word in self.words.split(' ') {
            match word {
                "KEY" => words.push(keys.nobodys()),
                "KEYS" => words.extend(keys.all()),
                "OPEN" => words.push(open),
                "TIME" if !words.is_empty() => words.push(time),
                "C0" => words.push(c0),
                "C1" => words.push(c1),
                word => words.push(word.as_bytes()),
            }
        }
        words
    }

    /// As ACL SETUSER grants it: `+script|load`.
    fn grant(&self) -> String {
        format!("+{}", self.name.to_ascii_lowercase().replace(' ', "|"))
    }
}

/// What the tries on one connection have shown.
#[derive(Debug, Default)]
pub(super) struct Missing {
    withheld: Vec<&'static Right>,
    /// The server has no such command, or calls it otherwise (`rename-command`).
    unknown: Vec<&'static Right>,
    /// A key of ours may not be read or written.
    keys: bool,
}

impl Missing {
    /// The try of this right was answered by this error.
    pub(super) fn add(&mut self, right: &'static Right, error: &str) {
        match denial(error) {
            Some(Denial::Key) => self.keys = true,
            Some(Denial::Command) => self.withheld.push(right),
            None if is_unknown(error) => self.unknown.push(right),
            // It may be full, a replica, or the try is one that fails: the right is there.
            None => {}
        }
    }

    /// Why the node cannot vote, and what to do. None: it can.
    pub(super) fn refusal(&self, user: &str, keys: &Keys) -> Option<String> {
        let needed = |right: &&&Right| right.without.is_none();
        let withheld: Vec<&Right> = self.withheld.iter().filter(needed).copied().collect();
        let unknown: Vec<_> = self.unknown.iter().filter(needed).map(|r| r.name).collect();
        let mut names: Vec<&str> = withheld.iter().map(|right| right.name).collect();
        let mut grants: Vec<String> = withheld.iter().map(|right| right.grant()).collect();
        if self.keys {
            names.push("keys of quorate");
            grants.push(keys.pattern());
        }
        let mut sentences = Vec::new();
        if !names.is_empty() {
            sentences.push(format!(
                "its ACL withholds {} from {user}: grant {} with ACL SETUSER ({})",
                listed(&names),
                if names.len() == 1 && !self.keys {
                    "it"
                } else {
                    "them"
                },
                grants.join(" ")
            ));
        }
        if !unknown.is_empty() {
            sentences.push(format!(
                "it does not know {}: quorate needs {} under its own name",
                listed(&unknown),
                if unknown.len() == 1 { "it" } else { "each" },
            ));
        }
        (!sentences.is_empty()).then(|| sentences.join("; "))
    }

    /// What an operator should know of a node that votes all the same.
    pub(super) fn note(&self) -> Option<String> {
        let told = |verb: &'static str, rights: &[&Right]| -> Vec<String> {
            let useful =
                |right: &&Right| Some(format!("{verb} {}: {}", right.name, right.without?));
            rights.iter().filter_map(useful).collect()
        };
        let mut notes = told("its ACL withholds", &self.withheld);
        notes.extend(told("it does not know", &self.unknown));
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// What a server's ACL does not permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denial {
    Command,
    /// Perhaps this one only: an ACL may permit some names of locks and not others.
    Key,
}

/// Does this error say that a right is missing? In a script it has the code `ERR`, and is told by
/// its words: Redis 7.0 has words of its own there, later ones and Valkey have those of NOPERM.
pub(super) fn denial(error: &str) -> Option<Denial> {
    let has = |words| error.contains(words);
    if has("can't access at least one of the keys") || has("ermissions to access") {
        Some(Denial::Key)
    } else if error.starts_with("NOPERM")
        || has("can't run this command or subcommand")
        || has("permissions to run")
    {
        Some(Denial::Command)
    } else {
        None
    }
}

fn is_unknown(error: &str) -> bool {
    let start = "ERR unknown command";
    let said = error.get(..start.len());
    said.is_some_and(|said| said.eq_ignore_ascii_case(start))
}

/// `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sha1_smol::Sha1;

    use super::*;
    use crate::node::kinds::scripts;

    fn tried(how: impl Fn(&Right) -> bool) -> BTreeSet<&'static str> {
        let rights = TRIED.iter().filter(|right| how(right));
        rights.map(|right| right.name).collect()
    }

    /// The commands that the scripts run.
    fn in_scripts() -> BTreeSet<&'static str> {
        let mut commands = BTreeSet::new();
        for script in scripts::all() {
            let calls = script.source.split("call('").skip(1);
            commands.extend(calls.map(|call| call.split('\'').next().unwrap()));
            // By another name, as the handshake's `set`, it is no call of a new command.
            assert!(!script.source.contains("call(\""));
        }
        commands
    }

    #[test]
    fn what_the_scripts_run_is_tried_and_nothing_else_is_needed() {
        let mut needed = in_scripts();
        needed.extend(["SCRIPT LOAD", "EVAL", "EVALSHA"]);
        assert_eq!(tried(|right| right.without.is_none()), needed);
    }

    #[test]
    fn the_documented_line_is_what_is_tried() {
        let text = include_str!("../../docs/operations.md");
        let line = text.split("-@all").nth(1).unwrap();
        let line = line.split("```").next().unwrap().split_whitespace();
        let documented: BTreeSet<String> = line.map(str::to_owned).collect();
        let mut grants: BTreeSet<String> = TRIED.iter().map(Right::grant).collect();
        // The greeting itself.
        grants.insert("+hello".into());
        assert_eq!(documented, grants);
    }

    #[test]
    fn evalsha_names_the_script_of_eval() {
        let words = |name| {
            let right = TRIED.iter().find(|right| right.name == name).unwrap();
            right.words.split(' ').collect::<Vec<_>>()
        };
        let sha = Sha1::from(words("EVAL")[1]).digest().to_string();
        assert_eq!(words("EVALSHA")[1], sha);
    }

    #[test]
    fn a_try_names_the_keys_of_its_prefix() {
        let keys = Keys::new("jobs");
        let eval = TRIED.iter().find(|right| right.name == "EVAL").unwrap();
        let words = eval.words(&keys);
        let words: Vec<_> = words.into_iter().map(String::from_utf8_lossy).collect();
        let text = "EVAL return 6 jobs:@mutex: jobs:boot jobs:open jobs:time jobs:c0 jobs:c1";
        assert_eq!(words.join(" "), text);
    }

    #[test]
    fn what_tells_of_a_missing_right() {
        let command = Some(Denial::Command);
        let key = Some(Denial::Key);
        for (error, what) in [
            // Redis 7.0, later ones and Valkey; by themselves and in a script.
            (
                "NOPERM this user has no permissions to run the 'hmget' command",
                command,
            ),
            (
                "NOPERM User u has no permissions to run the 'hmget' command",
                command,
            ),
            (
                "ERR The user executing the script can't run this command or subcommand script: 3c",
                command,
            ),
            (
                "ERR ACL failure in script: User u has no permissions to run the 'hmget' command",
                command,
            ),
            ("NOPERM in other words", command),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                key,
            ),
            ("NOPERM No permissions to access a key", key),
            (
                "ERR The user executing the script can't access at least one of the keys mentioned in",
                key,
            ),
            (
                "ERR ACL failure in script: No permissions to access a key",
                key,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                None,
            ),
            (
                "READONLY You can't write against a read only replica.",
                None,
            ),
            (
                "ERR unknown command 'HMGET', with args beginning with: 'x'",
                None,
            ),
            ("ERR no such key", None),
        ] {
            assert_eq!(denial(error), what, "{error}");
        }
    }

    #[test]
    fn all_that_is_missing_is_told_at_once() {
        let right = |name: &str| TRIED.iter().find(|right| right.name == name).unwrap();
        let missing = |errors: &[(&str, &str)]| {
            let mut missing = Missing::default();
            for (name, error) in errors {
                missing.add(right(name), error);
            }
            (
                missing.refusal("user \"me\"", &Keys::new("q")),
                missing.note(),
            )
        };
        let (no, key) = ("NOPERM no", "NOPERM No permissions to access a key");
        let unknown = "ERR Unknown command 'X'";
        for (errors, refusal) in [
            (
                &[("HMGET", no)][..],
                "its ACL withholds HMGET from user \"me\": grant it with ACL SETUSER (+hmget)",
            ),
            (
                &[
                    ("SCRIPT LOAD", no),
                    ("GET", no),
                    ("SET", key),
                    ("DEL", key),
                    ("EXISTS", no),
                ],
                "its ACL withholds SCRIPT LOAD, GET and keys of quorate from user \"me\": \
                 grant them with ACL SETUSER (+script|load +get ~q:*)",
            ),
            (
                &[("GET", unknown)],
                "it does not know GET: quorate needs it under its own name",
            ),
            (
                &[("TIME", no), ("GET", unknown), ("SET", unknown)],
                "its ACL withholds TIME from user \"me\": grant it with ACL SETUSER (+time); \
                 it does not know GET and SET: quorate needs each under its own name",
            ),
        ] {
            assert_eq!(missing(errors).0.as_deref(), Some(refusal));
        }
        assert_eq!(
            missing(&[
                ("SET", "OOM full"),
                ("DEL", "READONLY"),
                ("HSET", "ERR wrong")
            ]),
            (None, None)
        );
        let (refusal, note) = missing(&[("EXISTS", no), ("CLIENT KILL", unknown)]);
        assert_eq!(refusal, None);
        let note = note.unwrap();
        assert!(
            note.starts_with("its ACL withholds EXISTS: bootstrap"),
            "{note}"
        );
        assert!(
            note.contains("; it does not know CLIENT KILL: after a lost"),
            "{note}"
        );
    }
}
