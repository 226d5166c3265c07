use proptest::prelude::*;
use redis_protocol::resp3::{
    encode::complete::encode,
    types::{OwnedFrame, Resp3Frame as _},
};

use super::{scan::MAX_DEPTH, *};

/// Feeds in the bytes in pieces, and collects the frames.
fn feed<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Result<Vec<OwnedFrame>, Garbage> {
    let (mut inbox, mut frames) = (Inbox::new(), Vec::new());
    let mut cx = Context::from_waker(std::task::Waker::noop());
    for mut piece in pieces {
        while !piece.is_empty() {
            assert!(inbox.poll_fill(&mut piece, &mut cx).is_ready());
            while let Some(frame) = inbox.next()? {
                frames.push(frame);
            }
        }
    }
    Ok(frames)
}

fn garbage(bytes: &[u8]) -> String {
    feed([bytes]).expect_err("garbage").text(str::to_owned)
}

const EVERY_KIND: &[u8] =
    b"+OK\r\n-ERR no\r\n:-1\r\n,1.5\r\n#t\r\n_\r\n(123\r\n$0\r\n\r\n$4\r\n\r\n\r\n\r\n\
    !5\r\nERR x\r\n=5\r\ntxt:a\r\n*0\r\n*3\r\n:1\r\n*2\r\n+a\r\n*0\r\n$1\r\nb\r\n\
    %2\r\n+a\r\n*1\r\n:1\r\n+b\r\n~2\r\n:1\r\n:2\r\n>2\r\n+message\r\n$2\r\nhi\r\n\
    |1\r\n+ttl\r\n:3\r\n*2\r\n:1\r\n:2\r\n";

#[test]
fn frames_are_the_same_wherever_they_are_cut() {
    let whole = feed([EVERY_KIND]).unwrap();
    assert_eq!(whole.len(), 16);
    for cut in 0..=EVERY_KIND.len() {
        let (one, two) = EVERY_KIND.split_at(cut);
        assert_eq!(feed([one, two]).unwrap(), whole, "cut at {cut}");
    }
    assert_eq!(feed(EVERY_KIND.chunks(1)).unwrap(), whole);
}

#[test]
fn bytes_that_are_not_resp_are_refused_at_once() {
    assert_eq!(
        garbage(b"HTTP/1.1 400 Bad Request\r\n"),
        "does not speak RESP: it says \"HTTP/1.1 400 Bad Req\""
    );
    assert!(garbage(&[21, 3, 3, 0, 2, 2, 70]).contains("rediss://"));
    for bytes in [
        ":1\r\nSSH",
        "$x\r\n",
        "*-1\r\n",
        "$-1\r\n",
        "$?\r\n",
        "$1\r\nabc\r\n",
        "+a\rb\r\n",
        ":x\r\n",
        "#x\r\n",
    ] {
        assert!(
            garbage(bytes.as_bytes()).starts_with("does not speak RESP"),
            "{bytes:?}"
        );
    }
}

#[test]
fn oversized_frames_are_refused_before_they_arrive() {
    for bytes in [
        "$1048577\r\n",
        "*1048577\r\n",
        "*99999999999999999\r\n",
        ">1048577\r\n:1\r\n",
    ] {
        assert!(
            garbage(bytes.as_bytes()).contains("more than 1024 KiB"),
            "{bytes:?}"
        );
    }
    assert!(
        garbage(&"+".repeat(MAX_FRAME + ROOM).into_bytes()).contains("a line that does not end")
    );
    assert!(garbage(&"*2\r\n:1\r\n".repeat(MAX_DEPTH * 2).into_bytes()).contains("too deeply"));
    assert!(garbage(&"*1\r\n".repeat(MAX_FRAME).into_bytes()).contains("too deeply"));
    let endless = format!("*{MAX_FRAME}\r\n{}", ":1\r\n".repeat(MAX_FRAME / 4));
    assert!(garbage(endless.as_bytes()).contains("more than 1024 KiB"));
}

#[test]
fn only_simple_frames_take_the_quick_path() {
    for (bytes, quickly) in [
        (":0\r\n", true),
        (":-12\r\n", true),
        (":999999999999999999\r\n", true),
        (":-9223372036854775808\r\n", false),
        (":+1\r\n", false),
        ("$2\r\n\r\n\r\n", true),
        ("_\r\n", true),
        ("*0\r\n", true),
        ("*3\r\n:1\r\n$1\r\na\r\n_\r\n", true),
        ("*1\r\n*0\r\n", true),
        ("*2\r\n:1\r\n*2\r\n:1\r\n_\r\n", true),
        ("*1\r\n*1\r\n*0\r\n", false),
        (">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n", true),
        (">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", true),
        (">2\r\n$1\r\na\r\n:1\r\n", false),
        (">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n*0\r\n", false),
        ("*1\r\n>3\r\n:1\r\n:2\r\n:3\r\n", false),
        ("-ERR\r\n", false),
    ] {
        assert_eq!(quick(bytes.as_bytes()).is_some(), quickly, "{bytes:?}");
        assert_eq!(feed([bytes.as_bytes()]).unwrap().len(), 1, "{bytes:?}");
    }
    for bytes in [
        ":\r\n",
        ":-\r\n",
        ":1\rx",
        ":1-\r\n",
        "$-1\r\n",
        "$1\r\nab\r\n",
        "*-1\r\n",
    ] {
        assert_eq!(quick(bytes.as_bytes()), None, "{bytes:?}");
        assert!(
            garbage(bytes.as_bytes()).starts_with("does not speak RESP"),
            "{bytes:?}"
        );
    }
}

#[test]
fn a_grown_buffer_is_given_back() {
    let text = format!("${}\r\n{}\r\n", 200_000, "x".repeat(200_000));
    let mut inbox = Inbox::new();
    let mut bytes = text.as_bytes();
    let mut cx = Context::from_waker(std::task::Waker::noop());
    while inbox.next().unwrap().is_none() {
        assert!(inbox.poll_fill(&mut bytes, &mut cx).is_ready());
        assert!(inbox.bytes.len() <= 2 * 200_000);
    }
    assert_eq!(inbox.bytes.len(), ROOM);
}

fn frame() -> impl Strategy<Value = OwnedFrame> {
    let text = proptest::collection::vec(any::<u8>(), 0..40);
    let leaf = prop_oneof![
        any::<i64>().prop_map(|data| OwnedFrame::Number {
            data,
            attributes: None
        }),
        text.prop_map(|data| OwnedFrame::BlobString {
            data,
            attributes: None
        }),
        "[A-Z]{1,9} [a-z ]{0,9}".prop_map(|data| OwnedFrame::SimpleError {
            data,
            attributes: None
        }),
        any::<bool>().prop_map(|data| OwnedFrame::Boolean {
            data,
            attributes: None
        }),
        Just(OwnedFrame::Null),
    ];
    leaf.prop_recursive(4, 64, 8, |inner| {
        proptest::collection::vec(inner, 0..8).prop_map(|data| OwnedFrame::Array {
            data,
            attributes: None,
        })
    })
}

/// A push like a published message, or almost like one.
fn message() -> impl Strategy<Value = OwnedFrame> {
    proptest::collection::vec(frame(), 2..5).prop_map(|data| OwnedFrame::Push {
        data,
        attributes: None,
    })
}

proptest! {
    #[test]
    fn any_frames_are_decoded_from_any_pieces(
        frames in proptest::collection::vec(frame(), 0..8),
        piece in 1..99_usize,
    ) {
        let mut bytes = Vec::new();
        for frame in &frames {
            let at = bytes.len();
            bytes.resize(at + frame.encode_len(false), 0);
            let used = encode(&mut bytes[at..], frame, false).unwrap();
            bytes.truncate(at + used);
        }
        prop_assert_eq!(feed(bytes.chunks(piece)).unwrap(), frames);
    }

    #[test]
    fn the_quick_path_gives_the_same_frame(frame in prop_oneof![3 => frame(), 1 => message()]) {
        let mut bytes = vec![0; frame.encode_len(false)];
        encode(&mut bytes, &frame, false).unwrap();
        let len = bytes.len();
        bytes.extend_from_slice(b":1\r\n");
        if let Some(found) = quick(&bytes) {
            prop_assert_eq!(found, (frame, len));
        }
        for cut in 0..len {
            prop_assert_eq!(quick(&bytes[..cut]), None);
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = feed([&bytes[..]]);
    }

    #[test]
    fn bytes_that_resemble_frames_do_not_panic(
        bytes in "([-+:$*%~>|!=_#,(][0-9]{0,2}\r?\n?[a-z]{0,3}){0,40}",
    ) {
        let _ = feed(bytes.as_bytes().chunks(7));
    }
}
