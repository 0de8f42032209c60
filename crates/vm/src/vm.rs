//! One running VM.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_sys::Progress;
use agentiso_sys::process::VmRecord;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::agent::GuestAgent;
use crate::failure::{BootFailure, SnapshotFailure};
use crate::snapshot::{SnapshotDiff, SnapshotTaken};
use crate::spec::VmSpec;

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

    /// Resolves with the reason when the process has ended; any number of tasks may wait.
    fn exited(&self) -> BoxFuture<'static, String>;

    /// Asks the guest to power off. If it does not, the process is told to quit, and then killed. Takes little longer
    /// than `grace`.
    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, String>;

    /// Kills the process and returns when it is gone.
    fn kill(&self) -> BoxFuture<'_, ()>;
}
