//! Errors of the task board.

use thiserror::Error;

use super::id::TaskId;
use super::task::Status;
use crate::error::VaultError;

#[derive(Debug, Error)]
pub enum BoardError {
    #[error("invalid team name {name:?}: use 1 to 64 letters, digits or '-', and no '-' at the ends")]
    TeamName { name: String },
    #[error("invalid task id {text:?}; task ids look like task-001")]
    TaskId { text: String },
    #[error("cannot create the task: {problem}")]
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
