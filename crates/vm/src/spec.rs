//! The description of a wanted VM, and the result of starting it.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use agentiso_core::config::InitMode;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use agentiso_sys::process::VmRecord;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::failure::Unrecorded;

/// The image, and its build, that a workspace was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRef {
    pub name: ImageName,
    /// The hash of the image's contents.
    pub id: String,
    pub virtual_size: u64,
}

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

/// The VM's addresses in its network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkIdentity {
    /// Hardware address.
    pub mac: [u8; 6],
    /// Address of the VM.
    pub address: Ipv4Addr,
    /// Length of the subnet's prefix.
    pub prefix: u8,
    /// Default route.
    pub gateway: Ipv4Addr,
    /// Name servers.
    pub dns: Vec<Ipv4Addr>,
}

/// The connection of the network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Card {
    /// A socket on which the gateway listens, now or later.
    Socket(PathBuf),
    /// An existing TAP device.
    Tap(String),
}

/// A VM to be made, started or found again.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

type Hook = dyn Fn(VmRecord) -> BoxFuture<'static, Result<(), Unrecorded>> + Send + Sync;

/// Records a process that was just started, before its guest is waited for. If it fails, the process is ended: a VM
/// that is in no record must not run.
#[derive(Clone, Default)]
pub struct OnSpawn(Option<Arc<Hook>>);

impl OnSpawn {
    pub fn new(
        hook: impl Fn(VmRecord) -> BoxFuture<'static, Result<(), Unrecorded>> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(hook)))
    }

    pub async fn tell(&self, record: VmRecord) -> Result<(), Unrecorded> {
        match &self.0 {
            Some(hook) => hook(record).await,
            None => Ok(()),
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
