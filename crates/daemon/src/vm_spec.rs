//! Describes the VM of a workspace, from the configuration and the workspace.

use std::net::Ipv4Addr;

use agentiso_core::address::mac_for;
use agentiso_core::config::{Backend, Config};
use agentiso_core::ids::WorkspaceId;
use agentiso_core::resources::Resources;
use agentiso_net::bridge::tap_name;

use crate::vms::{BaseImage, Card, Identity, ImageRef, NetworkIdentity, VmSpec};

/// The part of a VM that does not come from the configuration.
pub(crate) struct Of<'a> {
    pub(crate) id: WorkspaceId,
    pub(crate) hostname: String,
    pub(crate) address: Ipv4Addr,
    pub(crate) resources: Resources,
    pub(crate) image: &'a ImageRef,
}

pub(crate) fn vm_spec(config: &Config, of: Of<'_>) -> VmSpec {
    let Of { id, hostname, address, resources, image } = of;
    let (paths, subnet) = (&config.paths, config.subnet());
    VmSpec {
        id,
        resources,
        base_image: BaseImage {
            name: image.name.clone(),
            id: image.id.clone(),
            disk: paths.image_disk(&image.name),
            virtual_size: image.virtual_size,
        },
        data_dir: paths.workspace_data(&id),
        run_dir: paths.workspace_run(&id),
        card: match config.network.backend.chosen() {
            Backend::Gateway => Card::Socket(paths.workspace_net(&id)),
            Backend::Bridge => Card::Tap(tap_name(&id)),
        },
        init_mode: config.vm.init_mode,
        identity: Identity {
            hostname,
            machine_id: id.as_uuid().simple().to_string(),
            network: Some(NetworkIdentity {
                mac: mac_for(&id),
                address,
                prefix: subnet.prefix,
                gateway: subnet.gateway,
                // The gateway asks the configured servers, if the policy allows it.
                dns: vec![subnet.gateway],
            }),
        },
    }
}
