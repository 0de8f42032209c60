//! Exported files in the format of the fake host.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use agentiso_daemon::vms::{
    About, Arrival, Carried, CarryFailure, Exported, Facts, Imported, Target, VmSpec,
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::host::{FakeHost, Fault};
use super::volume::{Frozen, Volume};

#[derive(Serialize, Deserialize)]
struct File {
    vm: Facts,
    content: String,
    memory: Option<String>,
}

fn failed(reason: &str) -> CarryFailure {
    CarryFailure::Failed { reason: reason.to_owned() }
}

fn read(file: &Path) -> Result<File, CarryFailure> {
    let text = fs::read(file).map_err(|error| failed(&error.to_string()))?;
    serde_json::from_slice(&text).map_err(|error| CarryFailure::Unusable { reason: error.to_string() })
}

impl FakeHost {
    pub(super) fn look(&self, file: &Path) -> Result<Carried, CarryFailure> {
        let File { vm, content, memory } = read(file)?;
        Ok(Carried { vm, has_memory: memory.is_some(), content_bytes: content.len() as u64 })
    }

    pub(super) async fn export(
        self: Arc<Self>,
        branch: &VmSpec,
        about: &About,
        target: &Target,
    ) -> Result<Exported, CarryFailure> {
        if self.take_fault(Fault::ExportFails) {
            return Err(failed("it was told to fail"));
        }
        if self.take_fault(Fault::ExportHangs) {
            self.hanging.notify_one();
            std::future::pending::<()>().await;
        }
        if target.path.exists() && !target.replace {
            return Err(CarryFailure::Exists { path: target.path.clone() });
        }
        let volume = Volume::load(&branch.data_dir).ok_or_else(|| failed("its disk is gone"))?;
        let vm = Facts {
            workspace: about.workspace.clone(),
            snapshot: about.snapshot.clone(),
            taken_at: about.taken_at,
            resources: branch.resources,
            image: branch.base_image.name.clone(),
            image_id: branch.base_image.id.clone(),
            image_virtual_bytes: branch.base_image.virtual_size,
            init_mode: "fast".to_owned(),
        };
        let file = File { vm, content: volume.content, memory: volume.memory };
        let text = serde_json::to_vec(&file).unwrap();
        let bytes = text.len() as u64;
        fs::write(&target.path, text).map_err(|error| failed(&error.to_string()))?;
        Ok(Exported { has_memory: file.memory.is_some(), content_bytes: bytes, file_bytes: bytes })
    }

    pub(super) async fn import(
        self: Arc<Self>,
        spec: &VmSpec,
        arrival: Arrival<'_>,
        cancel: &CancellationToken,
    ) -> Result<Imported, CarryFailure> {
        let File { vm, content, memory } = read(arrival.file)?;
        let memory = memory.filter(|_| arrival.with_memory);
        let lost = memory.is_some() && self.take_fault(Fault::MemoryIsLost);
        let memory = memory.filter(|_| !lost);
        let has_memory = memory.is_some();
        let mut volume = Volume::fresh(&content);
        volume.snapshots.insert(arrival.snapshot, Frozen { content, memory, parent: None });
        volume.origin = Some(arrival.snapshot);
        volume.save(&spec.data_dir);
        if self.take_fault(Fault::ImportFails) {
            return Err(CarryFailure::Unusable { reason: "it was told to fail".to_owned() });
        }
        if self.take_fault(Fault::ImportHangs) {
            self.hanging.notify_one();
            cancel.cancelled().await;
            // Like a thread that notices late: the rollback must have waited for it.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            volume.save(&spec.data_dir);
            fs::remove_dir_all(&spec.data_dir).unwrap();
            return Err(failed("it was cancelled"));
        }
        let warning = lost.then(|| "its memory was left out".to_owned());
        Ok(Imported { vm, has_memory, warning })
    }
}
