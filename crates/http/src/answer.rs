//! What goes back to a client: whole answers, and streams of events.

use bytes::Bytes;
use futures::{Stream, TryStreamExt};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use serde_json::Value;
use thiserror::Error;

/// A stream that ends without its answer must not look whole, so the connection breaks with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the server ended before it answered")]
pub(crate) struct Cut;

pub(crate) type Body = UnsyncBoxBody<Bytes, Cut>;
pub(crate) type Answer = Response<Body>;

pub(crate) fn empty(status: StatusCode) -> Answer {
    answer(status, whole(Bytes::new()))
}

pub(crate) fn json(status: StatusCode, message: &Value) -> Answer {
    let answer = answer(status, whole(message.to_string().into()));
    with_header(answer, CONTENT_TYPE, HeaderValue::from_static("application/json"))
}

/// As many events as the stream gives.
pub(crate) fn events(events: impl Stream<Item = Result<Bytes, Cut>> + Send + 'static) -> Answer {
    let answer = answer(StatusCode::OK, StreamBody::new(events.map_ok(Frame::data)).boxed_unsync());
    let answer = with_header(answer, CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies may keep nothing back.
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

/// Something that clients skip.
pub(crate) fn sign_of_life() -> Bytes {
    Bytes::from_static(b":\n\n")
}

fn whole(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// Nothing of it is for caches, or for browsers to guess at.
fn answer(status: StatusCode, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let answer = with_header(answer, CACHE_CONTROL, HeaderValue::from_static("no-store"));
    with_header(answer, X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))
}
