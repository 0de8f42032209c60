//! Decides which era of the protocol a message belongs to, and whether its headers agree with it. Pure functions.
//!
//! ```text
//!  initialize ─────────────────────────────▶ OpensSession  the id of the session is in the answer
//!  Mcp-Session-Id ─────────────────────────▶ InSession
//!  its own version in params._meta ────────▶ Stateless     since 2026-07-28
//! ```

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::StatusCode;
use serde_json::Value;

use crate::head::Head;
use crate::refusal::{Refusal, code};

/// The first version without sessions. Versions are dates, so they compare as texts.
const WITHOUT_SESSIONS: &str = "2026-07-28";

/// The keys under which a request gives its version and the capabilities of its client.
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";

/// Prefix and suffix of a value that is encoded because it cannot be a header as it is.
const ENCODED: (&str, &str) = ("=?base64?", "?=");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Request,
    Notification,
    /// An answer to a request that the server never sent.
    Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    OpensSession,
    InSession,
    Stateless,
}

/// The kind of a message, from its form.
pub(crate) fn kind(message: &Value) -> Result<Kind, Refusal> {
    let refuse = |words: &str| {
        let id = message.get("id").filter(|id| is_id(id));
        Err(Refusal::new(StatusCode::BAD_REQUEST, code::INVALID_REQUEST, words).of(id))
    };
    let Value::Object(members) = message else {
        return refuse("the body must be one JSON-RPC object; batches are not supported");
    };
    match (members.get("method"), members.get("id")) {
        (Some(Value::String(_)), None) => Ok(Kind::Notification),
        (Some(Value::String(_)), Some(id)) if is_id(id) => Ok(Kind::Request),
        (Some(Value::String(_)), Some(_)) => refuse("\"id\" must be a string or an integer"),
        (Some(_), _) => refuse("\"method\" must be a string"),
        (None, _) if members.contains_key("result") || members.contains_key("error") => Ok(Kind::Answer),
        (None, _) => refuse("the request has no \"method\""),
    }
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_i64() || id.is_u64()
}

/// The era of a message.
pub(crate) fn era(message: &Value, kind: Kind, head: &Head) -> Result<Era, Refusal> {
    let (method, version) = (method(message), version(message));
    if kind == Kind::Request && method == "initialize" && version.is_none() {
        return Ok(Era::OpensSession);
    }
    let header = head.get("mcp-protocol-version");
    let is_modern = header.is_some_and(|header| header >= WITHOUT_SESSIONS);
    if version.is_some() || method == "server/discover" || is_modern {
        check_headers(message, kind, head)?;
        if method == "initialize" {
            let words = "this protocol version has no handshake; send requests without it";
            let refusal = Refusal::new(StatusCode::NOT_FOUND, code::METHOD_NOT_FOUND, words);
            return Err(refusal.of(message.get("id")));
        }
        return Ok(Era::Stateless);
    }
    Ok(Era::InSession)
}

/// Checks that a stateless request repeats its body in its headers, for proxies that do not read the body.
fn check_headers(message: &Value, kind: Kind, head: &Head) -> Result<(), Refusal> {
    let refuse =
        |code, words: String| Err(Refusal::new(StatusCode::BAD_REQUEST, code, words).of(message.get("id")));
    let method = method(message);
    match (version(message), head.get("mcp-protocol-version")) {
        (Some(written), Some(header)) if written == header => {}
        (Some(_), Some(_)) => {
            let words = "the MCP-Protocol-Version header differs from the version in the request's _meta";
            return refuse(code::HEADER_MISMATCH, words.to_owned());
        }
        (Some(_), None) => {
            return refuse(code::HEADER_MISMATCH, "the MCP-Protocol-Version header is missing".to_owned());
        }
        (None, _) if kind == Kind::Request => {
            return refuse(code::INVALID_PARAMS, format!("params._meta must have {VERSION_KEY}"));
        }
        (None, _) => {}
    }
    if kind == Kind::Request && !message["params"]["_meta"][CAPABILITIES_KEY].is_object() {
        return refuse(code::INVALID_PARAMS, format!("params._meta must have {CAPABILITIES_KEY}"));
    }
    if head.get("mcp-method") != Some(method) {
        let words = format!("the Mcp-Method header must be {method:?}, as in the body");
        return refuse(code::HEADER_MISMATCH, words);
    }
    if let Some(member) = name_parameter(method)
        && let Some(name) = message["params"][member].as_str()
        && head.get("mcp-name").and_then(decoded).as_deref() != Some(name)
    {
        let words = format!("the Mcp-Name header must be the same as params.{member} in the body");
        return refuse(code::HEADER_MISMATCH, words);
    }
    Ok(())
}

/// The parameter that the `Mcp-Name` header repeats.
fn name_parameter(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}

fn decoded(header: &str) -> Option<String> {
    match header.strip_prefix(ENCODED.0).and_then(|rest| rest.strip_suffix(ENCODED.1)) {
        Some(encoded) => String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok(),
        None => Some(header.to_owned()),
    }
}

fn method(message: &Value) -> &str {
    message["method"].as_str().unwrap_or_default()
}

fn version(message: &Value) -> Option<&str> {
    message["params"]["_meta"][VERSION_KEY].as_str()
}

/// The status of an answer to a stateless request. In sessions it is always 200.
pub(crate) fn status(answer: &Value) -> StatusCode {
    match answer["error"]["code"].as_i64() {
        Some(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION) => {
            StatusCode::BAD_REQUEST
        }
        Some(_) | None => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn head(headers: &str) -> Head {
        let pairs: Vec<_> = headers.split("\r\n").filter_map(|line| line.split_once(": ")).collect();
        Head::with(&pairs)
    }

    fn modern(method: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": 1, "method": method,
            "params": {"name": "exec", "_meta": {VERSION_KEY: WITHOUT_SESSIONS, CAPABILITIES_KEY: {}}}})
    }

    const VERSION: &str = "\r\nMCP-Protocol-Version: 2026-07-28";

    #[test]
    fn non_messages_are_refused() {
        for wrong in [
            json!([]),
            json!(5),
            json!({}),
            json!({"method": 5}),
            json!({"method": "x", "id": null}),
            json!({"method": "x", "id": 1.5}),
            json!({"method": "x", "id": {}}),
        ] {
            assert!(kind(&wrong).is_err(), "{wrong}");
        }
        assert_eq!(kind(&json!({"id": 1, "result": {}})).unwrap(), Kind::Answer);
        assert_eq!(kind(&json!({"method": "x"})).unwrap(), Kind::Notification);
    }

    #[test]
    fn message_era_follows_method_session_and_version() {
        let old = json!({"id": 1, "method": "tools/list"});
        let in_session = head("\r\nMcp-Session-Id: s");
        assert_eq!(era(&old, Kind::Request, &in_session), Ok(Era::InSession));
        let opening = json!({"id": 1, "method": "initialize"});
        assert_eq!(era(&opening, Kind::Request, &in_session), Ok(Era::OpensSession));
        let handshake = head(&format!("{VERSION}\r\nMcp-Method: initialize"));
        let refused = era(&modern("initialize"), Kind::Request, &handshake).unwrap_err();
        assert_eq!(refused.status, StatusCode::NOT_FOUND);
        let agreeing = head(&format!("{VERSION}\r\nMcp-Method: tools/list"));
        assert_eq!(era(&modern("tools/list"), Kind::Request, &agreeing), Ok(Era::Stateless));
    }

    #[test]
    fn headers_contradicting_the_body_are_refused() {
        for wrong in [
            String::new(),
            VERSION.to_owned(),
            "\r\nMCP-Protocol-Version: 2026-07-29\r\nMcp-Method: tools/call\r\nMcp-Name: exec".to_owned(),
            format!("{VERSION}\r\nMcp-Method: tools/list\r\nMcp-Name: exec"),
            format!("{VERSION}\r\nMcp-Method: tools/call"),
            format!("{VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: vault"),
            format!("{VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: =?base64?!?="),
        ] {
            assert!(era(&modern("tools/call"), Kind::Request, &head(&wrong)).is_err(), "{wrong}");
        }
        for right in ["exec", "=?base64?ZXhlYw==?="] {
            let headers = format!("{VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: {right}");
            assert_eq!(era(&modern("tools/call"), Kind::Request, &head(&headers)), Ok(Era::Stateless));
        }
        let mut incapable = modern("tools/list");
        incapable["params"]["_meta"].as_object_mut().unwrap().remove(CAPABILITIES_KEY);
        let listing = head(&format!("{VERSION}\r\nMcp-Method: tools/list"));
        assert!(era(&incapable, Kind::Request, &listing).is_err());
        let read = json!({"id": 1, "method": "resources/read",
            "params": {"uri": "a://b", "_meta": modern("")["params"]["_meta"]}});
        let reading =
            |name: &str| head(&format!("{VERSION}\r\nMcp-Method: resources/read\r\nMcp-Name: {name}"));
        assert_eq!(era(&read, Kind::Request, &reading("a://b")), Ok(Era::Stateless));
        assert!(era(&read, Kind::Request, &reading("a://c")).is_err());
        let bare = json!({"id": 1, "method": "tools/list"});
        assert!(era(&bare, Kind::Request, &head(&format!("{VERSION}\r\nMcp-Method: tools/list"))).is_err());
    }
}
