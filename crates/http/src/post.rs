//! What becomes of a message that a client has sent.

use std::sync::Arc;

use serde_json::Value;

use crate::backend::Backend;
use crate::eras::{self, Era, Kind};
use crate::front::Front;
use crate::head::Head;
use crate::outgoing::{Answer, Status};
use crate::refusal::{Refusal, code};
use crate::session::{Session, Sessions};
use crate::upstream::{Call, Upstream};

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
        let Some(accept) = head.get("accept") else { return Ok(Self { json: true, events: true }) };
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
        Err(Refusal::new(Status::NOT_ACCEPTABLE, code::INVALID_REQUEST, words))
    }
}

/// Bodies are JSON and say so. A page in a browser cannot say it without asking us first.
pub(crate) fn check_type(head: &Head) -> Result<(), Refusal> {
    let kind = head.get("content-type").and_then(|kind| kind.split(';').next()).unwrap_or_default();
    if kind.trim().eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let words = "the Content-Type header must be application/json";
    Err(Refusal::new(Status::UNSUPPORTED_MEDIA, code::INVALID_REQUEST, words))
}

impl<B: Backend> Front<B> {
    pub(crate) async fn post(&self, head: &Head, body: &[u8]) -> Result<Reply, Refusal> {
        let message: Value = serde_json::from_slice(body).map_err(|error| {
            Refusal::new(Status::BAD_REQUEST, code::PARSE, format!("the body is not JSON: {error}"))
        })?;
        let kind = eras::kind(&message)?;
        match (eras::era(&message, kind, head)?, kind) {
            (Era::Opens, _) => self.open(message).await,
            (Era::Belongs { session }, kind) => {
                let session = find(&self.sessions, session, head, &message)?;
                pass_on(&session.upstream, message, kind)
            }
            (Era::Stands, Kind::Request) => {
                let upstream = self.lone().await.map_err(|reason| unreachable(&message, &reason))?;
                let id = message.get("id").cloned();
                let call = upstream.call(message).map_err(|_| gone(id.as_ref()))?;
                Ok(Reply::Later { call, lone: true })
            }
            // A request that stands for itself is cancelled by hanging up; there is nothing else to be told.
            (Era::Stands, Kind::Notification | Kind::Answer) => {
                Ok(Reply::Now(Answer::empty(Status::ACCEPTED)))
            }
        }
    }

    /// The handshake of a new session.
    async fn open(&self, message: Value) -> Result<Reply, Refusal> {
        let id = message.get("id").cloned();
        let place = self.sessions.place().ok_or_else(|| {
            let limit = self.settings.max_sessions;
            Refusal::busy(format!("{limit} sessions are open, which is the limit; end one with DELETE"))
                .of(id.as_ref())
        })?;
        let stream = self.backend.open().await.map_err(|reason| unreachable(&message, &reason))?;
        let upstream = Arc::new(Upstream::new(stream, Some(self.settings.session_idle)));
        let call = upstream.call(message).map_err(|_| gone(id.as_ref()))?;
        let answer = call.answered().await.map_err(|_| gone(id.as_ref()))?;
        let answered = Answer::json(Status::OK, &answer);
        let Some(version) = answer["result"]["protocolVersion"].as_str() else {
            return Ok(Reply::Now(answered));
        };
        let session = Session { upstream, version: version.to_owned() };
        let session = place.take(session).map_err(|error| {
            Refusal::new(Status::UNAVAILABLE, code::INTERNAL, error.to_string()).of(id.as_ref())
        })?;
        Ok(Reply::Now(answered.with_header("Mcp-Session-Id", session)))
    }

    pub(crate) fn delete(&self, head: &Head) -> Result<Answer, Refusal> {
        match head.get("mcp-session-id") {
            Some(id) if self.sessions.end(id) => Ok(Answer::empty(Status::NO_CONTENT)),
            Some(_) => Err(unknown_session()),
            None => {
                let words = "the Mcp-Session-Id header says which session ends, and is missing";
                Err(Refusal::new(Status::BAD_REQUEST, code::INVALID_REQUEST, words))
            }
        }
    }
}

fn find(sessions: &Sessions, id: &str, head: &Head, message: &Value) -> Result<Session, Refusal> {
    let session = sessions.find(id).ok_or_else(|| unknown_session().of(message.get("id")))?;
    match head.get("mcp-protocol-version") {
        Some(version) if version != session.version => {
            let words = format!("this session speaks {}, not {version:?}", session.version);
            Err(Refusal::new(Status::BAD_REQUEST, code::INVALID_REQUEST, words).of(message.get("id")))
        }
        Some(_) | None => Ok(session),
    }
}

fn pass_on(upstream: &Arc<Upstream>, message: Value, kind: Kind) -> Result<Reply, Refusal> {
    match kind {
        Kind::Request => {
            let id = message.get("id").cloned();
            let call = upstream.call(message).map_err(|_| gone(id.as_ref()))?;
            Ok(Reply::Later { call, lone: false })
        }
        Kind::Notification => {
            upstream.notify(message);
            Ok(Reply::Now(Answer::empty(Status::ACCEPTED)))
        }
        // The server asks nothing, so there is nothing to answer.
        Kind::Answer => Ok(Reply::Now(Answer::empty(Status::ACCEPTED))),
    }
}

fn unknown_session() -> Refusal {
    let words = "there is no such session, or it has ended; begin with initialize";
    Refusal::new(Status::NOT_FOUND, code::REFUSED, words)
}

fn unreachable(message: &Value, reason: &str) -> Refusal {
    Refusal::new(Status::BAD_GATEWAY, code::INTERNAL, reason).of(message.get("id"))
}

pub(crate) fn gone(id: Option<&Value>) -> Refusal {
    Refusal::new(Status::BAD_GATEWAY, code::INTERNAL, "the server ended before it answered; try again").of(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_reads_is_what_it_says() {
        let reads = |accept: &str| {
            let head = Head::parse(format!("POST / HTTP/1.1\r\nAccept: {accept}").as_bytes()).unwrap();
            Reads::of(&head).ok().map(|Reads { json, events }| (json, events))
        };
        assert_eq!(reads("application/json, text/event-stream"), Some((true, true)));
        assert_eq!(reads("*/*"), Some((true, true)));
        assert_eq!(reads("Application/JSON;q=1"), Some((true, false)));
        assert_eq!(reads("text/*"), Some((false, true)));
        assert_eq!(reads("text/html"), None);
        assert_eq!(reads("application/jsonp, x/application/json"), None);
    }
}
