//! The stored form of the ledger, version 5.
//!
//! It is separate from the types the daemon works with: the form that another version reads must not change because
//! a field was renamed. A change that an older program would misread gets a new version, and [`super::parse`]
//! converts the older form. Versions below 4 were written by an earlier program whose VMs this one cannot run.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use agentiso_core::ids::{SessionId, SnapshotId, WorkspaceId};
use agentiso_core::lifecycle::Phase;
use agentiso_core::names::{ImageName, SnapshotName, WorkspaceName};
use agentiso_core::resources::Resources;
use agentiso_core::team::Teams;
use serde::{Deserialize, Serialize};

use crate::info::{ForkedFrom, NetworkInfo};
use crate::vms::{Rung, VmRecord};

pub const SCHEMA_VERSION: u64 = 5;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LedgerDocument {
    pub schema_version: u64,
    pub saved_at: jiff::Timestamp,
    /// Counts the saves. A description with a higher number was written after this file.
    #[serde(default)]
    pub revision: u64,
    pub workspaces: BTreeMap<WorkspaceId, StoredWorkspace>,
    #[serde(default)]
    pub sessions: Vec<StoredSession>,
    #[serde(default)]
    pub teams: Teams,
    #[serde(default)]
    pub counters: Counters,
    /// Report of the last start that had to repair something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mended: Option<Mended>,
}

/// The repairs of a start that found the ledger damaged, incomplete or missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mended {
    pub at: jiff::Timestamp,
    pub lines: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredWorkspace {
    pub name: WorkspaceName,
    pub phase: Phase,
    /// Present in every phase in which a process may exist.
    #[serde(default, rename = "machine", skip_serializing_if = "Option::is_none")]
    pub vm: Option<VmRecord>,
    /// The reason why it is stopped or suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
    pub image: StoredImage,
    pub resources: Resources,
    pub ip: Ipv4Addr,
    #[serde(default)]
    pub network: NetworkInfo,
    pub created_at: jiff::Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung: Option<Rung>,
    /// The oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<StoredSnapshot>,
    /// Snapshots that are being deleted. Their files are removed because they are listed here, not because they are
    /// missing elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removing: Vec<SnapshotId>,
    /// The snapshot that its state descends from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<SnapshotId>,
    /// The snapshot that is being restored, in that phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<SnapshotId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// The hash of its token for the MCP bridge, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge_token: Option<String>,
    /// It exists for a call that is under way and ends with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_call: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSnapshot {
    pub id: SnapshotId,
    pub name: SnapshotName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<SnapshotId>,
    pub has_memory: bool,
    pub created_at: jiff::Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredImage {
    pub name: ImageName,
    pub id: String,
    pub virtual_size: u64,
}

/// A session that owns something. After a restart it is a ghost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSession {
    pub session_id: SessionId,
    pub workspace_ids: Vec<WorkspaceId>,
    pub created_at: jiff::Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The address given out last: addresses are handed out in a ring.
    #[serde(default)]
    pub last_address: Option<Ipv4Addr>,
    /// The number of workspaces ever made.
    #[serde(default)]
    pub workspaces_created: u64,
}
