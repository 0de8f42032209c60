//! Parses one line into a message, or into the reply that says why it is not one.

use rmcp::model::{ClientJsonRpcMessage, ErrorCode, RequestId};
use serde_json::{Value, json};

/// Characters of a parser's message that are repeated to the client.
const MAX_REASON: usize = 200;

#[derive(Debug)]
pub(super) enum Incoming {
    Message(Box<ClientJsonRpcMessage>),
    /// Not a message; the reply says why.
    Refused(Value),
    /// Nothing that may be answered: an empty line, or a malformed notification or response.
    Nothing,
}

pub(super) fn parse(line: &[u8]) -> Incoming {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Incoming::Nothing;
    }
    match serde_json::from_slice::<ClientJsonRpcMessage>(line) {
        Ok(message) => Incoming::Message(Box::new(message)),
        Err(_) => explain(line),
    }
}

pub(super) fn error_reply(id: Option<Value>, code: ErrorCode, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code.0, "message": message } })
}

fn explain(line: &[u8]) -> Incoming {
    let object = match serde_json::from_slice::<Value>(line) {
        Err(syntax) => {
            let reason: String = syntax.to_string().chars().take(MAX_REASON).collect();
            let message = format!("this line is not JSON ({reason}); send one JSON-RPC object per line");
            return Incoming::Refused(error_reply(None, ErrorCode::PARSE_ERROR, &message));
        }
        Ok(Value::Object(object)) => object,
        Ok(Value::Array(_)) => {
            return refuse(None, "batches are not supported; send one JSON-RPC object per line");
        }
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            return refuse(None, "a JSON-RPC request must be an object");
        }
    };
    let id = match object.get("id") {
        Some(id @ (Value::String(_) | Value::Number(_))) => Some(id.clone()),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => None,
    };
    let answers = object.contains_key("result") || object.contains_key("error");
    match (object.get("method"), object.contains_key("id")) {
        // Replies to answers or notifications could go on for ever.
        (None, _) if answers => Incoming::Nothing,
        (Some(Value::String(_)), false) => Incoming::Nothing,
        (None, _) => refuse(id, "the request has no \"method\""),
        (Some(Value::String(_)), true) if object.get("jsonrpc") != Some(&json!("2.0")) => {
            refuse(id, "\"jsonrpc\" must be \"2.0\"")
        }
        (Some(Value::String(_)), true) if !id.as_ref().is_some_and(usable) => {
            refuse(id, "\"id\" must be a string or an integer")
        }
        (Some(Value::String(_)), true) => {
            let message = "\"params\" must be an object, and so must \"_meta\" in it";
            Incoming::Refused(error_reply(id, ErrorCode::INVALID_PARAMS, message))
        }
        (Some(_), _) => refuse(id, "\"method\" must be a string"),
    }
}

/// Whether rmcp accepts the id. The refusal repeats other ids all the same.
fn usable(id: &Value) -> bool {
    serde_json::from_value::<RequestId>(id.clone()).is_ok()
}

fn refuse(id: Option<Value>, message: &str) -> Incoming {
    Incoming::Refused(error_reply(id, ErrorCode::INVALID_REQUEST, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refusal(line: &str) -> (i64, Value) {
        match parse(line.as_bytes()) {
            Incoming::Refused(reply) => (reply["error"]["code"].as_i64().unwrap(), reply["id"].clone()),
            other @ (Incoming::Message(_) | Incoming::Nothing) => panic!("{line} gave {other:?}"),
        }
    }

    #[test]
    fn bad_json_and_bad_requests_get_distinct_codes() {
        assert_eq!(refusal("{"), (-32700, Value::Null));
        assert_eq!(refusal("hello"), (-32700, Value::Null));
        assert_eq!(refusal(&"[".repeat(100_000)), (-32700, Value::Null));
        for line in ["[]", "5", "null", "\"x\"", "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", "{}"]
        {
            assert_eq!(refusal(line), (-32600, Value::Null), "{line}");
        }
    }

    #[test]
    fn bad_request_is_refused_by_its_id() {
        assert_eq!(refusal(r#"{"id":3,"method":"ping"}"#), (-32600, json!(3)));
        assert_eq!(refusal(r#"{"jsonrpc":"1.0","id":"a","method":"ping"}"#), (-32600, json!("a")));
        assert_eq!(refusal(r#"{"jsonrpc":"2.0","id":4,"method":7}"#), (-32600, json!(4)));
        assert_eq!(refusal(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#), (-32600, json!(1.5)));
        assert_eq!(refusal(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), (-32600, Value::Null));
    }

    #[test]
    fn answers_and_notifications_are_never_answered() {
        for line in [
            "",
            "  \r",
            r#"{"method":"notifications/x"}"#,
            r#"{"jsonrpc":"2.0","error":5,"id":1}"#,
            r#"{"result":1}"#,
        ] {
            assert!(matches!(parse(line.as_bytes()), Incoming::Nothing), "{line}");
        }
    }

    proptest! {
        #[test]
        fn line_parser_survives_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
