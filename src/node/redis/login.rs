//! The login to a server, and the part of it that may be shown.

use super::{
    address::{Address, Login},
    secret::Secret,
};

impl Address {
    /// The password, or the user if the login has no password. Such a user is usually a password that was written in
    /// the wrong place, unless the server has accepted it.
    pub(super) fn secret(&self) -> Secret {
        Secret::new(match &self.login {
            Some(Login { user, password }) if password.is_empty() => user,
            Some(Login { password, .. }) => password,
            None => "",
        })
    }

    /// The secret once the server has accepted the login.
    pub(super) fn password(&self) -> Secret {
        Secret::new(self.login.as_ref().map_or("", |login| &login.password))
    }

    pub(crate) fn has_password(&self) -> bool {
        let login = self.login.as_ref();
        login.is_some_and(|login| !login.password.is_empty())
    }

    /// The user, as texts name it.
    pub(super) fn user(&self) -> String {
        match &self.login {
            None => "user \"default\"".into(),
            Some(_) if !self.has_password() => "this user".into(),
            Some(login) => format!("user {:?}", self.secret().hidden(&login.user)),
        }
    }
}
