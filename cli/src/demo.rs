//! `quorate demo`: shows what quorate does, on in-process nodes. `examples/quickstart.rs` is a shorter version, to be
//! read as code.

use std::{io::IsTerminal, time::Duration};

use quorate::{Error, Inspection, Lease, MemoryNode, Mutex, Quorum, Renewal, Vote, fence::Gate};
use serde_json::json;
use tokio::{task::JoinHandle, time};

use crate::{args::Args, failure::Failure, output};

const NAME: &str = "invoice:42";
/// Time for a person to read a line.
const A_LINE: Duration = Duration::from_millis(350);
const A_MOMENT: Duration = Duration::from_millis(5);

pub(crate) async fn run(args: &Args) -> Result<u8, Failure> {
    let stage = Stage {
        json: args.json,
        colours: output::colours(),
        watched: std::io::stdout().is_terminal() && !args.json,
    };
    let nodes: Vec<MemoryNode> = (0..5).map(|_| MemoryNode::new()).collect();
    let [alice, bob, carol] = [
        client(&nodes, "alice")?,
        client(&nodes, "bob")?,
        client(&nodes, "carol")?,
    ];
    for quorum in [&alice, &bob, &carol] {
        until_voting(quorum, 5).await;
    }
    contenders(&stage, &alice, &bob, &carol).await?;
    dying_nodes(&stage, &nodes, &alice, &bob).await?;
    // Carol has sent no request meanwhile, so she learns later which nodes vote.
    until_voting(&carol, 5).await;
    paused_holder(&stage, &bob, &carol).await?;

    stage.scene("That is all").await;
    stage
        .tell(
            "",
            "At most one client holds the lock, and it can be taken as long as a majority of the masters lives.",
        )
        .await;
    stage.tell("", "But a process can sleep at any moment, so the token lets the store refuse a late write.").await;
    stage
        .tell(
            "",
            "Next: `quorate lock --help`, or examples/quickstart.rs for the same in Rust.",
        )
        .await;
    Ok(0)
}

fn client(nodes: &[MemoryNode], who: &str) -> Result<Quorum, Error> {
    Quorum::builder().nodes(nodes).label(who).connect_lazy()
}

async fn contenders(
    stage: &Stage,
    alice: &Quorum,
    bob: &Quorum,
    carol: &Quorum,
) -> Result<(), Failure> {
    stage
        .scene("Five independent masters, three programs that want the same lock: first come, first served")
        .await;
    stage.tell("", "The masters know nothing of each other. The program that gets a majority, three of five, holds the lock.").await;
    let held = alice.mutex(NAME).lock().await?;
    stage
        .tell(
            "alice",
            &format!("locks {NAME:?} and gets token {}", held.token()),
        )
        .await;
    if bob.mutex(NAME).try_lock().await?.is_none() {
        let says = "tries once, but the lock is held. So he waits in the queue";
        stage.tell("bob", says).await;
    }
    let bobs = waits(bob, 1).await?;
    stage.tell("carol", "asks too, and waits behind bob").await;
    let carols = waits(carol, 2).await?;
    let line = alice.inspect(NAME).await?.line();
    let line: Vec<&str> = line.iter().map(|waiter| &*waiter.label).collect();
    let says = format!(
        "All masters have the same queue: {}. Nobody has to poll.",
        line.join(", ")
    );
    stage.tell("", &says).await;

    stage.tell("alice", "is done and releases it").await;
    held.release().await?;
    let held = bobs.await.map_err(|_| Error::Closed)??;
    let says = format!(
        "has it now, with token {}: each master handed it over and told him so",
        held.token()
    );
    stage.tell("bob", &says).await;
    stage
        .tell("alice", "wants it again, and waits behind carol")
        .await;
    let alices = waits(alice, 2).await?;
    held.release().await?;
    let held = carols.await.map_err(|_| Error::Closed)??;
    stage
        .tell("carol", &format!("comes next, with token {}", held.token()))
        .await;
    held.release().await?;
    let held = alices.await.map_err(|_| Error::Closed)??;
    stage
        .tell("alice", &format!("comes last, with token {}", held.token()))
        .await;
    stage
        .tell(
            "",
            "Only one thing matters about a token: it is greater than all tokens before it.",
        )
        .await;
    held.release().await?;
    Ok(())
}

/// Asks for the lock that another client holds. Returns when `so_many` waiters are in the queue of every master.
async fn waits(who: &Quorum, so_many: usize) -> Result<JoinHandle<Result<Lease, Error>>, Failure> {
    let waiting = tokio::spawn(who.mutex(NAME).lock());
    let everywhere = |seen: &Inspection| {
        let nodes = seen.nodes.iter();
        nodes.filter(|node| node.line.len() == so_many).count() == seen.nodes.len()
    };
    while !everywhere(&who.inspect(NAME).await?) {
        time::sleep(A_MOMENT).await;
    }
    Ok(waiting)
}

async fn dying_nodes(
    stage: &Stage,
    nodes: &[MemoryNode],
    alice: &Quorum,
    bob: &Quorum,
) -> Result<(), Failure> {
    stage.scene("Masters die").await;
    let [_, _, third, fourth, fifth] = nodes else {
        return Ok(());
    };
    fourth.stop();
    fifth.stop();
    stage
        .tell(
            "",
            "Masters 4 and 5 are dead. Three of five are left: still a majority.",
        )
        .await;
    let held = alice.mutex(NAME).lock().await?;
    stage
        .tell(
            "alice",
            &format!(
                "locks as if nothing had happened, with token {}",
                held.token()
            ),
        )
        .await;
    held.release().await?;

    third.stop();
    stage
        .tell(
            "",
            "Master 3 dies too. Two of five are not a majority, so nobody can lock.",
        )
        .await;
    // Wait until Bob has noticed, so that every run prints the same words.
    until_voting(bob, 2).await;
    match bob.mutex(NAME).try_lock().await {
        Err(Error::NoQuorum(report)) => {
            let text = format!(
                "gets an error at once, with the reasons ({} nodes are needed):",
                report.needed()
            );
            stage.tell("bob", &text).await;
            for (number, node) in (1..).zip(report.nodes()) {
                let said = match &node.vote {
                    Vote::None(silence) => silence.to_string(),
                    _ => "alive, but two are not enough".to_owned(),
                };
                stage.detail(&format!("master {number}: {said}")).await;
            }
        }
        other => return Err(unexpected(&format!("{other:?}"))),
    }

    for node in [third, fourth, fifth] {
        node.start();
    }
    stage.tell("", "All three come back.").await;
    for quorum in [alice, bob] {
        until_voting(quorum, 5).await;
    }
    let held = bob.mutex(NAME).lock().await?;
    stage
        .tell(
            "bob",
            &format!(
                "locks again, with token {}: nothing was forgotten",
                held.token()
            ),
        )
        .await;
    held.release().await?;
    Ok(())
}

async fn paused_holder(stage: &Stage, bob: &Quorum, carol: &Quorum) -> Result<(), Failure> {
    stage.scene("A holder falls asleep").await;
    stage.tell("", "A lock is held for a time (here 1 s) and renewed, so that a dead holder blocks nobody for ever.").await;
    let store = Gate::new();
    // A frozen process does not renew its leases.
    let asleep: Mutex = carol
        .mutex(NAME)
        .ttl(Duration::from_secs(1))
        .renewal(Renewal::off());
    let carols = asleep.lock().await?;
    stage.tell("carol", &format!("locks, with token {}, and freezes before she writes: a long pause, a closed laptop", carols.token())).await;
    stage
        .tell(
            "bob",
            "waits in the queue, and gets the lock when carol's time is over",
        )
        .await;
    let bobs = bob.mutex(NAME).lock().await?;
    stage
        .tell("bob", &format!("has token {} and writes", bobs.token()))
        .await;
    match store.admit(NAME, bobs.token()) {
        Ok(()) => {
            stage
                .good("store", &format!("accepts token {}", bobs.token()))
                .await
        }
        Err(stale) => return Err(unexpected(&stale.to_string())),
    }
    stage
        .tell("carol", "wakes up, knows nothing of all this, and writes")
        .await;
    match store.admit(NAME, carols.token()) {
        Err(stale) => stage.bad("store", &format!("refuses: {stale}")).await,
        Ok(()) => return Err(unexpected("the old token passed the gate")),
    }
    stage
        .tell(
            "",
            "No lock alone can do that: the store compared two numbers, and bob's write is safe.",
        )
        .await;
    bobs.release().await?;
    Ok(())
}

async fn until_voting(quorum: &Quorum, how_many: usize) {
    while quorum.health().voting != how_many {
        time::sleep(A_MOMENT).await;
    }
}

fn unexpected(what: &str) -> Failure {
    Failure::new(
        crate::failure::SOFTWARE,
        "internal",
        format!("the demo did not go as planned: {what}"),
    )
}

/// Prints the demo.
struct Stage {
    json: bool,
    colours: bool,
    watched: bool,
}

impl Stage {
    async fn scene(&self, title: &str) {
        match self.json {
            true => self.object("scene", title),
            false => output::say(&format!("\n{}", self.paint("1", title))),
        }
        self.pause().await;
    }

    async fn tell(&self, who: &str, says: &str) {
        let colour = match who {
            "alice" => "36",
            "bob" => "33",
            _ => "35",
        };
        self.line(who, colour, says).await;
    }

    async fn good(&self, who: &str, says: &str) {
        self.line(who, "32", says).await;
    }

    async fn bad(&self, who: &str, says: &str) {
        self.line(who, "31", says).await;
    }

    async fn detail(&self, says: &str) {
        match self.json {
            true => self.object("detail", says),
            false => output::say(&format!("           {says}")),
        }
    }

    async fn line(&self, who: &str, colour: &str, says: &str) {
        match self.json {
            true => self.object(if who.is_empty() { "narrator" } else { who }, says),
            false if who.is_empty() => output::say(&format!("  {says}")),
            false => output::say(&format!(
                "  {} {says}",
                self.paint(colour, &format!("{who:<6}"))
            )),
        }
        self.pause().await;
    }

    fn object(&self, who: &str, says: &str) {
        output::say(&json!({"who": who, "says": says}).to_string());
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        match self.colours {
            true => format!("\x1b[{colour}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }

    async fn pause(&self) {
        if self.watched {
            time::sleep(A_LINE).await;
        }
    }
}
