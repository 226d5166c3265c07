//! The test's own way to ask an agent: its HTTP interface.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Agent, MASTER, PATIENCE};

/// One key.
#[derive(Clone, Debug)]
pub struct Pair {
    pub key: String,
    pub value: String,
    pub flags: u64,
    pub session: Option<String>,
    pub modify_index: u64,
}

impl Agent {
    /// Sends a request to its HTTP interface. Returns the status and the body.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.try_ask(method, path, body)
            .unwrap_or_else(|error| panic!("{self}: {method} {path}: {error}"))
    }

    /// The index of an answer, at which a blocking query begins.
    pub fn index(&self, path: &str) -> u64 {
        let (head, _) = self
            .try_exchange("GET", path, "", PATIENCE)
            .unwrap_or_else(|error| panic!("{self}: GET {path}: {error}"));
        let index = head
            .lines()
            .find_map(|line| line.strip_prefix("X-Consul-Index: "));
        index.and_then(|index| index.parse().ok()).expect(&head)
    }

    pub(super) fn try_ask(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<(u16, String)> {
        self.try_ask_within(method, path, body, PATIENCE)
    }

    pub(super) fn try_ask_within(
        &self,
        method: &str,
        path: &str,
        body: &str,
        patience: Duration,
    ) -> std::io::Result<(u16, String)> {
        let (head, body) = self.try_exchange(method, path, body, patience)?;
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Ok((status.unwrap_or(0), body))
    }

    /// Returns the head of the answer, and its body.
    fn try_exchange(
        &self,
        method: &str,
        path: &str,
        body: &str,
        patience: Duration,
    ) -> std::io::Result<(String, String)> {
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(patience))?;
        // An HTTP/1.0 request gets its answer in one piece, and the connection is closed.
        let (length, token) = (body.len(), if self.options.acl { MASTER } else { "" });
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nX-Consul-Token: {token}\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok((head.to_owned(), body.to_owned()))
    }

    /// Sends a request that must succeed, with JSON.
    pub fn json(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, answer) = self.ask(method, path, &body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        serde_json::from_str(&answer).unwrap_or(Value::String(answer))
    }

    /// All keys that begin with this prefix.
    pub fn pairs(&self, prefix: &str) -> Vec<Pair> {
        let (status, answer) = self.ask("GET", &format!("/v1/kv/{prefix}?recurse"), "");
        if status == 404 {
            return Vec::new();
        }
        let pairs: Value = serde_json::from_str(&answer).expect("JSON");
        let pairs = pairs.as_array().expect("pairs").iter().map(|pair| Pair {
            key: pair["Key"].as_str().expect("a key").to_owned(),
            value: self.raw(pair["Key"].as_str().expect("a key")),
            flags: pair["Flags"].as_u64().expect("flags"),
            session: pair["Session"].as_str().map(str::to_owned),
            modify_index: pair["ModifyIndex"].as_u64().expect("an index"),
        });
        pairs.collect()
    }

    pub fn keys(&self, prefix: &str) -> Vec<String> {
        self.pairs(prefix)
            .into_iter()
            .map(|pair| pair.key)
            .collect()
    }

    fn raw(&self, key: &str) -> String {
        self.ask("GET", &format!("/v1/kv/{key}?raw"), "").1
    }

    pub fn put(&self, key: &str, flags: u64, value: &str) {
        self.ask("PUT", &format!("/v1/kv/{key}?flags={flags}"), value);
    }

    pub fn delete(&self, key: &str) {
        self.ask("DELETE", &format!("/v1/kv/{key}"), "");
    }

    /// Everything that `/v1/session/list` returns.
    pub fn sessions(&self) -> Vec<Value> {
        let sessions = self.json("GET", "/v1/session/list", &json!(null));
        sessions.as_array().cloned().unwrap_or_default()
    }

    pub fn session_ids(&self) -> Vec<String> {
        let id = |session: &Value| session["ID"].as_str().expect("an id").to_owned();
        self.sessions().iter().map(id).collect()
    }

    /// Makes a session of a stranger.
    pub fn session(&self, of: &Value) -> String {
        let made = self.json("PUT", "/v1/session/create", of);
        made["ID"].as_str().expect("an id").to_owned()
    }

    /// Ends a session as an operator would.
    pub fn destroy(&self, session: &str) {
        self.ask("PUT", &format!("/v1/session/destroy/{session}"), "");
    }

    /// Makes a token with these rules, where ACLs are on.
    pub fn token(&self, rules: &str) -> String {
        static POLICIES: AtomicU32 = AtomicU32::new(0);
        let name = format!("policy-{}", POLICIES.fetch_add(1, Ordering::Relaxed));
        let policy = json!({"Name": name, "Rules": rules});
        self.json("PUT", "/v1/acl/policy", &policy);
        let token = json!({"Policies": [{"Name": name}]});
        let token = self.json("PUT", "/v1/acl/token", &token);
        token["SecretID"].as_str().expect("a token").to_owned()
    }
}
