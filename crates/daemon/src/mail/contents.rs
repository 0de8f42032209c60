//! What is in an inbox, and where in its file: the sum of all entries so far.

use std::collections::HashMap;

use agentiso_core::team::{Letter, Mailbox, ResultMark, TaskStep, Tasks};
use uuid::Uuid;

use super::entry::Head;
use super::log::Place;

#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) mail: Mailbox,
    pub(super) tasks: Tasks,
    /// How the task ended that ended last, as far as the file still tells.
    pub(super) last: Option<bool>,
    /// The frames of messages, of tasks that wait and of results, by the message that each came with.
    places: HashMap<Uuid, Place>,
}

impl Contents {
    pub(super) fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.tasks.is_empty()
    }

    pub(super) fn place(&self, id: &Uuid) -> Option<Place> {
        self.places.get(id).copied()
    }

    pub(super) fn knows(&self, id: &Uuid) -> bool {
        self.places.contains_key(id) || self.tasks.pending().iter().any(|task| task.message_id == *id)
    }

    /// Bytes of the file that are still of use.
    pub(super) fn live_bytes(&self) -> u64 {
        self.places.values().map(|place| place.len as u64).sum()
    }

    pub(super) fn apply(&mut self, head: Head, place: Place) {
        match head {
            Head::Message { message_id, from, .. } => {
                self.mail.put(Letter { id: message_id, from, bytes: place.len });
                self.places.insert(message_id, place);
            }
            Head::Task { message_id, task_id } => {
                self.tasks.give(message_id, task_id, place.len);
                self.places.insert(message_id, place);
            }
            Head::Starting { message_id, task_id } => {
                self.tasks.set_step(message_id, task_id, TaskStep::Starting);
                self.places.remove(&message_id);
            }
            Head::Running { message_id, task_id, job } => {
                self.tasks.set_step(message_id, task_id, TaskStep::Running(job));
                self.places.remove(&message_id);
            }
            Head::Result { message_id, exit_code, .. } => {
                self.tasks.end(ResultMark { message_id, bytes: place.len });
                self.last = Some(exit_code == 0);
                self.places.insert(message_id, place);
            }
            Head::Gone { ids } => {
                self.mail.remove(&ids);
                self.tasks.remove(&ids);
                for id in ids {
                    self.places.remove(&id);
                }
            }
        }
    }
}
