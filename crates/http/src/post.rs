//! Handles a message that a client has posted: opens a session, or passes the message on to the MCP server.

use std::sync::Arc;

use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use serde_json::Value;

use crate::answer::{self, Answer};
use crate::backend::Backend;
use crate::eras::{self, Era, Kind};
use crate::front::Front;
use crate::head::Head;
use crate::permits::Permit;
use crate::refusal::{Refusal, code};
use crate::session::Session;
use crate::upstream::{Call, Upstream};

/// Header that names the session after the handshake.
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The reply to a posted message.
#[derive(Debug)]
pub(crate) enum Reply {
    Now(Answer),
    /// The answer to this call will come later.
    Later {
        call: Call,
        stateless: bool,
    },
}

/// The answer formats that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepts {
    pub(crate) json: bool,
    pub(crate) events: bool,
}

impl Accepts {
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
        let accepts = Self { json: accepted("application/json"), events: accepted("text/event-stream") };
        if accepts.json || accepts.events {
            return Ok(accepts);
        }
        let words = "the Accept header must allow application/json or text/event-stream, preferably both";
        Err(Refusal::new(StatusCode::NOT_ACCEPTABLE, code::INVALID_REQUEST, words))
    }

    /// Refuses clients that do not accept events, where nothing else is possible.
    pub(crate) fn need_events(self) -> Result<(), Refusal> {
        let words = "the Accept header must allow text/event-stream";
        let refusal = || Refusal::new(StatusCode::NOT_ACCEPTABLE, code::INVALID_REQUEST, words);
        self.events.then_some(()).ok_or_else(refusal)
    }
}

/// Bodies must be declared as JSON. A web page cannot send that type to us without a preflight request.
pub(crate) fn check_type(head: &Head) -> Result<(), Refusal> {
    let kind = head.get("content-type").and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if kind.trim().eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let words = "the Content-Type header must be application/json";
    Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, code::INVALID_REQUEST, words))
}

impl<B: Backend> Front<B> {
    pub(crate) async fn post(&self, head: &Head, body: &[u8], permit: Permit) -> Result<Reply, Refusal> {
        let message: Value = serde_json::from_slice(body).map_err(|error| {
            Refusal::new(StatusCode::BAD_REQUEST, code::PARSE, format!("the body is not JSON: {error}"))
        })?;
        let kind = eras::kind(&message)?;
        if kind == Kind::Request && permit.is_spare() {
            return Err(self.busy().of(message.get("id")));
        }
        match (eras::era(&message, kind, head)?, kind) {
            (Era::OpensSession, _) => self.open(message, permit).await,
            (Era::InSession, kind) => {
                let session = self.session(head).map_err(|refusal| refusal.of(message.get("id")))?;
                pass_on(&session.upstream, message, kind, permit)
            }
            (Era::Stateless, Kind::Request) => {
                let upstream =
                    self.stateless_upstream().await.map_err(|reason| unreachable(&message, &reason))?;
                let id = message.get("id").cloned();
                let call = upstream.call(message, permit).map_err(|_| gone(id.as_ref()))?;
                Ok(Reply::Later { call, stateless: true })
            }
            // A stateless request is cancelled by hanging up, so no notification has an effect.
            (Era::Stateless, Kind::Notification | Kind::Answer) => {
                Ok(Reply::Now(answer::empty(StatusCode::ACCEPTED)))
            }
        }
    }

    /// Performs the handshake of a new session.
    async fn open(&self, message: Value, permit: Permit) -> Result<Reply, Refusal> {
        let id = message.get("id").cloned();
        let reservation = self.sessions.reserve().ok_or_else(|| {
            let limit = self.settings.max_sessions;
            Refusal::busy(format!("too many sessions: the limit is {limit}; end one with DELETE"))
                .of(id.as_ref())
        })?;
        let stream = self.backend.open().await.map_err(|reason| unreachable(&message, &reason))?;
        let upstream = Arc::new(Upstream::new(stream, Some(self.settings.session_idle)));
        let call = upstream.call(message, permit).map_err(|_| gone(id.as_ref()))?;
        let answer = call.answered().await.map_err(|_| gone(id.as_ref()))?;
        let answered = answer::json(StatusCode::OK, &answer);
        let Some(version) = answer["result"]["protocolVersion"].as_str() else {
            return Ok(Reply::Now(answered));
        };
        let session = Session { upstream, version: version.to_owned() };
        let taken = reservation.fill(session).map_err(|error| error.to_string());
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

    /// Finds the session that a request belongs to.
    pub(crate) fn session(&self, head: &Head) -> Result<Session, Refusal> {
        let session = self.sessions.find(session_id(head)?).ok_or_else(unknown_session)?;
        match head.get("mcp-protocol-version") {
            Some(version) if version != session.version => {
                let words =
                    format!("this session uses protocol version {}, not {version:?}", session.version);
                Err(Refusal::new(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, words))
            }
            Some(_) | None => Ok(session),
        }
    }
}

fn session_id(head: &Head) -> Result<&str, Refusal> {
    head.get(SESSION_ID.as_str()).ok_or_else(|| {
        let words = "the Mcp-Session-Id header is missing; send initialize first, its answer has the id";
        Refusal::new(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, words)
    })
}

fn pass_on(upstream: &Arc<Upstream>, message: Value, kind: Kind, permit: Permit) -> Result<Reply, Refusal> {
    match kind {
        Kind::Request => {
            let id = message.get("id").cloned();
            let call = upstream.call(message, permit).map_err(|_| gone(id.as_ref()))?;
            Ok(Reply::Later { call, stateless: false })
        }
        Kind::Notification => {
            upstream.notify(message, permit);
            Ok(Reply::Now(answer::empty(StatusCode::ACCEPTED)))
        }
        // The server sends no requests, so no answer is expected.
        Kind::Answer => Ok(Reply::Now(answer::empty(StatusCode::ACCEPTED))),
    }
}

fn unknown_session() -> Refusal {
    let words = "unknown or ended session; send initialize to start a new one";
    Refusal::new(StatusCode::NOT_FOUND, code::REFUSED, words)
}

fn unreachable(message: &Value, reason: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_GATEWAY, code::INTERNAL, reason).of(message.get("id"))
}

pub(crate) fn gone(id: Option<&Value>) -> Refusal {
    Refusal::new(
        StatusCode::BAD_GATEWAY,
        code::INTERNAL,
        "the daemon closed the connection before it \
                                                           answered; try again",
    )
    .of(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_header_selects_answer_formats() {
        let accepts = |accept: &str| {
            Accepts::of(&Head::with(&[("Accept", accept)]))
                .ok()
                .map(|Accepts { json, events }| (json, events))
        };
        assert_eq!(accepts("application/json, text/event-stream"), Some((true, true)));
        assert_eq!(accepts("*/*"), Some((true, true)));
        assert_eq!(accepts("Application/JSON;q=1"), Some((true, false)));
        assert_eq!(accepts("text/*"), Some((false, true)));
        assert_eq!(accepts("text/html"), None);
        assert_eq!(accepts("application/jsonp, x/application/json"), None);
        let lines = [("Accept", "application/json"), ("Accept", "text/event-stream")];
        assert_eq!(Accepts::of(&Head::with(&lines)), Ok(Accepts { json: true, events: true }));
    }
}
