//! Reads the replies of a server as numbers and texts. The result is `None` if the reply has another shape.

use std::time::Duration;

use redis_protocol::resp3::types::OwnedFrame;

/// Returns a text that is only to be shown, or another text if it may not be shown.
pub(crate) type Hide<'a> = &'a dyn for<'t> Fn(&'t str) -> &'t str;

pub(crate) fn items(frame: &OwnedFrame) -> Option<&[OwnedFrame]> {
    match frame {
        OwnedFrame::Array { data, .. } => Some(data),
        _ => None,
    }
}

pub(crate) fn text(frame: &OwnedFrame) -> Option<String> {
    match frame {
        OwnedFrame::BlobString { data, .. } | OwnedFrame::SimpleString { data, .. } => {
            Some(String::from_utf8_lossy(data).into_owned())
        }
        _ => None,
    }
}

/// A text as the server stores it, byte by byte.
pub(crate) fn bytes(frame: &OwnedFrame) -> Option<&[u8]> {
    match frame {
        OwnedFrame::BlobString { data, .. } => Some(data),
        _ => None,
    }
}

pub(crate) fn integer(frame: &OwnedFrame) -> Option<i64> {
    match frame {
        OwnedFrame::Number { data, .. } => Some(*data),
        _ => None,
    }
}

pub(crate) fn count(frame: &OwnedFrame) -> Option<u64> {
    integer(frame)?.try_into().ok()
}

pub(crate) fn yes(frame: &OwnedFrame) -> Option<bool> {
    match integer(frame)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// The reply to PTTL. -1 is a key without an end.
pub(crate) fn ttl(frame: &OwnedFrame) -> Option<Option<Duration>> {
    match integer(frame)? {
        -1 => Some(None),
        _ => Some(Some(Duration::from_millis(count(frame)?))),
    }
}
