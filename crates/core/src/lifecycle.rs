//! The phases of a workspace, and the one decision which operations it admits.
//!
//! A request for an operation is judged twice: when it is sent it is accepted, or its client hears at once that it is
//! pointless; in its turn it is admitted, or what happened while it was pending refuses it.
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
    /// The stop of a workspace that stays when the daemon ends. No client asked for it.
    End,
    /// Taking a snapshot.
    Snapshot,
    /// Restoring a snapshot.
    Restore,
    /// All other operations on its snapshots: delete, compare, fork.
    UseSnapshots,
    Destroy,
}

/// The facts about a workspace that decide whether an operation is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing<'a> {
    pub phase: Phase,
    /// The reason why its VM, which runs, cannot be reached. The daemon keeps trying.
    pub out_of_reach: Option<&'a str>,
}

/// The reason for which a workspace does not admit an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial<'a> {
    Phase(Refusal),
    OutOfReach { reason: &'a str },
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
}

impl<'a> Standing<'a> {
    /// Whether a request for the operation may wait for its turn. By then the daemon may reach the VM again.
    pub fn accept(self, operation: Operation) -> Result<(), Refusal> {
        use Operation::{Destroy, End, Restore, Snapshot, Start, Stop, UseGuest, UseSnapshots};
        match (self.phase, operation) {
            // A destroy is accepted in every phase and carried out once the current step has ended. Otherwise a
            // cleanup after a client that gave up would have to poll until the phase admits it.
            (_, Destroy) => Ok(()),
            (Phase::Running, UseGuest | Stop | End | Snapshot | Restore | UseSnapshots) => Ok(()),
            (Phase::Running, Start) => Err(Refusal::AlreadyRunning),
            (Phase::Stopped, Start | Restore | UseSnapshots) => Ok(()),
            (Phase::Stopped, UseGuest | Stop | End | Snapshot) => Err(Refusal::NotRunning),
            // Snapshots can be deleted, because that makes room.
            (Phase::Suspended, Stop | End | Restore | UseSnapshots) => Ok(()),
            (Phase::Suspended, UseGuest | Start | Snapshot) => Err(Refusal::Suspended),
            (Phase::Creating, _) => Err(Refusal::BeingCreated),
            (Phase::Starting, _) => Err(Refusal::BeingStarted),
            (Phase::Stopping, _) => Err(Refusal::BeingStopped),
            (Phase::Restoring, _) => Err(Refusal::BeingRestored),
            (Phase::Destroying, _) => Err(Refusal::BeingDestroyed),
        }
    }

    /// Whether the operation may begin. A VM that is out of reach ends only if a client asks for it: the next daemon
    /// may reach it.
    pub fn admit(self, operation: Operation) -> Result<(), Denial<'a>> {
        use Operation::{Destroy, End, Restore, Snapshot, Start, Stop, UseGuest, UseSnapshots};
        self.accept(operation).map_err(Denial::Phase)?;
        match (self.out_of_reach, operation) {
            (None, _) | (Some(_), Start | Stop | Destroy) => Ok(()),
            (Some(reason), UseGuest | End | Snapshot | Restore | UseSnapshots) => {
                Err(Denial::OutOfReach { reason })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHASES: [Phase; 8] = [
        Phase::Creating,
        Phase::Running,
        Phase::Stopping,
        Phase::Stopped,
        Phase::Starting,
        Phase::Restoring,
        Phase::Suspended,
        Phase::Destroying,
    ];

    const OPERATIONS: [Operation; 8] = [
        Operation::UseGuest,
        Operation::Start,
        Operation::Stop,
        Operation::End,
        Operation::Snapshot,
        Operation::Restore,
        Operation::UseSnapshots,
        Operation::Destroy,
    ];

    fn asked(out_of_reach: Option<&str>) -> impl Iterator<Item = (Standing<'_>, Operation)> {
        let standings = PHASES.into_iter().map(move |phase| Standing { phase, out_of_reach });
        standings.flat_map(|standing| OPERATIONS.map(|operation| (standing, operation)))
    }

    #[test]
    fn phases_admit_only_their_operations() {
        for phase in PHASES {
            let standing = Standing { phase, out_of_reach: None };
            let admits = |operation| standing.admit(operation).is_ok();
            let up = matches!(phase, Phase::Running | Phase::Suspended);
            assert_eq!(admits(Operation::UseGuest), phase == Phase::Running);
            assert_eq!(admits(Operation::Start), phase == Phase::Stopped);
            assert_eq!(admits(Operation::Snapshot), phase == Phase::Running);
            assert_eq!((admits(Operation::Stop), admits(Operation::End)), (up, up));
            assert_eq!(admits(Operation::UseSnapshots), up || phase == Phase::Stopped);
            assert!(admits(Operation::Destroy), "{phase:?} cannot be cleaned up");
        }
    }

    #[test]
    fn reachable_workspace_admits_all_it_accepted() {
        for (standing, operation) in asked(None) {
            assert_eq!(standing.admit(operation), standing.accept(operation).map_err(Denial::Phase));
        }
    }

    #[test]
    fn unreachable_vm_is_only_stopped_or_destroyed() {
        for (standing, operation) in asked(Some("busy")) {
            match (standing.accept(operation), standing.admit(operation)) {
                (Err(refusal), admitted) => assert_eq!(admitted, Err(Denial::Phase(refusal))),
                (Ok(()), Err(denial)) => assert_eq!(denial, Denial::OutOfReach { reason: "busy" }),
                (Ok(()), Ok(())) if standing.phase == Phase::Stopped => {
                    assert!(matches!(operation, Operation::Start | Operation::Destroy));
                }
                (Ok(()), Ok(())) => assert!(matches!(operation, Operation::Stop | Operation::Destroy)),
            }
        }
    }
}
