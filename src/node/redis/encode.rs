//! Operations as the bytes that a server reads. They are the same for every node of a fleet.

pub(crate) use crate::node::wire::{
    Keys,
    writer::{guard, words},
};
use crate::node::{Command, kinds::Guarded, mutex, operation::Wire, wire::Writer};

/// The bytes of a command. Its guard, if it has one, is the last argument, and follows them.
pub(crate) fn wire(command: &Command, keys: &Keys) -> Wire {
    let mut writer = Writer::new();
    command.encode(&mut writer, keys);
    Wire {
        bytes: writer.into_bytes(),
        has_guard: command.guarded() != Guarded::Nothing,
        replies: command.replies(),
    }
}

/// The bytes of many commands as one script call. Its guard is the last argument, and follows them.
pub(crate) fn batch<'c>(
    commands: impl Iterator<Item = &'c Command> + Clone,
    keys: &Keys,
) -> Vec<u8> {
    let mut writer = Writer::new();
    let riders = commands.filter_map(Command::rider);
    mutex::batch::encode(riders, &mut writer, keys);
    writer.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        base::{
            name::Name,
            owner::{Entry, Label},
        },
        node::{admission, mutex, wire::writer::tests::read_back},
    };

    const GUARD: &str = "30000 2 3 word 5000 id";

    #[test]
    fn the_guard_goes_last() {
        let name = Name::new("a").unwrap();
        let entry = Entry::new(uuid::Uuid::from_u128(1), &Label::new("host:1").unwrap());
        let ttl = Duration::from_secs(1);
        let commands: [Command; 8] = [
            mutex::Command::Acquire {
                name: name.clone(),
                entry: entry.clone(),
                ttl,
                floor: 7,
            }
            .into(),
            mutex::Command::Raise {
                name: name.clone(),
                entry: entry.clone(),
                seq: 0,
                token: 7,
            }
            .into(),
            mutex::Command::Extend {
                name: name.clone(),
                entry: entry.clone(),
                ttl,
            }
            .into(),
            mutex::Command::Repair {
                name: name.clone(),
                entry: entry.clone(),
                ttl,
                token: 7,
            }
            .into(),
            mutex::Command::Release {
                name: name.clone(),
                entry,
                floor: 7,
            }
            .into(),
            mutex::Command::Inspect { name: name.clone() }.into(),
            mutex::Command::Evict { name }.into(),
            admission::Command::Survey.into(),
        ];
        for command in &commands {
            let mut wire = wire(command, &Keys::new("q"));
            let has_guard = command.guarded() != Guarded::Nothing;
            assert_eq!(wire.has_guard, has_guard, "{command:?}");
            if has_guard {
                wire.bytes.extend(guard(GUARD));
            }
            // Each array is as long as it says.
            let words = read_back(wire.bytes);
            assert_eq!(words.len(), wire.replies, "{command:?}");
            let last = words.last().unwrap().last().unwrap();
            assert_eq!(last == GUARD, has_guard, "{command:?}");
        }
    }
}
