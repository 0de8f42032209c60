//! Exports a snapshot into a file.

use std::path::{Path, PathBuf};

use agentiso_core::config::InitMode;
use agentiso_disk::{Qcow2Storage, Storage};
use agentiso_sys::Progress;
use agentiso_sys::cgroup::Cgroups;
use agentiso_sys::files::{self, FileError};
use agentiso_sys::jail::Jail;
use agentiso_vm::{About, Exported, Facts, Target, VmSpec};
use tokio_util::sync::CancellationToken;

use super::disk::flatten;
use super::error::CarryError;
use super::manifest::{FORMAT, Manifest, Member, MemberSize};
use super::meter::Meter;
use super::pack::{Sources, pack};
use super::target::refuse_existing;
use crate::hypervisor::Hypervisor;
use crate::snapshot::memory;
use crate::templates::key::Inputs;
use crate::templates::manifest as template;

/// The files of a snapshot. They must not change while it is exported.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The topmost layer of its disk.
    pub disk: &'a Path,
    /// The directory of its memory, if it has one.
    pub memory: Option<&'a Path>,
    /// A directory with room for a copy of the disk.
    pub scratch: &'a Path,
    /// The jail for the program that reads the disk.
    pub jail: Jail,
    /// The cgroups in which that program gets its own group; `None` for no group.
    pub cgroups: Option<&'a Cgroups>,
}

impl Hypervisor {
    /// Exports a branch that [`Hypervisor::branch`] made. A dropped future leaves no file.
    pub async fn export(
        &self,
        branch: &VmSpec,
        about: About,
        target: &Target,
        progress: &Progress,
    ) -> Result<Exported, CarryError> {
        let facts = Facts {
            workspace: about.workspace,
            snapshot: about.snapshot,
            taken_at: about.taken_at,
            resources: branch.resources,
            image: branch.base_image.name.clone(),
            image_id: branch.base_image.id.clone(),
            image_virtual_bytes: branch.base_image.virtual_size,
            init_mode: init_mode(branch.init_mode).to_owned(),
        };
        let disk = Qcow2Storage.head(&branch.data_dir).await?;
        let memory = memory::dir_of_fork(&branch.data_dir);
        let source = Source {
            disk: &disk,
            memory: memory.as_deref(),
            scratch: &branch.data_dir,
            jail: self.facts().jail,
            cgroups: self.cgroups(),
        };
        export(source, facts, target, progress).await
    }
}

/// Writes a snapshot into a file. A dropped future leaves no file.
pub async fn export(
    source: Source<'_>,
    vm: Facts,
    target: &Target,
    progress: &Progress,
) -> Result<Exported, CarryError> {
    refuse_existing(target)?;
    let memory = source.memory.map(inputs_of).transpose()?;
    progress.report("reading the disk", None);
    let disk = Scratch(source.scratch.join(format!(".export-{}.qcow2", uuid::Uuid::new_v4().simple())));
    flatten(source.disk, &disk.0, source.jail, source.cgroups).await?;
    let mut sources = vec![(Member::Disk, disk.0.clone())];
    if let Some(memory) = source.memory {
        sources.push((Member::Ram, memory.join(template::RAM)));
        sources.push((Member::DeviceState, memory.join(template::DEVICE_STATE)));
        sources.push((Member::MemoryManifest, memory.join(template::FILE)));
    }
    let manifest = Manifest {
        format: FORMAT,
        agentiso_version: env!("CARGO_PKG_VERSION").to_owned(),
        exported_at: jiff::Timestamp::now(),
        vm,
        memory,
        members: sizes(&sources)?,
    };
    let cancel = CancellationToken::new();
    let _cancelled_with_us = cancel.clone().drop_guard();
    let meter = Meter::new("exporting", progress, &cancel);
    let (has_memory, content_bytes) = (manifest.has_memory(), manifest.content_bytes());
    let target = target.clone();
    let packing = tokio::task::spawn_blocking(move || {
        let _read_by_us = disk;
        pack(&manifest, &sources, &target, meter)
    });
    let file_bytes = packing.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
    Ok(Exported { has_memory, content_bytes, file_bytes })
}

fn inputs_of(memory: &Path) -> Result<Inputs, CarryError> {
    let verified = template::Manifest::verify(memory, None);
    verified.map(|manifest| manifest.inputs).map_err(|error| CarryError::Memory(error.to_string()))
}

fn sizes(sources: &Sources) -> Result<Vec<MemberSize>, FileError> {
    let size = |(name, path): &(Member, PathBuf)| {
        let meta = path.metadata().map_err(FileError::at("read", path))?;
        Ok(MemberSize { name: *name, bytes: meta.len() })
    };
    sources.iter().map(size).collect()
}

pub(super) fn init_mode(mode: InitMode) -> &'static str {
    match mode {
        InitMode::Fast => "fast",
        InitMode::System => "system",
    }
}

/// A file that is removed on drop.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = files::remove_file(&self.0) {
            tracing::warn!(%error, "could not remove the copy of a disk");
        }
    }
}
