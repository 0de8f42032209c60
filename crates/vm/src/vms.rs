//! The VMs of a host.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_core::memory::HostMemory;
use agentiso_core::names::ImageName;
use agentiso_core::resources::Resources;
use agentiso_core::space::HostSpace;
use agentiso_sys::Progress;
use agentiso_sys::process::VmRecord;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::carry::{About, Arrival, Carried, Exported, Imported, Target};
use crate::facts::{HostFacts, Stray, TemplateInfo};
use crate::failure::{AttachFailure, BootFailure, CarryFailure, EraseFailure, ImageFailure, SnapshotFailure};
use crate::snapshot::{DiskSnapshot, Origin, SizesOf, SnapshotDiff, VolumeSizes};
use crate::spec::{ImageRef, OnSpawn, Rung, VmSpec};
use crate::vm::Vm;

/// A VM that is up and has its identity.
#[derive(Debug)]
pub struct Booted<V = Arc<dyn Vm>> {
    pub vm: V,
    pub rung: Rung,
    pub boot_time: Duration,
    /// A requested feature that could not be provided, although the VM is up: its memory could not be restored.
    pub warning: Option<String>,
}

/// Makes, finds and removes VMs.
pub trait Vms: fmt::Debug + Send + Sync + 'static {
    fn image(&self, name: &ImageName) -> Result<ImageRef, ImageFailure>;

    /// Makes a VM with a disk of its own and waits until its guest answers under its own identity. Dropping the
    /// future ends the process; [`Vms::erase`] then removes the workspace's directories.
    fn create<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// Boots a VM from a disk that exists.
    fn start<'a>(
        &'a self,
        spec: &'a VmSpec,
        spawned: OnSpawn,
        progress: &'a Progress,
    ) -> BoxFuture<'a, Result<Booted, BootFailure>>;

    /// Restores a workspace, whose VM must be down, to one of its snapshots, which stays. With memory, processes
    /// continue where they were; if the memory cannot be used, only the disk is restored, with a warning.
    fn restore<'a>(
        &'a self,
        spec: &'a VmSpec,
        snapshot: SnapshotId,
        spawned: OnSpawn,
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
        spawned: OnSpawn,
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
    fn volume_usage(&self, spec: &VmSpec, of: SizesOf) -> Option<VolumeSizes>;

    /// The snapshot that a workspace's disk descends from; `None` if that cannot be determined. It shows how far an
    /// interrupted restore came. Reads files, so it must not be called in an async task.
    fn origin(&self, _spec: &VmSpec) -> Option<Origin> {
        None
    }

    fn host_memory(&self) -> Option<HostMemory>;

    /// Bytes that a copy of this much memory may take on the host's disk while it is being made. If the host's memory
    /// has no room for the copy meanwhile, this is more than the finished copy takes.
    fn bytes_while_copying(&self, memory_bytes: u64) -> u64;

    /// The file system that holds the workspaces; `None` if it cannot be inspected.
    fn host_space(&self) -> Option<HostSpace> {
        None
    }

    fn facts(&self) -> BoxFuture<'_, Result<HostFacts, BootFailure>>;
}
