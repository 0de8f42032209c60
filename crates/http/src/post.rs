//! What becomes of a message that a client has sent.

use std::sync::Arc;

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::answer::{self, Answer};
use crate::backend::Backend;
use crate::eras::{self, Era, Kind};
use crate::front::Front;
use crate::head::Head;
use crate::refusal::{Refusal, code};
use crate::session::Session;
use crate::turn::Turn;
use crate::upstream::{Call, Upstream};

/// By which a client is known after the handshake.
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// What the client gets.
#[derive(Debug)]
pub(crate) enum Reply {
    Now(Answer),
    /// The answer to this call, which stands for itself or not.
    Later {
        call: Call,
        lone: bool,
    },
}

/// What a client says it can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reads {
    pub(crate) json: bool,
    pub(crate) events: bool,
}

impl Reads {
    pub(crate) fn of(head: &Head) -> Result<Self, Refusal> {
        let Some(accept) = head.list("accept") else { return Ok(Self { json: true, events: true }) };
        let accepted = |range: &str| {
            let ranges = accept.split(',').map(|item| item.split(';').next().unwrap_or_default().trim());
            let family = range.split('/').next().unwrap_or_default();
            ranges.into_iter().any(|item| {
                let item = item.to_ascii_lowercase();
                item == range || item == "*/*" || item.strip_suffix("/*") == Some(family)
            })
        };
        let reads = Self { json: accepted("application/json"), events: accepted("text/event-stream") };
        if reads.json || reads.events {
            return Ok(reads);
        }
        let words = "the Accept header must allow application/json or text/event-stream, or better both";
        Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, code::INVALID_REQUEST, words))
    }

    /// For what can be told in no other way.
    pub(crate) fn need_events(self) -> Result<(), Refusal> {
        let words = "the Accept header must allow text/event-stream";
        let refusal = || Refusal::new(StatusCode::NOT_ACCEPTABLE, code::INVALID_REQUEST, words);
        self.events.then_some(()).ok_or_else(refusal)
    }
}

/// Bodies are JSON and say so. A page in a browser cannot say it without asking us first.
pub(crate) fn check_type(head: &Head) -> Result<(), Refusal> {
    let kind = head.get("content-type").and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if kind.trim().eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let words = "the Content-Type header must be application/json";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, code::INVALID_REQUEST, words))
}

impl<B: Backend> Front<B> {
    pub(crate) async fn post(&self, head: &Head, body: &[u8], turn: Turn) -> Result<Reply, Refusal> {
        let message: Value = serde_json::from_slice(body).map_err(|error| {
            Refusal::new(StatusCode::BAD_REQUEST, code::PARSE, format!("the body is not JSON: {error}"))
        })?;
        let kind = eras::kind(&message)?;
        if kind == Kind::Request && turn.is_spare() {
            return Err(self.busy().of(message.get("id")));
        }
        match (eras::era(&message, kind, head)?, kind) {
            (Era::Opens, _) => self.open(message, turn).await,
            (Era::Belongs, kind) => {
                let session = self.session(head).map_err(|refusal| refusal.of(message.get("id")))?;
                pass_on(&session.upstream, message, kind, turn)
            }
            (Era::Stands, Kind::Request) => {
                let upstream = self.lone().await.map_err(|reason| unreachable(&message, &reason))?;
                let id = message.get("id").cloned();
                let call = upstream.call(message, turn).map_err(|_| gone(id.as_ref()))?;
                Ok(Reply::Later { call, lone: true })
            }
            // A request that stands for itself is cancelled by hanging up; there is nothing else to be told.
            (Era::Stands, Kind::Notification | Kind::Answer) => {
                Ok(Reply::Now(answer::empty(StatusCode::ACCEPTED)))
            }
        }
    }

    /// The handshake of a new session.
    async fn open(&self, message: Value, turn: Turn) -> Result<Reply, Refusal> {
        let id = message.get("id").cloned();
        let place = self.sessions.place().ok_or_else(|| {
            let limit = self.settings.max_sessions;
            Refusal::busy(format!("{limit} sessions are open, which is the limit; end one with DELETE"))
                .of(id.as_ref())
        })?;
        let stream = self.backend.open().await.map_err(|reason| unreachable(&message, &reason))?;
        let upstream = Arc::new(Upstream::new(stream, Some(self.settings.session_idle)));
        let call = upstream.call(message, turn).map_err(|_| gone(id.as_ref()))?;
        let answer = call.answered().await.map_err(|_| gone(id.as_ref()))?;
        let answered = answer::json(StatusCode::OK, &answer);
        let Some(version) = answer["result"]["protocolVersion"].as_str() else {
            return Ok(Reply::Now(answered));
        };
        let session = Session { upstream, version: version.to_owned() };
        let taken = place.take(session).map_err(|error| error.to_string());
        let named = taken.and_then(|id| HeaderValue::try_from(id).map_err(|error| error.to_string()));
        let name = named.map_err(|error| {
            Refusal::new(StatusCode::SERVICE_UNAVAILABLE, code::INTERNAL, error).of(id.as_ref())
        })?;
        Ok(Reply::Now(answer::with_header(answered, SESSION_ID, name)))
    }

    pub(crate) fn delete(&self, head: &Head) -> Result<Answer, Refusal> {
        if self.sessions.end(session_id(head)?) {
            Ok(answer::empty(StatusCode::NO_CONTENT))
        } else {
            Err(unknown_session())
        }
    }

    /// The session that a request belongs to.
    pub(crate) fn session(&self, head: &Head) -> Result<Session, Refusal> {
        let session = self.sessions.find(session_id(head)?).ok_or_else(unknown_session)?;
        match head.get("mcp-protocol-version") {
            Some(version) if version != session.version => {
                let words = format!("this session speaks {}, not {version:?}", session.version);
                Err(Refusal::new(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, words))
            }
            Some(_) | None => Ok(session),
        }
    }
}

fn session_id(head: &Head) -> Result<&str, Refusal> {
    head.get(SESSION_ID.as_str()).ok_or_else(|| {
        let words = "the Mcp-Session-Id header is missing; begin with initialize, whose answer has it";
        Refusal::new(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, words)
    })
}

fn pass_on(upstream: &Arc<Upstream>, message: Value, kind: Kind, turn: Turn) -> Result<Reply, Refusal> {
    match kind {
        Kind::Request => {
            let id = message.get("id").cloned();
            let call = upstream.call(message, turn).map_err(|_| gone(id.as_ref()))?;
            Ok(Reply::Later { call, lone: false })
        }
        Kind::Notification => {
            upstream.notify(message, turn);
            Ok(Reply::Now(answer::empty(StatusCode::ACCEPTED)))
        }
        // The server asks nothing, so there is nothing to answer.
        Kind::Answer => Ok(Reply::Now(answer::empty(StatusCode::ACCEPTED))),
    }
}

fn unknown_session() -> Refusal {
    let words = "there is no such session, or it has ended; begin with initialize";
    Refusal::new(StatusCode::NOT_FOUND, code::REFUSED, words)
}

fn unreachable(message: &Value, reason: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, code::INTERNAL, reason).of(message.get("id"))
}

pub(crate) fn gone(id: Option<&Value>) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, code::INTERNAL, "the server ended before it answered; try again")
        .of(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_reads_is_what_it_says() {
        let reads = |accept: &str| {
            Reads::of(&Head::with(&[("Accept", accept)])).ok().map(|Reads { json, events }| (json, events))
        };
        assert_eq!(reads("application/json, text/event-stream"), Some((true, true)));
        assert_eq!(reads("*/*"), Some((true, true)));
        assert_eq!(reads("Application/JSON;q=1"), Some((true, false)));
        assert_eq!(reads("text/*"), Some((false, true)));
        assert_eq!(reads("text/html"), None);
        assert_eq!(reads("application/jsonp, x/application/json"), None);
        let lines = [("Accept", "application/json"), ("Accept", "text/event-stream")];
        assert_eq!(Reads::of(&Head::with(&lines)), Ok(Reads { json: true, events: true }));
    }
}
