//! The life of a workspace, and which requests each phase admits.
//!
//! ```text
//!  Creating ──▶ Running ──▶ Stopping ──▶ Stopped ──▶ Starting ──▶ Running
//!      │           │ (machine died: Stopped, with the reason)        │
//!      └───────────┴───────────────┬───────────────────┴─────────────┘
//!                                  ▼
//!                             Destroying ──▶ (gone)
//! ```

use serde::{Deserialize, Serialize};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Creating,
    Running,
    Stopping,
    Stopped,
    Starting,
    Destroying,
}

/// What outsiders see of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublicState {
    Running,
    Stopped,
    Suspended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Anything that needs the guest to answer: exec, files.
    UseGuest,
    Start,
    Stop,
    Destroy,
}

/// Why a phase does not admit an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error("is not running")]
    NotRunning,
    #[error("is already running")]
    AlreadyRunning,
    #[error("is being created")]
    BeingCreated,
    #[error("is starting")]
    BeingStarted,
    #[error("is stopping")]
    BeingStopped,
    #[error("is being destroyed")]
    BeingDestroyed,
}

impl Phase {
    pub fn public(self) -> PublicState {
        match self {
            Phase::Running | Phase::Stopping => PublicState::Running,
            Phase::Creating | Phase::Stopped | Phase::Starting | Phase::Destroying => PublicState::Stopped,
        }
    }

    pub fn admit(self, operation: Operation) -> Result<(), Refusal> {
        use Operation::{Destroy, Start, Stop, UseGuest};
        match (self, operation) {
            (Phase::Running, UseGuest | Stop | Destroy) => Ok(()),
            (Phase::Running, Start) => Err(Refusal::AlreadyRunning),
            (Phase::Stopped, Start | Destroy) => Ok(()),
            (Phase::Stopped, UseGuest | Stop) => Err(Refusal::NotRunning),
            // A destroy is taken in every phase and carried out once the step under way has ended: whoever
            // cleans up after a client that gave up must not have to guess when to come back.
            (Phase::Creating | Phase::Starting | Phase::Stopping | Phase::Destroying, Destroy) => Ok(()),
            (Phase::Creating, UseGuest | Start | Stop) => Err(Refusal::BeingCreated),
            (Phase::Starting, UseGuest | Start | Stop) => Err(Refusal::BeingStarted),
            (Phase::Stopping, UseGuest | Start | Stop) => Err(Refusal::BeingStopped),
            (Phase::Destroying, UseGuest | Start | Stop) => Err(Refusal::BeingDestroyed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_running_workspace_can_be_used_and_only_a_stopped_one_started() {
        let phases = [
            Phase::Creating,
            Phase::Running,
            Phase::Stopping,
            Phase::Stopped,
            Phase::Starting,
            Phase::Destroying,
        ];
        for phase in phases {
            assert_eq!(phase.admit(Operation::UseGuest).is_ok(), phase == Phase::Running);
            assert_eq!(phase.admit(Operation::Start).is_ok(), phase == Phase::Stopped);
            assert!(phase.admit(Operation::Destroy).is_ok(), "{phase:?} cannot be cleaned up");
        }
    }
}
