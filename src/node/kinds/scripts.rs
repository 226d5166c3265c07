//! The scripts of all kinds: what a server is given before it is asked for anything.

use super::{admission, mutex, rate, rwlock, several, slots};
use crate::node::wire::Script;

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Script> {
    [
        admission::SCRIPTS,
        mutex::SCRIPTS,
        slots::SCRIPTS,
        rate::SCRIPTS,
        rwlock::SCRIPTS,
        several::SCRIPTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_line(script: &Script) -> &str {
        script.source.lines().next().unwrap()
    }

    #[test]
    fn every_script_says_what_goes_in_and_what_comes_out() {
        for script in all() {
            for word in ["\n-- KEYS ", "\n-- ARGV ", "\n-- RETURNS "] {
                assert!(
                    script.source.contains(word),
                    "{word:?}: {}",
                    first_line(script)
                );
            }
        }
    }

    #[test]
    fn the_guard_comes_first_but_where_a_node_that_may_not_vote_is_asked() {
        let guards = [
            "local seen = redis.call('MGET', KEYS[2], KEYS[1], KEYS[3]) if seen[1] ~= ARGV[#ARGV] then",
            "if redis.call('GET', KEYS[2]) ~= ARGV[#ARGV] then",
            "local seen = redis.call('MGET', KEYS[2], KEYS[3], KEYS[6]) if seen[1] ~= ARGV[#ARGV] then",
            "local seen = redis.call('MGET', KEYS[2], KEYS[1]) if seen[1] ~= ARGV[#ARGV] then",
            "local seen = redis.call('MGET', unpack(KEYS)) if seen[1] ~= ARGV[#ARGV] then",
            "local seen = redis.call('MGET', unpack(KEYS, 1, #KEYS - 2)) if seen[1] ~= ARGV[#ARGV] then",
        ];
        // BATCH looks at it for each of its operations: the conformance suite compares the answers.
        let free = ["-- HANDSHAKE ", "-- RELEASE ", "-- ADMIT ", "-- BATCH "];
        let mut unguarded = 0;
        for script in all() {
            let code: Vec<&str> = script
                .source
                .lines()
                .filter(|line| !line.starts_with("--"))
                .collect();
            let code = code.join(" ");
            let name = first_line(script);
            let is_free = free.iter().any(|free| name.starts_with(free));
            unguarded += usize::from(is_free);
            assert_eq!(
                guards.iter().any(|guard| code.starts_with(guard)),
                !is_free,
                "{name}"
            );
        }
        // There are four of the name of RELEASE.
        assert_eq!(unguarded, free.len() + 3);
    }

    #[test]
    fn every_file_is_one_of_them_or_a_part() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/node/kinds");
        let (mut files, mut begin) = (0, 0);
        for kind in std::fs::read_dir(folder).unwrap() {
            let kind = kind.unwrap().path();
            if !kind.is_dir() {
                continue;
            }
            for file in std::fs::read_dir(kind).unwrap() {
                let file = file.unwrap().path();
                if file.extension().is_some_and(|end| end == "lua") {
                    let source = std::fs::read_to_string(&file).unwrap();
                    let is_in = |script: &Script| script.source.contains(&source);
                    assert!(all().any(is_in), "{file:?}");
                    files += 1;
                    begin += usize::from(all().any(|script| script.source.starts_with(&source)));
                }
            }
        }
        assert_eq!(begin, all().count());
        // What is known and the line, of locks and of slots; who is told, of locks; what is known of a read-write lock; what counts of a
        // limit; what BATCH reads and does; the short ways of RELEASE and JOIN; how ACQUIRE, RELEASE and JOIN end, and of several
        // locks ACQUIRE and RELEASE.
        assert_eq!(files, begin + 4 + 1 + 1 + 1 + 2 + 2 + 3 + 2);
    }
}
