//! The description of a wanted VM, and the result of starting it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::config::InitMode;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use agentiso_sys::process::VmRecord;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::agent::NetworkIdentity;
use crate::disk::Backing;
use crate::qemu::argv::{Card, Shape};
use crate::vm::Vm;

/// A base image: a root file system on a disk that never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseImage {
    pub name: ImageName,
    /// Another build of the same name has another id.
    pub id: String,
    /// A qcow2 file.
    pub disk: PathBuf,
    pub virtual_size: u64,
}

/// The identity of a guest, given after every boot and restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub hostname: String,
    /// 32 lower-case hexadecimal digits.
    pub machine_id: String,
    pub network: Option<NetworkIdentity>,
}

/// A VM to be made, started or found again.
#[derive(Clone, Debug)]
pub struct VmSpec {
    pub id: WorkspaceId,
    pub resources: Resources,
    pub base_image: BaseImage,
    /// Disk and logs. Belongs to this workspace alone.
    pub data_dir: PathBuf,
    /// Sockets. Belongs to this workspace alone.
    pub run_dir: PathBuf,
    /// The connection of its network card. A socket is not in the run directory, which is removed at every attempt to
    /// start the VM.
    pub card: Card,
    pub init_mode: InitMode,
    pub identity: Identity,
    /// Called for every process that is started for this VM, before its guest is waited for.
    pub on_spawn: OnSpawn,
}

impl VmSpec {
    pub fn console_log(&self) -> PathBuf {
        self.data_dir.join("console.log")
    }

    pub fn stderr_log(&self) -> PathBuf {
        self.data_dir.join("stderr.log")
    }

    pub fn disk_bytes(&self) -> u64 {
        u64::from(self.resources.disk_gb) << 30
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape { vcpus: self.resources.vcpus, memory_mb: self.resources.memory_mb }
    }

    pub(crate) fn backing(&self) -> Backing {
        Backing { name: self.base_image.name.to_string(), layers: vec![self.base_image.disk.clone()] }
    }
}

type Hook = dyn Fn(VmRecord) -> BoxFuture<'static, ()> + Send + Sync;

/// Receives the identity of a process that was just started, so that it can be recorded while the guest is still coming
/// up. The boot returns only after the hook has returned.
#[derive(Clone, Default)]
pub struct OnSpawn(Option<Arc<Hook>>);

impl OnSpawn {
    pub fn new(hook: impl Fn(VmRecord) -> BoxFuture<'static, ()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub(crate) async fn tell(&self, record: VmRecord) {
        if let Some(hook) = &self.0 {
            hook(record).await;
        }
    }
}

impl fmt::Debug for OnSpawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "OnSpawn(hook)" } else { "OnSpawn(none)" })
    }
}

/// The rungs of the boot ladder, from the fastest to the slowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// From the warm pool.
    Pool,
    /// Memory of a snapshot, processes included.
    Memory,
    /// Memory taken with the image's disk mounted and the agent idle.
    ImageTemplate,
    /// Memory taken before any disk was attached.
    BareTemplate,
    ColdBoot,
}

impl Rung {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "warm pool",
            Self::Memory => "memory snapshot",
            Self::ImageTemplate => "image template",
            Self::BareTemplate => "bare template",
            Self::ColdBoot => "cold boot",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A VM that is up and has its identity.
#[derive(Debug)]
pub struct Booted {
    pub vm: Vm,
    pub rung: Rung,
    pub boot_time: Duration,
    /// A requested feature that could not be provided, although the VM is up.
    pub warning: Option<String>,
}

impl Booted {
    pub(crate) fn new(vm: Vm, rung: Rung, began: Instant) -> Self {
        Self { vm, rung, boot_time: began.elapsed(), warning: None }
    }
}
