use proptest::prelude::*;

use super::*;

const FOLDER: &str = "jobs/a/";

fn id(n: u32) -> Id {
    format!("session-{n}").into()
}

fn entry(n: u32, since: u64) -> Pair {
    Pair {
        key: format!("{FOLDER}session-{n}"),
        flags: SEMAPHORE_FLAGS,
        value: format!("web-{n}").into_bytes(),
        session: Some(id(n)),
        create_index: since,
        modify_index: since,
    }
}

fn record(at: u64, flags: u64, value: &str, session: Option<u32>) -> Pair {
    Pair {
        key: format!("{FOLDER}.lock"),
        flags,
        value: value.into(),
        session: session.map(id),
        create_index: 1,
        modify_index: at,
    }
}

/// A record with this limit and these holders.
fn semaphore(at: u64, limit: u32, holders: &[u32]) -> Pair {
    let holders: Vec<Id> = holders.iter().map(|n| id(*n)).collect();
    let value = String::from_utf8(record_of(limit, &holders)).unwrap();
    record(at, SEMAPHORE_FLAGS, &value, None)
}

fn view(form: Form, pairs: &[Pair]) -> View {
    View::read(form, FOLDER, pairs, 50).unwrap()
}

fn asked(limit: u32) -> Asked<'static> {
    Asked {
        limit,
        count: 1,
        waits_as: None,
        overtakes: false,
    }
}

fn ids(all: &[Contender]) -> Vec<&str> {
    all.iter().map(|one| &*one.session).collect()
}

#[test]
fn a_name_without_a_record_may_be_taken() {
    for form in [Form::Lock, Form::Semaphore] {
        let view = view(form, &[]);
        assert_eq!(view.follows(asked(1)), Follows::Take);
        assert_eq!((view.limit(), view.free(3)), (None, 3));
    }
}

/// `consul lock -n 2` (1.8.7) writes `{"Limit":2,"Holders":{"…":true}}`.
#[test]
fn the_record_is_that_of_consuls_go_client() {
    let theirs = r#"{"Limit":2,"Holders":{"session-1":true}}"#;
    assert_eq!(record_of(2, &[id(1)]), theirs.as_bytes());
    let view = view(
        Form::Semaphore,
        &[record(9, SEMAPHORE_FLAGS, theirs, None), entry(1, 8)],
    );
    assert_eq!((view.limit(), view.free(2)), (Some(2), 1));
    assert_eq!(view.holders()[0].label.as_deref(), Some("web-1"));
    // In Go an empty map may be `null`.
    let none = r#"{"Limit":2,"Holders":null}"#;
    let view = self::view(Form::Semaphore, &[record(9, SEMAPHORE_FLAGS, none, None)]);
    assert_eq!((view.limit(), view.free(2)), (Some(2), 2));
}

#[test]
fn a_holder_without_an_entry_is_dead_and_is_left_out_of_the_next_record() {
    let mut unlocked = entry(3, 7);
    unlocked.session = None;
    let view = view(
        Form::Semaphore,
        &[semaphore(9, 3, &[1, 2, 3]), entry(2, 8), unlocked],
    );
    assert_eq!(ids(view.holders()), ["session-2"]);
    assert_eq!(view.follows(asked(3)), Follows::Take);
    let steps = view.take(Form::Semaphore, FOLDER, 3, &[id(4)], "me");
    let flags = SEMAPHORE_FLAGS;
    let next = record_of(3, &[id(2), id(4)]);
    assert_eq!(
        steps,
        [
            Step::lock(format!("{FOLDER}session-4"), &id(4), flags, "me"),
            Step::cas(format!("{FOLDER}.lock"), 9, flags, next),
        ]
    );
}

#[test]
fn keys_of_other_names_do_not_count() {
    let mut below = entry(1, 8);
    below.key = format!("{FOLDER}sub/session-1");
    let mut of_another_session = entry(2, 8);
    of_another_session.key = format!("{FOLDER}note");
    let view = view(
        Form::Semaphore,
        &[semaphore(9, 1, &[1, 2]), below, of_another_session],
    );
    assert!(view.holders().is_empty() && view.waiting.is_empty());
}

#[test]
fn another_limit_is_a_conflict_that_names_it() {
    let view = view(Form::Semaphore, &[semaphore(9, 3, &[])]);
    assert_eq!(view.follows(asked(4)), Follows::Conflict(3));
    assert_eq!(view.follows(asked(3)), Follows::Take);
}

#[test]
fn a_record_of_another_form_is_refused_and_named() {
    let lock = record(9, LOCK_FLAGS, "", Some(1));
    let semaphore = semaphore(9, 3, &[]);
    let read = |form, pair: Pair| View::read(form, FOLDER, &[pair], 50).unwrap_err();
    assert_eq!(read(Form::Semaphore, lock), Foreign::Is(Form::Lock));
    assert_eq!(read(Form::Lock, semaphore), Foreign::Is(Form::Semaphore));
    let stranger = read(Form::Lock, record(9, 0, "x", None));
    assert_eq!(stranger, Foreign::Unknown { flags: 0 });
    for bad in [
        "x",
        "{}",
        r#"{"Limit":0,"Holders":{}}"#,
        r#"{"Limit":-1,"Holders":{}}"#,
        r#"{"Limit":2,"Holders":[]}"#,
        r#"{"Limit":2,"Holders":{},"Version":3}"#,
    ] {
        let pair = record(9, SEMAPHORE_FLAGS, bad, None);
        let foreign = read(Form::Semaphore, pair);
        assert!(matches!(foreign, Foreign::Unreadable(_)), "{bad}");
    }
}

#[test]
fn a_lock_is_held_by_its_session_and_free_without_one() {
    let held = view(Form::Lock, &[record(9, LOCK_FLAGS, "web", Some(1))]);
    assert_eq!(held.follows(asked(1)), Follows::Full);
    assert!(held.is_held_by(&[id(1)]) && !held.is_held_by(&[id(2)]));
    // `consul lock` leaves such a key until it cleans up.
    let left = view(Form::Lock, &[record(9, LOCK_FLAGS, "", None)]);
    assert_eq!(left.follows(asked(1)), Follows::Take);
    let steps = left.take(Form::Lock, FOLDER, 1, &[id(2)], "me");
    let key = format!("{FOLDER}.lock");
    assert_eq!(steps[0], Step::check(key.clone(), 9));
    assert_eq!(steps[2], Step::lock(key, &id(2), LOCK_FLAGS, "me"));
}

#[test]
fn a_waiter_that_takes_the_lock_deletes_its_queue_entry() {
    let view = view(Form::Lock, &[entry(2, 8)]);
    let steps = view.take(Form::Lock, FOLDER, 1, &[id(2)], "me");
    assert!(steps.contains(&Step::delete(format!("{FOLDER}session-2"))));
    // Its entry may be newer than the view.
    let unseen = self::view(Form::Lock, &[]).take(Form::Lock, FOLDER, 1, &[id(2)], "me");
    assert!(unseen.contains(&Step::delete(format!("{FOLDER}session-2"))));
    let after = view.after_take(1, &[id(2)], "me", 60);
    assert!(after.waiting.is_empty() && after.is_held_by(&[id(2)]));
    assert_eq!(after.index, 60);
}

#[test]
fn earlier_waiters_go_first_until_their_time_is_over() {
    // The order is that of the entries' age, whatever their names are.
    let pairs = [semaphore(9, 2, &[1]), entry(1, 3), entry(2, 8), entry(3, 6)];
    let view = view(Form::Semaphore, &pairs);
    assert_eq!(ids(&view.waiting), ["session-3", "session-2"]);
    let me = |n, overtakes| {
        let me = id(n);
        view.follows(Asked {
            waits_as: Some(&me),
            overtakes,
            ..asked(2)
        })
    };
    assert_eq!(me(3, false), Follows::Take);
    assert_eq!(me(2, false), Follows::Behind);
    assert_eq!(me(2, true), Follows::Take);
    assert_eq!(
        view.follows(asked(2)),
        Follows::Behind,
        "who does not wait yet"
    );
    // Its own entry is not seen yet.
    assert_eq!(me(4, false), Follows::Behind);
}

#[test]
fn several_permits_need_that_many_free_plus_one_per_earlier_waiter() {
    let pairs = [semaphore(9, 5, &[1, 2]), entry(1, 1), entry(2, 2)];
    let full = view(Form::Semaphore, &pairs);
    let many = |view: &View, count| view.follows(Asked { count, ..asked(5) });
    assert_eq!(many(&full, 3), Follows::Take);
    assert_eq!(many(&full, 4), Follows::Full);
    let waiting = view(
        Form::Semaphore,
        &[pairs.as_slice(), &[entry(7, 5)]].concat(),
    );
    assert_eq!(many(&waiting, 2), Follows::Take);
    assert_eq!(many(&waiting, 3), Follows::Behind);
    let steps = full.take(Form::Semaphore, FOLDER, 5, &[id(7), id(8), id(9)], "me");
    assert_eq!(steps.len(), 4);
}

#[test]
fn the_last_holder_takes_the_record_with_it() {
    let two = view(
        Form::Semaphore,
        &[semaphore(9, 2, &[1, 2]), entry(1, 3), entry(2, 4)],
    );
    let (key, gone) = (
        format!("{FOLDER}.lock"),
        Step::delete(format!("{FOLDER}session-1")),
    );
    let steps = two.leave(FOLDER, &[id(1)]);
    let next = Step::cas(key.clone(), 9, SEMAPHORE_FLAGS, record_of(2, &[id(2)]));
    assert_eq!(steps, [gone.clone(), next]);
    let one = view(Form::Semaphore, &[semaphore(9, 2, &[1, 3]), entry(1, 3)]);
    let steps = one.leave(FOLDER, &[id(1)]);
    assert_eq!(steps, [gone.clone(), Step::delete_cas(key, 9)]);
    // Its session has ended, so it is a dead holder, as a crashed one is.
    let dead = view(Form::Semaphore, &[semaphore(9, 2, &[1])]);
    assert_eq!(dead.leave(FOLDER, &[id(1)]), steps);
    // Another client has removed it, so the record must be left as it is.
    let none = view(
        Form::Semaphore,
        &[semaphore(9, 2, &[2]), entry(1, 3), entry(2, 4)],
    );
    assert_eq!(none.leave(FOLDER, &[id(1)]), [gone]);
}

#[test]
fn a_lock_is_freed_only_by_its_session() {
    let key = format!("{FOLDER}.lock");
    let steps = unlock(FOLDER, &id(1));
    assert_eq!(
        steps,
        [Step::check_session(key.clone(), &id(1)), Step::delete(key)]
    );
}

#[test]
fn a_limit_is_changed_where_there_is_one() {
    let view = view(Form::Semaphore, &[semaphore(9, 2, &[1, 2]), entry(1, 3)]);
    let step = Step::cas(
        format!("{FOLDER}.lock"),
        9,
        SEMAPHORE_FLAGS,
        record_of(5, &[id(1)]),
    );
    assert_eq!(view.resize(FOLDER, 5), Some(step));
    assert_eq!(self::view(Form::Semaphore, &[]).resize(FOLDER, 5), None);
}

/// A model of Consul for one name. It does steps in any order.
#[derive(Debug, Default)]
struct Model {
    index: u64,
    pairs: BTreeMap<String, Pair>,
}

impl Model {
    fn view(&self, form: Form) -> View {
        let pairs: Vec<Pair> = self.pairs.values().cloned().collect();
        View::read(form, FOLDER, &pairs, self.index).unwrap()
    }

    /// Does all steps or none, as Consul does.
    fn transact(&mut self, steps: &[Step], ended: &[u32]) -> bool {
        let json = |step: &Step| serde_json::to_value(step).unwrap()["KV"].clone();
        let (mut next, index) = (self.pairs.clone(), self.index + 1);
        for step in steps.iter().map(json) {
            let key = step["Key"].as_str().unwrap().to_owned();
            let session: Option<Id> = step["Session"].as_str().map(Into::into);
            let stands = next.get(&key);
            let at = stands.map_or(0, |pair| pair.modify_index);
            let asked_at = step["Index"].as_u64().unwrap_or(0);
            let holder = stands.and_then(|pair| pair.session.clone());
            let lives = |id: &Id| !ended.iter().any(|n| self::id(*n) == *id);
            let may = match step["Verb"].as_str().unwrap() {
                "check-not-exists" => at == 0,
                "check-index" | "cas" | "delete-cas" => at == asked_at,
                "check-session" => holder == session,
                "lock" => {
                    session.as_ref().is_some_and(lives) && (holder.is_none() || holder == session)
                }
                _ => true,
            };
            if !may {
                return false;
            }
            match step["Verb"].as_str().unwrap() {
                "delete" | "delete-cas" => drop(next.remove(&key)),
                "cas" | "lock" => {
                    let create_index = stands.map_or(index, |pair| pair.create_index);
                    let value = base64::Engine::decode(
                        &base64::engine::general_purpose::STANDARD,
                        step["Value"].as_str().unwrap(),
                    );
                    let pair = Pair {
                        key: key.clone(),
                        flags: step["Flags"].as_u64().unwrap(),
                        value: value.unwrap(),
                        session: session.or(holder),
                        create_index,
                        modify_index: index,
                    };
                    next.insert(key, pair);
                }
                _ => {}
            }
        }
        (self.pairs, self.index) = (next, index);
        true
    }

    /// Ends a session. The keys that it has locked go with it.
    fn end(&mut self, session: u32) {
        self.index += 1;
        self.pairs
            .retain(|_, pair| pair.session != Some(id(session)));
    }
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    /// Reads the keys.
    Look(u32),
    /// Takes it according to the last view.
    Take(u32),
    Leave(u32),
    End(u32),
}

fn deed() -> impl Strategy<Value = Deed> {
    let who = 0_u32..6;
    prop_oneof![
        who.clone().prop_map(Deed::Look),
        who.clone().prop_map(Deed::Take),
        who.clone().prop_map(Deed::Leave),
        who.prop_map(Deed::End),
    ]
}

proptest! {
    /// For any deeds on views of any age, there are never more living holders than the limit, and tokens grow.
    #[test]
    fn no_order_of_operations_admits_too_many_holders(
        is_lock in any::<bool>(),
        limit in 1_u32..4,
        deeds in prop::collection::vec(deed(), 1..80),
    ) {
        let (form, limit) = if is_lock { (Form::Lock, 1) } else { (Form::Semaphore, limit) };
        let mut model = Model::default();
        let mut views: Vec<Option<View>> = vec![None; 6];
        let (mut holds, mut ended): ([bool; 6], Vec<u32>) = ([false; 6], Vec::new());
        let mut last_token = 0;
        for deed in deeds {
            match deed {
                Deed::Look(who) => views[who as usize] = Some(model.view(form)),
                Deed::Take(who) => {
                    let Some(view) = views[who as usize].clone() else { continue };
                    let follows = view.follows(Asked { overtakes: true, ..asked(limit) });
                    if holds[who as usize] || follows != Follows::Take {
                        continue;
                    }
                    let steps = view.take(form, FOLDER, limit, &[id(who)], "web");
                    if model.transact(&steps, &ended) {
                        holds[who as usize] = true;
                        prop_assert!(model.index > last_token);
                        last_token = model.index;
                        let after = view.after_take(limit, &[id(who)], "web", model.index);
                        prop_assert!(after.is_held_by(&[id(who)]));
// The view may still have a holder that is dead by now.
                        prop_assert!(after.holders().len() >= model.view(form).holders().len());
                        views[who as usize] = Some(after);
                    }
                }
                Deed::Leave(who) => {
                    let Some(view) = views[who as usize].clone().filter(|_| holds[who as usize]) else { continue };
                    let steps = match form {
                        Form::Lock => unlock(FOLDER, &id(who)),
                        Form::Semaphore => view.leave(FOLDER, &[id(who)]),
                    };
                    if model.transact(&steps, &ended) {
                        holds[who as usize] = false;
                    }
                }
                Deed::End(who) => {
                    model.end(who);
                    ended.push(who);
                    holds[who as usize] = false;
                }
            }
            let held = holds.iter().filter(|holds| **holds).count();
            prop_assert!(held <= limit as usize, "{held} hold");
            // The holders are those in the record.
            for (who, holds) in (0..).zip(holds) {
                prop_assert_eq!(model.view(form).is_held_by(&[id(who)]), holds);
            }
        }
    }
}
