//! Healthy clients do not fight over a record: one of them makes a new one only where the memory was
//! lost, or a stranger changed what stood there.

use super::{Held, Violation};

/// Who changed the record of one server.
#[derive(Debug)]
pub(crate) struct Records {
    /// A loss, or a stranger, since a healthy client made a record.
    touched: bool,
    made: u64,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            touched: true,
            made: 0,
        }
    }
}

impl Records {
    /// The memory is another, or a client whose configuration is wrong wrote.
    pub(crate) fn touch(&mut self) {
        self.touched = true;
    }

    /// A healthy client made a new record.
    pub(crate) fn made(&mut self, node: usize) -> Held {
        self.made += 1;
        if !std::mem::take(&mut self.touched) {
            let what = format!(
                "node {node}: its record was made anew for the {}. time, and nothing had happened to it",
                self.made
            );
            return Err(Violation::new("no fight over a record", what, &[]));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_sees_two_who_fight() {
        let mut records = Records::default();
        assert_eq!(records.made(0), Ok(()));
        records.touch();
        assert_eq!(records.made(0), Ok(()));
        assert!(records.made(0).is_err());
    }
}
