//! Messages and tasks as ledgers of earlier versions held them.
//!
//! When such a ledger is read, they are moved into inboxes. They are never written to a ledger again.

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use super::{Assignment, Member, Message, TaskResult, UnderWay};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredMail {
    pub messages: Vec<Message>,
    pub tasks: Vec<StoredTask>,
    pub results: Vec<TaskResult>,
}

impl StoredMail {
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.tasks.is_empty() && self.results.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredTask {
    pub message_id: Uuid,
    pub task_id: String,
    #[serde(flatten)]
    pub step: StoredStep,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum StoredStep {
    Waiting {
        assignment: Assignment,
    },
    Starting,
    Running {
        job: u64,
        #[serde(rename = "machine")]
        vm: String,
        deadline: Timestamp,
    },
}

impl StoredStep {
    pub fn under_way(&self) -> Option<UnderWay> {
        match self {
            Self::Running { job, vm, deadline } => {
                Some(UnderWay { job: *job, vm: vm.clone(), deadline: *deadline })
            }
            Self::Waiting { .. } | Self::Starting => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct StoredTasks {
    pub pending: Vec<StoredTask>,
    pub results: Vec<TaskResult>,
}

impl Member {
    /// Takes the messages and tasks of a ledger of an earlier version.
    pub fn take_stored_mail(&mut self) -> StoredMail {
        let StoredTasks { pending, results } = std::mem::take(&mut self.stored_tasks);
        StoredMail { messages: std::mem::take(&mut self.stored_messages), tasks: pending, results }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(name: &str) -> Self {
        use super::{AgentStatus, RoleName};
        Self {
            name: RoleName::parse(name).unwrap(),
            role: "worker".to_owned(),
            skills: Vec::new(),
            description: None,
            workspace: crate::names::WorkspaceName::parse(name).unwrap(),
            workspace_id: None,
            status: AgentStatus::Ready,
            on_board: false,
            pending_tasks: 0,
            stored_messages: Vec::new(),
            stored_tasks: StoredTasks::default(),
        }
    }
}
