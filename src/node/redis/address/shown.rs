//! The part of an invalid URL that an error may show: nothing that may belong to a password.

use super::url;

/// The words before `://` that may be shown.
const SCHEMES: &[&str] = &[
    "redis",
    "rediss",
    "valkey",
    "valkeys",
    "unix",
    "redis+unix",
    "valkey+unix",
    "http",
    "https",
    "tcp",
];

/// The greatest length of a host name.
const LONGEST_HOST: usize = 253;

/// The scheme, and what is surely host and port, or the path of a socket. The rest is shown as `***`. If the text is
/// several valid URLs with blanks between them, each is shown like this.
pub(super) fn shown(text: &str) -> String {
    let urls: Vec<&str> = text.split_whitespace().collect();
    match urls.len() > 1 && urls.iter().all(|url| url::parse(url).is_ok()) {
        true => urls
            .into_iter()
            .map(shown_alone)
            .collect::<Vec<_>>()
            .join(" "),
        false => shown_alone(text),
    }
}

fn shown_alone(url: &str) -> String {
    // Without a scheme it may be a piece of a password: a list of URLs is cut at a comma in a password.
    let Some((scheme, rest)) = url.split_once("://") else {
        return "***".into();
    };
    if !SCHEMES
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
    {
        return "***".into();
    }
    let unix = scheme.to_ascii_lowercase().ends_with("unix");
    let (login, place) = match rest.rsplit_once('@') {
        // This `@` may be in a password, so that parts of the password are on both sides of it.
        Some((before, _)) if unix || before.contains(['?', '#']) => {
            return format!("{scheme}://***");
        }
        Some((_, place)) => ("***@", place),
        None => ("", rest),
    };
    let (host, after) = place.split_at(host_length(place, unix));
    if host.len() > LONGEST_HOST || !after.is_empty() && !after.starts_with([':', '/', '?', '#']) {
        return format!("{scheme}://***");
    }
    // Without an `@`, the text behind a `:` may be the beginning of a password.
    let port = port_length(after);
    let is_port = !login.is_empty() || port == after.len();
    let (port, tail) = after.split_at(if is_port { port } else { 0 });
    let is_login = !login.is_empty() || tail.starts_with(':');
    let is_plain = |path: &str| path.len() < 4 && path.bytes().all(|b| b.is_ascii_alphanumeric());
    let tail = match (tail.strip_prefix('/'), tail.get(..1)) {
        (Some(path), _) if !is_login && is_plain(path) => tail.to_owned(),
        (_, Some(separator)) => format!("{separator}***"),
        (_, None) => String::new(),
    };
    format!("{scheme}://{login}{host}{port}{tail}")
}

/// The number of bytes at the beginning that surely belong to a host name, or to the path of a socket.
fn host_length(place: &str, unix: bool) -> usize {
    if let Some(rest) = place.strip_prefix('[') {
        let is_address = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
        let length = rest.bytes().take_while(is_address).count();
        let closed = rest.as_bytes().get(length) == Some(&b']');
        return if closed { length + 2 } else { 0 };
    }
    let is_host = |b: &u8| match b {
        b'.' | b'-' | b'_' => true,
        b'/' => unix,
        b => b.is_ascii_alphanumeric(),
    };
    place.bytes().take_while(is_host).count()
}

/// The number of bytes at the beginning that are surely `:` and a port.
fn port_length(text: &str) -> usize {
    let Some(rest) = text.strip_prefix(':') else {
        return 0;
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (port, after) = rest.split_at(digits);
    match port.parse::<u16>() {
        Ok(_) if after.is_empty() || after.starts_with(['/', '?', '#']) => digits + 1,
        _ => 0,
    }
}

/// Returns true if the URL contains a login, or something that was meant as one.
pub(super) fn may_hold_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let port = rest.split_once(':').map(|(_, port)| port);
    let port = port.and_then(|port| port.split(['/', '?', '#']).next());
    url.contains('@')
        || rest.to_ascii_lowercase().contains("pass")
        || !rest.starts_with('[') && port.is_some_and(|port| port.parse::<u64>().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_hides_every_part_that_may_be_a_password() {
        for (url, text) in [
            ("redis://h/x", "redis://h/x"),
            ("REDISS://h_1.b-c:6379", "REDISS://h_1.b-c:6379"),
            ("redis://h:6379/x", "redis://h:***"),
            ("redis://h/abcd", "redis://h/***"),
            ("redis://h?password=hunter2", "redis://h?***"),
            ("redis://h:99999", "redis://h:***"),
            ("redis://[::1]:7", "redis://[::1]:7"),
            ("redis://[::1", "redis://***"),
            ("redis://user:hunter2", "redis://user:***"),
            ("redis://:hunter2", "redis://:***"),
            ("redis://user:1234/hunter2", "redis://user:***"),
            ("redis://me:hunter2@h:7/x", "redis://***@h:7/***"),
            ("redis://me:hun/ter2@h:x", "redis://***@h:***"),
            ("redis://me:hunter2@h h", "redis://***"),
            ("redis://a:hu?nter2@h:1", "redis://***"),
            ("redis://a:b@hunter2@h/x", "redis://***@h/***"),
            ("redis://:one@h:1redis://:two@i:2", "redis://***@i:2"),
            (
                "unix:///run/r.sock?db=x&pass=hunter2",
                "unix:///run/r.sock?***",
            ),
            ("unix:///run/r.sock?pass=ab@hunter2", "unix://***"),
            ("unix:///me:hunter2", "unix:///me:***"),
            ("http://me:hunter2@h", "http://***@h"),
            ("hunter2://h", "***"),
            ("me:hunter2@h", "***"),
            ("hunter2", "***"),
            ("redis:/:hunter2@h", "***"),
            ("redis://me:hunter2\t@h", "redis://***@h"),
            ("redis://hunter2\t@", "redis://***@"),
        ] {
            assert_eq!(shown(url), text, "{url}");
        }
        let long = "h".repeat(LONGEST_HOST + 1);
        assert_eq!(shown(&format!("redis://{long}")), "redis://***");
    }
}
