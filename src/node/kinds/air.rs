//! The publish/subscribe channels of an in-process node, as SSUBSCRIBE and SPUBLISH have them on a server (protocol
//! §5).

use std::{cell::RefCell, collections::BTreeMap, mem, sync::Arc};

use crate::node::push::Push;

/// The channels of a node. A command that publishes holds a shared reference to them, beside the keys.
#[derive(Debug, Default)]
pub(crate) struct Air {
    /// By channel: the number of connections that listen, which is at least one.
    listeners: BTreeMap<Arc<str>, usize>,
    /// Published messages that nobody has taken yet, in order.
    pushes: RefCell<Vec<(Arc<str>, Push)>>,
}

impl Air {
    /// Adds a connection that listens.
    pub(crate) fn subscribe(&mut self, channel: &Arc<str>) {
        *self.listeners.entry(Arc::clone(channel)).or_default() += 1;
    }

    /// Removes a connection that listened.
    pub(crate) fn unsubscribe(&mut self, channel: &Arc<str>) {
        if let Some(count) = self.listeners.get_mut(channel) {
            *count -= 1;
            if *count == 0 {
                self.listeners.remove(channel);
            }
        }
    }

    /// SPUBLISH. Returns true if a connection heard the message.
    pub(crate) fn publish(&self, channel: &Arc<str>, push: Push) -> bool {
        let heard = self.listeners.contains_key(channel);
        if heard {
            let message = (Arc::clone(channel), push);
            self.pushes.borrow_mut().push(message);
        }
        heard
    }

    /// Takes the messages that were published since the last call, in order.
    pub(crate) fn take(&mut self) -> Vec<(Arc<str>, Push)> {
        mem::take(self.pushes.get_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        base::owner::{Entry, Label},
        node::push::Says,
    };

    #[test]
    fn a_channel_is_heard_as_long_as_one_connection_listens() {
        let (here, there): (Arc<str>, Arc<str>) = ("here".into(), "there".into());
        let push = Push {
            entry: Entry::new(uuid::Uuid::from_u128(1), &Label::new("test").unwrap()),
            says: Says::Called,
        };
        let mut air = Air::default();
        assert!(!air.publish(&here, push.clone()));
        air.subscribe(&here);
        air.subscribe(&here);
        air.unsubscribe(&there);
        air.unsubscribe(&here);
        assert!(air.publish(&here, push.clone()));
        assert!(!air.publish(&there, push.clone()));
        air.unsubscribe(&here);
        assert!(!air.publish(&here, push.clone()));
        assert_eq!(air.take(), [(here, push)]);
        assert_eq!(air.take(), []);
    }
}
