//! The scripts of all kinds, which a server is given before it is asked for anything.

use super::{admission, mutex, rate, rwlock, slots};
use crate::node::wire::Script;

pub(crate) fn all() -> impl Iterator<Item = &'static Script> {
    [
        admission::SCRIPTS,
        mutex::SCRIPTS,
        slots::SCRIPTS,
        rate::SCRIPTS,
        rwlock::SCRIPTS,
        mutex::several::SCRIPTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::{
        base::owner::{Entry, Label},
        node::wire::script::SHARED,
    };

    fn first_line(script: &Script) -> &str {
        script.source().lines().next().unwrap()
    }

    #[test]
    fn every_script_documents_its_keys_arguments_and_results() {
        for script in all() {
            for word in ["\n-- KEYS ", "\n-- ARGV ", "\n-- RETURNS "] {
                assert!(
                    script.source().contains(word),
                    "{word:?}: {}",
                    first_line(script)
                );
            }
        }
    }

    /// Scripts cut the text of a lock that another program may have written.
    #[test]
    fn no_script_cuts_the_longest_text_of_a_lock() {
        let label = Label::new(&"a".repeat(128)).unwrap();
        let entry = Entry::new(uuid::Uuid::nil(), &label);
        // "entry seq ticket", as the queue writes it.
        let longest = format!("{} {} {}", entry.as_str(), u64::MAX, u64::MAX).len();
        assert_eq!(longest, 203);
        let cuts = all().flat_map(|script| script.source().split("sub(").skip(1));
        let cuts =
            cuts.filter_map(|call| call.split_once(')')?.0.split_once(", 1, ")?.1.parse().ok());
        let cuts: Vec<usize> = cuts.collect();
        assert!(cuts.len() >= 9, "{cuts:?}");
        assert!(
            cuts.iter().all(|cut| *cut == 224 && *cut > longest),
            "{cuts:?}"
        );
    }

    /// The code that may stand before the guard. `open` is KEYS[2], or KEYS[1] in a script about several locks.
    const READS: [&str; 5] = [
        "local open = redis.call('GET', KEYS[2])",
        "local seen = redis.call('MGET', KEYS[2], KEYS[1]) local open = seen[1]",
        "local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3]) local open = seen[1]",
        "local seen = redis.call('MGET', unpack(KEYS)) local open = seen[1]",
        "local seen = redis.call('MGET', unpack(KEYS, 1, #KEYS - 2)) local open = seen[1]",
    ];
    const GUARD: &str = "local guard = ARGV[#ARGV] if open ~= guard then   return redis.error_reply('NOT_ADMITTED this memory may not vote') end";

    #[test]
    fn the_guard_comes_first_in_all_scripts_but_the_listed_ones() {
        // BATCH checks the guard for each of its operations. The conformance suite compares those answers.
        let free = ["-- HANDSHAKE ", "-- RELEASE ", "-- ADMIT ", "-- BATCH "];
        let (_, guard) = SHARED
            .iter()
            .find(|(name, _)| *name == "shared/guard.lua")
            .unwrap();
        let code: Vec<&str> = guard
            .lines()
            .filter(|line| !line.starts_with("--"))
            .collect();
        assert_eq!(code.join(" "), GUARD);
        let mut unguarded = 0;
        for script in all() {
            let name = first_line(script);
            let is_free = free.iter().any(|free| name.starts_with(free));
            unguarded += usize::from(is_free);
            let before = script.file.split_once("-- insert shared/guard.lua\n");
            let only_reads = before.is_some_and(|(before, _)| {
                let code = before.lines().filter(|line| !line.starts_with("--"));
                let code: Vec<&str> = code.collect();
                READS.contains(&code.join(" ").as_str())
            });
            assert_eq!(only_reads, !is_free, "{name}");
        }
        // Three scripts have the name RELEASE.
        assert_eq!(unguarded, free.len() + 2);
    }

    #[test]
    fn every_file_is_a_script_or_a_shared_piece() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/node/kinds");
        let (mut scripts, mut folders) = (0, vec![PathBuf::from(folder)]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|end| end == "lua") {
                    let text = std::fs::read_to_string(&path).unwrap();
                    let is_script = all().any(|script| script.file == text);
                    let is_shared = SHARED.iter().any(|(name, _)| path.ends_with(name));
                    assert!(is_script != is_shared, "{path:?}");
                    scripts += usize::from(is_script);
                }
            }
        }
        assert_eq!(scripts, all().count());
    }
}
