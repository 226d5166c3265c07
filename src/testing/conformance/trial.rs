//! A running case: a connection to a master that votes, and the requests on it.

use std::{future::poll_fn, time::Duration};

use tokio::time::timeout;

use super::subject::{Change, Key, Power, Subject};
use crate::{
    base::rules::Rules,
    node::{
        Command, Connection, Disconnected, Fault, Guard, Incoming, Operation, Push,
        admission::{self, BootRecord, Handshake, Meeting},
        answer::{Answer, Answered},
    },
};

/// The content of `open` on a master that [`Trial::admit`] lets vote.
pub(crate) const GUARD: &str = "20000 3 3 word 5000 nonce";

/// The channel that every connection of a trial listens to.
pub(crate) const CHANNEL: &str = "quorate:wake:trial";

/// A node that sends nothing for this long is considered dead.
const SILENCE: Duration = Duration::from_secs(20);

/// One master, freshly admitted.
pub(crate) struct Trial<'s> {
    subject: &'s dyn Subject,
    connection: Box<dyn Connection>,
    /// The pushes of the node, in order.
    heard: Vec<Push>,
    /// The content of `open`.
    guard: String,
    /// The master's name for its process. In the texts of the cases, RUN stands for it.
    pub(crate) run_id: String,
}

impl<'s> Trial<'s> {
    pub(super) async fn start(subject: &'s dyn Subject) -> Self {
        let mut trial = Self::unadmitted(subject).await;
        trial.admit().await;
        trial
    }

    async fn unadmitted(subject: &'s dyn Subject) -> Self {
        subject.fresh().await;
        Self {
            subject,
            connection: dial(subject, CHANNEL).await,
            heard: Vec::new(),
            guard: GUARD.into(),
            run_id: String::new(),
        }
    }

    /// Starts again on another fresh master, whose fleet has this longest ttl.
    pub(crate) async fn restart_with(&mut self, max_ttl: Duration) {
        *self = Self::unadmitted(self.subject).await;
        let mut hello = admission::cases::hello();
        hello.terms.max_ttl = max_ttl;
        self.admit_as(&hello).await;
    }

    pub(crate) fn name(&self) -> &str {
        self.subject.name()
    }

    pub(crate) async fn wall_us(&self) -> u64 {
        self.subject.wall_us().await
    }

    /// A second connection to the same master.
    pub(crate) async fn another(&self) -> Box<dyn Connection> {
        dial(self.subject, CHANNEL).await
    }

    /// A connection of another process, which listens to a channel of its own.
    pub(crate) async fn another_process(&self, channel: &str) -> Box<dyn Connection> {
        dial(self.subject, channel).await
    }

    /// The pushes that this connection has received since the last call.
    pub(crate) async fn pushes_to(&self, connection: &mut Box<dyn Connection>) -> Vec<Push> {
        let survey = Operation::new(admission::Command::Survey);
        connection.send(survey, Guard::new(GUARD.into()));
        let mut heard = Vec::new();
        let answers = listen(&mut **connection, 1, &mut heard);
        match timeout(SILENCE, answers).await {
            Ok(Ok(_)) => heard,
            other => panic!("{}: {other:?}", self.name()),
        }
    }

    pub(crate) async fn ask_with(&mut self, command: &Command, guard: &str) -> Answered {
        let mut answers = self.ask_together(&[(command.clone(), guard.into())]).await;
        answers.pop().expect("as many as were asked for")
    }

    pub(crate) async fn ask(&mut self, command: impl Into<Command>) -> Answered {
        self.ask_with(&command.into(), &self.guard.clone()).await
    }

    /// Sends several commands at once, on one connection.
    pub(crate) async fn ask_all(&mut self, commands: &[Command]) -> Vec<Answered> {
        let asked: Vec<_> = commands
            .iter()
            .map(|c| (c.clone(), self.guard.clone()))
            .collect();
        self.ask_together(&asked).await
    }

    /// Sends a command that must be answered.
    pub(crate) async fn say(&mut self, command: impl Into<Command>) -> Answer {
        let command = command.into();
        let answer = self.ask_with(&command, &self.guard.clone()).await;
        answer.unwrap_or_else(|fault| panic!("{}: {command:?}: {fault:?}", self.name()))
    }

    /// Sends a command that must fail, and returns the first word of its error.
    pub(crate) async fn error(&mut self, command: impl Into<Command>) -> String {
        let command = command.into();
        match self.ask_with(&command, &self.guard.clone()).await {
            Err(Fault::Error(text)) => text.split(' ').next().unwrap_or_default().to_owned(),
            other => panic!("{}: {command:?}: {other:?}", self.name()),
        }
    }

    pub(crate) async fn meet(&mut self, hello: &Handshake) -> Meeting {
        let hello = admission::Command::Handshake(hello.clone());
        match self.say(hello).await {
            Answer::Admission(admission::Reply::Met(meeting)) => *meeting,
            other => panic!("{}: {other:?}", self.name()),
        }
    }

    /// Sends a handshake that must be answered by a record. Returns the record, and whether `open` stands.
    pub(crate) async fn record(&mut self, hello: &Handshake) -> (BootRecord, bool) {
        let meeting = self.meet(hello).await;
        let record = meeting.stored.record().expect("a record");
        (record.clone(), meeting.open)
    }

    /// Bootstraps the master, so that it votes from now on.
    pub(crate) async fn admit(&mut self) {
        self.admit_as(&admission::cases::hello()).await;
    }

    async fn admit_as(&mut self, hello: &Handshake) {
        let meeting = self.meet(hello).await;
        let record = meeting.stored.record().expect("a record");
        self.guard = record.guard(Rules::ALL);
        let run_id = record.run.split('/').next().unwrap_or_default();
        self.run_id = run_id.to_owned();
        let admitted = self.say(admission::cases::admit(record)).await;
        let name = self.name();
        assert_eq!(
            admitted,
            Answer::Admission(admission::Reply::Admitted(true)),
            "{name}"
        );
    }

    /// The pushes of the node since the last call. A push that the node's own script causes may arrive after the answer
    /// to that script, but not after the next answer.
    pub(crate) async fn pushes(&mut self) -> Vec<Push> {
        self.say(admission::Command::Survey).await;
        std::mem::take(&mut self.heard)
    }

    /// Returns true if the subject has this power.
    pub(super) fn can(&self, power: Power) -> bool {
        self.subject.powers().contains(&power)
    }

    pub(crate) async fn change(&self, change: Change) {
        self.subject.change(change).await;
    }

    /// Sets or deletes a key. RUN stands for the run in the text.
    pub(crate) async fn put(&self, key: Key, text: Option<&str>) {
        let text = text.map(|text| text.replace("RUN", &self.run_id));
        self.change(Change::Put(key, text)).await;
    }

    /// The content of `boot` and `open`, in which RUN stands for the run.
    pub(crate) async fn stands(&self) -> [Option<String>; 2] {
        let boot = self.subject.stands(Key::Boot).await;
        let open = self.subject.stands(Key::Open).await;
        [boot, open].map(|text| Some(text?.replace(&self.run_id, "RUN")))
    }

    /// The keys that have no expiry and should have one.
    pub(crate) async fn lasting(&self) -> Vec<String> {
        self.subject.lasting().await
    }

    /// Returns the content of one key.
    pub(crate) async fn stands_in(&self, key: Key) -> Option<String> {
        self.subject.stands(key).await
    }

    /// Sends several commands at once, on one connection, each with its guard.
    pub(crate) async fn ask_together(&mut self, asked: &[(Command, String)]) -> Vec<Answered> {
        for (command, guard) in asked {
            let operation = Operation::new(command.clone());
            self.connection.send(operation, Guard::new(guard.clone()));
        }
        let answers = listen(&mut *self.connection, asked.len(), &mut self.heard);
        match timeout(SILENCE, answers).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(why)) => panic!("{}: {asked:?}: {why:?}", self.name()),
            Err(_) => panic!("{}: {asked:?} is not answered", self.name()),
        }
    }
}

async fn dial(subject: &dyn Subject, channel: &str) -> Box<dyn Connection> {
    let dialled = subject.node().dial(&channel.into()).await;
    dialled.unwrap_or_else(|why| panic!("{}: {why:?}", subject.name()))
}

/// Flushes, and waits for this many answers.
pub(crate) async fn answers(
    connection: &mut dyn Connection,
    count: usize,
) -> Result<Vec<Answered>, Disconnected> {
    listen(connection, count, &mut Vec::new()).await
}

/// Waits for this many answers. Pushes that arrive meanwhile go to `heard`.
async fn listen(
    connection: &mut dyn Connection,
    count: usize,
    heard: &mut Vec<Push>,
) -> Result<Vec<Answered>, Disconnected> {
    poll_fn(|cx| connection.poll_flush(cx)).await?;
    let mut answers = Vec::with_capacity(count);
    while answers.len() < count {
        match poll_fn(|cx| connection.poll_incoming(cx)).await? {
            Incoming::Answer(answer) => answers.push(answer),
            Incoming::Push(push) => heard.push(push),
            Incoming::LoggedIn(_) | Incoming::Nothing => {}
        }
    }
    Ok(answers)
}
