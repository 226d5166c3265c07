//! As whom we speak to a server, and what of that is told.

use super::{
    address::{Address, Login},
    secret::Secret,
};

/// How servers of other kinds begin what they say.
const STRANGERS: &[&str] = &["HTTP/", "SSH-", "220 "];
/// How many characters of such a beginning are told: an HTTP status.
const NAMED: usize = 12;

impl Address {
    /// What is never told of this server. A user without a password is, more often than not, a password
    /// that was written in the wrong place.
    pub(super) fn secret(&self) -> Secret {
        Secret::new(match &self.login {
            Some(Login { user, password }) if password.is_empty() => user,
            Some(Login { password, .. }) => password,
            None => "",
        })
    }

    pub(super) fn has_password(&self) -> bool {
        let login = self.login.as_ref();
        login.is_some_and(|login| !login.password.is_empty())
    }

    /// As whom we speak to it.
    pub(super) fn user(&self) -> String {
        match &self.login {
            None => "user \"default\"".into(),
            Some(_) if !self.has_password() => "this user".into(),
            Some(login) => format!("user {:?}", self.secret().hidden(&login.user)),
        }
    }

    /// What is told of the words of a server that is not Redis. If it was given a password, it may repeat
    /// that in any way.
    pub(super) fn of_a_stranger(&self, words: &str) -> String {
        let clean = self.secret().hidden(words);
        match self.login {
            None => clean,
            Some(_) if STRANGERS.iter().any(|name| words.starts_with(name)) => {
                clean.chars().take(NAMED).collect()
            }
            Some(_) => "***".into(),
        }
    }
}
