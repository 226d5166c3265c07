//! Reads a URL, more strictly than the `redis` crate does.

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _};

/// What the `redis` crate may say of a URL.
const WHY: &[&str] = &[
    "Cannot connect to a wildcard address (0.0.0.0 or ::)",
    "Invalid database number",
    "Invalid protocol version",
    "Missing hostname",
    "Missing path",
    "Password is not valid UTF-8 string",
    "Username is not valid UTF-8 string",
];

/// What a URL says. One that could be read in two ways is refused: where a password is not
/// percent-encoded, the `redis` crate would take a piece of it for the host, or drop it.
pub(super) fn parse(url: &str) -> Result<ConnectionInfo, String> {
    read(url).map_err(|why| match url.contains(char::is_whitespace) {
        true => {
            "a blank stands in it: URLs are separated by commas, and in a password a blank is %20"
                .into()
        }
        false => why,
    })
}

fn read(text: &str) -> Result<ConnectionInfo, String> {
    const UNREADABLE: &str = "it cannot be read";
    let mut url = redis::parse_redis_url(text).ok_or(UNREADABLE)?;
    // Whether rediss:// is one for the `redis` crate depends on features of that crate, and
    // with its TLS but not its TLS for tokio it does not compile. So it only sees redis://.
    let tls = matches!(url.scheme(), "rediss" | "valkeys");
    let insecure = url.fragment() == Some("insecure");
    if url.fragment().is_some() && !(tls && insecure) {
        return Err("only rediss://...#insecure may stand behind a #".into());
    }
    let unix = url.scheme().ends_with("unix");
    if url.path().contains('@') {
        return Err("an @ stands behind a /: a path has it as %40".into());
    }
    let (settings, wrong): (&[&str], _) = match unix {
        true => (
            &["db", "user", "pass", "protocol"],
            "behind the ? may stand only db=, user=, pass= and protocol=",
        ),
        false => (
            &["protocol"],
            "behind the ? may stand only protocol=, as user, password and database stand before it",
        ),
    };
    if url.query_pairs().any(|(key, _)| !settings.contains(&&*key)) {
        return Err(wrong.into());
    }
    // A line end would be left out of a URL, and what stands around it taken for one word.
    let is_cut = |c: char| matches!(c, '\n' | '\r' | '\t');
    if text.contains(is_cut) {
        return Err(UNREADABLE.into());
    }
    // A percent sign there was meant for a login, and a comma to separate two hosts.
    let is_host = |host: &str| !host.is_empty() && !host.contains(['%', ',']);
    if !unix && !url.host_str().is_some_and(is_host) {
        return Err("its host is missing, or not a valid name".into());
    }
    if tls && url.set_scheme("redis").is_err() {
        return Err(UNREADABLE.into());
    }
    let mut info = url.into_connection_info().map_err(|error| {
        // Only words that surely repeat nothing of the URL.
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
