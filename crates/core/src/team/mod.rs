//! Teams: their members, their budgets, and the messages and tasks that wait for members.
//!
//! Everything here is a value. The registry keeps it under one lock and enters a team before its first VM is made; so
//! budgets are exact.

mod assignment;
mod groups;
mod mail;
mod names;
mod stored;
mod tasks;
mod tree;
#[cfg(test)]
mod tree_tests;

pub use assignment::{Assignment, AssignmentError};
pub use mail::{
    InboxIndex, Letter, MAX_CONTENT, MAX_INBOX, MAX_INBOX_BYTES, MailError, Message, TASK_ASSIGNMENT,
};
pub use names::{RoleName, TeamName};
pub use stored::{StoredMail, StoredStep, StoredTask, StoredTasks};
pub use tasks::{
    MAX_TASK_BYTES, MAX_TASKS, Outcome, ResultMark, TASKS_AT_ONCE, Task, TaskResult, TaskStep, Tasks,
    UnderWay,
};
pub use tree::{MAX_MEMBER_TEXT, NewMember, NewTeam, TeamLimits, TeamRefusal, Teams};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{SessionId, WorkspaceId};
use crate::names::WorkspaceName;

/// The state of a team. Its serialized names are part of the tool contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TeamState {
    Creating,
    Ready,
    Working,
    Completing,
    Destroyed,
}

impl TeamState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Ready => "Ready",
            Self::Working => "Working",
            Self::Completing => "Completing",
            Self::Destroyed => "Destroyed",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentStatus {
    Initializing,
    Ready,
    Working,
    Done,
    Failed,
}

impl AgentStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initializing => "Initializing",
            Self::Ready => "Ready",
            Self::Working => "Working",
            Self::Done => "Done",
            Self::Failed => "Failed",
        }
    }
}

/// A member of a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The address of its messages, unique in its team.
    pub name: RoleName,
    pub role: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The name of its workspace.
    pub workspace: WorkspaceName,
    /// The id of its workspace, once that exists. Unlike a name, an id is never reused after a destroy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    pub status: AgentStatus,
    /// Whether it has claimed tasks of the board that are not finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_board: bool,
    /// The number of its tasks that wait or run. Tasks are stored in the inbox and counted at every start.
    #[serde(skip)]
    pub pending_tasks: usize,
    /// Messages and tasks from a ledger of an earlier version.
    #[serde(default, rename = "mail", skip_serializing)]
    pub stored_messages: Vec<Message>,
    #[serde(default, rename = "tasks", skip_serializing)]
    pub stored_tasks: StoredTasks,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Team {
    pub state: TeamState,
    pub created_at: Timestamp,
    /// The session that made it. Only the owner may change a team, as with a workspace.
    pub owner: SessionId,
    /// The most members of this team and of all teams below it.
    pub max_vms: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TeamName>,
    pub members: Vec<Member>,
}

impl Team {
    /// The state in answers: a ready team with a working member is shown as working.
    pub fn shown_state(&self) -> TeamState {
        let works = self.members.iter().any(|member| member.status == AgentStatus::Working);
        if self.state == TeamState::Ready && works { TeamState::Working } else { self.state }
    }

    /// Whether it is being destroyed.
    pub fn is_going(&self) -> bool {
        match self.state {
            TeamState::Completing | TeamState::Destroyed => true,
            TeamState::Creating | TeamState::Ready | TeamState::Working => false,
        }
    }

    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name.as_str() == name)
    }

    pub fn member_mut(&mut self, name: &str) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.name.as_str() == name)
    }
}
