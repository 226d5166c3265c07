//! A script that a server runs by its hash.

use std::sync::OnceLock;

use sha1_smol::Sha1;

/// A line that begins with this is replaced by the shared piece that it names.
const INSERT: &str = "-- insert ";

/// The pieces that scripts share, by their names in these lines.
pub(crate) const SHARED: &[(&str, &str)] = &[
    (
        "shared/guard.lua",
        include_str!("../kinds/shared/guard.lua"),
    ),
    (
        "shared/counter.lua",
        include_str!("../kinds/shared/counter.lua"),
    ),
    (
        "shared/rotate.lua",
        include_str!("../kinds/shared/rotate.lua"),
    ),
    ("shared/obey.lua", include_str!("../kinds/shared/obey.lua")),
    (
        "mutex/common.lua",
        include_str!("../kinds/mutex/common.lua"),
    ),
    ("mutex/lone.lua", include_str!("../kinds/mutex/lone.lua")),
    ("mutex/tell.lua", include_str!("../kinds/mutex/tell.lua")),
    ("mutex/line.lua", include_str!("../kinds/mutex/line.lua")),
    (
        "rwlock/known.lua",
        include_str!("../kinds/rwlock/known.lua"),
    ),
    ("slots/known.lua", include_str!("../kinds/slots/known.lua")),
    ("slots/line.lua", include_str!("../kinds/slots/line.lua")),
    ("rate/ledger.lua", include_str!("../kinds/rate/ledger.lua")),
];

/// One Lua script. Each is in a file of its own, in the folder of its kind.
#[derive(Debug)]
pub(crate) struct Script {
    /// The text of the file, with the `insert` lines.
    pub(crate) file: &'static str,
    source: OnceLock<String>,
    sha: OnceLock<String>,
}

impl Script {
    /// The script in a file with this text.
    pub(crate) const fn new(file: &'static str) -> Self {
        Self {
            file,
            source: OnceLock::new(),
            sha: OnceLock::new(),
        }
    }

    /// The text that is sent, with shared pieces and comments.
    pub(crate) fn source(&self) -> &str {
        self.source.get_or_init(|| expanded(self.file))
    }

    /// The hash by which EVALSHA names it: 40 hex digits.
    pub(crate) fn sha(&self) -> &str {
        self.sha
            .get_or_init(|| Sha1::from(self.source()).digest().to_string())
    }
}

/// The text with each `insert` line replaced by its piece. A line that names no piece stays, as a comment.
fn expanded(text: &str) -> String {
    let mut whole = String::new();
    for line in text.split_inclusive('\n') {
        let name = line.trim_start().strip_prefix(INSERT).map(str::trim_end);
        match SHARED.iter().find(|(shared, _)| Some(*shared) == name) {
            Some((_, piece)) => whole += &expanded(piece),
            None => whole += line,
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::kinds::scripts;

    #[test]
    fn a_hash_is_that_of_the_source() {
        // The hash that `redis-cli script load 'return 1'` returns.
        let script = Script::new("return 1");
        assert_eq!(script.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }

    #[test]
    fn every_marker_line_names_a_shared_piece_and_every_piece_is_named() {
        for script in scripts::all() {
            assert!(!script.source().contains(INSERT), "{}", script.file);
        }
        for (name, piece) in SHARED {
            let used = scripts::all().any(|script| script.source().contains(&expanded(piece)));
            assert!(used, "{name}");
        }
    }
}
