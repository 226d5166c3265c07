//! A real server, spoken to byte by byte: with the commands of this library, and with any others.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    sync::Arc,
};

use redis_protocol::resp3::{decode::complete::decode, types::OwnedFrame};

use crate::{
    node::{
        Command, Fault,
        admission::{
            self, BootRecord, Handshake,
            cases::{admit, hello},
        },
        answer::{Answer, Answered},
        operation::Wire,
        redis::{
            decode as decoded,
            encode::{self, Keys},
            secret::Secret,
            support::{HANG, Kind, Server},
        },
        server,
    },
    testing::conformance::{PREFIX, trial::GUARD},
};

/// A connection that sends nothing except what it is told to.
pub(super) struct Real {
    server: Arc<Server>,
    pub(super) stream: TcpStream,
    unread: Vec<u8>,
    pub(super) keys: Keys,
}

/// Runs a case on both kinds of server. Each is empty and votes.
pub(super) fn on_servers(case: impl Fn(&mut Real)) {
    for kind in Kind::ALL {
        eprintln!("on {kind:?}");
        let mut real = Real::over(Arc::new(Server::start(kind)));
        let loaded = Answer::Server(server::Reply::Loaded);
        assert_eq!(real.say(server::Command::LoadScripts), loaded);
        let (record, _) = real.record(&hello());
        let admitted = Answer::Admission(admission::Reply::Admitted(true));
        assert_eq!(real.say(admit(&record)), admitted);
        case(&mut real);
    }
}

impl Real {
    fn over(server: Arc<Server>) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        let mut real = Self {
            server,
            stream,
            unread: Vec::new(),
            keys: Keys::new(PREFIX),
        };
        real.raw(&["HELLO", "3"]);
        real
    }

    /// A second connection to the same server.
    pub(super) fn another(&self) -> Self {
        Self::over(Arc::clone(&self.server))
    }

    fn read(&mut self) -> OwnedFrame {
        loop {
            if let Some((frame, used)) = decode(&self.unread).unwrap() {
                self.unread.drain(..used);
                return frame;
            }
            let mut chunk = [0; 4096];
            let n = self.stream.read(&mut chunk).unwrap();
            assert!(n > 0, "{}: the connection was closed", self.server);
            self.unread.extend_from_slice(&chunk[..n]);
        }
    }

    pub(super) fn raw(&mut self, words: &[&str]) -> OwnedFrame {
        let mut bytes = Vec::new();
        encode::words(&mut bytes, words);
        self.stream.write_all(&bytes).unwrap();
        self.read()
    }

    /// The text of the next message on a channel.
    pub(super) fn push(&mut self) -> String {
        match self.read() {
            OwnedFrame::Push { data, .. } => match data.into_iter().last() {
                Some(OwnedFrame::BlobString { data, .. }) => String::from_utf8(data).unwrap(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Sends any command. Returns the reply as text.
    pub(super) fn text(&mut self, words: &[&str]) -> String {
        match self.raw(words) {
            OwnedFrame::BlobString { data, .. }
            | OwnedFrame::SimpleString { data, .. }
            | OwnedFrame::VerbatimString { data, .. } => String::from_utf8(data).unwrap(),
            OwnedFrame::Number { data, .. } => data.to_string(),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    pub(super) fn ok(&mut self, words: &[&str]) {
        assert_eq!(self.text(words), "OK", "{words:?}");
    }

    /// Sends commands of this library in one write.
    pub(super) fn batch(&mut self, commands: &[Command]) -> Vec<Answered> {
        let bytes = commands.iter().flat_map(|command| self.bytes(command));
        let bytes: Vec<u8> = bytes.collect();
        self.stream.write_all(&bytes).unwrap();
        let answers = commands.iter().map(|command| {
            let replies: Vec<_> = (0..command.replies()).map(|_| self.read()).collect();
            decoded::answer(command, &replies, &Secret::new(""))
        });
        answers.collect()
    }

    /// Sends commands of this library as one script call.
    pub(super) fn together(&mut self, commands: &[Command]) -> Vec<Answered> {
        let mut bytes = encode::batch(commands.iter(), &self.keys);
        bytes.extend(encode::guard(GUARD));
        self.stream.write_all(&bytes).unwrap();
        let (reply, mut answers) = (self.read(), Vec::new());
        let secret = Secret::new("");
        decoded::answers(commands.iter(), commands.len(), &reply, &secret, |answer| {
            answers.push(answer);
        });
        answers
    }

    pub(super) fn ask(&mut self, command: impl Into<Command>) -> Answered {
        self.batch(&[command.into()]).pop().unwrap()
    }

    /// Sends a request that must be answered.
    pub(super) fn say(&mut self, command: impl Into<Command>) -> Answer {
        let command = command.into();
        let answer = self.ask(command.clone());
        answer.unwrap_or_else(|fault| panic!("{}: {command:?}: {fault:?}", self.server))
    }

    /// Sends a request that must fail. Returns the first word of the error.
    pub(super) fn error(&mut self, command: impl Into<Command>) -> String {
        let command = command.into();
        match self.ask(command.clone()) {
            Err(Fault::Error(text)) => text.split(' ').next().unwrap().to_owned(),
            other => panic!("{}: {command:?}: {other:?}", self.server),
        }
    }

    /// Sends a handshake that must be answered by a record. Returns the record, and true if `open` is there.
    pub(super) fn record(&mut self, hello: &Handshake) -> (BootRecord, bool) {
        match self.say(admission::Command::Handshake(hello.clone())) {
            Answer::Admission(admission::Reply::Met(meeting)) => {
                (meeting.stored.record().unwrap().clone(), meeting.open)
            }
            other => panic!("{}: {other:?}", self.server),
        }
    }

    /// The bytes of a command with its guard.
    fn bytes(&self, command: &Command) -> Vec<u8> {
        let Wire {
            mut bytes,
            has_guard,
            ..
        } = encode::wire(command, &self.keys);
        if has_guard {
            bytes.extend(encode::guard(GUARD));
        }
        bytes
    }
}
