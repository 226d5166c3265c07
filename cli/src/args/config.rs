//! The configuration file that `--config` or `QUORATE_CONFIG` names.
//!
//! No error shows a line of the file, because it may hold a password: `toml` would show the line itself. An error names
//! the line and the field.

use std::{
    fs::{File, Metadata},
    io::Read as _,
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::{self, Path, PathBuf},
};

use nix::unistd::geteuid;
use quorate::{
    Config, Error,
    cli::{SETTINGS, has_password},
};
use serde::Deserialize as _;
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

/// The field of the masters.
const NODES: &str = "nodes";
/// A longer file, in bytes, is not a configuration file.
const LONGEST: u64 = 1 << 20;
/// The longest key that an error shows.
const LONGEST_KEY: usize = 64;
/// The rights that nobody may have on a file with a password: those of the group and of all others.
const OF_OTHERS: u32 = 0o077;
/// The same if root owns the file. Its group may read it, because a user who is not root can read it in no other way.
const OF_OTHERS_THAN_ROOT: u32 = 0o037;

/// The rights to change the file.
const WRITE_OF_OTHERS: u32 = 0o022;

/// A file that was read and checked.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) config: Config,
    pub(super) path: PathBuf,
    /// A pipe can be read only once.
    is_regular: bool,
}

impl ConfigFile {
    /// Reads the file. `named_by` is the option or the variable that names it.
    ///
    /// # Errors
    /// The reason as a text, without any password.
    pub(super) fn read(path: &Path, named_by: &str) -> Result<Self, String> {
        let cannot = |why: &str| format!("the file {path:?}, which {named_by} names, {why}");
        let unreadable = |error| cannot(&format!("cannot be read: {error}"));
        let file = match File::open(path) {
            // The name itself may hold a password.
            Err(_) if looks_like_a_url(path) => {
                return Err(format!(
                    "{named_by} must be the name of a file, but looks like a URL: put URLs into {NODES} = [..] in \
                     that file"
                ));
            }
            opened => opened.map_err(unreadable)?,
        };
        // The open file is asked, because the path may lead to another one a moment later.
        let metadata = file.metadata().map_err(unreadable)?;
        let mut bytes = Vec::new();
        let read = file.take(LONGEST + 1).read_to_end(&mut bytes);
        if read.map_err(unreadable)? as u64 > LONGEST {
            return Err(cannot(&format!(
                "is longer than {LONGEST} bytes: it must be a configuration file"
            )));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let valid = error.utf8_error().valid_up_to();
            let before = error.as_bytes().get(..valid).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            cannot(&format!("is not valid UTF-8 in line {line}"))
        })?;
        // Some editors begin a file with a byte order mark.
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let Parsed {
            mut config,
            has_password,
        } = parse(text).map_err(|wrong| wrong.shown(path, text))?;
        if config.credentials.password_command.is_some() {
            let names = format!("the file {path:?} names a password command, but");
            let (owner, user) = (metadata.uid(), geteuid().as_raw());
            if !may_name_commands(owner, user) {
                return Err(format!(
                    "{names} belongs to user {owner}, who could make user {user} run any program: run chown {user} \
                     {path:?} if you trust what it says"
                ));
            }
            if metadata.mode() & WRITE_OF_OTHERS != 0 {
                return Err(format!(
                    "{names} its mode {:04o} lets other users change it: run chmod go-w {path:?}",
                    metadata.mode() & 0o7777
                ));
            }
        }
        if metadata.is_file() {
            resolve(&mut config, path);
        }
        if has_password && may_be_read_by_others(&metadata) {
            return Err(format!(
                "the file {path:?} holds a password, but its mode {:04o} lets other users read it: run chmod 600 \
                 {path:?} (or 640, if root owns it and one group needs it)",
                metadata.mode() & 0o7777
            ));
        }
        Ok(Self {
            config,
            path: path.to_owned(),
            is_regular: metadata.is_file(),
        })
    }

    /// The path by which another process can read the file again, from any directory.
    pub(super) fn again(&self) -> Option<String> {
        again_at(&self.path).filter(|_| self.is_regular)
    }
}

/// The path by which another process can read this file again, if it is not a pipe.
pub(super) fn again_at(path: &Path) -> Option<String> {
    // Another process has another /dev/stdin.
    let is_of_this_process = path.starts_with("/dev") || path.starts_with("/proc");
    let path = match is_of_this_process {
        true => path.canonicalize().ok()?,
        false => path::absolute(path).ok()?,
    };
    let path = path.is_file().then(|| path.into_os_string().into_string());
    path?.ok()
}

/// Paths in the file are relative to its directory.
fn resolve(config: &mut Config, file: &Path) {
    let Some(directory) = file.parent() else {
        return;
    };
    let paths = [
        &mut config.tls.ca,
        &mut config.tls.certificate,
        &mut config.tls.key,
        &mut config.credentials.password_file,
    ];
    for path in paths.into_iter().flatten() {
        *path = directory.join(&*path);
    }
}

fn looks_like_a_url(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.contains("://") || text.contains('@')
}

/// Returns true if `user` may run a program that a file of `owner` names.
fn may_name_commands(owner: u32, user: u32) -> bool {
    owner == 0 || owner == user
}

fn may_be_read_by_others(metadata: &Metadata) -> bool {
    let refused = match metadata.uid() {
        0 => OF_OTHERS_THAN_ROOT,
        _ => OF_OTHERS,
    };
    metadata.mode() & refused != 0
}

/// A mistake, and its place in bytes.
struct Wrong {
    at: usize,
    field: Option<String>,
    why: String,
}

impl Wrong {
    fn shown(&self, path: &Path, text: &str) -> String {
        let before = text.get(..self.at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let why = &self.why;
        match &self.field {
            Some(field) => format!("{path:?}, line {line}: {field}: {why}"),
            None => format!("{path:?}, line {line}, column {column}: {why}"),
        }
    }
}

impl From<toml::de::Error> for Wrong {
    /// The `Display` of the error would show the line.
    fn from(error: toml::de::Error) -> Self {
        Self {
            at: error.span().map_or(0, |span| span.start),
            field: None,
            why: error.message().to_owned(),
        }
    }
}

struct Parsed {
    config: Config,
    /// One of the URLs contains a password.
    has_password: bool,
}

fn parse(text: &str) -> Result<Parsed, Wrong> {
    let table = DeTable::parse(text)?;
    check_keys(table.get_ref())?;
    let fields: Vec<(String, Range<usize>)> = table
        .get_ref()
        .iter()
        .map(|(key, value)| {
            (
                key.get_ref().to_string(),
                key.span().start..value.span().end,
            )
        })
        .collect();
    let start = |field: &str| {
        let found = fields.iter().find(|(name, _)| name == field);
        found.map_or(0, |(_, place)| place.start)
    };
    let urls = places_of_urls(table.get_ref());
    let config = Config::deserialize(Deserializer::from(table)).map_err(|error| {
        let wrong = Wrong::from(error);
        let inside = fields.iter().find(|(_, place)| place.contains(&wrong.at));
        let field = inside.map(|(name, _)| name.clone());
        // The message about an unknown field names it.
        let field = field.filter(|name| !wrong.why.contains(&format!("`{name}`")));
        Wrong { field, ..wrong }
    })?;
    let mut with_password = false;
    for (i, url) in config.nodes.iter().enumerate() {
        with_password |= has_password(url).map_err(|error| Wrong {
            at: urls.get(i).copied().unwrap_or_else(|| start(NODES)),
            field: Some(NODES.to_owned()),
            why: reason(error),
        })?;
    }
    let options = config.options();
    for setting in SETTINGS {
        setting.check(&options).map_err(|error| Wrong {
            at: start(setting.name),
            field: Some(setting.name.to_owned()),
            why: reason(error),
        })?;
    }
    Ok(Parsed {
        config,
        has_password: with_password,
    })
}

fn reason(error: Error) -> String {
    match error {
        Error::Invalid(why) => why,
        other => other.to_string(),
    }
}

/// Errors repeat keys, so a key has to be a plain word. Anything else may be a URL that lost its quotes.
fn check_keys(table: &DeTable<'_>) -> Result<(), Wrong> {
    for (key, value) in table {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let name = key.get_ref();
        if name.len() > LONGEST_KEY || !name.chars().all(is_plain) {
            return Err(Wrong {
                at: key.span().start,
                field: None,
                why: "the name of a setting has only the characters a-z and _, as in max_ttl = \"10m\""
                    .to_owned(),
            });
        }
        if let DeValue::Table(inner) = value.get_ref() {
            check_keys(inner)?;
        }
    }
    Ok(())
}

fn places_of_urls(table: &DeTable<'_>) -> Vec<usize> {
    let start = |value: &Spanned<DeValue<'_>>| value.span().start;
    match table.get(NODES).map(Spanned::get_ref) {
        Some(DeValue::Array(urls)) => urls.iter().map(start).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn wrong(text: &str) -> String {
        let wrong = parse(text).map(drop).unwrap_err();
        wrong.shown(Path::new("q.toml"), text)
    }

    #[test]
    fn an_error_names_the_line_and_the_field() {
        for (text, says) in [
            (
                "# ours\nmax_ttl = \"30\"\n",
                "\"q.toml\", line 2: max_ttl: it is not a valid duration",
            ),
            (
                "\n\nmax_ttl = 30\n",
                "\"q.toml\", line 3: max_ttl: invalid type: a number, expected a text such as",
            ),
            (
                "max_ttl = \"48h\"",
                "\"q.toml\", line 1: max_ttl: max_ttl must be between",
            ),
            (
                "max_ttl = \"9s\"\nmax_tll = \"9s\"",
                "\"q.toml\", line 2, column 1: unknown field `max_tll`, expected one of `nodes`",
            ),
            (
                "allow_eviction = \"yes\"",
                "\"q.toml\", line 1: allow_eviction: invalid type: text, expected true or false",
            ),
            (
                "nodes = \"redis://h\"",
                "\"q.toml\", line 1: nodes: invalid type: text, expected a list of URLs",
            ),
            (
                "nodes = [\n  \"redis://h\",\n  \"http://h\",\n]",
                "\"q.toml\", line 3: nodes: \"http://h\" is not a valid node",
            ),
            (
                "nodes = [\n  \"redis://h\",\n  7,\n]",
                "\"q.toml\", line 3: nodes: invalid type: a number, expected a text",
            ),
            (
                "label = \"a b\"",
                "\"q.toml\", line 1: label: the label \"a b\" must be",
            ),
            (
                "label = \"a\"\nlabel = \"b\"",
                "\"q.toml\", line 2, column 1: duplicate key",
            ),
            ("label = \"a", "\"q.toml\", line 1, column"),
            ("label", "\"q.toml\", line 1, column"),
            (
                "[servers]\nnodes = []",
                "\"q.toml\", line 1, column 2: unknown field `servers`",
            ),
        ] {
            let shown = wrong(text);
            assert!(shown.starts_with(says), "{text}: {shown}");
        }
    }

    #[test]
    fn no_error_shows_a_password() {
        for text in [
            "nodes = \"redis://u:hun ter2@h\"",
            "[credentials]\npassword = \"hunter2\"",
            "credentials = \"hunter2\"",
            "credentials = [\"hunter2\"]",
            "nodes = redis://u:hunter2@h",
            "nodes = [redis://u:hunter2@h]",
            "nodes = [\"redis://u:hunter2@h]",
            "nodes = [\"redis://u:hun/ter2@h\"]",
            "nodes = [\"redis://u:hunter2@h\", 1]",
            "nodes = [[\"redis://u:hunter2@h\"]]",
            "nodes = [{ url = \"redis://u:hunter2@h\" }]",
            "nodes = { \"redis://u:hun ter2@h\" = 1 }",
            "\"redis://u:hun ter2@h\" = 1",
            "'u:hunter2@h' = 1",
            "redis://u:hunter2@h",
            "redis.\"u:hunter2@h\" = 1",
            "[\"redis://u:hunter2@h\"]",
            "[[\"redis://u:hunter2@h\"]]",
            "max_ttl = \"redis://u:hun ter2@h\"",
            "allow_eviction = \"redis://u:hun ter2@h\"",
            "label = \"redis://u:hun ter2@h\"",
            "fleet = \"u:hunter2@h\"",
            "key_prefix = [\"redis://u:hun ter2@h\"]",
            "url = \"redis://u:hunter2@h\"",
            "nodes = [\"redis://u:hunter2@h\"]\nnodes = [\"redis://u:hunter2@h\"]",
            "nodes = [\"redis://u:hunter2\u{1}@h\"]",
            "nodes = [\"redis://u:hun\\qter2@h\"]",
        ] {
            let shown = wrong(text);
            for secret in ["hunter2", "hun", "ter2"] {
                assert!(!shown.contains(secret), "{text}: {shown}");
            }
        }
    }

    #[test]
    fn a_file_with_a_password_is_refused_if_others_may_read_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let owner = file.as_file().metadata().unwrap().uid();
        let with = |text: &str, mode: u32| {
            std::fs::write(file.path(), text).unwrap();
            let rights = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(file.path(), rights).unwrap();
            ConfigFile::read(file.path(), "--config")
        };
        let secret = "nodes = [\"redis://h\", \"redis://u:hunter2@h\"]";
        for mode in [0o600, 0o400, 0o700] {
            with(secret, mode).unwrap();
        }
        for mode in [0o644, 0o604, 0o660, 0o601, 0o620] {
            let why = with(secret, mode).unwrap_err();
            assert!(
                why.contains(&format!("mode {mode:04o}")) && why.contains("chmod 600"),
                "{why}"
            );
            assert!(!why.contains("hunter2"), "{why}");
        }
        // Only root can give a group a file that the group cannot change.
        assert_eq!(with(secret, 0o640).is_ok(), owner == 0);
        for open in ["nodes = [\"redis://u@h\"]", "max_ttl = \"10s\"", ""] {
            with(open, 0o644).unwrap();
        }
    }

    #[test]
    fn a_password_command_in_the_file_of_another_user_is_refused() {
        assert!(may_name_commands(0, 0) && may_name_commands(0, 7) && may_name_commands(7, 7));
        assert!(!may_name_commands(7, 0) && !may_name_commands(7, 8));
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[credentials]\npassword_command = \"vault hunter2\"\n";
        std::fs::write(file.path(), text).unwrap();
        let read = || ConfigFile::read(file.path(), "--config");
        read().unwrap();
        // Only root can give a file away.
        if std::os::unix::fs::chown(file.path(), Some(65_534), None).is_ok() {
            let why = read().unwrap_err();
            assert!(why.contains("belongs to user 65534"), "{why}");
            assert!(
                why.contains("chown 0 ") && !why.contains("hunter2"),
                "{why}"
            );
            // Without a command it may be anybody's.
            std::fs::write(file.path(), "max_ttl = \"9s\"\n").unwrap();
            read().unwrap();
        }
    }

    #[test]
    fn a_byte_order_mark_and_windows_line_ends_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "\u{feff}# ours\r\nlabel = \"a\"\r\nmax_ttl = \"9s\"\r\n";
        std::fs::write(file.path(), text).unwrap();
        let read = ConfigFile::read(file.path(), "--config").unwrap();
        assert_eq!(read.config.label.as_deref(), Some("a"));
    }
}
