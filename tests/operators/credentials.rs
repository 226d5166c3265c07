//! `credentials`: passwords that change while a program runs. No lease and no place in a queue is lost, and no text
//! shows a password.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use crate::support::{Fleet, HANG, Kind, Server, ServerOptions};
use futures::future::join_all;
use quorate::{Builder, Credentials, Error, Quorum};
use tokio::time::sleep;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The password that the servers accept, and how the provider behaves.
#[derive(Clone)]
struct Vault(Arc<State>);

struct State {
    password: Mutex<String>,
    lasts: Option<Duration>,
    asked: AtomicUsize,
    is_gone: AtomicBool,
    hangs: AtomicBool,
}

impl Vault {
    fn new(password: &str, lasts: Option<Duration>) -> Self {
        Self(Arc::new(State {
            password: Mutex::new(password.into()),
            lasts,
            asked: AtomicUsize::new(0),
            is_gone: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
        }))
    }

    fn give(&self, password: &str) {
        *self.0.password.lock().unwrap() = password.into();
    }

    fn asked(&self) -> usize {
        self.0.asked.load(Relaxed)
    }

    fn builder(&self, servers: &[Server]) -> Builder {
        let state = Arc::clone(&self.0);
        let urls = servers
            .iter()
            .map(|server| format!("redis://127.0.0.1:{}", server.port()));
        Quorum::builder().nodes(urls).credentials(move |node| {
            let state = Arc::clone(&state);
            async move {
                assert!(node.starts_with("127.0.0.1:"), "{node}");
                state.asked.fetch_add(1, Relaxed);
                if state.hangs.load(Relaxed) {
                    std::future::pending::<()>().await;
                }
                let password = state.password.lock().unwrap().clone();
                if state.is_gone.load(Relaxed) {
                    return Err("the vault is sealed".into());
                }
                let credentials = Credentials::new("app", password);
                Ok(match state.lasts {
                    Some(lasts) => credentials.expires_in(lasts),
                    None => credentials,
                })
            }
        })
    }
}

/// A server that serves user `app` with this password, and nobody else over TCP.
fn options(kind: Kind, password: &str) -> ServerOptions {
    let options = ServerOptions::new(kind).password("of-the-harness");
    options.acl(&format!("app on >{password} ~* &* +@all"))
}

fn set(server: &Server, change: &str) {
    server.cmd(&["ACL", "SETUSER", "app", change]);
}

/// All ways to end the connections of `app`.
fn kill_connections(server: &Server) {
    server.cmd(&["CLIENT", "KILL", "USER", "app"]);
}

async fn until(what: &str, quorum: &Quorum, is_so: impl Fn(&Quorum) -> bool) {
    let deadline = Instant::now() + HANG;
    while !is_so(quorum) {
        assert!(Instant::now() < deadline, "{what}: {:?}", quorum.nodes());
        sleep(ms(10)).await;
    }
}

fn all_vote(quorum: &Quorum) -> bool {
    quorum.health().voting == quorum.nodes().len()
}

/// Every text that tracing gets, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects the log of this process. Each test is a process of its own.
    fn collect() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let collector = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_global_default(collector).unwrap();
        log
    }

    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The passwords change every second for a minute. All connections are ended one by one in the second third, and all
/// at once in the last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_leases_survive_a_minute_of_new_passwords() {
    let log = Log::collect();
    let vault = Vault::new("password-0", Some(ms(2_000)));
    let mut servers = Vec::new();
    for kind in [Kind::Redis, Kind::Valkey, Kind::Redis] {
        servers.push(options(kind, "password-0").start());
    }
    let quorum = vault.builder(&servers).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let names: Vec<String> = (0..1_000).map(|n| format!("held-{n}")).collect();
    let held = names.iter().map(|name| quorum.mutex(name).lock());
    let leases: Vec<_> = join_all(held)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    // Waiters behind some of them, in this order.
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for waiter in 0..3 {
        // A client of its own: waiters of one client queue in their process.
        let client = vault.builder(&servers).connect().await.unwrap();
        let (mutex, order) = (client.mutex("held-0"), Arc::clone(&order));
        waiters.push(tokio::spawn(async move {
            let lease = mutex.lock().await.unwrap();
            order.lock().unwrap().push(waiter);
            lease.release().await.unwrap();
            drop(client);
        }));
        let places = |quorum: &Quorum| {
            let quorum = quorum.clone();
            async move { quorum.inspect("held-0").await.unwrap().to_string() }
        };
        let deadline = Instant::now() + HANG;
        while !places(&quorum)
            .await
            .contains(&format!("renewed; {} wait", waiter + 1))
        {
            assert!(Instant::now() < deadline, "{}", places(&quorum).await);
            sleep(ms(10)).await;
        }
    }
    let start = Instant::now();
    for second in 1..=60_u64 {
        let (old, new) = (
            format!("password-{}", second - 1),
            format!("password-{second}"),
        );
        for server in &servers {
            set(server, &format!(">{new}"));
        }
        vault.give(&new);
        match second {
            21..40 if second % 2 == 0 => {
                kill_connections(&servers[usize::try_from(second / 2).unwrap() % 3]);
            }
            40..=60 if second % 5 == 0 => servers.iter().for_each(kill_connections),
            _ => {}
        }
        sleep(ms(500)).await;
        for server in &servers {
            set(server, &format!("<{old}"));
        }
        let next = Duration::from_secs(second);
        sleep(next.saturating_sub(start.elapsed())).await;
    }
    let lost = leases.iter().filter(|lease| !lease.is_valid()).count();
    assert_eq!(lost, 0, "{:?}", quorum.nodes());
    // A login lasts 2 s, so about 40 of them passed on each node.
    assert!(vault.asked() > 90, "only {} logins", vault.asked());
    let mut leases = leases.into_iter();
    let first = leases.next().unwrap();
    assert!(order.lock().unwrap().is_empty());
    first.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2]);
    for lease in leases {
        lease.release().await.unwrap();
    }
    let shown = format!("{:?} {quorum:?} {}", quorum.nodes(), log.text());
    assert!(log.text().contains("quorate"), "nothing was collected");
    assert!(!shown.contains("password-"), "a password is shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_login_is_noted_and_the_connection_stays() {
    for kind in Kind::ALL {
        let vault = Vault::new("right", Some(ms(1_500)));
        let server = [options(kind, "right").start()];
        let quorum = vault.builder(&server).connect().await.unwrap();
        quorum.bootstrap_forced().await.unwrap();
        let lease = quorum.mutex("a").lock().await.unwrap();
        let connections = || {
            let clients = server[0].cmd(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            let clients: String = redis::FromRedisValue::from_redis_value(clients).unwrap();
            clients
                .split("id=")
                .nth(1)
                .map(|rest| rest.split(' ').next().unwrap().to_owned())
        };
        let before = connections();
        vault.give("wrong");
        let noted = |why: &'static str| {
            move |quorum: &Quorum| {
                let note = quorum.nodes()[0].note.clone().unwrap_or_default();
                note.contains(why) && !note.contains("wrong")
            }
        };
        until(
            "refused",
            &quorum,
            noted("refuses the new credentials (WRONGPASS)"),
        )
        .await;
        until("it votes", &quorum, all_vote).await;
        vault.0.is_gone.store(true, Relaxed);
        until("gone", &quorum, noted("the vault is sealed")).await;
        vault.0.is_gone.store(false, Relaxed);
        vault.give("right");
        until("right", &quorum, |quorum| quorum.nodes()[0].note.is_none()).await;
        assert_eq!(connections(), before, "the same connection");
        assert!(lease.is_valid());
        lease.release().await.unwrap();
    }
}

/// A server accepts the login of a user without rights, and then refuses every command.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_lack_rights_are_noted_and_cost_no_connection() {
    let options = options(Kind::Redis, "right").acl("poor on >right ~* &* +@connection");
    let fleet = Fleet::start_with(3, options);
    let user = Arc::new(Mutex::new("app"));
    let given = Arc::clone(&user);
    let urls = fleet
        .iter()
        .map(|server| format!("redis://127.0.0.1:{}", server.port()));
    let builder = Quorum::builder().nodes(urls).credentials(move |_| {
        let user = *given.lock().unwrap();
        async move { Ok(Credentials::new(user, "right").expires_in(ms(1_500))) }
    });
    let quorum = builder.connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    until("all vote", &quorum, all_vote).await;
    let lease = quorum.mutex("a").lock().await.unwrap();
    let connections = || {
        let ids = |server: &Server| {
            let clients = server.cmd(&["CLIENT", "LIST", "TYPE", "pubsub"]);
            let clients: String = redis::FromRedisValue::from_redis_value(clients).unwrap();
            let ids = clients.lines().filter_map(|line| line.split(' ').next());
            ids.map(str::to_owned).collect::<Vec<_>>()
        };
        fleet.iter().map(ids).collect::<Vec<_>>()
    };
    let before = connections();
    let all_noted = |quorum: &Quorum| {
        let nodes = quorum.nodes();
        let mut notes = nodes
            .iter()
            .map(|node| node.note.clone().unwrap_or_default());
        notes.all(|note| {
            note.contains("lack rights") && note.contains("from user \"poor\": grant them")
        })
    };
    *user.lock().unwrap() = "poor";
    until("noted", &quorum, all_noted).await;
    assert!(all_vote(&quorum), "{:?}", quorum.nodes());
    assert_eq!(connections(), before, "the same connections");
    *user.lock().unwrap() = "app";
    let is_clear = |quorum: &Quorum| quorum.nodes().iter().all(|node| node.note.is_none());
    until("clear", &quorum, is_clear).await;
    assert_eq!(connections(), before, "the same connections");
    assert!(lease.is_valid());
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_that_was_deleted_comes_back_with_new_credentials() {
    let vault = Vault::new("one", Some(ms(60_000)));
    let fleet = Fleet::start_with(3, options(Kind::Redis, "one"));
    let quorum = vault.builder(&fleet).connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    until("all vote", &quorum, all_vote).await;
    let lease = quorum.mutex("a").lock().await.unwrap();
    for server in &*fleet {
        server.cmd(&["ACL", "DELUSER", "app"]);
    }
    let refused = |quorum: &Quorum| {
        let nodes = quorum.nodes();
        let mut states = nodes.iter().map(|node| node.state.to_string());
        states.all(|state| {
            state.contains(
                "it does not know user \"app\" with the password of the credentials provider",
            )
        })
    };
    until("all refuse", &quorum, refused).await;
    vault.give("two");
    for server in &*fleet {
        server.cmd(&["ACL", "SETUSER", "app", "on", ">two", "~*", "&*", "+@all"]);
    }
    until("all vote again", &quorum, all_vote).await;
    assert!(lease.is_valid(), "10 s have not passed");
    lease.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_without_an_answer_is_told_in_the_nodes_state() {
    let vault = Vault::new("right", None);
    let server = [options(Kind::Redis, "right").start()];
    let connect = || vault.builder(&server).dial_timeout(ms(2_000));
    let why = |error: Result<Quorum, Error>| error.unwrap_err().to_string();
    vault.0.is_gone.store(true, Relaxed);
    let sealed = why(connect().connect().await);
    assert!(
        sealed.contains("refused: the credentials provider: the vault is sealed"),
        "{sealed}"
    );
    vault.0.is_gone.store(false, Relaxed);
    vault.0.hangs.store(true, Relaxed);
    let hangs = why(connect().connect().await);
    assert!(
        hangs.contains("the credentials provider gives no answer within 2"),
        "{hangs}"
    );
    vault.0.hangs.store(false, Relaxed);
    // The last one: it works, and is not asked again without an end.
    let quorum = connect().connect().await.unwrap();
    quorum.bootstrap_forced().await.unwrap();
    let asked = vault.asked();
    sleep(ms(300)).await;
    assert_eq!(vault.asked(), asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_with_a_password_does_not_ask_the_provider() {
    let vault = Vault::new("wrong", None);
    let server = [options(Kind::Redis, "right").start()];
    let with_password = server[0].url_with("app", "right");
    let quorum = vault.builder(&[]).node(with_password).connect().await;
    assert!(quorum.is_ok(), "{quorum:?}");
    assert_eq!(vault.asked(), 0);
    // The user of a URL without a password is used where the credentials name none.
    let provider = |_: Arc<str>| async { Ok(Credentials::new("", "right")) };
    let url = format!("redis://app@127.0.0.1:{}", server[0].port());
    let quorum = Quorum::builder()
        .node(url)
        .credentials(provider)
        .connect()
        .await;
    assert!(quorum.is_ok(), "{quorum:?}");
}
