//! The phases of a workspace, and the operations that each phase admits.
//!
//! ```text
//!  Creating ──▶ Running ──▶ Stopping ──▶ Stopped ──▶ Starting ──▶ Running
//!      │           │ (VM died: Stopped, with the reason)             │
//!      └───────────┴───────────────┬───────────────────┴─────────────┘
//!                                  ▼
//!                             Destroying ──▶ (gone)
//!
//!  Running or Stopped ──▶ Restoring ──▶ Running        Running ◀──▶ Suspended (the host's disk is full)
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
    /// Its VM was ended and is being started from a snapshot.
    Restoring,
    /// Its VM is paused until the host's disk has room for its writes.
    Suspended,
    Destroying,
}

/// The phase as clients see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublicState {
    Running,
    Stopped,
    Suspended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// An operation that the guest has to answer: exec, files.
    UseGuest,
    Start,
    Stop,
    /// Taking a snapshot.
    Snapshot,
    /// Restoring a snapshot.
    Restore,
    /// All other operations on its snapshots: delete, compare, fork.
    UseSnapshots,
    Destroy,
}

/// The reason for which a phase does not admit an operation.
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
    #[error("is paused")]
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
            // A destroy is accepted in every phase and carried out once the current step has ended. Otherwise a
            // cleanup after a client that gave up would have to poll until the phase admits it.
            (_, Destroy) => Ok(()),
            (Phase::Running, UseGuest | Stop | Snapshot | Restore | UseSnapshots) => Ok(()),
            (Phase::Running, Start) => Err(Refusal::AlreadyRunning),
            (Phase::Stopped, Start | Restore | UseSnapshots) => Ok(()),
            (Phase::Stopped, UseGuest | Stop | Snapshot) => Err(Refusal::NotRunning),
            // Snapshots can be deleted, because that makes room.
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
    fn phases_admit_only_their_operations() {
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
