//! Epochs: a reader's token is not smaller than that of a writer before it, and smaller than that of every writer after
//! it. (Readers of one epoch may have the same, or one a greater one than another.)

use super::{Held, Operation, Violation};

/// The grants of one read-write lock, in the order of true time.
#[derive(Debug, Default)]
pub(crate) struct Epochs {
    /// Each with the greatest token so far.
    reader: Option<Operation>,
    writer: Option<Operation>,
}

impl Epochs {
    /// A reader was granted it.
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

    /// A writer was granted it.
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
    fn it_sees_an_epoch_before_the_last_writer_and_a_writer_within_one() {
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
