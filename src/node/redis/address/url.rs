//! Reads a URL, more strictly than the `redis` crate does.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

/// The reasons of the `redis` crate that may be shown.
const WHY: &[&str] = &[
    "Cannot connect to a wildcard address (0.0.0.0 or ::)",
    "Invalid database number",
    "Invalid protocol version",
    "Missing hostname",
    "Missing path",
    "Password is not valid UTF-8 string",
    "Username is not valid UTF-8 string",
];

/// Reads a URL. A URL that could be read in two ways is refused: if a password is not percent-encoded, the `redis`
/// crate would take a piece of it for the host, or drop it.
pub(super) fn parse(url: &str) -> Result<ConnectionInfo, String> {
    read(url).map_err(|why| match url.contains(char::is_whitespace) {
        true => {
            "it contains a blank: separate URLs by commas, and write a blank in a password as %20"
                .into()
        }
        // The text is not shown, because it may have a password.
        false if !url.contains(":/") => {
            "it has no scheme: write redis:// (or rediss://) before it".into()
        }
        false => why,
    })
}

fn read(text: &str) -> Result<ConnectionInfo, String> {
    const UNREADABLE: &str = "it cannot be read";
    let mut url = redis::parse_redis_url(text).ok_or(UNREADABLE)?;
    // The `redis` crate accepts rediss:// only with some of its features, and with its TLS but without its TLS for
    // tokio it does not compile. So it only gets redis:// here.
    let tls = matches!(url.scheme(), "rediss" | "valkeys");
    let insecure = url.fragment() == Some("insecure");
    if url.fragment().is_some() && !(tls && insecure) {
        return Err("a # is allowed only as in rediss://...#insecure".into());
    }
    let unix = url.scheme().ends_with("unix");
    if url.path().contains('@') {
        return Err("it has an @ after a /: write an @ in a path as %40".into());
    }
    let (settings, wrong): (&[&str], _) = match unix {
        true => (
            &["db", "user", "pass", "protocol"],
            "after the ? only db=, user=, pass= and protocol= are allowed",
        ),
        false => (
            &["protocol"],
            "after the ? only protocol= is allowed: user, password and database go before it",
        ),
    };
    if url.query_pairs().any(|(key, _)| !settings.contains(&&*key)) {
        return Err(wrong.into());
    }
    // A URL parser drops line ends, and joins the text around them to one word.
    let is_cut = |c: char| matches!(c, '\n' | '\r' | '\t');
    if text.contains(is_cut) {
        return Err(UNREADABLE.into());
    }
    // A percent sign in the host was meant for a login, and a comma separates two hosts.
    let is_host = |host: &str| !host.is_empty() && !host.contains(['%', ',']);
    if !unix && !url.host_str().is_some_and(is_host) {
        return Err("its host is missing, or not a valid name".into());
    }
    if tls && url.set_scheme("redis").is_err() {
        return Err(UNREADABLE.into());
    }
    let mut info = url.into_connection_info().map_err(|error| {
        // Only texts that surely repeat nothing of the URL are shown.
        let (error, why) = (error.to_string(), WHY.iter());
        why.copied()
            .find(|why| error.starts_with(why))
            .unwrap_or(UNREADABLE)
    })?;
    if let (true, ConnectionAddr::Tcp(host, port)) = (tls, info.addr()) {
        let addr = ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure,
            tls_params: None,
        };
        info = info.set_addr(addr);
    }
    Ok(info)
}
