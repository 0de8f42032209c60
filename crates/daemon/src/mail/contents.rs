//! The contents of an inbox and their positions in its file: the sum of all entries so far.

use std::collections::HashMap;

use agentiso_core::team::{InboxIndex, Letter, ResultMark, TaskStep, Tasks};
use uuid::Uuid;

use super::entry::Head;
use super::log::FrameRange;

#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) mail: InboxIndex,
    pub(super) tasks: Tasks,
    /// Whether the last finished task succeeded, as far as the file still tells.
    pub(super) last: Option<bool>,
    /// The frames of messages, of waiting tasks and of results, by the id of the message that each came with.
    frames: HashMap<Uuid, FrameRange>,
}

impl Contents {
    pub(super) fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.tasks.is_empty()
    }

    pub(super) fn frame_of(&self, id: &Uuid) -> Option<FrameRange> {
        self.frames.get(id).copied()
    }

    pub(super) fn knows(&self, id: &Uuid) -> bool {
        self.frames.contains_key(id) || self.tasks.pending().iter().any(|task| task.message_id == *id)
    }

    /// Bytes of the file that are still needed.
    pub(super) fn live_bytes(&self) -> u64 {
        self.frames.values().map(|range| range.len as u64).sum()
    }

    pub(super) fn apply(&mut self, head: Head, range: FrameRange) {
        match head {
            Head::Message { message_id, from, .. } => {
                self.mail.put(Letter { id: message_id, from, bytes: range.len });
                self.frames.insert(message_id, range);
            }
            Head::Task { message_id, task_id } => {
                self.tasks.give(message_id, task_id, range.len);
                self.frames.insert(message_id, range);
            }
            Head::Starting { message_id, task_id } => {
                self.tasks.set_step(message_id, task_id, TaskStep::Starting);
                self.frames.remove(&message_id);
            }
            Head::Running { message_id, task_id, job } => {
                self.tasks.set_step(message_id, task_id, TaskStep::Running(job));
                self.frames.remove(&message_id);
            }
            Head::Result { message_id, exit_code, .. } => {
                self.tasks.end(ResultMark { message_id, bytes: range.len });
                self.last = Some(exit_code == 0);
                self.frames.insert(message_id, range);
            }
            Head::Gone { ids } => {
                self.mail.remove(&ids);
                self.tasks.remove(&ids);
                for id in ids {
                    self.frames.remove(&id);
                }
            }
        }
    }
}
