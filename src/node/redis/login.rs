//! The login to a server, and the part of it that may be shown.

use super::{
    address::{Address, Login, Source},
    secret::Secret,
};

impl Address {
    /// The same address with another login.
    pub(super) fn with_login(&self, login: Login) -> Self {
        Self {
            login: Some(login),
            ..self.clone()
        }
    }

    /// The password, or the user if the login has no password. Such a user is usually a password that was written in
    /// the wrong place, unless the server has accepted it.
    pub(super) fn secret(&self) -> Secret {
        Secret::new(match &self.login {
            Some(Login { user, password, .. }) if password.is_empty() => user,
            Some(Login { password, .. }) => password,
            None => "",
        })
    }

    /// The secret once the server has accepted the login.
    pub(super) fn password(&self) -> Secret {
        Secret::new(self.login.as_ref().map_or("", |login| &login.password))
    }

    /// The user in the URL, if there is one.
    pub(crate) fn url_user(&self) -> Option<String> {
        self.login.as_ref().map(|login| login.user.clone())
    }

    pub(crate) fn has_password(&self) -> bool {
        let login = self.login.as_ref();
        login.is_some_and(|login| !login.password.is_empty())
    }

    /// Returns true if the password does not come from the URL.
    pub(crate) fn has_provider(&self) -> bool {
        let login = self.login.as_ref();
        login.is_some_and(|login| login.source != Source::Url)
    }

    /// The user, as texts name it. The user of a URL without a password may be a password in the wrong place.
    pub(super) fn user(&self) -> String {
        match &self.login {
            None => "user \"default\"".into(),
            Some(_) if !self.has_password() => "this user".into(),
            Some(login) if login.source == Source::ProviderAndUrl => "this user".into(),
            Some(login) => format!("user {:?}", self.secret().hidden(&login.user)),
        }
    }
}
