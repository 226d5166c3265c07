//! CLIENT KILL and SCRIPT LOAD: the server's own commands.

use redis_protocol::resp3::types::OwnedFrame;

use super::{Command, Reply};
use crate::node::{
    kinds::scripts,
    wire::{
        Arg::{Number, Text},
        Writer,
        read::{count, text},
    },
};

impl Command {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Disconnect { .. } => "CLIENT KILL",
            Self::LoadScripts => "SCRIPT LOAD",
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer) {
        match self {
            Self::Disconnect { client } => {
                writer.words(&[Text("CLIENT"), Text("KILL"), Text("ID"), Number(*client)]);
            }
            Self::LoadScripts => {
                for script in scripts::all() {
                    writer.words(&[Text("SCRIPT"), Text("LOAD"), Text(script.source())]);
                }
            }
        }
    }

    pub(crate) fn replies(&self) -> usize {
        match self {
            Self::Disconnect { .. } => 1,
            Self::LoadScripts => scripts::all().count(),
        }
    }

    pub(crate) fn decode(&self, replies: &[OwnedFrame]) -> Option<Reply> {
        let last = replies.last()?;
        match self {
            Self::Disconnect { .. } => Some(Reply::Disconnected(count(last)? > 0)),
            Self::LoadScripts => text(last).map(|_| Reply::Loaded),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::wire::writer::tests::read_back;

    fn words(command: &Command) -> Vec<Vec<String>> {
        let mut writer = Writer::new();
        command.encode(&mut writer);
        let words = read_back(writer.into_bytes());
        assert_eq!(words.len(), command.replies());
        words
    }

    #[test]
    fn a_connection_is_ended_by_its_id() {
        let kill = words(&Command::Disconnect { client: 10 });
        assert_eq!(kill, [["CLIENT", "KILL", "ID", "10"]]);
    }

    #[test]
    fn each_script_is_loaded_by_a_command_of_its_own() {
        for (words, script) in words(&Command::LoadScripts).iter().zip(scripts::all()) {
            assert_eq!(words[..2], ["SCRIPT", "LOAD"]);
            assert_eq!(words[2], script.source());
        }
    }
}
