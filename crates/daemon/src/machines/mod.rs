//! The seam between what a workspace is (this crate) and what carries it (QEMU, through `agentiso-host`).
//!
//! The daemon decides who may do what and keeps the truth; behind [`Machines`] processes are started, disks are
//! made and guests are spoken to. Tests put a world of their own behind it, with faults.

mod agent;
mod qemu;

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::config::InitMode;
use agentiso_core::ids::WorkspaceId;
use agentiso_core::memory::HostMemory;
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use agent::{
    AgentFailure, Captured, DirEntry, DirListing, EntryKind, ExecEvent, ExecEvents, ExecOutcome, ExecSpec,
    FileContent, GuestAgent, GuestCode, OutputStream, WriteFile,
};

pub use agentiso_host::{MachineRecord, Progress, Rung};
pub use qemu::QemuMachines;

use crate::ledger::LedgerError;

/// Everything a machine needs to know about the workspace it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineSpec {
    pub id: WorkspaceId,
    pub hostname: String,
    pub resources: Resources,
    pub image: ImageRef,
    pub address: Ipv4Addr,
    pub init_mode: InitMode,
    /// `workspaces/<uuid>`: disk and logs.
    pub data_dir: PathBuf,
    /// Sockets.
    pub run_dir: PathBuf,
}

/// Which build of which image a workspace was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRef {
    pub name: ImageName,
    /// The hash of the image's contents.
    pub id: String,
    pub virtual_size: u64,
}

/// Called once a machine's process exists and before its guest is waited for. The process must not outlive an
/// error of it: what the ledger does not hold must not run.
pub type SpawnHook =
    Arc<dyn Fn(MachineRecord) -> BoxFuture<'static, Result<(), LedgerError>> + Send + Sync + 'static>;

#[derive(Debug)]
pub struct Booted {
    pub machine: Arc<dyn Machine>,
    pub rung: Rung,
    pub boot_time: Duration,
}

#[derive(Debug, Error)]
pub enum BootFailure {
    #[error("the host has no space left for the disk: {what}")]
    NoSpace { what: String },
    #[error("the guest did not answer within {seconds} s{}", tail(.console_tail))]
    TimedOut { seconds: u64, console_tail: String },
    /// This host cannot run machines at all as it is.
    #[error("{reason}")]
    HostUnfit { reason: String },
    #[error("{reason}")]
    Failed { reason: String },
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

fn tail(console: &str) -> String {
    if console.is_empty() { String::new() } else { format!("; its console ends with: {console}") }
}

#[derive(Debug, Error)]
pub enum AttachFailure {
    #[error("the machine's process is gone")]
    Gone,
    #[error("the machine runs but cannot be reached: {reason}")]
    Unreachable { reason: String },
    /// Nothing is wrong with the machine: this host lacks what is needed to speak to any.
    #[error("the host cannot run machines: {reason}")]
    HostUnfit { reason: String },
}

#[derive(Debug, Error)]
#[error("{what} could not be removed: {source}")]
pub struct EraseFailure {
    pub what: String,
    #[source]
    pub source: std::io::Error,
}

#[derive(Debug, Error)]
pub enum ImageFailure {
    #[error("no image {name} is built")]
    Missing { name: ImageName, known: Vec<String> },
    #[error("image {name} cannot be used: {reason}")]
    Broken { name: ImageName, reason: String },
}

/// Why a machine's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitReason {
    /// The guest powered itself off in an orderly way.
    pub clean: bool,
    pub text: String,
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskUsage {
    pub used_bytes: u64,
    pub virtual_bytes: u64,
}

/// What this host runs machines with, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    pub accelerator: String,
    pub accelerator_reason: String,
    pub qemu_version: String,
    pub transport: String,
    pub storage: String,
    pub network: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInfo {
    pub key: String,
    /// What it restores: `bare` or an image's name.
    pub kind: String,
    pub vcpus: u32,
    pub memory_mb: u32,
    pub disk_gb: Option<u32>,
    pub bytes: u64,
}

/// Makes, finds and removes machines.
pub trait Machines: fmt::Debug + Send + Sync + 'static {
    fn image(&self, name: &ImageName) -> Result<ImageRef, ImageFailure>;

    /// A machine with a disk of its own, its guest answering under its own identity. Dropping the future ends
    /// the process; the workspace's directories are then removed by [`Machines::erase`].
    fn create<'a>(
        &'a self,
        spec: &'a MachineSpec,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// The same for a disk that exists.
    fn start<'a>(
        &'a self,
        spec: &'a MachineSpec,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// Whether the recorded process itself (not another with its pid) is there. Answers without waiting.
    fn is_alive(&self, record: &MachineRecord) -> bool;

    fn attach<'a>(
        &'a self,
        spec: &'a MachineSpec,
        record: &'a MachineRecord,
    ) -> BoxFuture<'a, Result<Arc<dyn Machine>, AttachFailure>>;

    /// Ends every process of this workspace, recorded or not, and returns once they and their sockets are gone.
    fn halt<'a>(&'a self, spec: &'a MachineSpec, record: Option<&'a MachineRecord>) -> BoxFuture<'a, ()>;

    /// Removes the disk, the logs and the sockets. What is already gone is no error.
    fn erase<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), EraseFailure>>;

    /// Ends machines that carry our directories in their command line and whose workspace `is_known` denies.
    /// Gives back one line for each.
    fn remove_strays<'a>(
        &'a self,
        is_known: &'a (dyn Fn(&str) -> bool + Send + Sync),
    ) -> BoxFuture<'a, Vec<String>>;

    /// Makes the templates from which workspaces of this image and size come up, if they are missing or stale.
    fn prepare<'a>(
        &'a self,
        image: &'a ImageName,
        resources: Resources,
    ) -> BoxFuture<'a, Result<(), BootFailure>>;

    fn templates(&self) -> Vec<TemplateInfo>;

    fn disk_usage(&self, spec: &MachineSpec) -> Option<DiskUsage>;

    fn host_memory(&self) -> Option<HostMemory>;

    fn facts(&self) -> BoxFuture<'_, Result<HostFacts, BootFailure>>;
}

/// One running machine. Dropping it leaves the machine running.
pub trait Machine: fmt::Debug + Send + Sync + 'static {
    fn record(&self) -> MachineRecord;

    fn agent(&self) -> Arc<dyn GuestAgent>;

    /// Resolves when the process has ended; any number may wait.
    fn exited(&self) -> BoxFuture<'static, ExitReason>;

    /// Asks the guest to power off and insists by degrees; bounded by `grace` and a little.
    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ExitReason>;

    /// Ends the process at once and returns when it is gone.
    fn kill(&self) -> BoxFuture<'_, ()>;
}
