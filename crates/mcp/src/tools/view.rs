//! The JSON of workspaces in answers.

use agentiso_core::lifecycle::PublicState;
use agentiso_core::network::{CidrRule, DomainRule, NetworkPolicy};
use agentiso_core::resources::Resources;
use agentiso_daemon::{ForkedFrom, SnapshotInfo, WorkspaceInfo};
use serde_json::{Value, json};

pub(crate) fn state(state: PublicState) -> &'static str {
    match state {
        PublicState::Running => "running",
        PublicState::Stopped => "stopped",
        PublicState::Suspended => "suspended",
    }
}

/// Fields of the contract are always present, the others only if they are set.
pub(crate) fn policy(policy: &NetworkPolicy) -> Value {
    let mut view = json!({
        "allow_internet": policy.allow_internet,
        "allow_inter_vm": policy.allow_inter_vm,
        "allowed_ports": policy.allowed_ports,
    });
    let domains = |rules: &[DomainRule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let cidrs = |rules: &[CidrRule]| rules.iter().map(ToString::to_string).collect::<Vec<_>>();
    let lists = [
        ("allow_domains", domains(&policy.allow_domains)),
        ("deny_domains", domains(&policy.deny_domains)),
        ("allow_cidrs", cidrs(&policy.allow_cidrs)),
        ("deny_cidrs", cidrs(&policy.deny_cidrs)),
    ];
    for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
        view[name] = list.into();
    }
    if let Some(mbps) = policy.bandwidth_mbps {
        view["bandwidth_mbps"] = mbps.into();
    }
    view
}

pub(super) fn resources(resources: &Resources) -> Value {
    json!({ "vcpus": resources.vcpus, "memory_mb": resources.memory_mb, "disk_gb": resources.disk_gb })
}

/// Adds warnings about a workspace that has just started, if there are any.
pub(super) fn warn(view: &mut Value, info: &WorkspaceInfo) {
    let warnings = info.network_trouble.sentences();
    if !warnings.is_empty() {
        view["warnings"] = warnings.into();
    }
}

/// Identity and state: the members that every answer about a workspace begins with.
pub(super) fn brief(info: &WorkspaceInfo) -> Value {
    json!({ "workspace_id": info.id, "name": info.name, "state": state(info.state) })
}

/// The workspace and snapshot that a fork was made from.
pub(super) fn forked_from(origin: &ForkedFrom) -> Value {
    json!({
        "source_workspace_id": origin.source_workspace_id,
        "source_workspace_name": origin.source_workspace_name,
        "snapshot_name": origin.snapshot_name,
    })
}

/// The members that every answer has about a snapshot.
pub(super) fn snapshot(snapshot: &SnapshotInfo) -> Value {
    json!({
        "id": snapshot.id,
        "name": snapshot.name,
        "has_memory": snapshot.has_memory,
        "parent": snapshot.parent,
        "created_at": snapshot.created_at.to_string(),
    })
}

/// The JSON Schemas of the members above.
pub(super) mod schema {
    use serde_json::{Value, json};

    pub(crate) fn text() -> Value {
        json!({ "type": "string" })
    }

    pub(crate) fn optional_text() -> Value {
        json!({ "type": "string", "optional": true })
    }

    pub(crate) fn integer() -> Value {
        json!({ "type": "integer" })
    }

    pub(crate) fn integer_or_null() -> Value {
        json!({ "type": ["integer", "null"] })
    }

    pub(crate) fn flag() -> Value {
        json!({ "type": "boolean" })
    }

    pub(crate) fn optional(kind: &str) -> Value {
        json!({ "type": kind, "optional": true })
    }

    pub(crate) fn object() -> Value {
        json!({ "type": "object" })
    }

    pub(crate) fn list() -> Value {
        json!({ "type": "array", "items": { "type": "object" } })
    }
}
