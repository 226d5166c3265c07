//! The address of an agent, as people write it: a URL, `host:port`, or a socket's path.

use std::path::PathBuf;

use reqwest::Url;

use crate::Error;

const SOCKET: &str = "unix://";

/// The address of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The URL of requests. For a socket its host means nothing.
    pub(super) base: Url,
    pub(super) socket: Option<PathBuf>,
    /// User and password from the URL, for a proxy in front of the agent.
    pub(super) login: Option<(String, String)>,
}

impl Address {
    /// With `is_tls` an address without a scheme uses TLS.
    ///
    /// # Errors
    /// `Invalid`. Little of a bad URL is shown, because it may hold a password.
    pub(super) fn read(text: &str, is_tls: bool) -> Result<Self, Error> {
        let wrong = |why: &str| {
            Error::Invalid(format!(
                "Consul's address {why}: it must be http://host:port, https://host:port, host:port or unix:///path"
            ))
        };
        if let Some(path) = text.strip_prefix(SOCKET) {
            if !path.starts_with('/') {
                return Err(wrong("names a socket without its full path"));
            }
            return Ok(Self {
                base: Url::parse("http://localhost/").map_err(|_| wrong("cannot be read"))?,
                socket: Some(path.into()),
                login: None,
            });
        }
        let scheme = if is_tls { "https" } else { "http" };
        let text = match text.contains("://") {
            true => text.to_owned(),
            false => format!("{scheme}://{text}"),
        };
        let mut base = Url::parse(&text).map_err(|_| wrong("cannot be read"))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(wrong("has another scheme"));
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(wrong("has a `?` or a `#`"));
        }
        let login = (!base.username().is_empty()).then(|| {
            let password = base.password().unwrap_or_default();
            (decoded(base.username()), decoded(password))
        });
        if base.set_username("").is_err() || base.set_password(None).is_err() {
            return Err(wrong("has no host"));
        }
        Ok(Self {
            base,
            socket: None,
            login,
        })
    }

    /// host:port, or the socket's path.
    pub(super) fn shown(&self) -> String {
        match &self.socket {
            Some(path) => path.display().to_string(),
            None => {
                let host = self.base.host_str().unwrap_or_default();
                let port = self.base.port_or_known_default().unwrap_or_default();
                format!("{host}:{port}")
            }
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.base.scheme() == "https"
    }
}

/// Decodes the `%` escapes in a URL's user and password.
fn decoded(text: &str) -> String {
    // A query is decoded in the same way, except for `+`.
    let query = format!("http://localhost/?a={}", text.replace('+', "%2B"));
    let url = Url::parse(&query).ok();
    let value = url.and_then(|url| {
        url.query_pairs()
            .next()
            .map(|(_, value)| value.into_owned())
    });
    value.unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_what_consuls_own_tools_take() {
        for (text, is_tls, base, shown) in [
            (
                "http://10.0.0.1:8500",
                false,
                "http://10.0.0.1:8500/",
                "10.0.0.1:8500",
            ),
            (
                "10.0.0.1:8500",
                false,
                "http://10.0.0.1:8500/",
                "10.0.0.1:8500",
            ),
            (
                "consul.example:8501",
                true,
                "https://consul.example:8501/",
                "consul.example:8501",
            ),
            (
                "https://gate/consul/",
                false,
                "https://gate/consul/",
                "gate:443",
            ),
            (
                "http://[::1]:8500",
                true,
                "http://[::1]:8500/",
                "[::1]:8500",
            ),
            (
                "unix:///run/consul.sock",
                false,
                "http://localhost/",
                "/run/consul.sock",
            ),
        ] {
            let address = Address::read(text, is_tls).unwrap();
            assert_eq!(address.base.as_str(), base);
            assert_eq!(address.shown(), shown);
            assert_eq!(address.login, None);
        }
    }

    #[test]
    fn a_login_is_taken_out_and_shown_nowhere() {
        let address = Address::read("http://me:p%40+ss@10.0.0.1:8500", false).unwrap();
        assert_eq!(address.login, Some(("me".into(), "p@+ss".into())));
        assert!(!address.base.as_str().contains("me"));
        assert_eq!(address.shown(), "10.0.0.1:8500");
    }

    #[test]
    fn an_error_for_a_bad_address_shows_no_password() {
        for bad in [
            "",
            "redis://me:pw@h",
            "http://me:pw@",
            "http://h/?x",
            "http://h/#x",
            "unix://a",
            "a b",
        ] {
            let error = Address::read(bad, false).unwrap_err().to_string();
            assert!(error.contains("host:port"), "{error}");
            assert!(!error.contains("pw"), "{error}");
        }
    }
}
