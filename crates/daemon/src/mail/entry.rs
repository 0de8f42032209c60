//! Entries of an inbox's file: a head in JSON, and texts as raw bytes, so that no character needs more space than its
//! own bytes.

use agentiso_core::team::{Assignment, Message, TaskResult, UnderWay};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::frame;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    Message(&'a Message),
    /// A command that waits.
    Task {
        message_id: Uuid,
        assignment: &'a Assignment,
    },
    /// The VM is about to be asked to run it.
    Starting {
        message_id: Uuid,
        task_id: &'a str,
    },
    Running {
        message_id: Uuid,
        task_id: &'a str,
        job: &'a UnderWay,
    },
    Result(&'a TaskResult),
    /// Messages or results that were received or displaced.
    Gone(&'a [Uuid]),
}

/// The head of an entry. The body of a message is its content, that of a task its command in JSON, that of a result its
/// output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Head {
    Message { message_id: Uuid, from: String, to: String, message_type: String, timestamp: Timestamp },
    Task { message_id: Uuid, task_id: String },
    Starting { message_id: Uuid, task_id: String },
    Running { message_id: Uuid, task_id: String, job: UnderWay },
    Result { message_id: Uuid, task_id: String, exit_code: i32, elapsed_secs: u64, stdout_bytes: usize },
    Gone { ids: Vec<Uuid> },
}

impl Entry<'_> {
    /// Encodes the entry as a frame, and returns its head as well for
    /// [`Contents::apply`](super::contents::Contents::apply). `None`: it is longer than an entry may be.
    pub(super) fn encode(&self) -> Option<(Head, Vec<u8>)> {
        let mut body = Vec::new();
        let head = match *self {
            Self::Message(message) => {
                body.extend_from_slice(message.content.as_bytes());
                Head::Message {
                    message_id: message.message_id,
                    from: message.from.clone(),
                    to: message.to.clone(),
                    message_type: message.message_type.clone(),
                    timestamp: message.timestamp,
                }
            }
            Self::Task { message_id, assignment } => {
                body = serde_json::to_vec(assignment).ok()?;
                Head::Task { message_id, task_id: assignment.task_id.clone() }
            }
            Self::Starting { message_id, task_id } => {
                Head::Starting { message_id, task_id: task_id.to_owned() }
            }
            Self::Running { message_id, task_id, job } => {
                Head::Running { message_id, task_id: task_id.to_owned(), job: job.clone() }
            }
            Self::Result(result) => {
                body.extend_from_slice(result.stdout.as_bytes());
                body.extend_from_slice(result.stderr.as_bytes());
                Head::Result {
                    message_id: result.source_message_id,
                    task_id: result.task_id.clone(),
                    exit_code: result.exit_code,
                    elapsed_secs: result.elapsed_secs,
                    stdout_bytes: result.stdout.len(),
                }
            }
            Self::Gone(ids) => Head::Gone { ids: ids.to_vec() },
        };
        let frame = frame::encode(&serde_json::to_vec(&head).ok()?, &body)?;
        Some((head, frame))
    }
}

impl Head {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub(super) fn into_message(self, body: &[u8]) -> Option<Message> {
        let Self::Message { message_id, from, to, message_type, timestamp } = self else { return None };
        let content = String::from_utf8(body.to_vec()).ok()?;
        Some(Message { message_id, from, to, content, message_type, timestamp })
    }

    pub(super) fn into_assignment(self, body: &[u8]) -> Option<Assignment> {
        let Self::Task { .. } = self else { return None };
        serde_json::from_slice(body).ok()
    }

    pub(super) fn into_result(self, body: &[u8]) -> Option<TaskResult> {
        let Self::Result { message_id, task_id, exit_code, elapsed_secs, stdout_bytes } = self else {
            return None;
        };
        let (stdout, stderr) = body.split_at_checked(stdout_bytes)?;
        Some(TaskResult {
            task_id,
            success: exit_code == 0,
            exit_code,
            stdout: String::from_utf8(stdout.to_vec()).ok()?,
            stderr: String::from_utf8(stderr.to_vec()).ok()?,
            elapsed_secs,
            source_message_id: message_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use agentiso_core::team::Outcome;

    use super::*;
    use crate::mail::frame::Next;

    fn read(frame: &[u8]) -> (Head, Vec<u8>) {
        let Next::Frame { head, body, .. } = frame::next(frame) else { panic!("no frame") };
        (Head::parse(head).unwrap(), body.to_vec())
    }

    #[test]
    fn entries_are_read_back() {
        let message = Message {
            message_id: Uuid::new_v4(),
            from: "ann".to_owned(),
            to: "*".to_owned(),
            content: "\u{1}\n\"ä😀".to_owned(),
            message_type: "text".to_owned(),
            timestamp: "2026-03-01T12:00:00.123456789Z".parse().unwrap(),
        };
        let (head, body) = read(&Entry::Message(&message).encode().unwrap().1);
        assert_eq!(head.into_message(&body).unwrap(), message);
        let assignment = Assignment::parse(r#"{"task_id": "t", "command": "x", "env": {"A": "b"}}"#).unwrap();
        let id = Uuid::new_v4();
        let task = Entry::Task { message_id: id, assignment: &assignment };
        let (head, body) = read(&task.encode().unwrap().1);
        assert_eq!(head.into_assignment(&body).unwrap(), assignment);
        let outcome = Outcome { exit_code: 3, stdout: "ä".into(), stderr: "é!".into(), elapsed_secs: 7 };
        let result = TaskResult::new("t".to_owned(), id, outcome);
        let (head, body) = read(&Entry::Result(&result).encode().unwrap().1);
        assert_eq!(head.into_result(&body).unwrap(), result);
    }

    #[test]
    fn control_characters_take_one_byte_each() {
        let content = "\u{1}".repeat(agentiso_core::team::MAX_CONTENT);
        let message = Message {
            message_id: Uuid::new_v4(),
            from: "ann".to_owned(),
            to: "bob".to_owned(),
            content,
            message_type: "text".to_owned(),
            timestamp: Timestamp::UNIX_EPOCH,
        };
        let (_, frame) = Entry::Message(&message).encode().unwrap();
        assert!(frame.len() < agentiso_core::team::MAX_CONTENT + 1024, "{}", frame.len());
    }
}
