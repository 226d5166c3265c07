//! Finds the end of a reply by counting, before anything of it is decoded.

use super::garbage::{Garbage, MAX_FRAME};

/// The greatest depth of nested arrays. HELLO's reply nests four deep.
pub(super) const MAX_DEPTH: usize = 16;

/// The longest line. The search for its end begins again each time that more of it has come.
const MAX_LINE: usize = 256 << 10;

/// How far the search for a frame's end has got, so that complete elements are not read twice.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Everything before this belongs to the frame.
    at: usize,
    /// For every open array, the number of elements still to come. Empty between frames.
    open: Vec<usize>,
}

impl Scan {
    /// No frame has begun.
    pub(super) fn is_fresh(&self) -> bool {
        self.open.is_empty()
    }

    /// The length of the frame at the beginning of `bytes`. `None` if the frame is not whole yet: then call this again
    /// with the same bytes and more.
    pub(super) fn find_end(&mut self, bytes: &[u8]) -> Result<Option<usize>, Garbage> {
        if self.open.is_empty() {
            self.open.push(1);
        }
        loop {
            let rest = bytes.get(self.at..).unwrap_or_default();
            let Some(&kind) = rest.first() else {
                return Ok(None);
            };
            if !b"+-:,(#_$!=*~>%|".contains(&kind) {
                return Err(Garbage::not_resp(bytes));
            }
            let Some(line) = rest.iter().position(|&byte| byte == b'\r') else {
                return match rest.len() {
                    0..MAX_LINE => Ok(None),
                    _ => Err(Garbage::endless_line()),
                };
            };
            match rest.get(line + 1) {
                Some(b'\n') => {}
                Some(_) => return Err(Garbage::not_resp(bytes)),
                None => return Ok(None),
            }
            let (line, after) = (rest.get(1..line).unwrap_or_default(), line + 2);
            match kind {
                b'$' | b'!' | b'=' => {
                    let end = after + length(line)? + 2;
                    match rest.get(after..end) {
                        Some(text) if text.ends_with(b"\r\n") => self.at += end,
                        Some(_) => return Err(Garbage::not_resp(bytes)),
                        None => return Ok(None),
                    }
                }
                b'*' | b'~' | b'>' | b'%' | b'|' => {
                    let pairs = matches!(kind, b'%' | b'|');
                    let count = length(line)? * if pairs { 2 } else { 1 };
                    self.at += after;
                    // Attributes come before an element and do not count as one.
                    if let (b'|', Some(more)) = (kind, self.open.last_mut()) {
                        *more += 1;
                    }
                    if count > 0 {
                        if self.open.len() > MAX_DEPTH {
                            return Err(Garbage::endless());
                        }
                        self.open.push(count);
                        continue;
                    }
                }
                _ => self.at += after,
            }
            if self.end_element() {
                return Ok(Some(std::mem::take(&mut self.at)));
            }
        }
    }

    /// One element is complete, and so is every array that it ends. Returns true if the frame is complete.
    fn end_element(&mut self) -> bool {
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

/// The length that a line announces.
fn length(line: &[u8]) -> Result<usize, Garbage> {
    match std::str::from_utf8(line)
        .ok()
        .and_then(|digits| digits.parse().ok())
    {
        Some(length @ 0..=MAX_FRAME) => Ok(length),
        Some(_) => Err(Garbage::oversize()),
        None => Err(Garbage::not_resp(line)),
    }
}
