//! Writes commands as the bytes that a server reads.

use super::Script;
use crate::base::name::Name;

/// One word of a command.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
    /// A name, and the bytes before it.
    Named(&'a [u8], &'a Name),
    Number(u64),
}

/// The bytes so far.
#[derive(Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(512))
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Writes a command of these words.
    pub(crate) fn words(&mut self, words: &[Arg<'_>]) {
        self.array(words.len());
        for word in words {
            self.put(*word);
        }
    }

    /// Writes a call of a script by its hash.
    pub(crate) fn call(&mut self, script: &Script, keys: &[Arg<'_>], args: &[Arg<'_>]) {
        self.array(3 + keys.len() + args.len());
        self.script("EVALSHA", script.sha(), keys, args);
    }

    /// Writes a call of a script by its hash. The guard has to be added as the last argument.
    pub(crate) fn call_guarded(&mut self, script: &Script, keys: &[Arg<'_>], args: &[Arg<'_>]) {
        self.array(3 + keys.len() + args.len() + 1);
        self.script("EVALSHA", script.sha(), keys, args);
    }

    /// Writes a call of a script by its source, so that it does not depend on the server's script cache.
    pub(crate) fn eval(&mut self, script: &Script, keys: &[Arg<'_>], args: &[Arg<'_>]) {
        self.array(3 + keys.len() + args.len());
        self.script("EVAL", script.source(), keys, args);
    }

    /// Writes the beginning of a call with this many keys and arguments. They have to be added.
    pub(crate) fn begin_call(&mut self, script: &Script, keys: usize, args: usize) {
        self.array(3 + keys + args);
        self.put(Arg::Text("EVALSHA"));
        self.put(Arg::Text(script.sha()));
        self.put(Arg::Number(keys as u64));
    }

    fn script(&mut self, how: &str, script: &str, keys: &[Arg<'_>], args: &[Arg<'_>]) {
        self.put(Arg::Text(how));
        self.put(Arg::Text(script));
        self.put(Arg::Number(keys.len() as u64));
        for arg in keys.iter().chain(args) {
            self.put(*arg);
        }
    }

    fn array(&mut self, items: usize) {
        self.line(b'*', items as u64);
    }

    /// One word.
    pub(crate) fn put(&mut self, arg: Arg<'_>) {
        match arg {
            Arg::Text(text) => self.bulk([text.as_bytes(), b"", b""]),
            Arg::Bytes(bytes) => self.bulk([bytes, b"", b""]),
            Arg::Named(kind, name) => {
                let [before, text] = name.in_keys();
                self.bulk([kind, before.as_bytes(), text.as_bytes()]);
            }
            Arg::Number(n) => {
                self.line(b'$', u64::from(n.checked_ilog10().unwrap_or(0)) + 1);
                self.digits(n);
                self.0.extend_from_slice(b"\r\n");
            }
        }
    }

    fn bulk(&mut self, parts: [&[u8]; 3]) {
        self.line(b'$', parts.iter().map(|part| part.len() as u64).sum());
        for part in parts {
            self.0.extend_from_slice(part);
        }
        self.0.extend_from_slice(b"\r\n");
    }

    fn line(&mut self, kind: u8, n: u64) {
        self.0.push(kind);
        self.digits(n);
        self.0.extend_from_slice(b"\r\n");
    }

    fn digits(&mut self, n: u64) {
        if n >= 10 {
            self.digits(n / 10);
        }
        self.0.push(b'0' + (n % 10) as u8);
    }
}

/// Appends a command of these words.
pub(crate) fn words(wire: &mut Vec<u8>, words: &[impl AsRef<[u8]>]) {
    let words: Vec<Arg<'_>> = words.iter().map(|word| Arg::Bytes(word.as_ref())).collect();
    let mut writer = Writer(std::mem::take(wire));
    writer.words(&words);
    *wire = writer.0;
}

/// A guard, as it follows a guarded command.
pub(crate) fn guard(guard: &str) -> Vec<u8> {
    let mut writer = Writer(Vec::with_capacity(guard.len() + 8));
    writer.put(Arg::Text(guard));
    writer.0
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The words of each of these commands.
    pub(crate) fn read_back(bytes: Vec<u8>) -> Vec<Vec<String>> {
        let text = String::from_utf8(bytes).unwrap();
        let mut lines = text.strip_suffix("\r\n").unwrap().split("\r\n");
        let mut all = Vec::new();
        while let Some(line) = lines.next() {
            let count = line.strip_prefix('*').unwrap().parse().unwrap();
            let mut words = Vec::new();
            for _ in 0..count {
                let length = lines.next().unwrap().strip_prefix('$').unwrap();
                words.push(lines.next().unwrap().to_owned());
                assert_eq!(words.last().unwrap().len().to_string(), length);
            }
            all.push(words);
        }
        all
    }

    #[test]
    fn numbers_are_decimal() {
        for n in [0, 9, 10, 99, 100, u64::MAX] {
            let mut writer = Writer::new();
            writer.words(&[Arg::Number(n)]);
            assert_eq!(read_back(writer.into_bytes()), [[n.to_string()]]);
        }
    }
}
