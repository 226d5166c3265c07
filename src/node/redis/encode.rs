//! Operations as the bytes that a server reads. They are the same for every node of a fleet.

pub(crate) use crate::node::wire::{
    Keys,
    writer::{guard, words},
};
use crate::node::{Command, mutex, operation::Wire, request::Guarded, wire::Writer};

/// The bytes of a command. If it has a guard, that is the last argument, and has to be added.
pub(crate) fn wire(command: &Command, keys: &Keys) -> Wire {
    let mut writer = Writer::new();
    command.encode(&mut writer, keys);
    Wire {
        bytes: writer.into_bytes(),
        has_guard: command.guarded() != Guarded::Nothing,
        replies: command.replies(),
    }
}

/// The bytes of many commands as one script call. The guard is the last argument, and has to be added.
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
    use crate::node::{admission, mutex::cases, wire::writer::tests::read_back};

    const GUARD: &str = "30000 3 3 word 5000 id";

    #[test]
    fn the_guard_goes_last() {
        let ttl = Duration::from_secs(1);
        let commands: [Command; 8] = [
            cases::acquire("a", 1, ttl, 7).into(),
            cases::raise("a", 1, 7).into(),
            cases::extend("a", 1, ttl).into(),
            cases::repair("a", 1, ttl, 7).into(),
            cases::release("a", 1).into(),
            cases::inspect("a").into(),
            cases::evict("a").into(),
            admission::Command::Survey.into(),
        ];
        for command in &commands {
            let mut wire = wire(command, &Keys::new("q"));
            let has_guard = command.guarded() != Guarded::Nothing;
            assert_eq!(wire.has_guard, has_guard, "{command:?}");
            if has_guard {
                wire.bytes.extend(guard(GUARD));
            }
            // Each array has the length that it announces.
            let words = read_back(wire.bytes);
            assert_eq!(words.len(), wire.replies, "{command:?}");
            let last = words.last().unwrap().last().unwrap();
            assert_eq!(last == GUARD, has_guard, "{command:?}");
        }
    }
}
