//! The content of a message of the type `task_assignment`: a command for a member's VM.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::env::{self, EnvError};
use crate::paths::{GuestPath, GuestPathError};

/// The kernel limits a single argument, such as the text after `sh -c`, to 32 pages.
const MAX_COMMAND: usize = 128 * 1024 - 1;

const DEFAULT_TIMEOUT_SECS: u64 = 300;

/// A command may take a day.
const MAX_TIMEOUT_SECS: u64 = 86_400;

/// Bytes of a task's id. Results are named by it, and longer ids would only fill answers.
const MAX_TASK_ID: usize = 256;

/// A command for a member's VM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub task_id: String,
    pub command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default = "default_timeout")]
    pub timeout_secs: u64,
}

fn default_timeout() -> u64 {
    DEFAULT_TIMEOUT_SECS
}

/// Omits the values of variables, which may be secrets.
impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment")
            .field("task_id", &self.task_id)
            .field("command", &self.command)
            .field("workdir", &self.workdir)
            .field("env", &self.env.keys())
            .field("timeout_secs", &self.timeout_secs)
            .finish()
    }
}

#[derive(Debug, Error)]
pub enum AssignmentError {
    #[error("the content must be JSON such as {{\"task_id\": \"t1\", \"command\": \"make\"}}: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{field} has {len} bytes; it must have 1 to {max}")]
    Length { field: &'static str, len: usize, max: usize },
    #[error("the command contains a NUL byte, which cannot be passed to a program")]
    Nul,
    #[error("timeout_secs is {0}; it must be 1 to {MAX_TIMEOUT_SECS}")]
    Timeout(u64),
    #[error("invalid workdir: {0}")]
    Workdir(#[from] GuestPathError),
    #[error("invalid env: {0}")]
    Env(#[from] EnvError),
}

impl Assignment {
    pub fn parse(content: &str) -> Result<Self, AssignmentError> {
        let read: Self = serde_json::from_str(content)?;
        for (field, text, max) in
            [("task_id", &read.task_id, MAX_TASK_ID), ("command", &read.command, MAX_COMMAND)]
        {
            if !(1..=max).contains(&text.len()) {
                return Err(AssignmentError::Length { field, len: text.len(), max });
            }
        }
        if read.command.contains('\0') {
            return Err(AssignmentError::Nul);
        }
        if !(1..=MAX_TIMEOUT_SECS).contains(&read.timeout_secs) {
            return Err(AssignmentError::Timeout(read.timeout_secs));
        }
        read.workdir.as_deref().map(GuestPath::parse).transpose()?;
        env::check(read.env.iter().map(|(name, value)| (name.as_str(), value.as_str())))?;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn assignment_fields_have_defaults() {
        let read = Assignment::parse(r#"{"task_id": "t", "command": "true", "more": 1}"#).unwrap();
        assert_eq!((read.timeout_secs, read.workdir), (300, None));
    }

    #[test]
    fn invalid_assignments_are_refused() {
        for wrong in [
            "make",
            "{}",
            r#"{"task_id": "t"}"#,
            r#"{"task_id": 5, "command": "x"}"#,
            r#"{"task_id": "", "command": "x"}"#,
            r#"{"task_id": "t", "command": ""}"#,
            r#"{"task_id": "t", "command": "a\u0000"}"#,
            r#"{"task_id": "t", "command": "x", "workdir": "here"}"#,
            r#"{"task_id": "t", "command": "x", "timeout_secs": 0}"#,
            r#"{"task_id": "t", "command": "x", "env": {"PATH": "/tmp"}}"#,
            r#"{"task_id": "t", "command": "x", "env": {"LD_PRELOAD": "x"}}"#,
        ] {
            assert!(Assignment::parse(wrong).is_err(), "{wrong}");
        }
        let secret = r#"{"task_id": "t", "command": "x", "env": {"KEY": "hunter2"}}"#;
        assert!(!format!("{:?}", Assignment::parse(secret).unwrap()).contains("hunter2"));
    }

    proptest! {
        #[test]
        fn assignment_parser_never_panics(text in "\\PC{0,200}") {
            drop(Assignment::parse(&text));
        }
    }
}
