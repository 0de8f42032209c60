//! Refusals of requests: an HTTP status, and in the body a JSON-RPC error with the reason.

use http::StatusCode;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::body::BodyError;
use crate::head::HeadError;

/// JSON-RPC's codes, and those that MCP adds.
pub(crate) mod code {
    pub(crate) const PARSE: i64 = -32700;
    pub(crate) const INVALID_REQUEST: i64 = -32600;
    pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
    pub(crate) const INVALID_PARAMS: i64 = -32602;
    pub(crate) const INTERNAL: i64 = -32603;
    /// The first code that JSON-RPC leaves to servers.
    pub(crate) const REFUSED: i64 = -32000;
    pub(crate) const HEADER_MISMATCH: i64 = -32020;
    pub(crate) const MISSING_CAPABILITY: i64 = -32021;
    pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    code: i64,
    message: String,
    /// Id of the request, if it was read.
    id: Option<Box<Value>>,
    header: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: i64, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), id: None, header: None }
    }

    pub(crate) fn of(mut self, id: Option<&Value>) -> Self {
        self.id = id.cloned().map(Box::new);
        self
    }

    pub(crate) fn with_header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.header = Some((name, value));
        self
    }

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code::REFUSED, message).with_header(RETRY_AFTER, "1")
    }

    pub(crate) fn into_answer(self) -> Answer {
        let error = json!({ "code": self.code, "message": self.message });
        let answer = answer::json(self.status, &json!({ "jsonrpc": "2.0", "id": self.id, "error": error }));
        match self.header {
            Some((name, value)) => answer::with_header(answer, name, HeaderValue::from_static(value)),
            None => answer,
        }
    }
}

impl From<HeadError> for Refusal {
    fn from(error: HeadError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, error.to_string())
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        let status = match error {
            BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
            BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Broken(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, code::INVALID_REQUEST, error.to_string())
    }
}
