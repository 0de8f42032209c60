//! The life of a workspace, and which requests each phase admits.
//!
//! ```text
//!  Creating ──▶ Running ──▶ Stopping ──▶ Stopped ──▶ Starting ──▶ Running
//!      │           │ (machine died: Stopped, with the reason)        │
//!      └───────────┴───────────────┬───────────────────┴─────────────┘
//!                                  ▼
//!                             Destroying ──▶ (gone)
//!
//!  Running or Stopped ──▶ Restoring ──▶ Running        Running ◀──▶ Suspended (its disk has no room)
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
    /// Its machine was ended and comes up again as a snapshot was.
    Restoring,
    /// Its machine stands still until there is room for what it writes.
    Suspended,
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
    /// Taking a snapshot.
    Snapshot,
    /// Going back to one.
    Restore,
    /// Anything else with its snapshots: delete, compare, fork.
    UseSnapshots,
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
    #[error("is being restored")]
    BeingRestored,
    #[error("stands still because its disk has no room")]
    Suspended,
    #[error("is being destroyed")]
    BeingDestroyed,
}

impl Phase {
    pub fn public(self) -> PublicState {
        match self {
            Phase::Running | Phase::Stopping => PublicState::Running,
            Phase::Suspended => PublicState::Suspended,
            Phase::Creating | Phase::Stopped | Phase::Starting | Phase::Restoring | Phase::Destroying => {
                PublicState::Stopped
            }
        }
    }

    pub fn admit(self, operation: Operation) -> Result<(), Refusal> {
        use Operation::{Destroy, Restore, Snapshot, Start, Stop, UseGuest, UseSnapshots};
        match (self, operation) {
            // A destroy is taken in every phase and carried out once the step under way has ended: whoever
            // cleans up after a client that gave up must not have to guess when to come back.
            (_, Destroy) => Ok(()),
            (Phase::Running, UseGuest | Stop | Snapshot | Restore | UseSnapshots) => Ok(()),
            (Phase::Running, Start) => Err(Refusal::AlreadyRunning),
            (Phase::Stopped, Start | Restore | UseSnapshots) => Ok(()),
            (Phase::Stopped, UseGuest | Stop | Snapshot) => Err(Refusal::NotRunning),
            // Deleting snapshots is how room is made.
            (Phase::Suspended, Stop | Restore | UseSnapshots) => Ok(()),
            (Phase::Suspended, UseGuest | Start | Snapshot) => Err(Refusal::Suspended),
            (Phase::Creating, _) => Err(Refusal::BeingCreated),
            (Phase::Starting, _) => Err(Refusal::BeingStarted),
            (Phase::Stopping, _) => Err(Refusal::BeingStopped),
            (Phase::Restoring, _) => Err(Refusal::BeingRestored),
            (Phase::Destroying, _) => Err(Refusal::BeingDestroyed),
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
            Phase::Restoring,
            Phase::Suspended,
            Phase::Destroying,
        ];
        for phase in phases {
            assert_eq!(phase.admit(Operation::UseGuest).is_ok(), phase == Phase::Running);
            assert_eq!(phase.admit(Operation::Start).is_ok(), phase == Phase::Stopped);
            assert_eq!(phase.admit(Operation::Snapshot).is_ok(), phase == Phase::Running);
            assert!(phase.admit(Operation::Destroy).is_ok(), "{phase:?} cannot be cleaned up");
        }
    }
}
