//! The interface between workspaces (this crate) and the VMs that run them (QEMU, through `agentiso-host`).
//!
//! The daemon decides who may do what and keeps the authoritative state. Implementations of [`Vms`] start
//! processes, make disks and talk to guests. Tests use an implementation of their own, with injected faults.

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

pub use agentiso_host::Rung;
pub use agentiso_host::carry::{About, Arrival, Exported, Facts, Imported, Target};
pub use agentiso_host::disk::{DiskSnapshot, SizesOf};
pub use agentiso_host::strays::Stray;
pub use agentiso_sys::Progress;
pub use agentiso_sys::process::VmRecord;
pub use local::{LocalConnection, LocalConnections};
pub use qemu::QemuVms;

use crate::ledger::LedgerError;

/// Everything a VM needs to know about its workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSpec {
    pub id: WorkspaceId,
    pub hostname: String,
    pub resources: Resources,
    pub image: ImageRef,
    pub address: Ipv4Addr,
    pub init_mode: InitMode,
    /// `workspaces/<uuid>`: holds the disk and the logs.
    pub data_dir: PathBuf,
    /// Holds the sockets.
    pub run_dir: PathBuf,
}

/// The image, and its build, that a workspace was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRef {
    pub name: ImageName,
    /// The hash of the image's contents.
    pub id: String,
    pub virtual_size: u64,
}

/// Called once the process of a VM exists and before its guest is waited for. If it fails, the process must be
/// ended: a VM that is not in the ledger must not run.
pub type SpawnHook =
    Arc<dyn Fn(VmRecord) -> BoxFuture<'static, Result<(), LedgerError>> + Send + Sync + 'static>;

#[derive(Debug)]
pub struct Booted {
    pub vm: Arc<dyn Vm>,
    pub rung: Rung,
    pub boot_time: Duration,
    /// A problem that did not keep the VM from booting: its memory could not be restored.
    pub warning: Option<String>,
}

/// A snapshot that was just taken and that survives a crash of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotTaken {
    /// The time that the guest stood still.
    pub pause: Duration,
}

#[derive(Debug, Error)]
pub enum SnapshotFailure {
    #[error("the host's disk is full: {what}")]
    NoSpace { what: String },
    #[error("{reason}")]
    Failed { reason: String },
}

/// The space that a workspace's disk and its snapshots take on the host, not counting the image below them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Bytes that belong to this workspace alone: the current state, the snapshots and their memory.
    pub used_bytes: u64,
    /// Bytes that count towards the workspace's limit: everything it wrote, shared with forks or not, and nothing
    /// it inherited.
    pub charged_bytes: u64,
    /// The size that the guest sees.
    pub virtual_bytes: u64,
    pub snapshots: BTreeMap<SnapshotId, SnapshotUsage>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotUsage {
    /// Bytes that deleting it would free.
    pub used_bytes: u64,
    /// Bytes that it refers to, shared or not.
    pub referenced_bytes: u64,
}

/// The snapshot that the state of a disk descends from, according to its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// There is no snapshot of the workspace below it.
    Beginning,
    /// The nearest snapshot below it.
    Snapshot(SnapshotId),
}

/// The difference between a workspace's disk and one of its snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDiff {
    /// Bytes in blocks that were written since; a block written twice counts once.
    pub changed_bytes: u64,
    /// `None` if the two file systems could not be compared; `paths_unknown` then says why.
    pub paths: Option<ChangedPaths>,
    pub paths_unknown: Option<String>,
}

/// Paths that differ, each list sorted and cut at a bound; the totals are exact.
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
    /// The current size, or the last size of a removed path.
    pub size: u64,
}

/// The contents of a file according to its header; whether the file is complete is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    pub vm: Facts,
    pub has_memory: bool,
    /// The size of the disk and the memory.
    pub content_bytes: u64,
}

#[derive(Debug, Error)]
pub enum CarryFailure {
    #[error("the host's disk is full: {what}")]
    NoSpace { what: String },
    #[error("{} exists already", path.display())]
    Exists { path: PathBuf },
    /// The host is fine; the file cannot be used.
    #[error("{reason}")]
    Unusable { reason: String },
    #[error("{reason}")]
    Failed { reason: String },
}

#[derive(Debug, Error)]
pub enum BootFailure {
    #[error("the host's disk is full: {what}")]
    NoSpace { what: String },
    #[error("the guest did not answer within {seconds} s{}", tail(.console_tail))]
    TimedOut { seconds: u64, console_tail: String },
    /// The host lacks something that every VM needs.
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
    #[error("the VM's process is gone")]
    Gone,
    #[error("the VM is running but cannot be reached: {reason}")]
    Unreachable { reason: String },
    /// The recorded process exists, but it is no longer the program that was started.
    #[error("the VM's process is not the program that was started: {reason}")]
    Altered { reason: String },
    /// The VM is fine; the host lacks something that is needed to talk to any VM.
    #[error("this host cannot run VMs: {reason}")]
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
    #[error("there is no image {name}")]
    Missing { name: ImageName, known: Vec<String> },
    #[error("image {name} cannot be used: {reason}")]
    Broken { name: ImageName, reason: String },
}

/// The reason why a VM's process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitReason {
    /// Whether the guest powered itself off in an orderly way.
    pub clean: bool,
    pub text: String,
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The means by which this host runs VMs, and why these were chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    pub accelerator: String,
    pub accelerator_reason: String,
    pub qemu_version: String,
    pub transport: String,
    pub storage: String,
    pub network: String,
    /// The jail that confines a QEMU process, even one that was broken into.
    #[serde(default)]
    pub jail: String,
    /// Details of the jail, or the reason why there is none.
    #[serde(default)]
    pub jail_reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateInfo {
    pub key: String,
    /// The kind of VM it restores: `bare` or an image's name.
    pub kind: String,
    pub vcpus: u32,
    pub memory_mb: u32,
    pub disk_gb: Option<u32>,
    pub bytes: u64,
}

/// Makes, finds and removes VMs.
pub trait Vms: fmt::Debug + Send + Sync + 'static {
    fn image(&self, name: &ImageName) -> Result<ImageRef, ImageFailure>;

    /// Makes a VM with a disk of its own and waits until its guest answers under its own identity. Dropping the
    /// future ends the process; [`Vms::erase`] then removes the workspace's directories.
    fn create<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// Boots a VM from a disk that exists.
    fn start<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// Restores a workspace, whose VM must be down, to one of its snapshots, which stays. With memory, processes
    /// continue where they were; if the memory cannot be used, only the disk is restored, with a warning.
    fn restore<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// Gives a workspace that is being made the disk of another workspace's snapshot, and its memory if there is
    /// one. Takes milliseconds and must not run at the same time as a delete in the source; afterwards nothing of
    /// the source is needed.
    fn branch<'a>(
        &'a self,
        source: &'a VmSpec,
        snapshot: SnapshotId,
        fork: &'a VmSpec,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Boots the disk that [`Vms::branch`] made, as a VM of its own.
    fn create_branch<'a>(
        &'a self,
        fork: &'a VmSpec,
        spawned: SpawnHook,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// Writes the disk that [`Vms::branch`] made into a file. Dropping the future leaves no file behind.
    fn export<'a>(
        &'a self,
        branch: &'a VmSpec,
        about: &'a About,
        target: &'a Target,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Exported, CarryFailure>>;

    /// Reads the header of a file.
    fn look<'a>(&'a self, file: &'a Path) -> BoxFuture<'a, Result<Carried, CarryFailure>>;

    /// Gives a workspace that is being made the disk, the snapshot and the memory in a file; [`Vms::restore`]
    /// then boots it. After an error or a cancellation nothing is left. The future must be awaited to its end.
    fn import<'a>(
        &'a self,
        spec: &'a VmSpec,
        arrival: Arrival<'a>,
        progress: &'a Progress,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Imported, CarryFailure>>;

    /// Removes a snapshot of a workspace whose VM is down and frees the space that only it held.
    fn delete_snapshot<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Compares a snapshot with the disk of a workspace whose VM is down.
    fn diff<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
        cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>>;

    /// Finishes or undoes what a crash interrupted in the volume of a workspace whose VM is down. Snapshots that
    /// are not in `known` are removed.
    fn settle<'a>(
        &'a self,
        spec: &'a VmSpec,
        known: &'a [SnapshotId],
    ) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Whether the recorded process itself (and not another with its pid) exists. Returns without waiting.
    fn is_alive(&self, record: &VmRecord) -> bool;

    fn attach<'a>(
        &'a self,
        spec: &'a VmSpec,
        record: &'a VmRecord,
    ) -> BoxFuture<'a, Result<Arc<dyn Vm>, AttachFailure>>;

    /// Ends every process of this workspace, recorded or not, and returns once they and their sockets are gone.
    fn halt<'a>(&'a self, spec: &'a VmSpec, record: Option<&'a VmRecord>) -> BoxFuture<'a, ()>;

    /// Removes the disk, the logs and the sockets. Missing files are no error. A crash leaves the directory whole,
    /// or under the name of [`agentiso_sys::files::deleted_name`].
    fn erase<'a>(&'a self, spec: &'a VmSpec) -> BoxFuture<'a, Result<(), EraseFailure>>;

    /// VMs that have our directories in their command line and were not started by this process. Looks at the
    /// host's processes without waiting.
    fn strays(&self) -> Vec<Stray>;

    /// Ends such a VM and removes its sockets.
    fn end_stray<'a>(&'a self, stray: &'a Stray) -> BoxFuture<'a, Result<(), String>>;

    /// Resolves when such a VM has ended, whatever the cause. Only observes the process and touches nothing else.
    fn stray_ended<'a>(&'a self, record: &'a VmRecord) -> BoxFuture<'a, ()>;

    /// The snapshots that the files of a workspace's disk list, a parent before its children; `None` if there is no
    /// disk. Reads files, so it must not be called in an async task.
    fn disk_snapshots(&self, _spec: &VmSpec) -> Result<Option<Vec<DiskSnapshot>>, SnapshotFailure> {
        Ok(None)
    }

    /// Makes the templates for workspaces of this image and size, if they are missing or stale.
    fn prepare<'a>(
        &'a self,
        image: &'a ImageName,
        resources: Resources,
    ) -> BoxFuture<'a, Result<(), BootFailure>>;

    fn templates(&self) -> Vec<TemplateInfo>;

    /// Reads files, so it must not be called in an async task.
    fn volume_usage(&self, spec: &VmSpec, of: SizesOf) -> Option<VolumeUsage>;

    /// The snapshot that a workspace's disk descends from; `None` if that cannot be determined. It shows how far an
    /// interrupted restore came. Reads files, so it must not be called in an async task.
    fn origin(&self, _spec: &VmSpec) -> Option<Origin> {
        None
    }

    fn host_memory(&self) -> Option<HostMemory>;

    /// Bytes that a copy of so much memory may take on the host's disk while it is being made: more than in the
    /// end, if the host's memory has no room for it on the way.
    fn bytes_while_copying(&self, memory_bytes: u64) -> u64;

    /// The file system that holds the workspaces; `None` if it cannot be inspected.
    fn host_space(&self) -> Option<HostSpace> {
        None
    }

    fn facts(&self) -> BoxFuture<'_, Result<HostFacts, BootFailure>>;
}

/// One running VM. Dropping it leaves the VM running.
pub trait Vm: fmt::Debug + Send + Sync + 'static {
    fn record(&self) -> VmRecord;

    fn agent(&self) -> Arc<dyn GuestAgent>;

    /// Takes a snapshot while the guest runs; it contains everything the guest's disk acknowledged as written. With
    /// memory, disk and memory are of the same instant. After an error the volume must be settled before it is used.
    fn snapshot<'a>(
        &'a self,
        snapshot: SnapshotId,
        include_memory: bool,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<SnapshotTaken, SnapshotFailure>>;

    /// As [`Vms::delete_snapshot`], while the guest runs.
    fn delete_snapshot(&self, snapshot: SnapshotId) -> BoxFuture<'_, Result<(), SnapshotFailure>>;

    /// As [`Vms::diff`], while the guest runs.
    fn diff<'a>(
        &'a self,
        snapshot: SnapshotId,
        cancelled: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<SnapshotDiff, SnapshotFailure>>;

    /// As [`Vms::settle`], for a VM that was found again.
    fn settle<'a>(&'a self, known: &'a [SnapshotId]) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Tidies the volume: frees space and shortens chains of layers. For idle moments; returns soon when
    /// interrupted, and must be awaited.
    fn tidy<'a>(&'a self, interrupted: &'a CancellationToken) -> BoxFuture<'a, Result<(), SnapshotFailure>>;

    /// Shortens the chain of the disk's layers, if it is long and that is quickly done.
    fn shorten(&self) -> BoxFuture<'_, Result<(), SnapshotFailure>> {
        Box::pin(async { Ok(()) })
    }

    /// Turns a VM of the warm pool into the VM of this workspace: clock, random numbers, names, addresses.
    fn identify<'a>(&'a self, spec: &'a VmSpec) -> BoxFuture<'a, Result<(), BootFailure>>;

    /// Resolves with the reason when the guest stands still because its writes find no room.
    fn stalled(&self) -> BoxFuture<'static, String>;

    /// Lets a guest that stands still continue if there is room; returns what is missing otherwise.
    fn go_on(&self) -> BoxFuture<'_, Result<Option<String>, SnapshotFailure>>;

    /// Resolves when the process has ended; any number of tasks may wait.
    fn exited(&self) -> BoxFuture<'static, ExitReason>;

    /// Asks the guest to power off, then uses harder means; takes little longer than `grace`.
    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ExitReason>;

    /// Kills the process and returns when it is gone.
    fn kill(&self) -> BoxFuture<'_, ()>;
}
