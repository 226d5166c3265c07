//! Where one reply ends in the bytes that have arrived.
//!
//! The end is found before anything is decoded, by counting, so that a reply that arrives in many
//! pieces is decoded once, and nested arrays without end from a broken server can neither exhaust
//! the stack nor the memory.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use redis_protocol::resp3::{decode::complete::decode, types::OwnedFrame};
use tokio::io::{AsyncRead, ReadBuf};

use crate::report::said;

/// The longest reply that is accepted. Ours are some hundred bytes.
pub(super) const MAX_FRAME: usize = 1 << 20;
/// HELLO's reply nests four deep.
const MAX_DEPTH: usize = 16;
/// The longest array that is read without a search for its end.
const QUICK_ARRAY: i64 = 16;
/// Any number of so many digits fits.
const QUICK_DIGITS: usize = 18;
/// What is kept for reading, and from where on a grown buffer is given back.
const ROOM: usize = 8 << 10;
const TOO_MUCH_ROOM: usize = 64 << 10;
/// So many characters of what is no RESP are told: a server may repeat what was sent.
const EXCERPT: usize = 20;

/// What has arrived and is not consumed yet.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    scan: Scan,
}

/// What arrived is no RESP, or too much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Garbage {
    why: String,
    /// What the server says instead.
    says: Option<Vec<u8>>,
}

impl Garbage {
    fn new(why: impl Into<String>) -> Self {
        Self {
            why: why.into(),
            says: None,
        }
    }

    /// Completes "the server ...". What nobody may read is taken out by `clean`, while all is there.
    pub(super) fn text(&self, clean: impl FnOnce(&str) -> String) -> String {
        let Some(says) = &self.says else {
            return self.why.clone();
        };
        let words = clean(&String::from_utf8_lossy(says));
        let line = words.split(['\r', '\n']).next().unwrap_or_default();
        let excerpt: String = line.chars().take(EXCERPT).collect();
        format!("{}: it says \"{}\"", self.why, said(excerpt))
    }
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; ROOM],
            start: 0,
            end: 0,
            scan: Scan::default(),
        }
    }

    /// The next whole frame, if it is there.
    pub(super) fn next(&mut self) -> Result<Option<OwnedFrame>, Garbage> {
        let waiting = self.bytes.get(self.start..self.end).unwrap_or_default();
        if waiting.is_empty() {
            return Ok(None);
        }
        let quick = if self.scan.is_fresh() {
            quick(waiting)
        } else {
            None
        };
        let (frame, len) = match quick {
            Some(found) => found,
            None => {
                let Some(len) = self.scan.find_end(waiting)? else {
                    return match waiting.len() {
                        0..MAX_FRAME => Ok(None),
                        _ => Err(oversize()),
                    };
                };
                let whole = waiting.get(..len).unwrap_or_default();
                match decode(whole) {
                    Ok(Some((frame, used))) if used == len => (frame, len),
                    _ => return Err(not_resp(whole)),
                }
            }
        };
        self.start += len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > TOO_MUCH_ROOM {
                self.bytes = vec![0; ROOM];
            }
        }
        Ok(Some(frame))
    }

    /// Reads once, behind what is there; 0 is the end of the stream. To be called only when
    /// [`next`](Self::next) has no whole frame.
    pub(super) fn poll_fill<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.bytes.len() {
            self.bytes.resize(self.bytes.len() * 2, 0);
        }
        let mut room = ReadBuf::new(self.bytes.get_mut(self.end..).unwrap_or_default());
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        let read = room.filled().len();
        self.end += read;
        Poll::Ready(Ok(read))
    }
}

/// How far the search for a frame's end got, so that no byte is looked at twice.
#[derive(Debug, Default)]
struct Scan {
    /// Everything before belongs to the frame.
    at: usize,
    /// For every open array, how many elements are still to come; empty between frames.
    open: Vec<usize>,
}

impl Scan {
    /// No frame is begun.
    fn is_fresh(&self) -> bool {
        self.open.is_empty()
    }

    /// The length of the frame that `bytes` begins with; none: it is not whole yet. To be asked
    /// again with the same bytes and more.
    fn find_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Garbage> {
        if self.open.is_empty() {
            self.open.push(1);
        }
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(&kind) = rest.first() else {
                return Ok(None);
            };
            if !b"+-:,(#_$!=*~>%|".contains(&kind) {
                return Err(not_resp(bytes));
            }
            let Some(line) = rest.iter().position(|&byte| byte == b'\r') else {
                return Ok(None);
            };
            match rest.get(line + 1) {
                Some(b'\n') => {}
                Some(_) => return Err(not_resp(bytes)),
                None => return Ok(None),
            }
            let (line, after) = (rest.get(1..line).unwrap_or_default(), line + 2);
            match kind {
                b'$' | b'!' | b'=' => {
                    let end = after + length(line)? + 2;
                    match rest.get(after..end) {
                        Some(text) if text.ends_with(b"\r\n") => self.at += end,
                        Some(_) => return Err(not_resp(bytes)),
                        None => return Ok(None),
                    }
                }
                b'*' | b'~' | b'>' | b'%' | b'|' => {
                    let pairs = matches!(kind, b'%' | b'|');
                    let count = length(line)? * if pairs { 2 } else { 1 };
                    self.at += after;
                    // Attributes stand before an element and are none.
                    if let (b'|', Some(more)) = (kind, self.open.last_mut()) {
                        *more += 1;
                    }
                    if count > 0 {
                        if self.open.len() > MAX_DEPTH {
                            return Err(Garbage::new("nests its answers without end"));
                        }
                        self.open.push(count);
                        continue;
                    }
                }
                _ => self.at += after,
            }
            if self.is_last_element() {
                return Ok(Some(std::mem::take(&mut self.at)));
            }
        }
    }

    /// One element is complete, and so is every array that it was the last of. Is the frame?
    fn is_last_element(&mut self) -> bool {
        while let Some(more) = self.open.last_mut() {
            *more -= 1;
            if *more > 0 {
                return false;
            }
            self.open.pop();
        }
        true
    }
}

/// The frame that `bytes` begins with and its length, if it is whole and like almost all of ours:
/// a number, a text, null, or a short array of those. It gives what `decode` would, at a fifth of
/// the cost; whatever else there is, it leaves to the others.
fn quick(bytes: &[u8]) -> Option<(OwnedFrame, usize)> {
    let (frame, rest) = match bytes.strip_prefix(b"*") {
        None => quick_element(bytes)?,
        Some(rest) => {
            let (count @ 0..=QUICK_ARRAY, mut rest) = quick_number(rest)? else {
                return None;
            };
            let mut data = Vec::with_capacity(usize::try_from(count).ok()?);
            for _ in 0..count {
                let (element, after) = quick_element(rest)?;
                data.push(element);
                rest = after;
            }
            let attributes = None;
            (OwnedFrame::Array { data, attributes }, rest)
        }
    };
    Some((frame, bytes.len() - rest.len()))
}

fn quick_element(bytes: &[u8]) -> Option<(OwnedFrame, &[u8])> {
    let attributes = None;
    match bytes {
        [b':', rest @ ..] => {
            let (data, rest) = quick_number(rest)?;
            Some((OwnedFrame::Number { data, attributes }, rest))
        }
        [b'$', rest @ ..] => {
            let (length, rest) = quick_number(rest)?;
            let (data, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            let data = data.to_vec();
            let text = OwnedFrame::BlobString { data, attributes };
            Some((text, rest.strip_prefix(b"\r\n")?))
        }
        [b'_', b'\r', b'\n', rest @ ..] => Some((OwnedFrame::Null, rest)),
        _ => None,
    }
}

/// The number on the first line, if it is there and surely fits, and what follows.
fn quick_number(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (sign, digits) = match bytes {
        [b'-', digits @ ..] => (-1, digits),
        digits => (1, digits),
    };
    let mut number = 0;
    for (at, byte) in digits.iter().enumerate().take(QUICK_DIGITS + 1) {
        match byte {
            b'0'..=b'9' if at < QUICK_DIGITS => number = number * 10 + i64::from(byte - b'0'),
            b'\r' if at > 0 => {
                let rest = digits.get(at..)?.strip_prefix(b"\r\n")?;
                return Some((sign * number, rest));
            }
            _ => return None,
        }
    }
    None
}

/// The length that a line announces.
fn length(line: &[u8]) -> Result<usize, Garbage> {
    match std::str::from_utf8(line)
        .ok()
        .and_then(|digits| digits.parse().ok())
    {
        Some(length @ 0..=MAX_FRAME) => Ok(length),
        Some(_) => Err(oversize()),
        None => Err(not_resp(line)),
    }
}

fn oversize() -> Garbage {
    Garbage::new(format!(
        "sends an answer of more than {} KiB",
        MAX_FRAME >> 10
    ))
}

fn not_resp(bytes: &[u8]) -> Garbage {
    // 21 is the first byte of a TLS alert, what a TLS port says to a plain HELLO.
    if bytes.starts_with(&[21, 3]) {
        return Garbage::new("speaks TLS on this port: use rediss://, or its plain port");
    }
    Garbage {
        why: "does not speak RESP".into(),
        says: Some(bytes.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis_protocol::resp3::{
        encode::complete::encode,
        types::{OwnedFrame, Resp3Frame as _},
    };

    use super::*;

    /// Hands the bytes over in pieces and collects the frames.
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
    fn what_is_no_resp_is_refused_at_once() {
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
    fn too_much_is_refused_before_it_arrives() {
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
        assert!(garbage(&"+".repeat(MAX_FRAME + ROOM).into_bytes()).contains("more than 1024 KiB"));
        assert!(
            garbage(&"*2\r\n:1\r\n".repeat(MAX_DEPTH * 2).into_bytes()).contains("without end")
        );
        assert!(garbage(&"*1\r\n".repeat(MAX_FRAME).into_bytes()).contains("without end"));
        let endless = format!("*{MAX_FRAME}\r\n{}", ":1\r\n".repeat(MAX_FRAME / 4));
        assert!(garbage(endless.as_bytes()).contains("more than 1024 KiB"));
    }

    #[test]
    fn what_is_quick() {
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
            ("*1\r\n*0\r\n", false),
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

    proptest! {
        #[test]
        fn any_frames_in_any_pieces(
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
        fn the_quick_way_gives_the_same(frame in frame()) {
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
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = feed([&bytes[..]]);
        }

        #[test]
        fn nor_those_that_resemble_frames(
            bytes in "([-+:$*%~>|!=_#,(][0-9]{0,2}\r?\n?[a-z]{0,3}){0,40}",
        ) {
            let _ = feed(bytes.as_bytes().chunks(7));
        }
    }
}
