//! Healthy clients do not fight over a record. A healthy client makes a new record only where the memory was lost, or
//! where a stranger changed the old one.

use super::{Held, Violation};

/// The changes to the record of one server.
#[derive(Debug)]
pub(crate) struct Records {
    /// True if the memory was lost or a stranger wrote since a healthy client made a record.
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
    /// The server has another memory, or a client with a wrong configuration wrote the record.
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
    fn two_clients_that_fight_over_a_record_are_found() {
        let mut records = Records::default();
        assert_eq!(records.made(0), Ok(()));
        records.touch();
        assert_eq!(records.made(0), Ok(()));
        assert!(records.made(0).is_err());
    }
}
