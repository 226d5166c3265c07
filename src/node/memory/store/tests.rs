use super::*;
use crate::{
    base::owner::Label,
    node::{
        admission::{Handshake, Terms, cases::hello},
        memory::server::admit,
        mutex::cases::{acquires, extends, raises, releases},
        request::{Place, Request, Verb, Waiting},
    },
};

const GUARD: &str = "30000 3 3 word 5000 nonce";
const TERMS: Terms = Terms {
    max_ttl: Duration::from_secs(30),
    margin: Duration::from_secs(5),
};
const T: u64 = 1_760_000_000_000_500;

fn name() -> Name {
    Name::new("a").unwrap()
}

fn entry(owner: u128) -> Entry {
    Entry::new(uuid::Uuid::from_u128(owner), &Label::new("test").unwrap())
}

fn acquire(owner: u128, ttl: u64) -> Command {
    request(owner, acquires(Duration::from_millis(ttl), 0))
}

fn extend(owner: u128, ttl: u64) -> Command {
    request(owner, extends(Duration::from_millis(ttl)))
}

fn release(owner: u128) -> Command {
    request(owner, releases(0))
}

fn request(owner: u128, verb: Verb) -> Command {
    Command::Request(Request {
        target: Target::mutex(name()),
        entry: entry(owner),
        verb,
    })
}

/// The record after a handshake, and true if `open` is there.
fn meet(store: &mut Store) -> (BootRecord, bool) {
    let hello = Handshake {
        terms: TERMS,
        ..hello()
    };
    let hello = Command::Admission(admission::Command::Handshake(hello));
    match store.apply(&hello, "", T) {
        Ok(Answer::Admission(admission::Reply::Met(meeting))) => {
            (meeting.stored.record().unwrap().clone(), meeting.open)
        }
        other => panic!("{other:?}"),
    }
}

/// A store that votes.
fn voting(rules: Rules) -> Store {
    let mut store = Store::new(Identity::master("run"), rules);
    admit(&mut store, 3, "word", TERMS, "nonce".into(), T);
    assert!(meet(&mut store).1);
    store
}

#[test]
fn a_restart_forgets_and_a_restored_snapshot_votes_only_until_it_is_met() {
    let store = &mut voting(Rules::ALL);
    store.apply(&acquire(1, 60_000), GUARD, T).unwrap();
    let snapshot = store.snapshot();
    store.restart("another");
    let extended = |store: &mut Store| store.apply(&extend(1, 10), GUARD, T);
    assert_eq!(extended(store), Err(Fault::NotAdmitted));
    store.restore(snapshot);
    assert_eq!(store.locks(T).count(), 1);
    assert!(extended(store).is_ok(), "`open` came back too");
    let (record, open) = meet(store);
    assert_eq!((record.witnessed, open), (0, false));
    assert_eq!(extended(store), Err(Fault::NotAdmitted));
}

#[test]
fn a_read_only_server_writes_nothing() {
    let store = &mut voting(Rules::ALL);
    store.apply(&acquire(1, 100), GUARD, T).unwrap();
    store.set_readonly(true);
    let raise = request(1, raises(9));
    for command in [acquire(2, 10), extend(1, 10), raise, release(1)] {
        match store.apply(&command, GUARD, T) {
            Err(Fault::Error(text)) => assert!(text.starts_with("READONLY"), "{text}"),
            other => panic!("{command:?}: {other:?}"),
        }
    }
    assert!(meet(store).1, "nothing to write");
}

/// Its connections are gone, and with them the pushes that they would have received.
#[test]
fn after_a_restart_nobody_listens() {
    let store = &mut voting(Rules::ALL);
    let channel = "here".into();
    store.subscribe(&channel);
    store.apply(&acquire(1, 60_000), GUARD, T).unwrap();
    let place = Place {
        seq: 1,
        ticket: 1,
        only_last: false,
        term: Duration::from_secs(1),
        lock_delay: Duration::ZERO,
        life: Duration::from_secs(30),
        claim: Duration::from_secs(1),
        channel,
    };
    let join = Verb::Acquire {
        ttl: Duration::from_secs(1),
        floor: 0,
        wait: Waiting::Queue(place),
    };
    store.apply(&request(2, join), GUARD, T).unwrap();
    let release = release(1);
    let snapshot = store.snapshot();
    let again = release.clone();
    store.apply(&release, GUARD, T).unwrap();
    assert_eq!(store.take_pushes().len(), 1);
    assert_eq!(store.take_pushes(), []);
    store.restart("another");
    store.restore(snapshot);
    store.apply(&again, GUARD, T).unwrap();
    assert_eq!(store.take_pushes(), []);
    assert_eq!(store.locks(T).count(), 0, "whom nobody hears is dropped");
}

/// The effect of the trap of §10 when its rule is off.
#[cfg(feature = "test-util")]
#[test]
fn without_the_guard_an_extension_is_obeyed() {
    let store = &mut voting(Rules::without(Rule::Guard));
    store.apply(&acquire(1, 10), GUARD, T).unwrap();
    assert_eq!(
        store.apply(&extend(1, 20), "another", T),
        Ok(Answer::Extended)
    );
    assert_eq!(
        store.apply(&acquire(1, 20), "another", T),
        Err(Fault::NotAdmitted)
    );
}
