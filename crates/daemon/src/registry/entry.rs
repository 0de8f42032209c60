//! One workspace of the registry: its fixed properties, and its status with the data of each phase.

use std::net::Ipv4Addr;

use agentiso_core::ids::{SessionId, SnapshotId, WorkspaceId};
use agentiso_core::lifecycle::{Denial, Operation, Phase, Refusal, Standing};
use agentiso_core::names::WorkspaceName;
use agentiso_core::resources::Resources;
use agentiso_http::TokenHash;

use super::snapshots::Snapshots;
use crate::error::OpError;
use crate::info::{ForkedFrom, NetworkInfo};
use crate::vms::{ImageRef, Rung, VmRecord};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workspace {
    pub(crate) id: WorkspaceId,
    pub(crate) name: WorkspaceName,
    pub(crate) image: ImageRef,
    pub(crate) resources: Resources,
    pub(crate) address: Ipv4Addr,
    pub(crate) network: NetworkInfo,
    pub(crate) created_at: jiff::Timestamp,
    pub(crate) owner: Option<SessionId>,
    pub(crate) status: Status,
    pub(crate) rung: Option<Rung>,
    pub(crate) snapshots: Snapshots,
    pub(crate) forked_from: Option<ForkedFrom>,
    /// The hash of the token with which programs inside may use MCP.
    pub(crate) bridge_token: Option<TokenHash>,
    pub(crate) lifetime: Lifetime,
    /// The reason why its running VM cannot be used. Every daemon finds this out anew.
    pub(crate) out_of_reach: Option<String>,
}

impl Workspace {
    fn standing(&self) -> Standing<'_> {
        Standing { phase: self.status.phase(), out_of_reach: self.out_of_reach.as_deref() }
    }

    /// Whether a request for the operation may be sent to its runner.
    pub(crate) fn accept(&self, operation: Operation) -> Result<(), OpError> {
        self.standing().accept(operation).map_err(|refusal| self.wrong_state(refusal))
    }

    /// Whether the operation may begin.
    pub(crate) fn admit(&self, operation: Operation) -> Result<(), OpError> {
        self.standing().admit(operation).map_err(|denial| match denial {
            Denial::Phase(refusal) => self.wrong_state(refusal),
            Denial::OutOfReach { reason } => {
                OpError::OutOfReach { name: self.name.clone(), reason: reason.to_owned() }
            }
        })
    }

    fn wrong_state(&self, refusal: Refusal) -> OpError {
        let stop_reason = self.status.stop_reason().map(str::to_owned);
        OpError::WrongState { name: self.name.clone(), refusal, stop_reason }
    }
}

/// The time for which a workspace exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until a client destroys it.
    #[default]
    Lasting,
    /// As long as the call that made it: its client may never learn of it. A shutdown destroys it, and so does the
    /// start after a crash.
    OneCall,
}

/// A process may exist in every phase but `Stopped`; it is recorded as soon as it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Creating {
        vm: Option<VmRecord>,
    },
    Running {
        vm: VmRecord,
    },
    Stopping {
        vm: VmRecord,
    },
    /// The reason is present unless a client asked for the stop.
    Stopped {
        reason: Option<String>,
    },
    Starting {
        vm: Option<VmRecord>,
    },
    /// It goes back to a snapshot: `vm` is first the old VM, then the new one.
    Restoring {
        snapshot: SnapshotId,
        vm: Option<VmRecord>,
    },
    /// Its VM stands still because its writes find no room.
    Suspended {
        vm: VmRecord,
        reason: String,
    },
    Destroying {
        vm: Option<VmRecord>,
    },
}

/// The most bytes of a reason. The last output of a VM may be longer, and the ledger must stay small.
const MAX_REASON: usize = 4096;

impl Status {
    /// Cuts the reason to the length that fits into the ledger.
    pub(crate) fn bounded(mut self) -> Self {
        if let Self::Stopped { reason: Some(reason) } | Self::Suspended { reason, .. } = &mut self {
            reason.truncate(reason.floor_char_boundary(MAX_REASON));
        }
        self
    }

    pub(crate) fn phase(&self) -> Phase {
        match self {
            Self::Creating { .. } => Phase::Creating,
            Self::Running { .. } => Phase::Running,
            Self::Stopping { .. } => Phase::Stopping,
            Self::Stopped { .. } => Phase::Stopped,
            Self::Starting { .. } => Phase::Starting,
            Self::Restoring { .. } => Phase::Restoring,
            Self::Suspended { .. } => Phase::Suspended,
            Self::Destroying { .. } => Phase::Destroying,
        }
    }

    pub(crate) fn vm(&self) -> Option<&VmRecord> {
        match self {
            Self::Running { vm } | Self::Stopping { vm } | Self::Suspended { vm, .. } => Some(vm),
            Self::Creating { vm }
            | Self::Starting { vm }
            | Self::Restoring { vm, .. }
            | Self::Destroying { vm } => vm.as_ref(),
            Self::Stopped { .. } => None,
        }
    }

    /// The reason why it is stopped or stands still, unless a client asked for it.
    pub(crate) fn stop_reason(&self) -> Option<&str> {
        match self {
            Self::Stopped { reason } => reason.as_deref(),
            Self::Suspended { reason, .. } => Some(reason),
            Self::Creating { .. }
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Starting { .. }
            | Self::Restoring { .. }
            | Self::Destroying { .. } => None,
        }
    }

    /// Whether its VM has yet to use the memory it was promised.
    pub(crate) fn is_coming_up(&self) -> bool {
        matches!(self.phase(), Phase::Creating | Phase::Starting | Phase::Restoring)
    }
}
