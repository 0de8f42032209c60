//! From a file to a volume with a snapshot in it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use agentiso_core::ids::SnapshotId;
use tokio_util::sync::CancellationToken;

use super::disk;
use super::error::{CarryError, Flaw};
use super::export::init_mode;
use super::fresh::Fresh;
use super::manifest::{Facts, Manifest};
use super::meter::Meter;
use super::unpack::{self, Places};
use crate::cgroup::Cgroups;
use crate::disk::{DISK_FILE, Qcow2Storage, Storage};
use crate::files::{self, FileError};
use crate::hypervisor::Hypervisor;
use crate::jail::Jail;
use crate::progress::Progress;
use crate::snapshot::memory;
use crate::spec::MachineSpec;
use crate::templates::differences::differences;
use crate::templates::key::HostInputs;
use crate::templates::manifest as template;

/// What is to be unpacked, and where to.
#[derive(Clone, Copy, Debug)]
pub struct Import<'a> {
    pub file: &'a Path,
    /// A directory that is not there yet.
    pub directory: &'a Path,
    /// What the snapshot is called from now on.
    pub snapshot: SnapshotId,
    /// What memory must have been taken with; `None` leaves it out.
    pub host: Option<&'a HostInputs>,
    /// What holds the program that checks the disk.
    pub jail: Jail,
    /// Where that program gets a group of its own; `None`: it has none.
    pub cgroups: Option<&'a Cgroups>,
}

/// What a machine that is being made is to be unpacked from.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    pub file: &'a Path,
    /// What the snapshot is called from now on.
    pub snapshot: SnapshotId,
    pub with_memory: bool,
}

/// A volume that is as the snapshot was, and the snapshot in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub machine: Facts,
    /// Whether its memory came along.
    pub has_memory: bool,
    /// Why it did not, although there is some in the file.
    pub warning: Option<String>,
}

impl Hypervisor {
    /// Unpacks a file into the directory of a machine that is being made; [`Hypervisor::restore`] then brings it up.
    /// On an error, or when it is cancelled or dropped, nothing of it is left; only a future that was waited for to
    /// its end has no thread that is still removing it.
    pub async fn import(
        &self,
        spec: &MachineSpec,
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
        let (there, here) = (&imported.machine.init_mode, init_mode(spec.init_mode));
        if !imported.has_memory && there != here {
            let other =
                format!("it booted with vm.init_mode {there:?}, and this host boots it with {here:?}");
            imported.warning = Some(match imported.warning {
                Some(warning) => format!("{warning}; {other}"),
                None => other,
            });
        }
        Ok(imported)
    }
}

/// What a file says is in it. Only its beginning is read: that it is whole is not known.
pub async fn look(file: &Path) -> Result<Manifest, CarryError> {
    let file = file.to_owned();
    let looking = tokio::task::spawn_blocking(move || unpack::look(&file));
    looking.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Unpacks a file.
pub async fn import(
    wanted: Import<'_>,
    progress: &Progress,
    cancel: &CancellationToken,
) -> Result<Imported, CarryError> {
    let cancel = cancel.child_token();
    let _cancelled_with_us = cancel.clone().drop_guard();
    let fresh = Fresh::make(wanted.directory)?;
    let places = Places {
        disk: fresh.path.join(format!(".{DISK_FILE}.import")),
        memory: memory::unfinished(&fresh.path, wanted.snapshot),
    };
    let (manifest, warning) = unpack(&wanted, &fresh, &places, progress, &cancel).await?;
    let virtual_bytes = u64::from(manifest.machine.resources.disk_gb) << 30;
    progress.report("checking the disk", None);
    tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(CarryError::Cancelled),
        checked = disk::check(&places.disk, virtual_bytes, wanted.jail, wanted.cgroups) => {
            checked.map_err(|flaw| flawed(wanted.file, flaw))?;
        }
    }
    let has_memory = manifest.has_memory() && warning.is_none() && wanted.host.is_some();
    // It runs to its end whatever becomes of us, so that what it makes is not made behind the back of its removal.
    let (snapshot, holding) = (wanted.snapshot, Arc::clone(&fresh));
    let adopting = tokio::spawn(async move { adopt(&holding, &places, snapshot, has_memory).await });
    adopting.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    if cancel.is_cancelled() {
        return Err(CarryError::Cancelled);
    }
    fresh.keep();
    Ok(Imported { machine: manifest.machine, has_memory, warning })
}

/// Gives back what the file says of itself, and why its memory was left out if it was.
async fn unpack(
    wanted: &Import<'_>,
    fresh: &Arc<Fresh>,
    places: &Places,
    progress: &Progress,
    cancel: &CancellationToken,
) -> Result<(Manifest, Option<String>), CarryError> {
    let (file, host) = (wanted.file.to_owned(), wanted.host.cloned());
    let (holding, places) = (Arc::clone(fresh), places.clone());
    let meter = Meter::new("importing", progress, cancel);
    let unpacking = tokio::task::spawn_blocking(move || {
        let _written_by_us = holding;
        let mut warning = None;
        let wants_memory = |manifest: &Manifest| {
            let (Some(there), Some(here)) = (&manifest.memory, &host) else { return false };
            warning = differences(there, here).map(|differ| {
                format!("its memory was left out, because it was taken on another kind of host: {differ}")
            });
            warning.is_none()
        };
        let manifest = unpack::unpack(&file, &places, wants_memory, meter)?;
        if let (Some(inputs), true) = (&manifest.memory, places.memory.is_dir()) {
            let verified = template::Manifest::verify(&places.memory, Some(inputs));
            verified.map_err(|error| flawed(&file, Flaw::Memory(error.to_string())))?;
        }
        Ok((manifest, warning))
    });
    unpacking.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Makes a volume of a disk that was checked: it becomes the lowest layer, and the snapshot of it.
async fn adopt(
    fresh: &Fresh,
    places: &Places,
    snapshot: SnapshotId,
    has_memory: bool,
) -> Result<(), CarryError> {
    let dir = &fresh.path;
    rename(&places.disk, &dir.join(DISK_FILE))?;
    files::sync_dir(dir)?;
    Qcow2Storage.begin_snapshot(dir, snapshot).await?;
    Qcow2Storage.finish_snapshot(dir, snapshot).await?;
    if has_memory {
        rename(&places.memory, &memory::dir_of(dir, snapshot))?;
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
