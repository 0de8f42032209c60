//! Takes a snapshot of a running VM.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_core::ids::SnapshotId;
use agentiso_disk::qcow2_header::Header;
use agentiso_disk::{DiskError, Pivot, Qcow2Storage, Storage};
use agentiso_sys::Progress;
use agentiso_sys::fault;
use agentiso_vm::VmSpec;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::time::Instant;

use super::error::SnapshotError;
use super::memory::{self, Conversion};
use super::stream::{self, Stream};
use crate::boot::launch::Host;
use crate::qmp::{Event, QmpClient, QmpError, node_name};
use crate::templates::key::HostInputs;
use crate::vm::Vm;

/// The context for taking snapshots of one VM.
pub(crate) struct Taking<'a> {
    pub(crate) host: &'a Host,
    pub(crate) inputs: &'a HostInputs,
    pub(crate) run_root: &'a Path,
    pub(crate) spec: &'a VmSpec,
    pub(crate) vm: &'a Vm,
    pub(crate) progress: &'a Progress,
}

impl Taking<'_> {
    /// Returns how long the guest was paused, once the snapshot would survive a crash of the host. On an error there
    /// is no snapshot, and the VM runs or is stalled; if stalled, [`Vm::wake`] has to be tried again.
    pub(crate) async fn run(
        &self,
        snapshot: SnapshotId,
        include_memory: bool,
    ) -> Result<Duration, SnapshotError> {
        let dir = &self.spec.data_dir;
        // The guest's completed writes reach its disk before the snapshot, with or without memory.
        let synced = async { self.vm.agent().await?.sync().await };
        tokio::select! {
            biased;
            synced = synced => synced?,
            reason = self.vm.stalled() => return Err(SnapshotError::Stalled { reason }),
        }
        let pivot = Qcow2Storage.begin_snapshot(dir, snapshot).await?;
        fault::point("snapshot.noted");
        let taken = match include_memory {
            false => self.disk(&pivot).await,
            true => self.disk_and_memory(snapshot, &pivot).await,
        };
        let finished = match taken {
            Ok(pause) => {
                freeze(self.vm.qmp(), dir).await;
                Qcow2Storage.finish_snapshot(dir, snapshot).await.map(|()| pause).map_err(Into::into)
            }
            Err(error) => Err(error),
        };
        if finished.is_err() {
            let undone = async {
                memory::remove(dir, snapshot)?;
                undo(self.vm.qmp(), dir, snapshot, &pivot).await
            };
            if let Err(error) = undone.await {
                tracing::error!(workspace = %self.spec.id, %error, "could not undo a failed snapshot completely");
            }
        }
        finished
    }

    async fn disk(&self, pivot: &Pivot) -> Result<Duration, SnapshotError> {
        self.progress.report("taking a snapshot of the disk", None);
        let overlay = Overlay::open(self.vm.qmp(), pivot).await?;
        let began = Instant::now();
        overlay.pivot().await?;
        let pause = began.elapsed();
        fault::point("snapshot.pivoted");
        Ok(pause)
    }

    async fn disk_and_memory(&self, snapshot: SnapshotId, pivot: &Pivot) -> Result<Duration, SnapshotError> {
        let qmp = self.vm.qmp();
        let overlay = Overlay::open(qmp, pivot).await?;
        let vm_bytes = u64::from(self.spec.resources.memory_mb) << 20;
        let longest = stream::longest(self.host.qemu.version, vm_bytes);
        let stream = Stream::new(&self.spec.data_dir, snapshot, longest, vm_bytes);
        self.progress.report("copying the memory while the VM runs", Some(0.2));
        let events = qmp.events();
        let layout = match qmp.save_running(stream.path(), vm_bytes).await {
            Ok(layout) => layout,
            Err(error) => {
                if let Err(error) = self.vm.wake().await {
                    tracing::warn!(workspace = %self.spec.id, %error, "the guest is still paused after a cancelled copy of its memory");
                }
                overlay.close().await;
                return Err(error.into());
            }
        };
        // The VM is paused, so its memory and its disk are of the same instant.
        let pivoted = overlay.pivot().await;
        fault::point("snapshot.pivoted");
        // The VM continues even if the pivot failed.
        self.vm.resume().await?;
        fault::point("snapshot.resumed");
        qmp.take_states_back().await;
        pivoted?;
        let pause = pause(events);
        tracing::debug!(workspace = %self.spec.id, ?pause, "the memory was copied");
        self.progress.report("preparing the memory for a restore", Some(0.6));
        let conversion = Conversion {
            host: self.host,
            inputs: memory::inputs(self.inputs, self.spec.resources.into()),
            run_root: self.run_root,
            data_dir: &self.spec.data_dir,
            snapshot,
        };
        conversion.run(stream.path(), layout).await?;
        Ok(pause)
    }
}

/// Makes QEMU reopen the layers below its head read-only, including those that an interrupted snapshot left open for
/// writing, because a fork could not read such a layer. If QEMU refuses, a warning is logged and the snapshot stands.
pub(super) async fn freeze(qmp: &QmpClient, dir: &Path) {
    let frozen = async {
        for layer in qmp.written_below_head(dir).await? {
            let format = |source| DiskError::Format { path: layer.clone(), source };
            let below = Header::read(&layer).map_err(format)?.backing_file.map(PathBuf::from);
            qmp.freeze(&layer, below.as_deref()).await?;
        }
        Ok::<_, SnapshotError>(())
    };
    if let Err(error) = frozen.await {
        tracing::warn!(dir = %dir.display(), %error, "a layer of a snapshot stays open for writing");
    }
}

/// Undoes a begun snapshot. Either the VM never moved, or its new head stays and the snapshot below it is deleted.
/// QEMU is asked which, because a pivot whose answer was lost may have happened. If QEMU cannot tell, the record stays
/// as it is and is settled before the volume is used again.
pub(super) async fn undo(
    qmp: &QmpClient,
    dir: &Path,
    snapshot: SnapshotId,
    pivot: &Pivot,
) -> Result<(), SnapshotError> {
    if qmp.disk_head(dir).await?.file == pivot.to {
        Qcow2Storage.finish_snapshot(dir, snapshot).await?;
        Qcow2Storage.forget_snapshot(dir, snapshot).await?;
    } else {
        Qcow2Storage.abandon_snapshot(dir, snapshot).await?;
    }
    Ok(())
}

/// An overlay that QEMU has open but does not use yet.
pub(super) struct Overlay<'a> {
    qmp: &'a QmpClient,
    head: String,
    node: String,
    dir: PathBuf,
}

impl<'a> Overlay<'a> {
    pub(super) async fn open(qmp: &'a QmpClient, pivot: &Pivot) -> Result<Self, QmpError> {
        let dir = pivot.to.parent().unwrap_or(Path::new("/"));
        let head = qmp.disk_head(dir).await?.node;
        // An earlier caller may have begun a merge and gone away.
        qmp.end_merge().await?;
        let node = node_name(&pivot.to);
        qmp.open_overlay(&node, &pivot.to).await?;
        Ok(Self { qmp, head, node, dir: dir.to_owned() })
    }

    pub(super) async fn pivot(&self) -> Result<(), QmpError> {
        let pivoted = self.qmp.pivot(&self.head, &self.node).await;
        if pivoted.is_err() {
            self.close().await;
        }
        pivoted
    }

    async fn close(&self) {
        if let Err(error) = self.qmp.close_overlay(&self.node, &self.dir).await {
            tracing::warn!(node = self.node, %error, "an unused overlay stays open");
        }
    }
}

/// The time between QEMU's events that the guest stopped and that it resumed.
fn pause(mut events: broadcast::Receiver<Event>) -> Duration {
    let (mut stopped, mut pause) = (None, Duration::ZERO);
    loop {
        let event = match events.try_recv() {
            Ok(event) => event,
            // The oldest events are missing; the pause is among the newest.
            Err(TryRecvError::Lagged(_)) => continue,
            Err(TryRecvError::Empty | TryRecvError::Closed) => return pause,
        };
        match (event.name.as_str(), event.at) {
            ("STOP", at) => stopped = at,
            ("RESUME", Some(at)) => pause = stopped.take().map_or(pause, |from| at.saturating_sub(from)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_known_after_many_events() {
        let (sender, events) = broadcast::channel(4);
        let say = |name: &str, at| {
            let at = Some(Duration::from_secs(at));
            sender.send(Event { name: name.to_owned(), data: serde_json::Value::Null, at }).unwrap();
        };
        for at in 0..9 {
            say("MIGRATION_PASS", at);
        }
        say("STOP", 10);
        say("RESUME", 13);
        assert_eq!(pause(events), Duration::from_secs(3));
    }
}
