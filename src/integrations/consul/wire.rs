//! The JSON that Consul's HTTP interface reads and writes.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// In the text of a refusal because a session is gone. Consul has no code for it.
const INVALID_SESSION: &str = "invalid session";
/// In the text of a refusal because of a lock-delay.
const LOCK_DELAY: &str = "due to lock delay";
/// In the text of a refusal because something has changed, by a compare-and-set, a lock or a check.
const CHANGED: [&str; 5] = [
    "index is stale",
    "already held",
    "exist",
    "index check",
    "session check",
];

/// One key with its value.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Pair {
    pub(super) key: String,
    pub(super) flags: u64,
    #[serde(default, deserialize_with = "from_base64")]
    pub(super) value: Vec<u8>,
    /// The session that has locked it.
    pub(super) session: Option<Arc<str>>,
    pub(super) create_index: u64,
    pub(super) modify_index: u64,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    #[serde(rename = "KV")]
    kv: Kv,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Kv {
    verb: &'static str,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "to_base64")]
    value: Option<Vec<u8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<Arc<str>>,
}

impl Step {
    /// Locks a key for a session and gives it this value.
    pub(super) fn lock(key: String, session: &Arc<str>, flags: u64, value: &str) -> Self {
        Self::of(Kv {
            verb: "lock",
            key,
            value: Some(value.into()),
            flags: Some(flags),
            session: Some(Arc::clone(session)),
            ..Kv::default()
        })
    }

    /// Writes a key if its index is still this one; 0 means that the key must not exist.
    pub(super) fn cas(key: String, index: u64, flags: u64, value: Vec<u8>) -> Self {
        Self::of(Kv {
            verb: "cas",
            key,
            value: Some(value),
            flags: Some(flags),
            index: Some(index),
            ..Kv::default()
        })
    }

    /// Goes on only if the key's index is still this one; 0 means that the key must not exist.
    pub(super) fn check(key: String, index: u64) -> Self {
        let (verb, index) = match index {
            0 => ("check-not-exists", None),
            _ => ("check-index", Some(index)),
        };
        Self::of(Kv {
            verb,
            key,
            index,
            ..Kv::default()
        })
    }

    /// Goes on only if this session has locked the key.
    pub(super) fn check_session(key: String, session: &Arc<str>) -> Self {
        Self::of(Kv {
            verb: "check-session",
            key,
            session: Some(Arc::clone(session)),
            ..Kv::default()
        })
    }

    pub(super) fn delete(key: String) -> Self {
        Self::of(Kv {
            verb: "delete",
            key,
            ..Kv::default()
        })
    }

    /// Deletes a key if its index is still this one.
    pub(super) fn delete_cas(key: String, index: u64) -> Self {
        Self::of(Kv {
            verb: "delete-cas",
            key,
            index: Some(index),
            ..Kv::default()
        })
    }

    fn of(kv: Kv) -> Self {
        Self { kv }
    }
}

/// The answer to a transaction.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Outcome {
    results: Option<Vec<Changed>>,
    errors: Option<Vec<Refused>>,
}

#[derive(Debug, Deserialize)]
struct Changed {
    #[serde(rename = "KV")]
    kv: Option<ChangedKey>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ChangedKey {
    key: String,
    modify_index: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refused {
    what: String,
}

impl Refused {
    /// Consul's text without the keys and sessions that it quotes, because a key may read like a reason.
    fn reason(&self) -> String {
        let quoted = self.what.split_once('"').and_then(|(before, rest)| {
            let (_, after) = rest.rsplit_once('"')?;
            Some(format!("{before}{after}"))
        });
        quoted.unwrap_or_else(|| self.what.clone())
    }
}

impl Outcome {
    /// The index at which the last step has written this key. A step that checks the key also answers, with the index
    /// that it found. So only the last answer counts.
    pub(super) fn written_at(&self, key: &str) -> Option<u64> {
        let last = self.results.as_ref()?.last()?;
        let written = last.kv.as_ref().filter(|kv| kv.key == key);
        written.map(|kv| kv.modify_index)
    }

    /// The reason for the refusal, or Consul's text if the reason is not known.
    pub(super) fn refusal(&self) -> Result<Refusal, String> {
        let errors = || self.errors.iter().flatten();
        let says = |what: &str| errors().any(|error| error.reason().contains(what));
        let is_change = |error: &Refused| {
            let reason = error.reason();
            CHANGED.iter().any(|what| reason.contains(what))
        };
        if says(INVALID_SESSION) {
            return Ok(Refusal::Session);
        }
        if says(LOCK_DELAY) {
            return Ok(Refusal::LockDelay);
        }
        match errors().find(|error| !is_change(error)) {
            None => Ok(Refusal::Changed),
            Some(other) => Err(other.what.clone()),
        }
    }
}

/// The reason why a transaction changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// One of its sessions is gone.
    Session,
    /// A holder was cut off a short while ago.
    LockDelay,
    /// Something that it rests on has changed.
    Changed,
}

/// The request to make a session.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NewSession<'a> {
    pub(super) name: &'a str,
    #[serde(rename = "TTL")]
    pub(super) ttl: String,
    pub(super) lock_delay: String,
    /// `delete`: the keys that it has locked are deleted with it.
    pub(super) behavior: &'static str,
    /// Only the TTL ends the session, and no health check. With health checks Consul "prefers liveness over safety".
    pub(super) checks: [(); 0],
    pub(super) node_checks: [(); 0],
}

/// The answer to that request.
#[derive(Debug, Deserialize)]
pub(super) struct SessionMade {
    #[serde(rename = "ID")]
    pub(super) id: Arc<str>,
}

/// Consul's answer about a session.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SessionInfo {
    pub(super) name: String,
    pub(super) node: String,
}

fn from_base64<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = Option::<String>::deserialize(from)?.unwrap_or_default();
    STANDARD.decode(text).map_err(serde::de::Error::custom)
}

// The signature is serde's.
#[allow(clippy::ref_option)]
fn to_base64<S: Serializer>(value: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&STANDARD.encode(value.as_deref().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_contains_only_the_fields_that_its_verb_needs() {
        let session: Arc<str> = "s1".into();
        let steps = [
            Step::check("a/.lock".into(), 0),
            Step::check("a/.lock".into(), 7),
            Step::lock("a/.lock".into(), &session, 5, "web"),
            Step::check_session("a/s1".into(), &session),
            Step::delete("a/s1".into()),
            Step::cas("a/.lock".into(), 0, 5, b"{}".to_vec()),
            Step::delete_cas("a/.lock".into(), 9),
        ];
        let json: Vec<String> = steps
            .iter()
            .map(|step| serde_json::to_string(step).unwrap())
            .collect();
        let expected = [
            r#"{"KV":{"Verb":"check-not-exists","Key":"a/.lock"}}"#,
            r#"{"KV":{"Verb":"check-index","Key":"a/.lock","Index":7}}"#,
            r#"{"KV":{"Verb":"lock","Key":"a/.lock","Value":"d2Vi","Flags":5,"Session":"s1"}}"#,
            r#"{"KV":{"Verb":"check-session","Key":"a/s1","Session":"s1"}}"#,
            r#"{"KV":{"Verb":"delete","Key":"a/s1"}}"#,
            r#"{"KV":{"Verb":"cas","Key":"a/.lock","Value":"e30=","Flags":5,"Index":0}}"#,
            r#"{"KV":{"Verb":"delete-cas","Key":"a/.lock","Index":9}}"#,
        ];
        assert_eq!(json, expected);
    }

    /// The answers are those of Consul 1.8.7.
    #[test]
    fn an_outcome_tells_the_index_or_the_refusal() {
        let done: Outcome = serde_json::from_str(
            r#"{"Results":[{"KV":{"LockIndex":1,"Key":"a/s1","Flags":5,"Value":null,"Session":"s1","CreateIndex":9,"ModifyIndex":9}},
               {"KV":{"LockIndex":0,"Key":"a/.lock","Flags":5,"Value":null,"CreateIndex":4,"ModifyIndex":9}}],"Errors":null}"#,
        )
        .unwrap();
        assert_eq!(done.written_at("a/.lock"), Some(9));
        assert_eq!(done.written_at("a/s1"), None);
        let refused = |errors: &str| {
            let json = format!(r#"{{"Results":null,"Errors":[{errors}]}}"#);
            serde_json::from_str::<Outcome>(&json).unwrap().refusal()
        };
        let stale = r#"{"OpIndex":1,"What":"failed to set key \"a/.lock\", index is stale"}"#;
        let session = r#"{"OpIndex":0,"What":"invalid session \"s1\""}"#;
        let delay = r#"{"OpIndex":1,"What":"failed to lock key \"a/.lock\" due to lock delay"}"#;
        assert_eq!(refused(stale), Ok(Refusal::Changed));
        assert_eq!(refused(delay), Ok(Refusal::LockDelay));
        assert_eq!(refused(&format!("{stale},{session}")), Ok(Refusal::Session));
        for changed in [
            r#"failed to delete key \"a\", index is stale"#,
            r#"failed to lock key \"a\", lock is already held"#,
            r#"key \"a\" exists"#,
            r#"failed to check index, key \"a\" doesn't exist"#,
            r#"failed index check for key \"a\", current modify index 7 != 5"#,
            r#"failed session check for key \"a\", current session \"\" != \"s\""#,
        ] {
            let error = format!(r#"{{"OpIndex":0,"What":"{changed}"}}"#);
            assert_eq!(refused(&error), Ok(Refusal::Changed), "{changed}");
        }
        // The name of a lock is not a reason.
        let named =
            r#"{"OpIndex":1,"What":"failed to set key \"invalid session/.lock\", index is stale"}"#;
        assert_eq!(refused(named), Ok(Refusal::Changed));
        let named = r#"{"OpIndex":1,"What":"failed to set key \"already held/.lock\", disk full"}"#;
        refused(named).unwrap_err();
        let denied = r#"{"OpIndex":0,"What":"Permission denied"}"#;
        assert_eq!(
            refused(&format!("{stale},{denied}")),
            Err("Permission denied".into())
        );
    }

    /// The answer of Consul 1.8.7 to a check, a deletion and a lock. The deletion has no answer.
    #[test]
    fn the_written_index_is_that_of_the_lock_not_of_the_check() {
        let done: Outcome = serde_json::from_str(
            r#"{"Results":[{"KV":{"LockIndex":1,"Key":"a/.lock","Flags":5,"Value":null,"CreateIndex":4,"ModifyIndex":7}},
               {"KV":{"LockIndex":2,"Key":"a/.lock","Flags":5,"Value":null,"Session":"s1","CreateIndex":4,"ModifyIndex":9}}],"Errors":null}"#,
        )
        .unwrap();
        assert_eq!(done.written_at("a/.lock"), Some(9));
    }

    #[test]
    fn a_pair_is_read_with_and_without_a_value() {
        let pair: Pair = serde_json::from_str(
            r#"{"LockIndex":1,"Key":"a/s1","Flags":16210313421097356768,"Value":null,"Session":"s1","CreateIndex":9,"ModifyIndex":10}"#,
        )
        .unwrap();
        assert_eq!((pair.flags, pair.value.len()), (0xe0f6_9a2b_aa41_4de0, 0));
        assert_eq!(pair.session.as_deref(), Some("s1"));
        let pair: Pair = serde_json::from_str(
            r#"{"Key":"a/.lock","Flags":0,"Value":"e30=","CreateIndex":9,"ModifyIndex":10}"#,
        )
        .unwrap();
        assert_eq!((pair.value, pair.session), (b"{}".to_vec(), None));
    }
}
