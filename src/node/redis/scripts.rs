//! The scripts, one file each, and their hashes. A test loads them all into real servers.

use std::sync::OnceLock;

use sha1_smol::Sha1;

/// A script that a server runs by its hash.
#[derive(Debug)]
pub(crate) struct Script {
    /// As it is sent, comments too.
    pub(crate) source: &'static str,
    sha: OnceLock<String>,
}

impl Script {
    const fn new(source: &'static str) -> Self {
        Self {
            source,
            sha: OnceLock::new(),
        }
    }

    /// What EVALSHA calls it by: 40 hex digits.
    pub(crate) fn sha(&self) -> &str {
        self.sha
            .get_or_init(|| Sha1::from(self.source).digest().to_string())
    }
}

macro_rules! scripts {
    ($($item:ident $name:literal,)*) => {
        $(pub(crate) static $item: Script =
            Script::new(include_str!(concat!("lua/", $name, ".lua")));)*

        /// All of them.
        pub(crate) static ALL: &[&Script] = &[$(&$item),*];
    };
}

scripts! {
    HANDSHAKE "handshake",
    ACQUIRE "acquire",
    RAISE "raise",
    EXTEND "extend",
    RELEASE "release",
    INSPECT "inspect",
    EVICT "evict",
    ADMIT "admit",
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_line(script: &Script) -> &str {
        script.source.lines().next().unwrap()
    }

    #[test]
    fn every_script_says_what_goes_in_and_what_comes_out() {
        for script in ALL {
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
            "if redis.call('GET', KEYS[2]) ~= ARGV[#ARGV] then",
            "local seen = redis.call('MGET', KEYS[2], KEYS[3]) if seen[1] ~= ARGV[#ARGV] then",
        ];
        for script in ALL {
            let code: Vec<&str> = script
                .source
                .lines()
                .filter(|line| !line.starts_with("--"))
                .collect();
            let code = code.join(" ");
            let free = [&HANDSHAKE, &RELEASE, &ADMIT]
                .iter()
                .any(|free| std::ptr::eq(*free, *script));
            assert_eq!(
                guards.iter().any(|guard| code.starts_with(guard)),
                !free,
                "{}",
                first_line(script)
            );
        }
    }

    #[test]
    fn a_hash_is_that_of_the_source() {
        assert_eq!(
            RELEASE.sha(),
            Sha1::from(RELEASE.source.as_bytes()).digest().to_string()
        );
        assert_eq!(RELEASE.sha().len(), 40);
    }
}
