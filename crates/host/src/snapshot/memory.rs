//! A VM's memory in template form: a RAM file that any number of VMs map copy-on-write, and the matching device state.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentiso_core::ids::{SnapshotId, WorkspaceId};
use agentiso_sys::fault;
use agentiso_sys::files::{self, FileError};

use super::error::SnapshotError;
use crate::boot::BootError;
use crate::boot::launch::{Host, Start};
use crate::qemu::argv::{Begin, Memory, Shape};
use crate::qmp::Layout;
use crate::templates::differences::differences;
use crate::templates::key::{HostInputs, Inputs, TemplateKind};
use crate::templates::manifest::{self, Manifest, Unusable};
use crate::templates::store::Template;

/// Enough to read some hundred MB from memory on a busy host.
const LOAD_DEADLINE: Duration = Duration::from_secs(120);

const SAVE_DEADLINE: Duration = Duration::from_secs(30);

/// QEMU unmaps the memory before it exits, and its dirty pages may have to be written first.
const QUIT_DEADLINE: Duration = Duration::from_secs(60);

/// The prefix of the directory of a snapshot's memory, beside its disk.
const PREFIX: &str = "memory-";

/// The prefix while it is being made.
const UNFINISHED: &str = ".memory-";

/// The memory that a fork starts with. It is not a snapshot of the fork, and is removed once the fork runs.
const OF_FORK: &str = "memory-of-fork";

pub(crate) fn dir_of(data_dir: &Path, snapshot: SnapshotId) -> PathBuf {
    data_dir.join(format!("{PREFIX}{snapshot}"))
}

/// The directory of a snapshot's memory while it is being made.
pub(crate) fn unfinished(data_dir: &Path, snapshot: SnapshotId) -> PathBuf {
    data_dir.join(format!("{UNFINISHED}{snapshot}"))
}

/// The directory that [`link`] made for a fork, if it did.
pub(crate) fn dir_of_fork(data_dir: &Path) -> Option<PathBuf> {
    Some(data_dir.join(OF_FORK)).filter(|dir| dir.is_dir())
}

/// The inputs that must match for memory to be usable on a host.
pub(crate) fn inputs(host: &HostInputs, shape: Shape) -> Inputs {
    Inputs::new(host, shape, TemplateKind::Snapshot)
}

/// The memory of a snapshot: `None` without memory, or an error with the reason why it cannot be used.
pub(crate) fn of_snapshot(
    data_dir: &Path,
    snapshot: SnapshotId,
    wanted: &Inputs,
) -> Result<Option<Template>, String> {
    find(dir_of(data_dir, snapshot), wanted)
}

/// The same for the memory that [`link`] gave a fork.
pub(crate) fn of_fork(data_dir: &Path, wanted: &Inputs) -> Result<Option<Template>, String> {
    find(data_dir.join(OF_FORK), wanted)
}

fn find(dir: PathBuf, wanted: &Inputs) -> Result<Option<Template>, String> {
    if !dir.is_dir() {
        return Ok(None);
    }
    match Manifest::verify(&dir, Some(wanted)) {
        Ok(manifest) => Ok(Some(Template { key: manifest.inputs.key(), dir })),
        Err(Unusable::Inputs(saved)) => Err(match differences(&saved, &wanted.host) {
            Some(differ) => format!("it was saved on a different kind of host: {differ}"),
            None => "it was saved from a VM of a different size".to_owned(),
        }),
        Err(error) => Err(error.to_string()),
    }
}

/// Gives a fork the memory of its snapshot, if there is any.
pub(crate) fn link(source: &Path, snapshot: SnapshotId, fork: &Path) -> Result<(), FileError> {
    let from = dir_of(source, snapshot);
    if !from.is_dir() {
        return Ok(());
    }
    let to = fork.join(OF_FORK);
    files::make_private_dir(&to)?;
    for name in [manifest::RAM, manifest::DEVICE_STATE, manifest::FILE] {
        files::link(&from.join(name), &to.join(name))?;
    }
    Ok(())
}

/// Removes the memory of a running fork, whose QEMU has the files open.
pub(crate) fn unlink(fork: &Path) -> Result<(), FileError> {
    files::remove_dir(&fork.join(OF_FORK))
}

pub(crate) fn remove(data_dir: &Path, snapshot: SnapshotId) -> Result<(), FileError> {
    files::remove_dir(&dir_of(data_dir, snapshot))
}

/// Loads a copied VM into a RAM file, in a QEMU that never runs it, and saves the remaining device state.
pub(super) struct Conversion<'a> {
    pub(super) host: &'a Host,
    pub(super) inputs: Inputs,
    pub(super) run_root: &'a Path,
    pub(super) data_dir: &'a Path,
    pub(super) snapshot: SnapshotId,
}

impl Conversion<'_> {
    /// Returns when the memory is durable and has its final name.
    pub(super) async fn run(self, stream: &Path, layout: Layout) -> Result<(), SnapshotError> {
        let began = tokio::time::Instant::now();
        let building = Building(unfinished(self.data_dir, self.snapshot));
        files::make_private_dir(&building.0)?;
        let id = WorkspaceId::random();
        let start = Start {
            id,
            shape: Shape { vcpus: self.inputs.vcpus, memory_mb: self.inputs.memory_mb },
            memory: Memory::Recorded(building.0.join(manifest::RAM)),
            begin: Begin::Restore,
            layers: Vec::new(),
            run_dir: self.run_root.join(format!("t-{}", id.short())),
            card: None,
            console_log: building.0.join("console.log"),
            stderr_log: building.0.join("stderr.log"),
        };
        let convert = |error: BootError| SnapshotError::Convert(Box::new(error));
        let launched = self.host.spawn(&start).map_err(convert)?.answering().await.map_err(convert)?;
        if let Err(error) = launched.qmp().load_vm(stream, layout, LOAD_DEADLINE).await {
            return Err(convert(launched.explain(error).await));
        }
        fault::point("snapshot.converting");
        launched.qmp().save_devices(&building.0.join(manifest::DEVICE_STATE), SAVE_DEADLINE).await?;
        launched.qmp().execute("quit", None).await?;
        let gone = tokio::time::timeout(QUIT_DEADLINE, launched.process().wait()).await;
        gone.map_err(|_elapsed| SnapshotError::Quit)?;
        drop(launched);
        let (inputs, target) = (self.inputs, dir_of(self.data_dir, self.snapshot));
        let finish = tokio::task::spawn_blocking(move || {
            let sealed = manifest::seal(&building.0, inputs, began.elapsed())?;
            sealed.ok_or(SnapshotError::Unreadable)?;
            fs::rename(&building.0, &target).map_err(FileError::at("publish", &target))?;
            files::sync_dir(target.parent().unwrap_or(Path::new("/")))?;
            fault::point("snapshot.converted");
            Ok(())
        });
        finish.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}

/// A directory that is removed on drop, unless it was renamed before.
struct Building(PathBuf);

impl Drop for Building {
    fn drop(&mut self) {
        if let Err(error) = files::remove_dir(&self.0) {
            tracing::warn!(%error, "could not remove an unfinished copy of a VM's memory");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_memory_says_what_differs() {
        let dir = tempfile::tempdir().unwrap();
        let text = include_str!("../../tests/fixtures/memory-v1-older.json");
        fs::write(dir.path().join(manifest::FILE), text).unwrap();
        let saved: Manifest = serde_json::from_str(text).unwrap();
        let here = HostInputs { qemu_version: "QEMU 11".to_owned(), ..saved.inputs.host };
        let wanted = inputs(&here, Shape { vcpus: 1, memory_mb: 256 });
        let told = find(dir.path().into(), &wanted).unwrap_err();
        assert!(told.contains("QEMU (there \"QEMU emulator version 10.0.2"), "{told}");
    }
}
