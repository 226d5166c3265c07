//! The reasons why Consul did not do a request, and the errors that callers get.

use std::{io, sync::Arc, time::Duration};

use reqwest::StatusCode;

use crate::{
    Error, NodeReport, Report, Silence, Vote,
    base::{printable::printable, tls::fault_of},
};

/// Consul's answer without a leader.
const NO_LEADER: &str = "No cluster leader";
/// When to try again after Consul failed: the time that electing a leader takes.
const AGAIN: Duration = Duration::from_secs(1);

/// The reason why there is no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    silence: Silence,
    /// It is certain that nothing was done.
    pub(super) is_certain: bool,
}

impl Fault {
    /// A fault because no answer came.
    pub(super) fn of(error: &reqwest::Error) -> Self {
        if error.is_connect() {
            return Self {
                silence: Silence::Unreachable(root_of(error)),
                is_certain: true,
            };
        }
        let silence = match error.is_timeout() {
            true => Silence::TimedOut,
            false => Silence::Failed(root_of(error)),
        };
        Self {
            silence,
            is_certain: error.is_builder(),
        }
    }

    /// A fault because the answer says that the request failed.
    pub(super) fn of_answer(status: StatusCode, body: &[u8]) -> Self {
        let text = printable(String::from_utf8_lossy(body).trim());
        // Without a text, the status is all that Consul says.
        let text = match text.is_empty() {
            true => status.to_string(),
            false => text,
        };
        let unfit = |advice: &str| (Silence::Unfit(format!("{text}: {advice}")), true);
        let (silence, is_certain) = match status.as_u16() {
            401 | 403 => unfit(
                "give a token (.token, or CONSUL_HTTP_TOKEN) whose policy has `key_prefix` write for the names and \
                 `session_prefix` write",
            ),
            429 => (
                Silence::Failed(format!(
                    "{text}: too many requests or connections from this address (http_max_conns_per_client)"
                )),
                true,
            ),
            400 => unfit("Consul does not accept the request"),
            _ if text.contains("No path to datacenter") => {
                unfit("check the name of the datacenter (.datacenter, --datacenter)")
            }
            _ if text.contains(NO_LEADER) || text.contains("No known Consul servers") => {
                return Self::leaderless(&text);
            }
            _ => (Silence::Failed(text), false),
        };
        Self {
            silence,
            is_certain,
        }
    }

    /// A fault because a step of a transaction was refused, for a reason that lies outside the transaction.
    pub(super) fn of_step(text: &str) -> Self {
        let status = match text.contains("Permission denied") {
            true => StatusCode::FORBIDDEN,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self {
            // A transaction is done as a whole or not at all.
            is_certain: true,
            ..Self::of_answer(status, text.as_bytes())
        }
    }

    /// A fault because the runtime ends.
    pub(super) fn ended() -> Self {
        Self {
            silence: Silence::ConnectionLost,
            is_certain: true,
        }
    }

    /// A fault because no answer came in time, and there is no leader.
    pub(super) fn no_leader() -> Self {
        Self::leaderless(NO_LEADER)
    }

    fn leaderless(text: &str) -> Self {
        Self {
            silence: Silence::Failed(format!(
                "{text}: its servers are electing a leader, or too few of them are up (`consul operator raft list-peers`)"
            )),
            // A leader that has just lost its office may have done it.
            is_certain: false,
        }
    }

    /// A fault because the answer is not one of Consul's.
    pub(super) fn unreadable(why: &impl std::fmt::Display) -> Self {
        Self {
            silence: Silence::Unfit(format!(
                "its answer cannot be read ({}): is this Consul's HTTP address?",
                printable(why)
            )),
            is_certain: false,
        }
    }

    /// The text for a log.
    pub(super) fn text(&self) -> String {
        self.silence.to_string()
    }

    /// The error for the caller of a request.
    pub(super) fn error(self, subject: &str, node: &Arc<str>) -> Error {
        let nodes = vec![NodeReport {
            node: Arc::clone(node),
            vote: Vote::None(self.silence),
            holder: None,
            name: None,
        }];
        Error::NoQuorum(Report::new(subject, 1, nodes, Some(AGAIN)).of_consul())
    }
}

/// The last of the causes. The others only say in other words that the request failed.
fn root_of(error: &reqwest::Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    words_of(last)
}

/// A certificate's fault says what to do. TLS hides its error in one of input and output.
fn words_of(error: &(dyn std::error::Error + 'static)) -> String {
    let inner = error.downcast_ref::<io::Error>();
    let inner = inner.and_then(io::Error::get_ref);
    let of_tls = match inner {
        Some(inner) => inner.downcast_ref(),
        None => error.downcast_ref(),
    };
    match of_tls {
        Some(rustls::Error::InvalidCertificate(fault)) => {
            format!("its TLS certificate is not accepted: {}", fault_of(fault))
        }
        _ => printable(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(status: u16, body: &str) -> (String, bool) {
        let fault = Fault::of_answer(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        (fault.text(), fault.is_certain)
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let (denied, is_certain) = fault(403, "Permission denied");
        assert!(denied.contains("Permission denied") && denied.contains("CONSUL_HTTP_TOKEN"));
        assert!(is_certain);
        let (leader, is_certain) = fault(500, "No cluster leader");
        assert!(leader.contains("electing a leader") && !is_certain);
        assert!(
            fault(500, "No path to datacenter")
                .0
                .contains(".datacenter")
        );
        assert!(fault(429, "").0.contains("429") && fault(429, "").0.contains("http_max_conns"));
        assert_eq!(
            fault(500, "rpc error\n"),
            ("answered with an error: rpc error".into(), false)
        );
    }

    #[test]
    fn a_certificate_that_is_not_accepted_is_told_with_what_to_do() {
        let inner: Box<dyn std::error::Error + Send + Sync> = "CaUsedAsEndEntity".into();
        let fault = rustls::CertificateError::Other(rustls::OtherError(Arc::from(inner)));
        let error = rustls::Error::InvalidCertificate(fault);
        for text in [words_of(&error), words_of(&io::Error::other(error.clone()))] {
            assert!(
                text.contains("CA:FALSE") && !text.contains("OtherError"),
                "{text}"
            );
        }
        assert_eq!(words_of(&io::Error::other("gone")), "gone");
    }

    #[test]
    fn an_error_names_consul_and_no_address_but_in_its_report() {
        let fault = Fault::of_answer(StatusCode::FORBIDDEN, b"Permission denied");
        let error = fault.error("jobs", &"127.0.0.1:8500".into());
        assert!(error.to_string().contains("Consul"), "{error}");
        assert!(!error.to_string().contains("8500"), "{error}");
        assert_eq!(&*error.report().unwrap().nodes()[0].node, "127.0.0.1:8500");
    }
}
