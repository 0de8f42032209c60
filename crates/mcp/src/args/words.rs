//! Helpers that describe wrong values in problems.

use serde_json::Value;

/// Characters of a wrong value that its problem repeats.
const MAX_ECHO: usize = 60;

pub(super) fn string(value: Value) -> Result<String, Vec<String>> {
    match value {
        Value::String(text) => Ok(text),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(vec![format!("must be a string, not {}", describe(&other))])
        }
    }
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

pub(super) fn describe(value: &Value) -> String {
    match value {
        Value::Null | Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
        Value::Bool(_) | Value::Number(_) => echo(&value.to_string()),
        Value::String(text) => format!("the string {:?}", echo(text)),
    }
}

pub(super) fn echo(text: &str) -> String {
    let mut short: String = text.chars().take(MAX_ECHO).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
