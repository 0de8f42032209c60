//! Builds HTTP answers: whole ones, and streams of events.

use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use thiserror::Error;

/// Ends a stream whose answer never came. The connection breaks with it, so that the stream does not look complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the daemon closed the connection before it answered")]
pub(crate) struct Interrupted;

pub(crate) const JSON: &str = "application/json";

pub(crate) type Body = UnsyncBoxBody<Bytes, Interrupted>;
pub(crate) type Answer = Response<Body>;

pub(crate) fn empty(status: StatusCode) -> Answer {
    answer(status, whole(Bytes::new()))
}

pub(crate) fn json(status: StatusCode, message: &Value) -> Answer {
    text(status, JSON, message.to_string())
}

pub(crate) fn text(status: StatusCode, kind: &'static str, text: String) -> Answer {
    with_header(answer(status, whole(text.into())), CONTENT_TYPE, HeaderValue::from_static(kind))
}

/// Sends events for as long as the stream yields them.
pub(crate) fn events(events: impl Stream<Item = Result<Bytes, Interrupted>> + Send + 'static) -> Answer {
    let answer = answer(StatusCode::OK, StreamBody::new(events.map_ok(Frame::data)).boxed_unsync());
    let answer = with_header(answer, CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies must not buffer events.
    with_header(answer, HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))
}

pub(crate) fn with_header(mut answer: Answer, name: HeaderName, value: HeaderValue) -> Answer {
    answer.headers_mut().insert(name, value);
    answer
}

/// One message as an event. JSON as it is written here has no line feeds.
pub(crate) fn event(message: &Value) -> Bytes {
    format!("event: message\ndata: {message}\n\n").into()
}

/// An event-stream comment, which clients skip.
pub(crate) fn keep_alive_comment() -> Bytes {
    Bytes::from_static(b":\n\n")
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Answers must not be cached, and browsers must not guess their type.
fn answer(status: StatusCode, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let answer = with_header(answer, CACHE_CONTROL, HeaderValue::from_static("no-store"));
    with_header(answer, X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
}
