//! The settings of a quorum in a configuration file, which serde reads and writes.

use std::{fmt, marker::PhantomData, path::PathBuf, time::Duration};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error as _, MapAccess, SeqAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};

use crate::{
    Error,
    base::printable::HIDDEN,
    node::redis::{IntoNode as _, Target},
    quorum::settings::{Kind, Options, SETTINGS, Value, each_setting},
};

/// Takes the rows one by one. Those of files and logins stand in tables of their own, so they are left out.
macro_rules! make_config {
    (@rows [$($names:ident)*] [$($fields:tt)*]
        $(#[$doc:meta])* $name:ident: PathBuf { $($row:tt)* } $($rest:tt)*
    ) => { make_config! { @rows [$($names)*] [$($fields)*] $($rest)* } };
    (@rows [$($names:ident)*] [$($fields:tt)*]
        $(#[$doc:meta])* $name:ident: Text { $($row:tt)* } $($rest:tt)*
    ) => { make_config! { @rows [$($names)*] [$($fields)*] $($rest)* } };
    (@rows [$($names:ident)*] [$($fields:tt)*]
        $(#[$doc:meta])* $name:ident: $kind:ident { $($row:tt)* } $($rest:tt)*
    ) => { make_config! {
        @rows [$($names)* $name]
        [
            $($fields)*
            #[doc = concat!("[`Builder::", stringify!($name), "`](crate::Builder::", stringify!($name), ").")]
            #[serde(default, with = "setting", skip_serializing_if = "Option::is_none")]
            pub $name: Option<$kind>,
        ]
        $($rest)*
    } };
    (@rows [$($names:ident)*] [$($fields:tt)*]) => {
            /// The settings of a [`Builder`](crate::Builder), for a program's own configuration file.
            ///
            /// A field that is not given keeps its default. An unknown field is an error. A duration is a text, a whole
            /// number and its unit: `"700ms"`, `"3s"`, `"10m"`, `"24h"`. Ranges are checked when the builder connects. The
            /// format of the file must be self-describing, as TOML, YAML and JSON are.
            ///
            /// ```
            /// #[derive(serde::Deserialize)]
            /// struct Service {
            ///     quorate: quorate::Config,
            /// }
            /// let service: Service = serde_json::from_str(
            ///     r#"{ "quorate": { "nodes": ["redis://10.0.0.1", "redis://10.0.1.1", "redis://10.0.2.1"],
            ///                       "node_timeout": "200ms" } }"#,
            /// )?;
            /// let builder = quorate::Quorum::builder().config(service.quorate).label("payouts-7");
            /// # drop(builder); Ok::<(), serde_json::Error>(())
            /// ```
            ///
            /// # Passwords
            /// `Debug` shows no password, and no error repeats a value. **`Serialize` writes the URLs with their
            /// passwords**, so that the text can be read back. Do not log it.
            #[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(deny_unknown_fields)]
            #[non_exhaustive]
            pub struct Config {
                /// The masters' URLs, for [`Builder::nodes`](crate::Builder::nodes).
                #[serde(default, deserialize_with = "urls", skip_serializing_if = "Vec::is_empty")]
                pub nodes: Vec<String>,
                $($fields)*
                /// Certificates for `rediss://` masters.
                #[serde(default, deserialize_with = "table", skip_serializing_if = "TlsConfig::is_empty")]
                pub tls: TlsConfig,
                /// The login for masters whose URL has no password.
                #[serde(default, deserialize_with = "table", skip_serializing_if = "CredentialsConfig::is_empty")]
                pub credentials: CredentialsConfig,
            }

            impl Config {
                /// The settings without the nodes.
                #[doc(hidden)]
                pub fn options(&self) -> Options {
                    Options {
                        $($names: self.$names.clone(),)*
                        cacert: self.tls.ca.clone(),
                        client_cert: self.tls.certificate.clone(),
                        client_key: self.tls.key.clone(),
                        username: self.credentials.username.clone(),
                        password_file: self.credentials.password_file.clone(),
                        password_command: self.credentials.password_command.clone(),
                    }
                }
            }
    };
    ($($rows:tt)*) => { make_config! { @rows [] [] $($rows)* } };
}

each_setting!(make_config);

/// The table `[tls]` of a [`Config`]: files in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TlsConfig {
    /// The CAs to trust, in place of the system's. The file is read for each connection.
    #[serde(default, with = "setting", skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The certificate to show: see
    /// [`Builder::client_certificate_files`](crate::Builder::client_certificate_files).
    #[serde(default, with = "setting", skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The key of that certificate.
    #[serde(default, with = "setting", skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
}

impl TlsConfig {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The table `[credentials]` of a [`Config`]. It holds no password: it says where the password is. The fields mean the
/// same as the variables in [`Builder::from_env`](crate::Builder::from_env). `Debug` shows only the first word of the
/// command.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct CredentialsConfig {
    /// `QUORATE_USERNAME`.
    #[serde(default, with = "setting", skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// `QUORATE_PASSWORD_FILE`.
    #[serde(default, with = "setting", skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// `QUORATE_PASSWORD_COMMAND`.
    #[serde(default, with = "setting", skip_serializing_if = "Option::is_none")]
    pub password_command: Option<String>,
}

impl CredentialsConfig {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A word that is not valid is not shown, because a URL in the wrong place may hold a password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = self.options();
        let nodes: Vec<String> = self.nodes.iter().map(|url| place(url)).collect();
        let mut shown = f.debug_struct("Config");
        shown.field("nodes", &nodes);
        for setting in SETTINGS {
            if let Some(mut text) = setting.show(&options) {
                if setting.name == "password_command" {
                    text = first_word(&text).to_owned();
                }
                let is_valid = setting.check(&options).is_ok();
                shown.field(setting.name, &if is_valid { &text } else { HIDDEN });
            }
        }
        shown.finish()
    }
}

/// Host and port of a URL, or the path of a socket.
fn place(url: &str) -> String {
    match url.into_node() {
        Ok(Target::Server(address)) => address.id(),
        Ok(Target::Memory(_)) | Err(_) => HIDDEN.to_owned(),
    }
}

/// Returns true if the URL contains a password.
///
/// # Errors
/// `Invalid` if it is not a valid URL of a master.
pub fn has_password(url: &str) -> Result<bool, Error> {
    match url.into_node()? {
        Target::Server(address) => Ok(address.has_password()),
        Target::Memory(_) => Ok(false),
    }
}

impl fmt::Debug for CredentialsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = self.password_command.as_deref();
        f.debug_struct("CredentialsConfig")
            .field("username", &self.username)
            .field("password_file", &self.password_file)
            .field("password_command", &command.map(first_word))
            .finish()
    }
}

/// The program of a command. Its arguments may hold a secret.
fn first_word(command: &str) -> &str {
    command.split_whitespace().next().unwrap_or_default()
}

/// One setting: text, or for a flag true or false.
mod setting {
    use serde::{Deserializer, Serializer, ser::Error as _};

    use super::{Given, Kind, PhantomData, Value};

    pub(crate) fn serialize<T: Value, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let Some(value) = value else {
            return serializer.serialize_none();
        };
        let text = value.show();
        if T::read(&text).as_ref() != Ok(value) {
            return Err(S::Error::custom(
                "a duration that is not a whole number of milliseconds cannot be written",
            ));
        }
        match T::KIND {
            Kind::Flag => serializer.serialize_bool(text == "1"),
            Kind::Duration | Kind::File | Kind::Word => serializer.serialize_str(&text),
        }
    }

    pub(crate) fn deserialize<'de, T: Value, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_any(Given(PhantomData))
    }
}

/// A number is refused, and not repeated as serde does: it may be a password without quotes.
macro_rules! refuse_numbers {
    () => {
        refuse_numbers! { visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64 }
    };
    ($($visit:ident: $number:ty),*) => {$(
        fn $visit<E: serde::de::Error>(self, _: $number) -> Result<Self::Value, E> {
            Err(E::invalid_type(Unexpected::Other("a number"), &self))
        }
    )*};
}

/// Reads a value. No error repeats it: a URL in the wrong place may hold a password.
struct Given<T>(PhantomData<T>);

impl<'de, T: Value> Visitor<'de> for Given<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match T::KIND {
            Kind::Flag => "true or false",
            Kind::Duration => "a text such as \"700ms\" or \"3s\"",
            Kind::File => "the path of a file",
            Kind::Word => "a text",
        })
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        match T::KIND {
            Kind::Flag => Err(E::invalid_type(Unexpected::Other("text"), &self)),
            Kind::Duration | Kind::File | Kind::Word => T::read(text).map(Some).map_err(E::custom),
        }
    }

    fn visit_bool<E: serde::de::Error>(self, flag: bool) -> Result<Self::Value, E> {
        match T::KIND {
            Kind::Flag => T::read(if flag { "1" } else { "0" })
                .map(Some)
                .map_err(E::custom),
            Kind::Duration | Kind::File | Kind::Word => {
                Err(E::invalid_type(Unexpected::Bool(flag), &self))
            }
        }
    }

    refuse_numbers!();

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// One URL of the list.
struct Url(String);

impl<'de> Deserialize<'de> for Url {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let url: Option<String> = deserializer.deserialize_any(Given(PhantomData))?;
        url.map(Self)
            .ok_or_else(|| D::Error::custom("a URL is missing"))
    }
}

fn urls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    deserializer.deserialize_any(Urls)
}

/// Reads a table. No error repeats a value that is none, because it may be a password.
fn table<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Table(PhantomData))
}

struct Table<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Table<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<T, E> {
        Err(E::invalid_type(Unexpected::Other("text"), &self))
    }

    refuse_numbers!();

    fn visit_unit<E: serde::de::Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<T, E> {
        Ok(T::default())
    }
}

struct Urls;

impl<'de> Visitor<'de> for Urls {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of URLs")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut urls = Vec::new();
        while let Some(Url(url)) = list.next_element()? {
            urls.push(url);
        }
        Ok(urls)
    }

    refuse_numbers!();

    // It has a password more often than any other value.
    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Self::Value, E> {
        Err(E::invalid_type(Unexpected::Other("text"), &self))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests;
