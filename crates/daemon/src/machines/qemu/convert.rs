//! Between the words of this crate and those of `agentiso-host`.

use agentiso_core::address::mac_for;
use agentiso_core::config::Config;
use agentiso_host::agent::{AgentError, ErrorCode, NetworkIdentity};
use agentiso_host::templates::{TemplateInfo as HostTemplate, TemplateKind};
use agentiso_host::{BaseImage, BootError, Identity, OnSpawn};

use super::artefacts;
use crate::machines::{AgentFailure, BootFailure, HostFacts, MachineSpec, TemplateInfo};

pub(super) fn spec(config: &Config, spec: &MachineSpec, on_spawn: OnSpawn) -> agentiso_host::MachineSpec {
    let subnet = config.subnet();
    agentiso_host::MachineSpec {
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
        init_mode: spec.init_mode,
        identity: Identity {
            hostname: spec.hostname.clone(),
            machine_id: spec.id.as_uuid().simple().to_string(),
            network: Some(NetworkIdentity {
                mac: mac_for(&spec.id),
                address: spec.address,
                prefix: subnet.prefix,
                gateway: subnet.gateway,
                dns: config.network.dns_servers.clone(),
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

pub(super) fn agent_failure(error: AgentError) -> AgentFailure {
    let text = error.to_string();
    match error {
        AgentError::Guest { code, message } => AgentFailure::Refused { code, message },
        AgentError::TimedOut { after, .. } => AgentFailure::Silent { seconds: after.as_secs() },
        AgentError::RequestTooLarge { .. } => {
            AgentFailure::Refused { code: ErrorCode::TooLarge, message: text }
        }
        AgentError::Unsupported { .. }
        | AgentError::Violation { .. }
        | AgentError::ProtocolMismatch { .. } => {
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

pub(super) fn facts(facts: agentiso_host::HostFacts) -> HostFacts {
    HostFacts {
        accelerator: facts.accelerator.as_str().to_owned(),
        accelerator_reason: facts.accelerator_reason,
        qemu_version: facts.qemu_version,
        transport: facts.transport.to_owned(),
        storage: facts.storage.to_owned(),
        network: facts.network.to_owned(),
    }
}
