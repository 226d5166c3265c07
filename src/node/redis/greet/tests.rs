mod channel;

use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::node::{
    Connection,
    redis::{
        address::{IntoNode as _, Target},
        dial::Dialled,
    },
};
use DialError::Unreachable;

/// The channel to which the greetings subscribe.
const CHANNEL: &str = "quorate:wake:1";

fn address() -> Address {
    match "redis://me:sesame@h".into_node() {
        Ok(Target::Server(address)) => address,
        other => panic!("{other:?}"),
    }
}

async fn greeted_on(stream: DuplexStream, channel: &str) -> Dialled {
    let keys = Arc::new(Keys::new("quorate"));
    let greeted = greet(stream, &address(), keys, &channel.into()).await;
    greeted.map(|connection| Box::new(connection) as Box<dyn Connection>)
}

/// The error for a server that answers the greeting with this.
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
    fn any_server_text_is_reported_short_and_without_control_characters(
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
async fn password_behind_the_cut_hides_the_error() {
    let known = "%1\r\n$2\r\nid\r\n:3\r\n+OK\r\n+OK\r\n";
    let before = "x".repeat(193);
    for password in ["sesame", "%73%65same"] {
        let said = format!("{known}-ERR {before}{password}\r\n");
        let (Refused(why) | Unreachable(why)) = greeted(said.as_bytes()).await;
        assert_eq!(why, "it does not accept quorate's scripts: ERR");
    }
    let (Refused(why) | Unreachable(why)) = greeted(b"SSH-xxxxxxsesame").await;
    assert_eq!(why, "it does not speak RESP: it says \"SSH-\"");
}
