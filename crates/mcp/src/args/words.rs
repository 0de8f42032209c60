//! How complaints speak of values.

use serde_json::Value;

/// How much of a wrong value is repeated in the complaint about it.
const MAX_ECHO: usize = 60;

pub(super) fn string(value: Value) -> Result<String, Vec<String>> {
    match value {
        Value::String(text) => Ok(text),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(vec![format!("must be a text, not {}", describe(&other))])
        }
    }
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
        Value::Bool(_) | Value::Number(_) => echo(&value.to_string()),
        Value::String(text) => format!("the text {:?}", echo(text)),
    }
}

pub(super) fn echo(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_ECHO).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
