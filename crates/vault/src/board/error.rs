//! Errors of the task board.

use thiserror::Error;

use super::id::TaskId;
use super::task::Status;
use crate::error::VaultError;

#[derive(Debug, Error)]
pub enum BoardError {
    #[error("{name:?} is no name of a team: 1 to 64 letters, digits or '-', which is neither first nor last")]
    TeamName { name: String },
    #[error("{text:?} is no task id; they look like task-001")]
    TaskId { text: String },
    #[error("a task cannot be made: {problem}")]
    NewTask { problem: String },
    #[error("there is no task {id} on the board of team {team}")]
    NoTask { team: String, id: TaskId },
    #[error("task {id} cannot be read: {problem}")]
    Broken { id: TaskId, problem: String },
    #[error("task {id} is {status}; only {wanted} can be {done}")]
    WrongStatus { id: TaskId, status: Status, wanted: &'static str, done: &'static str },
    #[error("task {id} belongs to {owner}, not to {caller}")]
    NotOwner { id: TaskId, owner: String, caller: String },
    #[error("the tasks depend on each other in a circle: {}", circle(.members))]
    Cycle { members: Vec<TaskId> },
    #[error("the board of team {team} has no numbers left")]
    Full { team: String },
    #[error(transparent)]
    Vault(#[from] VaultError),
}

fn circle(members: &[TaskId]) -> String {
    let names: Vec<&str> = members.iter().chain(members.first()).map(TaskId::as_str).collect();
    names.join(" needs ")
}

impl BoardError {
    /// A stable word that programs can compare.
    pub fn code(&self) -> &'static str {
        match self {
            Self::TeamName { .. } => "bad_team_name",
            Self::TaskId { .. } => "bad_task_id",
            Self::NewTask { .. } => "bad_task",
            Self::NoTask { .. } => "task_not_found",
            Self::Broken { .. } => "broken_task",
            Self::WrongStatus { .. } => "wrong_status",
            Self::NotOwner { .. } => "not_task_owner",
            Self::Cycle { .. } => "task_cycle",
            Self::Full { .. } => "board_full",
            Self::Vault(error) => error.code(),
        }
    }

    /// A hint for the client, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::TaskId { .. } | Self::NoTask { .. } => Some("list the tasks to see which there are"),
            Self::Broken { .. } => Some("correct the note of the task with vault"),
            Self::WrongStatus { .. } => Some("list the tasks to see their status"),
            Self::NotOwner { .. } => Some("claim another task, or let its owner release it"),
            Self::Cycle { .. } => Some("take one of them out of another's depends_on"),
            Self::TeamName { .. } | Self::NewTask { .. } | Self::Full { .. } => None,
            Self::Vault(error) => error.hint(),
        }
    }

    /// Whether the same call may succeed later without any change.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Vault(error) => error.retryable(),
            Self::TeamName { .. }
            | Self::TaskId { .. }
            | Self::NewTask { .. }
            | Self::NoTask { .. }
            | Self::Broken { .. }
            | Self::WrongStatus { .. }
            | Self::NotOwner { .. }
            | Self::Cycle { .. }
            | Self::Full { .. } => false,
        }
    }
}
