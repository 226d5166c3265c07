//! A script that a server runs by its hash.

use std::sync::OnceLock;

use sha1_smol::Sha1;

/// One Lua script. Each stands in a file of its own, in the folder of its kind.
#[derive(Debug)]
pub(crate) struct Script {
    /// As it is sent, comments too.
    pub(crate) source: &'static str,
    sha: OnceLock<String>,
}

impl Script {
    pub(crate) const fn new(source: &'static str) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_the_source() {
        // As `redis-cli script load 'return 1'` answers.
        let script = Script::new("return 1");
        assert_eq!(script.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
