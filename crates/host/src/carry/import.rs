//! Imports a file as a volume with one snapshot.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use agentiso_core::ids::SnapshotId;
use agentiso_disk::{DISK_FILE, Qcow2Storage, Storage};
use agentiso_sys::Progress;
use agentiso_sys::cgroup::Cgroups;
use agentiso_sys::files::{self, FileError};
use agentiso_sys::jail::Jail;
use agentiso_vm::{Arrival, Imported, VmSpec};
use tokio_util::sync::CancellationToken;

use super::disk;
use super::error::{CarryError, Flaw};
use super::export::init_mode;
use super::import_dir::ImportDir;
use super::manifest::Manifest;
use super::meter::Meter;
use super::unpack::{self, MemberPaths};
use crate::hypervisor::Hypervisor;
use crate::snapshot::memory;
use crate::templates::differences::differences;
use crate::templates::key::HostInputs;
use crate::templates::manifest as template;

/// A file to import, and its destination.
#[derive(Clone, Copy, Debug)]
pub struct Import<'a> {
    pub file: &'a Path,
    /// The directory for the volume. It must not hold a volume yet.
    pub directory: &'a Path,
    /// The id of the imported snapshot.
    pub snapshot: SnapshotId,
    /// The inputs that the memory's own must match; `None` skips the memory.
    pub host: Option<&'a HostInputs>,
    /// The jail for the program that checks the disk.
    pub jail: Jail,
    /// The cgroups in which that program gets its own group; `None` for no group.
    pub cgroups: Option<&'a Cgroups>,
}

impl Hypervisor {
    /// Imports a file into the directory of a new workspace; [`Hypervisor::restore`] then starts its VM. An error, a
    /// cancellation or a drop leaves nothing. After a drop, a thread may still be busy removing the files for a while;
    /// a future that was awaited to its end has none.
    pub async fn import(
        &self,
        spec: &VmSpec,
        arrival: Arrival<'_>,
        progress: &Progress,
        cancel: &CancellationToken,
    ) -> Result<Imported, CarryError> {
        let Arrival { file, snapshot, with_memory } = arrival;
        let host = with_memory.then(|| self.host_inputs());
        let jail = self.facts().jail;
        let wanted =
            Import { file, directory: &spec.data_dir, snapshot, host, jail, cgroups: self.cgroups() };
        let mut imported = import(wanted, progress, cancel).await?;
        let (there, here) = (&imported.vm.init_mode, init_mode(spec.init_mode));
        if !imported.has_memory && there != here {
            let other =
                format!("it was exported with vm.init_mode {there:?}, but this host boots it with {here:?}");
            imported.warning = Some(match imported.warning {
                Some(warning) => format!("{warning}; {other}"),
                None => other,
            });
        }
        Ok(imported)
    }
}

/// Reads the manifest of a file. It reads only the beginning, so it does not tell whether the file is complete.
pub async fn look(file: &Path) -> Result<Manifest, CarryError> {
    let file = file.to_owned();
    let looking = tokio::task::spawn_blocking(move || unpack::look(&file));
    looking.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Imports a file.
pub async fn import(
    wanted: Import<'_>,
    progress: &Progress,
    cancel: &CancellationToken,
) -> Result<Imported, CarryError> {
    let cancel = cancel.child_token();
    let _cancelled_with_us = cancel.clone().drop_guard();
    let import_dir = ImportDir::make(wanted.directory)?;
    let paths = MemberPaths {
        disk: import_dir.path.join(format!(".{DISK_FILE}.import")),
        memory: memory::unfinished(&import_dir.path, wanted.snapshot),
    };
    let (manifest, warning) = unpack(&wanted, &import_dir, &paths, progress, &cancel).await?;
    let virtual_bytes = u64::from(manifest.vm.resources.disk_gb) << 30;
    progress.report("checking the disk", None);
    tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(CarryError::Cancelled),
        checked = disk::check(&paths.disk, virtual_bytes, wanted.jail, wanted.cgroups) => {
            checked.map_err(|flaw| flawed(wanted.file, flaw))?;
        }
    }
    let has_memory = manifest.has_memory() && warning.is_none() && wanted.host.is_some();
    // This task runs to its end even if the import is dropped, so that it makes no files while they are being removed.
    let (snapshot, holding) = (wanted.snapshot, Arc::clone(&import_dir));
    let adopting = tokio::spawn(async move { adopt(&holding, &paths, snapshot, has_memory).await });
    adopting.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    if cancel.is_cancelled() {
        return Err(CarryError::Cancelled);
    }
    import_dir.keep();
    Ok(Imported { vm: manifest.vm, has_memory, warning })
}

/// Returns the manifest, and the reason why the memory was skipped, if it was.
async fn unpack(
    wanted: &Import<'_>,
    import_dir: &Arc<ImportDir>,
    paths: &MemberPaths,
    progress: &Progress,
    cancel: &CancellationToken,
) -> Result<(Manifest, Option<String>), CarryError> {
    let (file, host) = (wanted.file.to_owned(), wanted.host.cloned());
    let (holding, paths) = (Arc::clone(import_dir), paths.clone());
    let meter = Meter::new("importing", progress, cancel);
    let unpacking = tokio::task::spawn_blocking(move || {
        let _written_by_us = holding;
        let mut warning = None;
        let wants_memory = |manifest: &Manifest| {
            let (Some(there), Some(here)) = (&manifest.memory, &host) else { return false };
            warning = differences(there, here).map(|differ| {
                format!("its memory was left out, because it was saved on a different kind of host: {differ}")
            });
            warning.is_none()
        };
        let manifest = unpack::unpack(&file, &paths, wants_memory, meter)?;
        if let (Some(inputs), true) = (&manifest.memory, paths.memory.is_dir()) {
            let verified = template::Manifest::verify(&paths.memory, Some(inputs));
            verified.map_err(|error| flawed(&file, Flaw::Memory(error.to_string())))?;
        }
        Ok((manifest, warning))
    });
    unpacking.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Makes a volume of a checked disk, which becomes the lowest layer and the snapshot.
async fn adopt(
    import_dir: &ImportDir,
    paths: &MemberPaths,
    snapshot: SnapshotId,
    has_memory: bool,
) -> Result<(), CarryError> {
    let dir = &import_dir.path;
    rename(&paths.disk, &dir.join(DISK_FILE))?;
    files::sync_dir(dir)?;
    Qcow2Storage.begin_snapshot(dir, snapshot).await?;
    Qcow2Storage.finish_snapshot(dir, snapshot).await?;
    if has_memory {
        rename(&paths.memory, &memory::dir_of(dir, snapshot))?;
        files::sync_dir(dir)?;
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::rename(from, to).map_err(FileError::at("write", to))
}

fn flawed(file: &Path, flaw: Flaw) -> CarryError {
    CarryError::Flawed { file: file.to_owned(), flaw }
}
