//! Facts about QEMU and its templates, as people are told them.

use agentiso_core::config::Config;
use agentiso_host::templates::{TemplateInfo as StoredTemplate, TemplateKind};

use crate::vms::{HostFacts, TemplateInfo};

pub(super) fn template(info: &StoredTemplate) -> TemplateInfo {
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
