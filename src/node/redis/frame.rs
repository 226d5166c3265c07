//! Finds the end of one reply in the bytes that have arrived.
//!
//! The end is found by counting, before anything is decoded. So a reply that arrives in many pieces is decoded once. A
//! broken server that nests arrays without end can exhaust neither the stack nor the memory.

mod garbage;
mod quick;
mod scan;
#[cfg(test)]
mod tests;

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use redis_protocol::resp3::{decode::complete::decode, types::OwnedFrame};
use tokio::io::{AsyncRead, ReadBuf};

pub(super) use self::garbage::Garbage;
use self::garbage::MAX_FRAME;
use self::{quick::quick, scan::Scan};

/// The size of the read buffer.
const ROOM: usize = 8 << 10;
/// The greatest number of unrequested messages on one connection. A proper server sends none, and more would only keep
/// the client busy.
const MOST_UNASKED: u32 = 1_000;
/// A buffer that has grown beyond this size is replaced by a small one.
const TOO_MUCH_ROOM: usize = 64 << 10;

/// The bytes that have arrived and are not consumed yet.
#[derive(Debug)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    scan: Scan,
    /// The number of messages that came without a subscription.
    unasked: u32,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; ROOM],
            start: 0,
            end: 0,
            scan: Scan::default(),
            unasked: 0,
        }
    }

    /// Counts a message that came without a subscription. Returns an error if there are too many.
    pub(super) fn count_unasked(&mut self) -> Result<(), Garbage> {
        self.unasked += 1;
        match self.unasked > MOST_UNASKED {
            true => Err(Garbage::unasked()),
            false => Ok(()),
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
                        _ => Err(Garbage::oversize()),
                    };
                };
                let whole = waiting.get(..len).unwrap_or_default();
                match decode(whole) {
                    Ok(Some((frame, used))) if used == len => (frame, len),
                    _ => return Err(Garbage::not_resp(whole)),
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

    /// Reads once, behind the bytes that are there. 0 is the end of the stream. Call it only when [`next`](Self::next)
    /// has no whole frame.
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
