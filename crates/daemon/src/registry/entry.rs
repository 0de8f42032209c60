//! One workspace: what never changes about it, and its status with the data each phase has.

use std::net::Ipv4Addr;

use agentiso_core::ids::{SessionId, WorkspaceId};
use agentiso_core::lifecycle::Phase;
use agentiso_core::names::WorkspaceName;
use agentiso_core::resources::Resources;

use crate::info::{NetworkInfo, WorkspaceInfo};
use crate::machines::{ImageRef, MachineRecord, Rung};

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
}

/// A process may exist in every phase but `Stopped`; it is recorded as soon as it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Creating {
        machine: Option<MachineRecord>,
    },
    Running {
        machine: MachineRecord,
    },
    Stopping {
        machine: MachineRecord,
    },
    /// The reason is there unless somebody asked for the stop.
    Stopped {
        reason: Option<String>,
    },
    Starting {
        machine: Option<MachineRecord>,
    },
    Destroying {
        machine: Option<MachineRecord>,
    },
}

impl Status {
    pub(crate) fn phase(&self) -> Phase {
        match self {
            Self::Creating { .. } => Phase::Creating,
            Self::Running { .. } => Phase::Running,
            Self::Stopping { .. } => Phase::Stopping,
            Self::Stopped { .. } => Phase::Stopped,
            Self::Starting { .. } => Phase::Starting,
            Self::Destroying { .. } => Phase::Destroying,
        }
    }

    pub(crate) fn machine(&self) -> Option<&MachineRecord> {
        match self {
            Self::Running { machine } | Self::Stopping { machine } => Some(machine),
            Self::Creating { machine } | Self::Starting { machine } | Self::Destroying { machine } => {
                machine.as_ref()
            }
            Self::Stopped { .. } => None,
        }
    }

    pub(crate) fn stop_reason(&self) -> Option<&str> {
        match self {
            Self::Stopped { reason } => reason.as_deref(),
            Self::Creating { .. }
            | Self::Running { .. }
            | Self::Stopping { .. }
            | Self::Starting { .. }
            | Self::Destroying { .. } => None,
        }
    }

    /// Whether its machine has yet to touch the memory it was promised.
    pub(crate) fn is_coming_up(&self) -> bool {
        matches!(self.phase(), Phase::Creating | Phase::Starting)
    }
}

impl Workspace {
    /// The outside view, for somebody of the given session.
    pub(crate) fn info(&self, viewer: &SessionId) -> WorkspaceInfo {
        let phase = self.status.phase();
        WorkspaceInfo {
            id: self.id,
            name: self.name.clone(),
            state: phase.public(),
            phase,
            base_image: self.image.name.clone(),
            ip: self.address,
            resources: self.resources,
            owned: self.owner.as_ref() == Some(viewer),
            owner: self.owner.clone(),
            network: self.network.clone(),
            snapshots: Vec::new(),
            created_at: self.created_at,
            disk_used_bytes: None,
            disk_volsize_bytes: None,
            stop_reason: self.status.stop_reason().map(str::to_owned),
            pid: self.status.machine().map(|machine| machine.pid),
            rung: self.rung,
        }
    }
}
