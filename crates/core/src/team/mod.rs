//! Teams of agents: who belongs to one, how large it may become, what may wait for its members.
//!
//! Everything here is a value. Whoever keeps it does so under one lock, and that is what makes budgets exact: a team is
//! entered before its first machine is made.

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
    Letter, MAX_CONTENT, MAX_INBOX, MAX_INBOX_BYTES, MailError, Mailbox, Message, TASK_ASSIGNMENT,
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

/// Written as clients have always read it.
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

/// A place in a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Unique in its team; what messages are sent to.
    pub name: RoleName,
    pub role: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What the machine that fills it is called.
    pub workspace: WorkspaceName,
    /// The machine itself, once there is one. A name may be somebody else's after a destroy, an id never is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    pub status: AgentStatus,
    /// It has taken tasks of the board that are not finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_board: bool,
    /// Its tasks that wait or run. They are stored apart, and counted again at every start.
    #[serde(skip)]
    pub pending_tasks: usize,
    /// What a ledger of an earlier version held for it.
    #[serde(default, rename = "mail", skip_serializing)]
    pub stored_messages: Vec<Message>,
    #[serde(default, rename = "tasks", skip_serializing)]
    pub stored_tasks: StoredTasks,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Team {
    pub state: TeamState,
    pub created_at: Timestamp,
    /// The session that made it. What is done to a team is checked against it as what is done to a workspace is.
    pub owner: SessionId,
    /// Of the members of this team and of all below it.
    pub max_vms: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TeamName>,
    pub members: Vec<Member>,
}

impl Team {
    /// What it is called in answers: one whose members carry something out is working.
    pub fn shown_state(&self) -> TeamState {
        let works = self.members.iter().any(|member| member.status == AgentStatus::Working);
        if self.state == TeamState::Ready && works { TeamState::Working } else { self.state }
    }

    /// It is being destroyed.
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
