//! `workspace_create`: creates and boots a workspace.

use agentiso_core::network::PolicyChange;
use agentiso_core::rate::RateCategory;
use agentiso_core::resources::MIN_MEMORY_MB;
use agentiso_daemon::CreateRequest;
use serde_json::{Value, json};

use super::view::{self, schema};
use crate::answer::Answer;
use crate::args::{Flag, Image, Integer, Invalid, NewName, Policy, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

const NAME: NewName = NewName::new("name", "Unique name. Default: generated.");
const BASE_IMAGE: Image = Image::new("base_image", "Base image. Default: as configured.");
const VCPUS: Integer = Integer::new("vcpus", "Virtual CPUs. Default: as configured.", 1..=Integer::OPEN);
const MEMORY_MB: Integer =
    Integer::new("memory_mb", "Memory in MB. Default: as configured.", MIN_MEMORY_MB as u64..=Integer::OPEN);
const DISK_GB: Integer = Integer::new("disk_gb", "Disk in GB. Default: as configured.", 1..=Integer::OPEN);
const ALLOW_INTERNET: Flag =
    Flag::new("allow_internet", "Allow internet access. Default: as configured, normally off.");

const NETWORK_POLICY: Policy =
    Policy { name: "network_policy", about: "Initial fields of network_policy, such as allow_domains." };

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_create",
    title: "Create a workspace",
    description: "Create and boot a workspace, an isolated Linux virtual machine; returns when it is ready \
                  for exec. Create one per task, not one per command.",
    slots: &[
        Slot::Optional(&NAME),
        Slot::Optional(&BASE_IMAGE),
        Slot::Optional(&VCPUS),
        Slot::Optional(&MEMORY_MB),
        Slot::Optional(&DISK_GB),
        Slot::Optional(&ALLOW_INTERNET),
        Slot::Optional(&NETWORK_POLICY),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({
        "workspace_id": schema::text(), "name": schema::text(), "state": schema::text(), "ip": schema::text(),
        "boot_time_ms": schema::integer(), "from_pool": schema::flag(), "resources": schema::object(),
        "warnings": schema::optional("array"),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let name = args.optional(&NAME);
    let base_image = args.optional(&BASE_IMAGE);
    // The tool list is the same for every configuration, so the limits are known only here.
    let limits = call.session.resource_limits();
    let vcpus = args.optional(&Integer { max: limits.max_vcpus.into(), ..VCPUS });
    let memory_mb = args.optional(&Integer { max: limits.max_memory_mb.into(), ..MEMORY_MB });
    let disk_gb = args.optional(&Integer { max: limits.max_disk_gb.into(), ..DISK_GB });
    let allow_internet = args.optional(&ALLOW_INTERNET);
    let network = args.optional(&NETWORK_POLICY);
    let request = args.finish((|| {
        let network = network?.unwrap_or_default();
        Some(CreateRequest {
            name: name?,
            base_image: base_image?,
            vcpus: vcpus?.map(narrow),
            memory_mb: memory_mb?.map(narrow),
            disk_gb: disk_gb?.map(narrow),
            network: PolicyChange { allow_internet: allow_internet?.or(network.allow_internet), ..network },
        })
    })())?;
    Ok(Box::pin(async move {
        call.session.charge(RateCategory::Create, 1)?;
        let created = call.session.create(request, &call.progress.as_progress()).await?;
        let info = &created.info;
        let mut answer = json!({
            "workspace_id": info.id,
            "name": info.name,
            "state": view::state(info.state),
            "ip": info.ip,
            "boot_time_ms": created.boot_time_ms,
            "from_pool": created.from_pool,
            "resources": view::resources(&info.resources),
        });
        view::warn(&mut answer, info);
        Ok(Answer::json(answer))
    }))
}

/// The parameters are bounded by [`Integer::OPEN`], so nothing is lost.
fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
