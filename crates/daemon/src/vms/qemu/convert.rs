//! Converts between the types of this crate and those of `agentiso-host`.

use agentiso_core::address::mac_for;
use agentiso_core::config::{Backend, Config};
use agentiso_host::agent::{AgentError, ErrorCode, NetworkIdentity};
use agentiso_host::carry::{CarryError, Manifest};
use agentiso_host::diff::ext4::Kind;
use agentiso_host::diff::{self, PathDiff};
use agentiso_host::disk::{SnapshotSizes, VolumeSizes};
use agentiso_host::templates::{TemplateInfo as HostTemplate, TemplateKind};
use agentiso_host::{BaseImage, BootError, Card, Comparison, Identity, OnSpawn, SnapshotError};
use agentiso_net::bridge::tap_name;

use super::artefacts;
use crate::vms::{
    AgentFailure, BootFailure, Carried, CarryFailure, ChangedPath, ChangedPaths, HostFacts, SnapshotDiff,
    SnapshotFailure, SnapshotUsage, TemplateInfo, VmSpec, VolumeUsage,
};

pub(super) fn spec(config: &Config, spec: &VmSpec, on_spawn: OnSpawn) -> agentiso_host::VmSpec {
    let subnet = config.subnet();
    agentiso_host::VmSpec {
        id: spec.id,
        resources: spec.resources,
        base_image: BaseImage {
            name: spec.image.name.clone(),
            id: spec.image.id.clone(),
            disk: artefacts::disk_of(config, &spec.image.name),
            virtual_size: spec.image.virtual_size,
        },
        data_dir: spec.data_dir.clone(),
        run_dir: spec.run_dir.clone(),
        card: match config.network.backend.chosen() {
            Backend::Gateway => Card::Socket(config.paths.workspace_net(&spec.id)),
            Backend::Bridge => Card::Tap(tap_name(&spec.id)),
        },
        init_mode: spec.init_mode,
        identity: Identity {
            hostname: spec.hostname.clone(),
            machine_id: spec.id.as_uuid().simple().to_string(),
            network: Some(NetworkIdentity {
                mac: mac_for(&spec.id),
                address: spec.address,
                prefix: subnet.prefix,
                gateway: subnet.gateway,
                // The gateway asks the configured servers, if the policy allows it.
                dns: vec![subnet.gateway],
            }),
        },
        on_spawn,
    }
}

pub(super) fn boot_failure(error: BootError) -> BootFailure {
    if error.is_out_of_space() {
        return BootFailure::NoSpace { what: error.to_string() };
    }
    BootFailure::Failed { reason: error.to_string() }
}

pub(super) fn snapshot_failure(error: SnapshotError) -> SnapshotFailure {
    match error.is_out_of_space() {
        true => SnapshotFailure::NoSpace { what: error.to_string() },
        false => SnapshotFailure::Failed { reason: error.to_string() },
    }
}

pub(super) fn diff(comparison: Comparison) -> SnapshotDiff {
    let (paths, paths_unknown) = match comparison.paths {
        Ok(paths) => (Some(changed_paths(paths)), None),
        Err(reason) => (None, Some(reason)),
    };
    SnapshotDiff { changed_bytes: comparison.changed_bytes, paths, paths_unknown }
}

fn changed_paths(diff: PathDiff) -> ChangedPaths {
    let all = |paths: Vec<diff::ChangedPath>| paths.iter().map(changed_path).collect();
    ChangedPaths {
        added: all(diff.added),
        modified: all(diff.modified),
        removed: all(diff.removed),
        added_total: diff.counts.added,
        modified_total: diff.counts.modified,
        removed_total: diff.counts.removed,
    }
}

fn changed_path(changed: &diff::ChangedPath) -> ChangedPath {
    let kind = match changed.kind {
        Kind::File => "file",
        Kind::Directory => "dir",
        Kind::Symlink => "symlink",
        Kind::CharacterDevice | Kind::BlockDevice | Kind::Pipe | Kind::Socket => "other",
    };
    ChangedPath { path: changed.lossy().into_owned(), kind: kind.to_owned(), size: changed.size }
}

pub(super) fn carried(manifest: Manifest) -> Carried {
    Carried { has_memory: manifest.has_memory(), content_bytes: manifest.content_bytes(), vm: manifest.vm }
}

pub(super) fn carry_failure(error: CarryError) -> CarryFailure {
    let reason = error.to_string();
    match error {
        error if error.is_out_of_space() => CarryFailure::NoSpace { what: reason },
        CarryError::Exists(path) => CarryFailure::Exists { path },
        CarryError::Flawed { .. } => CarryFailure::Unusable { reason },
        CarryError::File(_)
        | CarryError::Disk(_)
        | CarryError::Convert(_)
        | CarryError::Memory(_)
        | CarryError::Changed(_)
        | CarryError::NoRoom { .. }
        | CarryError::Cancelled => CarryFailure::Failed { reason },
    }
}

pub(super) fn usage(sizes: VolumeSizes) -> VolumeUsage {
    let snapshot = |of: SnapshotSizes| SnapshotUsage {
        used_bytes: of.used_bytes,
        referenced_bytes: of.referenced_bytes,
    };
    VolumeUsage {
        used_bytes: sizes.used_bytes,
        charged_bytes: sizes.charged_bytes,
        virtual_bytes: sizes.virtual_bytes,
        snapshots: sizes.snapshots.into_iter().map(|(id, of)| (id, snapshot(of))).collect(),
    }
}

pub(super) fn agent_failure(error: AgentError) -> AgentFailure {
    let text = error.to_string();
    match error {
        AgentError::Guest { code, message } => AgentFailure::Refused { code, message },
        AgentError::TimedOut { after, .. } => AgentFailure::Silent { seconds: after.as_secs() },
        AgentError::RequestTooLarge { .. } => {
            AgentFailure::Refused { code: ErrorCode::TooLarge, message: text }
        }
        AgentError::Unsupported { call } => AgentFailure::Unsupported { call },
        AgentError::Violation { .. } | AgentError::ProtocolMismatch { .. } => {
            AgentFailure::Refused { code: ErrorCode::System, message: text }
        }
        AgentError::NotReady { .. }
        | AgentError::Socket { .. }
        | AgentError::Disconnected { .. }
        | AgentError::Source(_) => AgentFailure::Broken { reason: text },
    }
}

pub(super) fn template(info: &HostTemplate) -> TemplateInfo {
    let inputs = &info.manifest.inputs;
    let (kind, disk_gb) = match &inputs.kind {
        TemplateKind::Bare => ("bare".to_owned(), None),
        TemplateKind::Snapshot => ("snapshot".to_owned(), None),
        TemplateKind::Image { image_name, disk_gb, .. } => (image_name.clone(), Some(*disk_gb)),
    };
    TemplateInfo {
        key: info.key.to_string(),
        kind,
        vcpus: inputs.vcpus,
        memory_mb: inputs.memory_mb,
        disk_gb,
        bytes: info.disk_bytes,
    }
}

pub(super) fn facts(config: &Config, facts: agentiso_host::HostFacts) -> HostFacts {
    HostFacts {
        accelerator: facts.accelerator.as_str().to_owned(),
        accelerator_reason: facts.accelerator_reason,
        qemu_version: facts.qemu_version,
        transport: facts.transport.to_owned(),
        storage: facts.storage.to_owned(),
        network: config.network.backend.chosen().as_str().to_owned(),
        jail: facts.jail.as_str().to_owned(),
        jail_reason: facts.jail_reason,
    }
}
