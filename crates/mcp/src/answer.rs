//! Results and failures of tools, and how they become MCP results.
//!
//! Every result has a text and a structured form, and each is sufficient by itself: clients differ in which one they
//! show to their model. Failures have the same shape everywhere.

use agentiso_daemon::OpError;
use rmcp::model::{CallToolResult, ContentBlock, ErrorCode, ErrorData};
use serde_json::{Map, Value, json};

use crate::args::Invalid;
use crate::hint::{self, Hint};
use crate::profile::Profile;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    text: String,
    structured: Value,
    /// Something besides the answer proper: a text of its own, and a member of the structured form.
    note: Option<String>,
}

impl Answer {
    /// The same JSON object in both forms.
    pub(crate) fn json(object: Value) -> Self {
        Self { text: object.to_string(), structured: object, note: None }
    }

    /// A bare JSON array as text; structured content must be an object, so there it is the member `key`.
    pub(crate) fn array(key: &str, items: Vec<Value>) -> Self {
        let items = Value::Array(items);
        Self { text: items.to_string(), structured: json!({ key: items }), note: None }
    }

    /// A text of its own beside the structured form: a sentence, or a file's content.
    pub(crate) fn text(text: String, structured: Value) -> Self {
        Self { text, structured, note: None }
    }

    /// A further note follows the earlier one.
    pub(crate) fn with_note(mut self, note: String) -> Self {
        self.note = Some(match self.note {
            Some(earlier) => format!("{earlier} {note}"),
            None => note,
        });
        self
    }

    pub(crate) fn into_result(mut self) -> CallToolResult {
        let mut content = vec![ContentBlock::text(self.text)];
        if let Some(note) = self.note {
            content.push(ContentBlock::text(note.clone()));
            self.structured["note"] = note.into();
        }
        let mut result = CallToolResult::success(content);
        result.structured_content = Some(self.structured);
        result
    }
}

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<Hint>,
    pub(crate) retryable: bool,
    /// Further members of the structured form.
    pub(crate) details: Vec<(&'static str, Value)>,
    /// Text that follows message and hint.
    pub(crate) appendix: String,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: String) -> Self {
        Self { code, message, hint: None, retryable: false, details: Vec::new(), appendix: String::new() }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<Hint>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// As [`Answer::with_note`], for something that was done although the call failed.
    pub(crate) fn with_note(mut self, note: String) -> Self {
        self.appendix.push('\n');
        self.appendix.push_str(&note);
        self.details.push(("note", note.into()));
        self
    }

    pub(crate) fn invalid(tool: &str, invalid: Invalid) -> Self {
        let listed: Vec<String> =
            invalid.problems.iter().map(|p| format!("{} {}", p.argument, p.problem)).collect();
        let mut message = match listed.as_slice() {
            [one] => format!("{tool} was not run: {one}"),
            many => format!("{tool} was not run, its arguments have {} problems:", many.len() + invalid.more),
        };
        if listed.len() > 1 {
            for problem in &listed {
                message.push_str("\n- ");
                message.push_str(problem);
            }
        }
        if invalid.more > 0 {
            message.push_str(&format!("\n- and {} more", invalid.more));
        }
        let problems: Vec<Value> = invalid
            .problems
            .iter()
            .map(|p| json!({ "argument": p.argument, "problem": p.problem }))
            .collect();
        let mut failure =
            Self::new("invalid_arguments", message).with_hint("correct the arguments and call again");
        failure.details.push(("problems", problems.into()));
        failure
    }

    /// Fits the hint to the tools of a session. Otherwise it names none.
    pub(crate) fn for_session(mut self, profile: &Profile) -> Self {
        self.hint = self.hint.and_then(|hint| hint.for_session(profile)).map(Hint::new);
        self
    }

    pub(crate) fn into_result(self) -> CallToolResult {
        let hint = self.shown_hint();
        let mut result = CallToolResult::error(vec![ContentBlock::text(self.text(hint.as_deref()))]);
        result.structured_content = Some(self.structured(hint));
        result
    }

    /// The failure of a request that can only fail with a JSON-RPC error.
    pub(crate) fn into_error(self) -> ErrorData {
        let code = match self.code {
            "workspace_not_found" | "not_found" | "no_job" => ErrorCode::RESOURCE_NOT_FOUND,
            "invalid_arguments" => ErrorCode::INVALID_PARAMS,
            "internal" => ErrorCode::INTERNAL_ERROR,
            _ => ErrorCode::INVALID_REQUEST,
        };
        let hint = self.shown_hint();
        ErrorData::new(code, self.text(hint.as_deref()), Some(self.structured(hint)))
    }

    fn shown_hint(&self) -> Option<String> {
        self.hint.as_ref().and_then(Hint::without_tools)
    }

    fn text(&self, hint: Option<&str>) -> String {
        let mut text = self.message.clone();
        if let Some(hint) = hint {
            text.push_str("\nHint: ");
            text.push_str(hint);
        }
        text.push_str(&self.appendix);
        text
    }

    fn structured(self, hint: Option<String>) -> Value {
        let mut structured = Map::new();
        structured.insert("code".to_owned(), self.code.into());
        structured.insert("message".to_owned(), self.message.into());
        structured.insert("hint".to_owned(), hint.into());
        structured.insert("retryable".to_owned(), self.retryable.into());
        structured.extend(self.details.into_iter().map(|(key, value)| (key.to_owned(), value)));
        Value::Object(structured)
    }
}

impl From<OpError> for Failure {
    fn from(error: OpError) -> Self {
        Self {
            code: error.code(),
            message: error.to_string(),
            hint: hint::of(&error),
            retryable: error.retryable(),
            details: Vec::new(),
            appendix: String::new(),
        }
    }
}
