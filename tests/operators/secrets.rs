//! No password is shown: neither from a wrong URL, nor by a server that repeats it.
//!
//! Errors about URLs, and about answers to a login, may not even show parts of the password: no four of its characters
//! may stand in a row. In later texts the whole password is hidden. `PROPTEST_CASES=1000000 cargo test --test promises
//! secrets::urls` searches longer.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use crate::support::{HANG, Kind, Server, ServerOptions};
use proptest::{prelude::*, sample::Index, test_runner::TestRunner};
use quorate::{Error, NodeState, Quorum};

const WINDOW: usize = 4;

/// The first four characters in a row of the password that the text contains, but that are not part of `may_show`.
fn leak(text: &str, password: &str, may_show: &str) -> Option<String> {
    // A URL parser drops these characters.
    let may_show = may_show.replace(['\t', '\r', '\n'], "").to_lowercase();
    let text = text.to_lowercase();
    let letters: Vec<char> = password.to_lowercase().chars().collect();
    let mut windows = letters.windows(WINDOW).map(String::from_iter);
    windows.find(|window| text.contains(window.as_str()) && !may_show.contains(window.as_str()))
}

// ---- URLs ----------------------------------------------------------------------------------

/// Letters that do not occur in our words, and all characters with a meaning in a URL.
const PASSWORD: &str =
    "[QXZJKWVqxzjkwv]{0,3}([QXZJKWVqxzjkwv]{1,6}[-@:/#?%=&, .+!'\"\\\\;\\[\\]]?){1,4}";

/// A URL as people write it, and the same URL percent-encoded.
fn url() -> impl Strategy<Value = (String, String)> {
    let scheme = prop::sample::select(vec![
        "redis://",
        "rediss://",
        "valkey://",
        "unix://",
        "redis+unix://",
        "http://",
        "redis:/",
        "",
    ]);
    let login = prop::sample::select(vec!["me:{}@", ":{}@", "me:{}", ":{}", "{}@", ""]);
    let place = prop::sample::select(vec![
        "h",
        "h:6379",
        "10.0.0.1:6379/0",
        "[::1]:6379",
        "h/",
        "h:x",
        "",
        "/run/r.sock",
        "h/notadb",
        "h:6379,redis://me:{}@i:6379",
        "h:6379redis://me:{}@i:6379",
        "h redis://:{}@i",
    ]);
    let query = prop::sample::select(vec![
        "",
        "",
        "",
        "?pass={}",
        "?PASS={}",
        "?db=x&pass={}",
        "?p%61ss={}",
        "?password={}&db=1",
        "?protocol={}",
        "?user=me&pass={}&protocol=9",
        "#insecure",
        "#{}",
        "?{}",
    ]);
    (PASSWORD, any::<bool>(), scheme, login, place, query).prop_map(
        |(password, encoded, scheme, login, place, query)| {
            // These characters stand around a host in our texts.
            let password = password.replace(['"', '\\', ' '], "");
            let written = match encoded {
                true => password.bytes().map(|b| format!("%{b:02X}")).collect(),
                false => password.clone(),
            };
            let url = format!("{scheme}{login}{place}{query}").replace("{}", &written);
            (password, url)
        },
    )
}

/// Makes a typing mistake in the URL.
fn slip(url: &mut Vec<char>, kind: u8, at: Index) {
    const SEPARATORS: &[char] = &['@', ':', '/', '#', '?', '%', ',', '&', '=', ' ', '\t', '\n'];
    let places: Vec<usize> = (0..url.len())
        .filter(|i| SEPARATORS.contains(&url[*i]))
        .collect();
    let place = (!places.is_empty()).then(|| places[at.index(places.len())]);
    let anywhere = at.index(url.len() + 1);
    match (kind, place) {
        (0, Some(place)) => drop(url.remove(place)),
        (1, Some(place)) => url.insert(place, url[place]),
        (2, Some(place)) => url[place] = SEPARATORS[at.index(SEPARATORS.len())],
        (3, _) => url.insert(anywhere, SEPARATORS[at.index(SEPARATORS.len())]),
        (4, _) => url.truncate(anywhere),
        (5, _) => drop(url.drain(..anywhere)),
        (6, _) => url.iter_mut().for_each(|c| c.make_ascii_uppercase()),
        (7, Some(place)) => {
            let encoded = format!("%{:02x}", u32::from(url[place]));
            url.splice(place..=place, encoded.chars());
        }
        _ => {}
    }
}

/// The part of the URL in the place of a host or of a socket's path, no matter what is wrong elsewhere. It includes the
/// separators around it.
fn place(url: &str) -> &str {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let is_unix = scheme.to_lowercase().ends_with("unix");
    let (login, at) = rest.rfind('@').map_or((false, 0), |at| (true, at));
    let place = &rest[at..];
    let ends: &[char] = match (login, place.contains(':'), is_unix) {
        (true, ..) => &['/', '?', '#'],
        (false, _, true) => &['?', '#', ':'],
        (false, true, false) => &['/', '?', '#', ':'],
        // Nothing looks like a login, so three characters of a path are shown.
        (false, false, false) => &['?', '#'],
    };
    let end = place.find(ends).map_or(place.len(), |end| end + 1);
    let path = place.find('/').map_or(end, |slash| slash + 4);
    let end = if is_unix { end } else { end.min(path) };
    place.get(..end).unwrap_or(place)
}

fn wrong_urls_tell_nothing(password: &str, url: &str) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let _entered = runtime.enter();
    let builder = Quorum::builder().nodes(url.split(','));
    let debug = format!("{builder:?} {builder:#?}");
    prop_assert_eq!(leak(&debug, password, ""), None);
    for url in url.split(',') {
        match Quorum::builder().node(url).connect_lazy() {
            Err(error) => {
                let told = format!("{error} {error:?} {error:#?}");
                prop_assert!(
                    leak(&told, password, &format!("/{}", place(url))).is_none(),
                    "{url:?}: {told}"
                );
                prop_assert!(matches!(error, Error::Invalid(_)) && told.len() < 3_000);
            }
            Ok(quorum) => {
                let nodes = quorum.nodes();
                let told = format!("{quorum:?} {quorum:#?} {nodes:?} {}", nodes[0]);
                // In a valid URL the host is what it seems to be. A `:` follows it in texts.
                let host = &format!("{}:", nodes[0].node);
                prop_assert!(leak(&told, password, host).is_none(), "{url:?}: {told}");
                let is_place = host.starts_with('/')
                    || leak(host, password, &format!("{}:", place(url))).is_none();
                prop_assert!(is_place, "{url:?}: {host}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn urls_that_are_wrong_tell_no_password(
        (password, url) in url(),
        slips in prop::collection::vec((0..8u8, any::<Index>()), 0..4),
    ) {
        let mut url: Vec<char> = url.chars().collect();
        for (kind, at) in slips {
            slip(&mut url, kind, at);
        }
        wrong_urls_tell_nothing(&password, &String::from_iter(url))?;
    }
}

// ---- servers -------------------------------------------------------------------------------

/// The ways in which a server may spell what it repeats: each letter, and how many of the letters reveal something.
type Spelling = (fn(&str) -> Vec<String>, usize);

const SPELLINGS: &[Spelling] = &[
    (|secret| each(secret, |b| char::from(b).to_string()), WINDOW),
    (
        |secret| each(secret, |b| char::from(b).to_uppercase().to_string()),
        WINDOW,
    ),
    (|secret| each(secret, |b| format!("%{b:02X}")), WINDOW),
    (|secret| each(secret, |b| format!("\\x{b:02x}")), WINDOW),
    (
        |secret| each(secret, |b| format!("{}\r\n", char::from(b))),
        WINDOW + 2,
    ),
    (|secret| each(secret, |b| format!("{b:02x}")), WINDOW),
    (|secret| each(secret, |b| format!("&#{b};")), WINDOW),
    (base64, 6),
];
/// The number of these spellings, from the first on, that are found in any text. The others are found only in the
/// answer to the login.
const RECOGNISED: usize = 3;

fn each(secret: &str, spelled: fn(u8) -> String) -> Vec<String> {
    secret.bytes().map(spelled).collect()
}

fn base64(secret: &str) -> Vec<String> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: Vec<u8> = secret
        .bytes()
        .flat_map(|b| (0..8).rev().map(move |i| b >> i & 1))
        .collect();
    let digit = |six: &[u8]| six.iter().fold(0, |n, bit| 2 * n + usize::from(*bit));
    let digits = bits
        .chunks_exact(6)
        .map(|six| char::from(DIGITS[digit(six)]).to_string());
    digits.collect()
}

/// The part of a password that a server repeats.
#[derive(Debug)]
struct Echo {
    password: String,
    letters: Vec<String>,
    window: usize,
}

impl Echo {
    fn whole(password: String, (spelling, window): Spelling) -> Self {
        let letters = spelling(&password);
        Self {
            password,
            letters,
            window,
        }
    }

    fn part(password: String, (spelling, window): Spelling, from: Index, to: Index) -> Self {
        let letters = spelling(&password);
        let (from, to) = (from.index(letters.len()), to.index(letters.len()));
        let letters = letters[from.min(to)..].to_vec();
        let longest = letters.len().min(1 + from.abs_diff(to).max(window));
        let letters = letters[..longest].to_vec();
        Self {
            password,
            letters,
            window,
        }
    }

    fn words(&self) -> String {
        self.letters.concat()
    }

    fn is_not_in(&self, told: &str) -> Result<(), TestCaseError> {
        prop_assert_eq!(leak(told, &self.password, ""), None, "{}", told);
        for window in self.letters.windows(self.window) {
            let window = window.concat();
            prop_assert!(!told.contains(&window), "{window:?}: {told}");
        }
        Ok(())
    }
}

/// The forms of an answer: `{}` stands for one line, `{!}` for a text with its length.
fn answer(form: &str, words: &str) -> Vec<u8> {
    let line = words.replace("\r\n", " ");
    let text = format!("{}\r\n{words}\r\n", words.len());
    form.replace("{}", &line).replace("{!}", &text).into_bytes()
}

/// Everything that was logged, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Runs the future on a runtime of this thread, so that everything it logs arrives here.
    fn of<T>(future: impl Future<Output = T>) -> (T, String) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let done = tracing::subscriber::with_default(subscriber, || runtime.block_on(future));
        let text = String::from_utf8_lossy(&lock(&log.0)).into_owned();
        (done, text)
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

async fn until(quorum: &Quorum, is_so: fn(&NodeState) -> bool) {
    let deadline = Instant::now() + HANG;
    while !is_so(&quorum.nodes()[0].state) {
        assert!(Instant::now() < deadline, "{quorum:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Everything that a user can see of a quorum and its errors.
async fn seen(quorum: &Quorum, name: &str) -> String {
    let mut seen = String::new();
    let mut see = |error: Option<Error>| {
        if let Some(error) = error {
            let report = error
                .report()
                .map(|report| format!("{report} {report:?} {report:#?}"));
            seen += &format!("{error} {error:?} {error:#?} {report:?} ");
        }
    };
    see(quorum.mutex(name).try_lock().await.err());
    see(quorum.evict(name).await.err());
    let inspection = quorum.inspect(name).await.unwrap();
    let nodes = quorum.nodes();
    let node = &nodes[0];
    format!(
        "{seen} {inspection} {inspection:?} {inspection:#?} {quorum:?} {quorum:#?} {node} {nodes:?} {nodes:#?}"
    )
}

/// Answers its first request with these bytes, and closes.
fn answers(bytes: Vec<u8>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut heard = vec![0; 1 << 16];
        let _ = stream.read(&mut heard);
        let _ = stream.write_all(&bytes);
        // Leaves nothing unread, because that would reset the connection and lose the answer.
        let _ = stream.shutdown(Shutdown::Write);
        while stream.read(&mut heard).is_ok_and(|read| read > 0) {}
    });
    port
}

#[test]
fn a_server_that_repeats_a_login_is_not_believed() {
    let forms = vec![
        "-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' '{}\r\n",
        "-{}\r\n",
        "-ERR {}\r\n",
        "-WRONGPASS {}\r\n",
        "-NOAUTH {}\r\n",
        "-NOPERM {}\r\n",
        "-NOPROTO {}\r\n",
        "-LOADING {}\r\n",
        "!{!}",
        "{}\r\n",
        "HTTP/1.1 400 {}\r\n",
        "HTTP/{}\r\n",
        "SSH-{}\r\n",
        "220 {}\r\n",
        "+{}\r\n",
        "${!}",
        "*1\r\n${!}",
        "%1\r\n+mode\r\n+{}\r\n",
        ">2\r\n+a\r\n+{}\r\n-ERR {}\r\n",
        "$7\r\n{}\r\n",
    ];
    let spelling = prop::sample::select(SPELLINGS);
    let part = (PASSWORD, spelling, any::<Index>(), any::<Index>())
        .prop_map(|(password, spelling, from, to)| Echo::part(password, spelling, from, to));
    let cases = (part, prop::sample::select(forms));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let result = runner.run(&cases, |(echo, form)| {
        let port = answers(answer(form, &echo.words()));
        let password: String = echo.password.bytes().map(|b| format!("%{b:02x}")).collect();
        let url = format!("redis://me:{password}@127.0.0.1:{port}");
        let (seen, log) = Log::of(async {
            let quorum = Quorum::builder().node(url).connect_lazy().unwrap();
            until(&quorum, |state| *state != NodeState::Connecting).await;
            seen(&quorum, "a").await
        });
        prop_assert!(seen.contains("NoQuorum") && log.contains("a node does not vote"));
        echo.is_not_in(&seen)?;
        echo.is_not_in(&log)
    });
    result.unwrap();
}

const NAME: &str = "of-one-lock";

/// A proxy in front of a real server. It answers requests that name the lock itself.
struct Middleman {
    port: u16,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Middleman {
    fn start(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answer, server) = (Arc::<Mutex<Vec<u8>>>::default(), server.port());
        let shared = Arc::clone(&answer);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, answer) = (client.unwrap(), Arc::clone(&shared));
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                thread::spawn(move || pass_on(client, server, &answer));
            }
        });
        Self { port, answer }
    }
}

/// Forwards requests one after the other, so that answers keep their order.
fn pass_on(client: TcpStream, server: TcpStream, answer: &Mutex<Vec<u8>>) -> io::Result<()> {
    let (mut to_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (mut client, mut server) = (BufReader::new(client), BufReader::new(server));
    loop {
        let mut request = Vec::new();
        take(&mut client, &mut request)?;
        let names_it = request
            .windows(NAME.len())
            .any(|name| name == NAME.as_bytes());
        let reply = match names_it {
            true => lock(answer).clone(),
            false => {
                to_server.write_all(&request)?;
                let mut reply = Vec::new();
                take(&mut server, &mut reply)?;
                reply
            }
        };
        to_client.write_all(&reply)?;
    }
}

/// Reads one request, or one reply.
fn take(from: &mut BufReader<TcpStream>, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut line = Vec::new();
    if from.read_until(b'\n', &mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.extend(&line);
    let number = || {
        String::from_utf8_lossy(&line[1..])
            .trim()
            .parse()
            .unwrap_or(0)
    };
    let inner = match line[0] {
        b'$' | b'!' | b'=' => {
            let start = bytes.len();
            bytes.resize(start + number() + 2, 0);
            return from.read_exact(&mut bytes[start..]);
        }
        b'*' | b'~' | b'>' => number(),
        b'%' => 2 * number(),
        _ => 0,
    };
    (0..inner).try_for_each(|_| take(from, bytes))
}

#[test]
fn a_server_that_repeats_it_later_is_told_without_it() {
    let forms = vec![
        "-ERR unknown command '{}\r\n",
        "-{}\r\n",
        "-NOPERM User {} has no permissions\r\n",
        "-READONLY {}\r\n",
        "-OOM {}\r\n",
        "!{!}",
        "+{}\r\n",
        "${!}",
        "*1\r\n${!}",
        "*2\r\n:1\r\n+{}\r\n",
        // A holder of the lock, as an answer about it.
        "*5\r\n${!}:1000\r\n:7\r\n:0\r\n:0\r\n",
        // A text that is not an answer, and one answer too many.
        "hello {}\r\n",
        "-ERR\r\n-ERR {}\r\n",
    ];
    for password in ["QxZjKwVqXzJkqqWWv", "zQjXq"] {
        let server = ServerOptions::new(Kind::Redis).password(password).start();
        let middleman = Middleman::start(&server);
        let url = format!("redis://:{password}@127.0.0.1:{}", middleman.port);
        let spelling = prop::sample::select(&SPELLINGS[..RECOGNISED]);
        let whole = spelling.prop_map(|spelling| Echo::whole(password.to_owned(), spelling));
        let cases = (whole, prop::sample::select(forms.clone()));
        let mut runner = TestRunner::new(ProptestConfig {
            cases: 60,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let result = runner.run(&cases, |(echo, form)| {
            *lock(&middleman.answer) = answer(form, &echo.words());
            let (seen, log) = Log::of(async {
                let builder = Quorum::builder().node(&url).max_ttl(Duration::from_secs(2));
                let builder = builder.restart_margin(Duration::from_millis(100));
                let quorum = builder.connect_lazy().unwrap();
                quorum.bootstrap().await.unwrap();
                until(&quorum, |state| *state == NodeState::Voting).await;
                seen(&quorum, NAME).await
            });
            prop_assert!(
                seen.contains("NoQuorum") && log.contains("voting"),
                "{}",
                seen
            );
            echo.is_not_in(&seen)?;
            echo.is_not_in(&log)
        });
        result.unwrap();
    }
}
