//! Holders and waiters have the label of their handle, or that of their quorum. A label may be an address or a URL. The
//! labels of these tests have every character that is allowed.

use super::{NAME, PATIENCE, in_memory, ms, on_servers, seen};
use crate::support::{Fleet, Kind};
use quorate::{Error, Owner, Quorum};
use tokio::{task::JoinHandle, time};

const URL: &str = "https://[fe80::1%25en0]:8080/a?b=1&c,d;e|f#g";

/// The longest label, with all characters that a label may hold.
fn longest() -> String {
    let all = ('!'..='~').filter(|c| !matches!(c, '@' | '"' | '\'' | '\\'));
    all.cycle().take(128).collect()
}

async fn done<T>(task: JoinHandle<Result<T, Error>>) -> T {
    let ended = time::timeout(PATIENCE, task).await.expect("in time");
    ended.unwrap().unwrap()
}

/// The label of the holder, as the error of a wait names it.
fn holder(refused: Error) -> Option<String> {
    assert!(matches!(refused, Error::Held(_)), "{refused:?}");
    assert!(refused.to_string().contains(URL), "{refused}");
    refused.report()?.holder().map(str::to_owned)
}

async fn mutexes_have_the_label_of_their_handle([ann, bob, eve]: &[Quorum; 3]) {
    let longest = longest();
    let held = ann.mutex(NAME).label(URL).lock().await.unwrap();
    let waits = tokio::spawn(bob.mutex(NAME).label(&longest).lock());
    let queued = seen(eve, "bob waits", |seen| {
        let line = seen.line();
        line.len() == 1 && line[0].nodes.len() == 3
    });
    let queued = queued.await;
    assert_eq!(queued.holder().unwrap().label, URL);
    assert_eq!(queued.line()[0].label, longest);
    let shown = queued.to_string();
    assert!(shown.contains(URL) && shown.contains(&longest), "{shown}");
    let refused = eve.mutex(NAME).wait_timeout(ms(200)).lock().await;
    assert_eq!(holder(refused.unwrap_err()).as_deref(), Some(URL));

    held.release().await.unwrap();
    let handed_over = done(waits).await;
    handed_over.extend().await.unwrap();
    let after = seen(eve, "bob holds", |seen| {
        let mut nodes = seen.nodes.iter();
        nodes.all(|node| node.holder.as_ref().is_some_and(|it| it.label == longest))
    });
    assert_eq!(after.await.holder().unwrap().label, longest);
    assert!(eve.evict(NAME).await.unwrap());
    drop(handed_over);

    // Without a setting it is the quorum's label.
    let plain = bob.mutex(NAME).lock().await.unwrap();
    let of_bob = seen(eve, "bob holds again", |seen| seen.holder().is_some());
    assert_eq!(of_bob.await.holder().unwrap().label, "bob");
    plain.release().await.unwrap();

    let owner = Owner::new();
    let again = ann.reentrant_mutex(NAME).label(URL);
    let shares = [
        again.lock(&owner).await.unwrap(),
        again.lock(&owner).await.unwrap(),
    ];
    let refused = bob.mutex(NAME).wait_timeout(ms(200)).lock().await;
    assert_eq!(holder(refused.unwrap_err()).as_deref(), Some(URL));
    for share in shares {
        share.release().await.unwrap();
    }

    let all = ann.mutex_all([NAME, "weekly"]).label(URL);
    let both = all.lock().await.unwrap();
    let refused = bob.mutex_all(["weekly"]).wait_timeout(ms(200)).lock().await;
    assert_eq!(holder(refused.unwrap_err()).as_deref(), Some(URL));
    both.release().await.unwrap();
}

async fn rwlocks_have_the_label_of_their_handle([ann, bob, eve]: &[Quorum; 3]) {
    let longest = longest();
    let reads = ann.rwlock(NAME).label(&longest).read().await.unwrap();
    let writes = tokio::spawn(bob.rwlock(NAME).label(URL).write());
    let both = seen(eve, "bob waits to write", |seen| {
        let writers = seen.waiting_writers();
        writers.len() == 1 && writers[0].nodes.len() == 3
    });
    let both = both.await;
    assert_eq!(both.readers()[0].holder.label, longest);
    assert_eq!(both.waiting_writers()[0].label, URL);
    reads.release().await.unwrap();
    let writes = done(writes).await;
    let refused = eve.rwlock(NAME).wait_timeout(ms(200)).read().await;
    assert_eq!(holder(refused.unwrap_err()).as_deref(), Some(URL));
    assert!(eve.evict(NAME).await.unwrap());
    drop(writes);
}

async fn semaphores_have_the_label_of_their_handle([ann, bob, eve]: &[Quorum; 3]) {
    let longest = longest();
    let pool = |quorum: &Quorum| quorum.semaphore(NAME, 2);
    let held = pool(ann).label(&longest).acquire_many(2).await.unwrap();
    let waits = tokio::spawn(pool(bob).label(URL).acquire());
    let queued = seen(eve, "bob waits for a slot", |seen| {
        let line = seen.line_for_slots();
        line.len() == 1 && line[0].nodes.len() == 3
    });
    let queued = queued.await;
    let slots = queued.slots();
    assert!(slots.iter().all(|slot| slot.holder.label == longest));
    assert_eq!(queued.line_for_slots()[0].label, URL);
    held.release().await.unwrap();
    let lease = done(waits).await;
    let slot = lease.slot().unwrap();
    let after = seen(eve, "bob has a slot", |seen| {
        let slots = seen.slots();
        slots.len() == 1 && slots[0].nodes.len() == 3
    });
    assert_eq!(after.await.slots()[0].holder.label, URL);
    assert!(pool(eve).evict(slot).await.unwrap());
    drop(lease);
}

async fn handles_have_labels_of_their_own(clients: [Quorum; 3]) {
    mutexes_have_the_label_of_their_handle(&clients).await;
    rwlocks_have_the_label_of_their_handle(&clients).await;
    semaphores_have_the_label_of_their_handle(&clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_of_handles_are_seen_in_memory() {
    handles_have_labels_of_their_own(in_memory().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_of_handles_are_seen_on_redis() {
    let fleet = Fleet::start(3, Kind::Redis);
    handles_have_labels_of_their_own(on_servers(&fleet).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_of_handles_are_seen_on_valkey() {
    let fleet = Fleet::start(3, Kind::Valkey);
    handles_have_labels_of_their_own(on_servers(&fleet).await).await;
}

/// A master that lost the lock gets it back with the same label.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repaired_lock_has_the_label_of_its_handle() {
    let fleet = Fleet::start(3, Kind::Redis);
    let [ann, _, eve] = on_servers(&fleet).await;
    let longest = longest();
    let ttl = ms(1_500);
    let lease = ann.mutex(NAME).ttl(ttl).label(&longest).lock().await;
    let lease = lease.unwrap();
    let everywhere = |seen: &quorate::Inspection| {
        let mut nodes = seen.nodes.iter();
        nodes.all(|node| node.holder.as_ref().is_some_and(|it| it.label == longest))
    };
    seen(&eve, "ann holds", everywhere).await;
    fleet[0].cmd(&["DEL", &format!("quorate:@mutex:{NAME}")]);
    seen(&eve, "the lock is repaired", everywhere).await;
    assert!(lease.is_valid());
}

#[tokio::test]
async fn an_invalid_label_is_refused_when_the_verb_runs() {
    let quorum = Quorum::in_memory(3);
    let longer = "a".repeat(129);
    let owner = Owner::new();
    for label in ["", "a b", "a@b", "\u{1b}[2J", &longer] {
        let mutex = quorum.mutex(NAME).label(label);
        let (rwlock, slots) = (quorum.rwlock(NAME).label(label), quorum.semaphore(NAME, 2));
        let (slots, again) = (
            slots.label(label),
            quorum.reentrant_mutex(NAME).label(label),
        );
        let errors = [
            mutex.validate(),
            mutex.lock().await.map(drop),
            mutex.try_lock().await.map(drop),
            rwlock.validate(),
            rwlock.read().await.map(drop),
            rwlock.try_write().await.map(drop),
            slots.validate(),
            slots.acquire().await.map(drop),
            slots.acquire_many(2).await.map(drop),
            again.validate(),
            again.lock(&owner).await.map(drop),
            again.try_lock(&owner).await.map(drop),
        ];
        for (i, error) in errors.into_iter().enumerate() {
            let Err(Error::Invalid(text)) = error else {
                panic!("{i} with {label:?}: {error:?}");
            };
            assert!(text.contains("1 to 128 printable"), "{text}");
        }
        // The last setting counts.
        mutex
            .label(URL)
            .lock()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
    }
}

/// A URL with a password is refused, and the error does not show it.
#[tokio::test]
async fn a_url_with_a_password_is_not_a_label() {
    let quorum = Quorum::in_memory(3);
    for url in ["redis://:geheim@host", "https://user:geheim@host/path"] {
        let error = quorum.mutex(NAME).label(url).lock().await.unwrap_err();
        let texts = [error.to_string(), format!("{error:?}")];
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(
            texts.iter().all(|text| !text.contains("geheim")),
            "{texts:?}"
        );
    }
}
