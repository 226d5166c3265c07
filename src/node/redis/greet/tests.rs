mod channel;

use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::node::redis::address::{IntoNode as _, Target};
use DialError::Unreachable;

/// What the greetings subscribe to.
const CHANNEL: &str = "quorate:wake:1";

fn address() -> Address {
    match "redis://me:sesame@h".into_node() {
        Ok(Target::Server(address)) => address,
        other => panic!("{other:?}"),
    }
}

async fn greeted_on(stream: DuplexStream, channel: &str) -> Dialled {
    let keys = Arc::new(Keys::new("quorate"));
    greet(stream, &address(), keys, &channel.into()).await
}

/// What becomes of a server that answers our greeting with this.
async fn greeted(said: &[u8]) -> DialError {
    let (ours, mut theirs) = tokio::io::duplex(1 << 22);
    theirs.write_all(said).await.unwrap();
    theirs.shutdown().await.unwrap();
    match greeted_on(ours, CHANNEL).await {
        Ok(_) => panic!("greeted"),
        Err(why) => why,
    }
}

proptest::proptest! {
    #[test]
    fn whatever_a_server_says_is_told_in_short_and_plainly(
        bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        huge in proptest::bool::ANY,
    ) {
        let bytes = bytes.repeat(if huge { 3_000 } else { 1 });
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let blob = [format!("!{}\r\n", bytes.len()).as_bytes(), &bytes, b"\r\n"].concat();
        let text = format!("${}\r\n", bytes.len());
        let field = [b"%1\r\n+mode\r\n", text.as_bytes(), &bytes, b"\r\n"].concat();
        for said in [bytes, blob, field] {
            let (Refused(why) | Unreachable(why)) = runtime.block_on(greeted(&said));
            proptest::prop_assert!(why.len() < 1_000, "{} bytes", why.len());
            proptest::prop_assert!(!why.contains(char::is_control), "{why:?}");
        }
    }
}

#[tokio::test]
async fn a_password_is_taken_out_before_the_words_are_cut() {
    let (x, y) = ("x".repeat(6), "x".repeat(193));
    let known = "%1\r\n$2\r\nid\r\n:3\r\n+OK\r\n+OK\r\n";
    for said in [
        format!("SSH-{x}sesame"),
        format!("{known}-ERR {y}sesame\r\n"),
        format!("{known}-ERR {y}\\x73\\x65same\r\n"),
    ] {
        let (Refused(why) | Unreachable(why)) = greeted(said.as_bytes()).await;
        assert!(why.contains("x*"), "{why}");
    }
}
