//! The seam between what a workspace is (this crate) and what carries it (QEMU, through `agentiso-host`).
//!
//! The daemon decides who may do what and keeps the truth; behind [`Machines`] processes are started, disks are
//! made and guests are spoken to. Tests put a world of their own behind it, with faults.

mod agent;
mod jobs;
mod local;
mod qemu;

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::config::InitMode;
use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_core::memory::HostMemory;
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use agentiso_core::space::HostSpace;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

pub use agent::{
    AgentFailure, Captured, DirEntry, DirListing, EntryKind, ExecEvent, ExecEvents, ExecOutcome, ExecSpec,
    FileContent, GuestAgent, GuestCode, OutputStream, WriteFile,
};
pub use jobs::{
    Arrived, Command, Download, ExecOrJob, JobQuery, JobState, JobSummary, ListOptions, Pieces, Upload,
};

pub use agentiso_host::carry::{About, Arrival, Exported, Facts, Imported, Target};
pub use agentiso_host::disk::{DiskSnapshot, SizesOf};
pub use agentiso_host::strays::Stray;
pub use agentiso_host::{MachineRecord, Progress, Rung};
pub use local::{LocalConnection, LocalConnections};
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
    /// What did not go as the caller wanted although the machine is up: its memory could not be brought back.
    pub warning: Option<String>,
}

/// A snapshot that was just taken. It survives a crash of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotTaken {
    /// How long the guest stood still.
    pub pause: Duration,
}

#[derive(Debug, Error)]
pub enum SnapshotFailure {
    #[error("the host has no space left for it: {what}")]
    NoSpace { what: String },
    #[error("{reason}")]
    Failed { reason: String },
}

/// What a workspace's disk and its snapshots take on the host, the image they are made from left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// All of it that nobody else has: the current state, the snapshots, their memory.
    pub used_bytes: u64,
    /// What counts towards the workspace's limit: what it wrote, shared with forks or not, and nothing it inherited.
    pub charged_bytes: u64,
    /// What the guest sees.
    pub virtual_bytes: u64,
    pub snapshots: BTreeMap<SnapshotId, SnapshotUsage>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotUsage {
    /// What deleting it would give back.
    pub used_bytes: u64,
    /// What it refers to, shared or not.
    pub referenced_bytes: u64,
}

/// Where the state of a disk comes from, as its files tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No snapshot of the workspace lies below it.
    Beginning,
    /// The nearest one below it.
    Snapshot(SnapshotId),
}

/// How a workspace's disk differs from a snapshot of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDiff {
    /// Bytes in blocks that were written since; what was written twice counts once.
    pub changed_bytes: u64,
    /// `None` where the two file systems could not be compared, with the reason.
    pub paths: Option<ChangedPaths>,
    pub paths_unknown: Option<String>,
}

/// Paths that differ, each list sorted and cut at a bound; the totals are true.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPaths {
    pub added: Vec<ChangedPath>,
    pub modified: Vec<ChangedPath>,
    pub removed: Vec<ChangedPath>,
    pub added_total: u64,
    pub modified_total: u64,
    pub removed_total: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedPath {
    /// Bytes that are not UTF-8 are replaced.
    pub path: String,
    /// `file`, `dir`, `symlink` or `other`.
    pub kind: String,
    /// The size where it exists now, or where it was removed.
    pub size: u64,
}

/// What a file says is in it; that it is whole is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    pub machine: Facts,
    pub has_memory: bool,
    /// What the disk and the memory have.
    pub content_bytes: u64,
}

#[derive(Debug, Error)]
pub enum CarryFailure {
    #[error("the host has no space left for it: {what}")]
    NoSpace { what: String },
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    /// Nothing is wrong here; the file cannot be used.
    #[error("{reason}")]
    Unusable { reason: String },
    #[error("{reason}")]
    Failed { reason: String },
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
    /// It is the process that was recorded, and not what was started any more.
    #[error("the machine's process is not what was started: {reason}")]
    Altered { reason: String },
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

/// What this host runs machines with, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    pub accelerator: String,
    pub accelerator_reason: String,
    pub qemu_version: String,
    pub transport: String,
    pub storage: String,
    pub network: String,
    /// What holds a QEMU that was taken over.
    #[serde(default)]
    pub jail: String,
    /// What that is, or why it is none.
    #[serde(default)]
    pub jail_reason: String,
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

    /// Brings a workspace up as it was in one of its snapshots, which stays; its machine is down. With memory,
    /// processes go on from where they were; if that fails, its disk alone comes back, with a warning.
    fn restore<'a>(
        &'a self,
        spec: &'a MachineSpec,
        snapshot: SnapshotId,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// Gives a workspace that is being made the disk of another's snapshot, and its memory if it has one. Takes
    /// milliseconds and must not run beside a delete in the source; afterwards nothing of the source is needed.
    fn branch<'a>(
        &'a self,
        source: &'a MachineSpec,
        snapshot: SnapshotId,
        fork: &'a MachineSpec,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Brings up what [`Machines::branch`] made, as a machine of its own.
    fn create_branch<'a>(
        &'a self,
        fork: &'a MachineSpec,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// Writes what [`Machines::branch`] made into a file. Dropping the future leaves nothing of the file.
    fn export<'a>(
        &'a self,
        branch: &'a MachineSpec,
        about: &'a About,
        target: &'a Target,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Exported, CarryFailure>>;

    /// Reads the beginning of a file.
    fn look<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Carried, CarryFailure>>;

    /// Gives a workspace that is being made the disk, the snapshot and the memory in a file; [`Machines::restore`]
    /// brings it up then. After an error nothing is left, also when it was cancelled. Must be waited for.
    fn import<'a>(
        &'a self,
        spec: &'a MachineSpec,
        arrival: Arrival<'a>,
        progress: &'a Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Imported, CarryFailure>>;

    /// Removes a snapshot of a workspace whose machine is down, and gives back the space that only it held.
    fn delete_snapshot<'a>(
        &'a self,
        spec: &'a MachineSpec,
        snapshot: SnapshotId,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Compares a snapshot with the disk of a workspace whose machine is down.
    fn diff<'a>(
        &'a self,
        spec: &'a MachineSpec,
        snapshot: SnapshotId,
        cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>>;

    /// Finishes or undoes what a crash cut short in the volume of a workspace whose machine is down. Snapshots that
    /// are not among the known ones are removed.
    fn settle<'a>(
        &'a self,
        spec: &'a MachineSpec,
        known: &'a [SnapshotId],
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Whether the recorded process itself (not another with its pid) is there. Answers without waiting.
    fn is_alive(&self, record: &MachineRecord) -> bool;

    fn attach<'a>(
        &'a self,
        spec: &'a MachineSpec,
        record: &'a MachineRecord,
    ) -> BoxFuture<'a, Result<Arc<dyn Machine>, AttachFailure>>;

    /// Ends every process of this workspace, recorded or not, and returns once they and their sockets are gone.
    fn halt<'a>(&'a self, spec: &'a MachineSpec, record: Option<&'a MachineRecord>) -> BoxFuture<'a, ()>;

    /// Removes the disk, the logs and the sockets. What is already gone is no error. A crash leaves the directory whole,
    /// or under the name of [`agentiso_host::files::deleted_name`].
    fn erase<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), EraseFailure>>;

    /// The machines that carry our directories in their command line and were not started by this process. Looks at
    /// the host's processes, without waiting.
    fn strays(&self) -> Vec<Stray>;

    /// Ends such a machine and removes its sockets.
    fn end_stray<'a>(&'a self, stray: &'a Stray) -> BoxFuture<'a, Result<(), String>>;

    /// Resolves when such a machine has ended. Whoever ends it, nothing but its process is touched.
    fn stray_ended<'a>(&'a self, record: &'a MachineRecord) -> BoxFuture<'a, ()>;

    /// The snapshots that a workspace's disk itself knows, a parent before its children; `None` where there is no disk.
    /// Looks at files; not for an async task.
    fn disk_snapshots(&self, _spec: &MachineSpec) -> Result<Option<Vec<DiskSnapshot>>, SnapshotFailure> {
        Ok(None)
    }

    /// Makes the templates from which workspaces of this image and size come up, if they are missing or stale.
    fn prepare<'a>(
        &'a self,
        image: &'a ImageName,
        resources: Resources,
    ) -> BoxFuture<'a, Result<(), BootFailure>>;

    fn templates(&self) -> Vec<TemplateInfo>;

    /// Looks at files; not for an async task.
    fn volume_usage(&self, spec: &MachineSpec, of: SizesOf) -> Option<VolumeUsage>;

    /// Which snapshot a workspace's disk descends from; `None` where that cannot be told. It settles what became of
    /// a restore that was cut short. Looks at files; not for an async task.
    fn origin(&self, _spec: &MachineSpec) -> Option<Origin> {
        None
    }

    fn host_memory(&self) -> Option<HostMemory>;

    /// What a copy of so much memory may take on the host's disk while it is made: more than it does in the end where
    /// the host's memory has no room for it on its way.
    fn bytes_while_copying(&self, memory_bytes: u64) -> u64;

    /// The file system that holds the workspaces; `None` where it cannot be looked at.
    fn host_space(&self) -> Option<HostSpace> {
        None
    }

    fn facts(&self) -> BoxFuture<'_, Result<HostFacts, BootFailure>>;
}

/// One running machine. Dropping it leaves the machine running.
pub trait Machine: fmt::Debug + Send + Sync + 'static {
    fn record(&self) -> MachineRecord;

    fn agent(&self) -> Arc<dyn GuestAgent>;

    /// Takes a snapshot while the guest runs: what it has acknowledged as written is in it. With memory, disk and
    /// memory are of the same instant. On an error nothing has changed.
    fn snapshot<'a>(
        &'a self,
        snapshot: SnapshotId,
        include_memory: bool,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<SnapshotTaken, SnapshotFailure>>;

    /// As [`Machines::delete_snapshot`], while the guest runs.
    fn delete_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), SnapshotFailure>>;

    /// As [`Machines::diff`], while the guest runs.
    fn diff<'a>(
        &'a self,
        snapshot: SnapshotId,
        cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>>;

    /// As [`Machines::settle`], for a machine that was found again.
    fn settle<'a>(&'a self, known: &'a [SnapshotId]) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Puts the volume in better order: space back, shorter chains. For idle moments; returns soon when interrupted,
    /// and must be waited for.
    fn tidy<'a>(&'a self, interrupted: &'a CancellationToken) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Shortens the chain of its disk's layers, if it is long and that is quickly done.
    fn shorten(&self) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        Box::pin(async { Ok(()) })
    }

    /// Makes a machine that stood ready the machine of this workspace: clock, random numbers, names, addresses.
    fn identify<'a>(&'a self, spec: &'a MachineSpec) -> BoxFuture<'a, Result<(), BootFailure>>;

    /// Resolves when the guest stands still because what it writes finds no room, with the reason.
    fn stalled(&self) -> BoxFuture<'static, String>;

    /// Lets a guest that stands still go on if there is room now; gives back what is missing otherwise.
    fn go_on(&self) -> BoxFuture<'_, Result<Option<String>, SnapshotFailure>>;

    /// Resolves when the process has ended; any number may wait.
    fn exited(&self) -> BoxFuture<'static, ExitReason>;

    /// Asks the guest to power off and insists by degrees; bounded by `grace` and a little.
    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ExitReason>;

    /// Ends the process at once and returns when it is gone.
    fn kill(&self) -> BoxFuture<'_, ()>;
}
