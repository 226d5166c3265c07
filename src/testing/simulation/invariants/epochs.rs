//! Epochs: a reader's token is not less than that of a writer before it, and less than that of every writer after it.
//! (Readers of one epoch may have equal or different tokens.)

use super::{Held, Operation, Violation};

/// The grants of one read-write lock, in the order of true time.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// The reader's and the writer's grant with the greatest token so far.
    reader: Option<Operation>,
    writer: Option<Operation>,
}

impl Epochs {
    /// Checks a grant to a reader.
    pub(crate) fn read(&mut self, lease: &Operation) -> Held {
        if let Some(writer) = &self.writer
            && lease.token < writer.token
        {
            let what = "the reader's epoch is before the last writer's token";
            return Err(Violation::new("epochs", what, &[writer, lease]));
        }
        keep_the_greater(&mut self.reader, lease);
        Ok(())
    }

    /// Checks a grant to a writer.
    pub(crate) fn wrote(&mut self, lease: &Operation) -> Held {
        if let Some(reader) = &self.reader
            && lease.token <= reader.token
        {
            let what = "the writer's token is not beyond the epoch of a reader before it";
            return Err(Violation::new("epochs", what, &[reader, lease]));
        }
        keep_the_greater(&mut self.writer, lease);
        Ok(())
    }
}

fn keep_the_greater(greatest: &mut Option<Operation>, lease: &Operation) {
    if greatest.as_ref().is_none_or(|op| op.token < lease.token) {
        *greatest = Some(lease.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::{super::operation, *};

    fn op(token: u64) -> Operation {
        operation(1, token, 0, 10)
    }

    #[test]
    fn an_epoch_older_than_a_writer_and_a_writer_within_one_are_found() {
        let mut epochs = Epochs::default();
        assert_eq!(epochs.read(&op(5)), Ok(()));
        assert!(epochs.wrote(&op(5)).is_err());
        assert_eq!(epochs.wrote(&op(6)), Ok(()));
        assert!(epochs.read(&op(5)).is_err());
        assert_eq!(epochs.read(&op(8)), Ok(()));
        assert_eq!(epochs.read(&op(6)), Ok(()), "of the same epoch");
        assert!(epochs.wrote(&op(7)).is_err());
        assert_eq!(epochs.wrote(&op(9)), Ok(()));
    }
}
