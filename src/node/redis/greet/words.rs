//! The commands of the greeting and their order: HELLO with the login, the database, the library's name, the scripts, a
//! try of every right, and the channel of this process.

use crate::node::{
    redis::{
        address::{Address, Login},
        encode::{self, Keys},
        rights::{self, Right},
    },
    server,
};

/// One command of the greeting. Each gets one reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    Hello,
    Select,
    SetInfo,
    LoadScript,
    Try(&'static Right),
    Subscribe,
}

/// The greeting's commands, and their bytes. With an empty channel nothing is subscribed to.
pub(super) fn greeting(address: &Address, keys: &Keys, channel: &str) -> (Vec<Word>, Vec<u8>) {
    let (mut words, mut bytes) = (Vec::new(), Vec::new());
    let mut say = |word, parts: &[&str]| {
        words.push(word);
        encode::words(&mut bytes, parts);
    };
    match &address.login {
        None => say(Word::Hello, &["HELLO", "3"]),
        Some(Login { user, password, .. }) => {
            say(Word::Hello, &["HELLO", "3", "AUTH", user, password])
        }
    }
    if address.db != 0 {
        say(Word::Select, &["SELECT", &address.db.to_string()]);
    }
    say(
        Word::SetInfo,
        &["CLIENT", "SETINFO", "lib-name", env!("CARGO_PKG_NAME")],
    );
    say(
        Word::SetInfo,
        &["CLIENT", "SETINFO", "lib-ver", env!("CARGO_PKG_VERSION")],
    );
    let load = encode::wire(&server::Command::LoadScripts.into(), keys);
    words.extend(std::iter::repeat_n(Word::LoadScript, load.replies));
    bytes.extend(load.bytes);
    for right in rights::TRIED {
        words.push(Word::Try(right));
        encode::words(&mut bytes, &right.words(keys));
    }
    // This is the last one, so that nothing is published to a connection that fails before.
    if !channel.is_empty() {
        words.push(Word::Subscribe);
        encode::words(&mut bytes, &["SSUBSCRIBE", channel]);
    }
    (words, bytes)
}
