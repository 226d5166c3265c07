//! Settings from the variables of Consul's own tools.

use std::{env, ffi::OsString, fs};

use super::{Builder, Consul, Tls};
use crate::Error;

const ADDRESS: &str = "CONSUL_HTTP_ADDR";
const TOKEN: &str = "CONSUL_HTTP_TOKEN";
const TOKEN_FILE: &str = "CONSUL_HTTP_TOKEN_FILE";
const LOGIN: &str = "CONSUL_HTTP_AUTH";
const IS_TLS: &str = "CONSUL_HTTP_SSL";
const VERIFIES: &str = "CONSUL_HTTP_SSL_VERIFY";
const AUTHORITIES: &str = "CONSUL_CACERT";
const AUTHORITIES_IN: &str = "CONSUL_CAPATH";
const CERTIFICATE: &str = "CONSUL_CLIENT_CERT";
const KEY: &str = "CONSUL_CLIENT_KEY";
const SERVER_NAME: &str = "CONSUL_TLS_SERVER_NAME";
const NAMESPACE: &str = "CONSUL_NAMESPACE";

impl Consul {
    /// Connects with the settings in the environment: [`Builder::from_env`], then [`Builder::connect`].
    ///
    /// # Errors
    /// As for [`Builder::from_env`] and [`Builder::connect`].
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn from_env() -> Result<Self, Error> {
        Builder::from_env()?.connect().await
    }
}

impl Builder {
    /// Returns a builder with the settings in the environment. The variables are those of Consul's own tools:
    /// `CONSUL_HTTP_ADDR`, `_TOKEN`, `_TOKEN_FILE`, `_AUTH`, `_SSL`, `_SSL_VERIFY`, `CONSUL_CACERT`,
    /// `CONSUL_CLIENT_CERT`, `CONSUL_CLIENT_KEY`, `CONSUL_NAMESPACE`.
    ///
    /// An empty variable counts as not set. Setters that are called afterwards replace the values from the environment.
    ///
    /// # Errors
    /// - `Invalid` if a value is not valid, or a file cannot be read.
    /// - `Invalid` if `CONSUL_CAPATH` or `CONSUL_TLS_SERVER_NAME` is set, which are not supported.
    pub fn from_env() -> Result<Self, Error> {
        from(|variable| env::var_os(variable))
    }
}

fn from(variables: impl Fn(&str) -> Option<OsString>) -> Result<Builder, Error> {
    let word = |variable: &str| -> Result<Option<String>, Error> {
        let value = variables(variable).filter(|value| !value.is_empty());
        value
            .map(|value| {
                value
                    .into_string()
                    .map_err(|_| wrong(variable, "is not valid UTF-8"))
            })
            .transpose()
    };
    let flag = |variable: &str| -> Result<Option<bool>, Error> {
        // The values that Go accepts.
        word(variable)?
            .map(|value| match value.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
                _ => Err(wrong(variable, "must be true or false")),
            })
            .transpose()
    };
    let file = |variable: &str| -> Result<Option<Vec<u8>>, Error> {
        word(variable)?
            .map(|path| {
                fs::read(&path).map_err(|why| wrong(variable, &format!("names {path:?}: {why}")))
            })
            .transpose()
    };
    for (variable, instead) in [
        (
            AUTHORITIES_IN,
            "put the certificates into one file, and name it in CONSUL_CACERT",
        ),
        (
            SERVER_NAME,
            "use an address with the name that the certificate has",
        ),
    ] {
        if word(variable)?.is_some() {
            return Err(wrong(variable, &format!("is not supported: {instead}")));
        }
    }
    let mut builder = Consul::builder();
    builder.url = word(ADDRESS)?;
    builder.is_tls = flag(IS_TLS)?.unwrap_or(false);
    builder.namespace = word(NAMESPACE)?;
    builder.token = match word(TOKEN)? {
        Some(token) => Some(token),
        None => match file(TOKEN_FILE)? {
            Some(text) => {
                let text = String::from_utf8(text);
                let text = text.map_err(|_| wrong(TOKEN_FILE, "names a file that is not text"))?;
                Some(text.trim().to_owned())
            }
            None => None,
        },
    };
    builder.login = word(LOGIN)?.map(|login| match login.split_once(':') {
        Some((user, password)) => (user.to_owned(), password.to_owned()),
        None => (login, String::new()),
    });
    let mut tls = Tls::new();
    if let Some(pem) = file(AUTHORITIES)? {
        tls = tls.ca_certificates(pem);
    }
    tls = match (file(CERTIFICATE)?, file(KEY)?) {
        (Some(certificate), Some(key)) => tls.client_certificate(certificate, key),
        (None, None) => tls,
        _ => {
            return Err(wrong(
                CERTIFICATE,
                "and CONSUL_CLIENT_KEY belong together: one is missing",
            ));
        }
    };
    if flag(VERIFIES)? == Some(false) {
        tls = tls.danger_accept_any_certificate();
    }
    Ok(builder.tls(tls))
}

fn wrong(variable: &str, why: &str) -> Error {
    Error::Invalid(format!("{variable} {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Builder, Error> {
        from(|wanted| {
            let found = variables.iter().find(|(variable, _)| *variable == wanted);
            found.map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_variables_of_consuls_tools_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        std::fs::write(&file, "from-file\n").unwrap();
        let file = file.to_str().unwrap();
        let builder = read(&[
            (ADDRESS, "10.0.0.1:8501"),
            (IS_TLS, "true"),
            (TOKEN_FILE, file),
            (LOGIN, "me:p:w"),
            (NAMESPACE, "team"),
            (VERIFIES, "0"),
        ])
        .unwrap();
        assert_eq!(builder.url.as_deref(), Some("10.0.0.1:8501"));
        assert!(builder.is_tls);
        assert_eq!(builder.token.as_deref(), Some("from-file"));
        assert_eq!(builder.login, Some(("me".into(), "p:w".into())));
        assert_eq!(builder.namespace.as_deref(), Some("team"));
        let builder = read(&[(TOKEN, "own"), (TOKEN_FILE, file), (ADDRESS, "")]).unwrap();
        assert_eq!(builder.token.as_deref(), Some("own"));
        assert_eq!(builder.url, None);
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_named_in_the_error() {
        for (variable, value) in [
            (IS_TLS, "maybe"),
            (AUTHORITIES, "/nowhere/ca.pem"),
            (TOKEN_FILE, "/nowhere/token"),
            (AUTHORITIES_IN, "/etc/ssl"),
            (SERVER_NAME, "server.dc1.consul"),
        ] {
            let error = read(&[(variable, value)]).unwrap_err().to_string();
            assert!(error.starts_with(variable), "{error}");
        }
    }
}
