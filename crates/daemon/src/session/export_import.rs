//! Export of a snapshot to a file, and import of a workspace from one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agentiso_core::lifecycle::Operation;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::error::OpError;
use crate::fault;
use crate::handle::{Handle, Request};
use crate::info::{ExportRequest, Exported, ImportRequest, Imported};
use crate::ledger::Holds;
use crate::registry::{Lifetime, Wanted, Workspace};
use crate::runner::{ImportSeed, Seed};
use crate::shared::Shared;
use crate::vms::{About, ImageRef, Progress, Target, VmSpec};

impl Session {
    /// Writes a snapshot to a file on the host. The workspace may run or be stopped meanwhile. Dropping the future
    /// removes the file.
    pub async fn export_snapshot(
        &self,
        request: ExportRequest,
        progress: &Progress,
    ) -> Result<Exported, OpError> {
        let _call = self.begin_call();
        self.refuse_when_closing()?;
        refuse_relative(&request.file)?;
        let (workspace, handle, id) =
            self.accepted_snapshot(&request.source, &request.snapshot, Operation::UseSnapshots)?;
        let handle = handle.ok_or_else(|| OpError::Busy { name: workspace.name.clone() })?;
        let (_, snapshot) = self.measured_snapshot_of(&workspace, id).await?;
        // While the file is written there is also a copy of the disk, which includes the image.
        let copy_bytes = snapshot.referenced_bytes.unwrap_or(0).saturating_add(workspace.image.virtual_size);
        let promise = self.shared().space.promise(self.shared().vms.host_space(), copy_bytes)?;
        let branch = self.shared().state().registry.fresh_id();
        let branch = self.shared().spec_as(&workspace, branch);
        let export = Export {
            shared: Arc::clone(self.shared()),
            source: handle,
            about: About {
                workspace: workspace.name.clone(),
                snapshot: snapshot.name,
                taken_at: snapshot.created_at,
            },
            workspace,
            id,
            branch,
            target: Target { path: request.file, replace: request.replace },
            progress: progress.clone(),
        };
        let cancel = CancellationToken::new();
        let _cancelled_with_us = cancel.clone().drop_guard();
        // A task of its own, so that it removes what it made even if this future is dropped.
        let exporting = self.shared().tasks.spawn(async move {
            let _room = promise;
            export.run(cancel).await
        });
        exporting.await.unwrap_or(Err(OpError::ShuttingDown))
    }

    /// Creates a workspace from a file, running in the state of the snapshot in it, together with that snapshot.
    /// Dropping the future undoes it.
    pub async fn import_snapshot(
        &self,
        request: ImportRequest,
        progress: &Progress,
    ) -> Result<Imported, OpError> {
        let _call = self.begin_call();
        self.refuse_when_closing()?;
        refuse_relative(&request.file)?;
        let ImportRequest { file, name, with_memory } = request;
        let carried = self.shared().vms.look(&file).await;
        let carried = carried.map_err(|source| OpError::Import { file: file.clone(), source })?;
        let room = self.shared().space.promise(self.shared().vms.host_space(), carried.content_bytes)?;
        let vm = carried.vm;
        let wanted = Wanted {
            place: None,
            name: Some(name.unwrap_or_else(|| vm.workspace.clone())),
            image: ImageRef {
                name: vm.image.clone(),
                id: vm.image_id.clone(),
                virtual_size: vm.image_virtual_bytes,
            },
            resources: vm.resources,
            network: self.default_network(),
            created_at: jiff::Timestamp::now(),
            lifetime: Lifetime::Lasting,
        };
        let reserved = self.reserve(wanted).await?;
        let snapshot = agentiso_core::ids::SnapshotId::random();
        let seed = ImportSeed { file, snapshot, vm, with_memory, _room: room };
        let finished =
            self.begin_creation(reserved.clone(), Seed::File(Box::new(seed)), progress).finished().await?;
        let (_, delivered) = finished.accept(self)?;
        let (workspace, snapshot) = self.measured_snapshot_of(&reserved, snapshot).await?;
        Ok(Imported { workspace, snapshot, boot_time_ms: delivered.boot_time_ms, warning: delivered.warning })
    }
}

/// An export under way. It works on a branch of the snapshot, so it never changes the source, and changes of the source
/// do not affect it.
struct Export {
    shared: Arc<Shared>,
    source: Handle,
    workspace: Workspace,
    id: agentiso_core::ids::SnapshotId,
    about: About,
    branch: VmSpec,
    target: Target,
    progress: Progress,
}

impl Export {
    async fn run(self, cancel: CancellationToken) -> Result<Exported, OpError> {
        let closing = self.shared.closing.clone();
        let exported = match self.branch().await {
            Ok(()) => {
                fault::point("export.branched");
                tokio::select! {
                    // A cancellation wins even over a finished file: no client would learn of it.
                    biased;
                    () = cancel.cancelled() => Err(OpError::Cancelled),
                    () = closing.cancelled() => Err(OpError::ShuttingDown),
                    exported = self.write() => exported,
                }
            }
            Err(error) => Err(error),
        };
        if let Err(error) = self.shared.vms.erase(&self.branch).await {
            tracing::error!(workspace = %self.workspace.name, %error, "cannot remove the temporary files of an export; the next start removes them");
        }
        fault::point("export.erased");
        exported
    }

    async fn branch(&self) -> Result<(), OpError> {
        self.shared.describe_unowned(&self.branch, Holds::Scratch).await.map_err(OpError::Ledger)?;
        let (snapshot, fork) = (self.id, Box::new(self.branch.clone()));
        self.source.ask(&self.workspace.name, Request::Branch { snapshot, fork }).await.map(drop)
    }

    async fn write(&self) -> Result<Exported, OpError> {
        let written = self.shared.vms.export(&self.branch, &self.about, &self.target, &self.progress).await;
        let written = written.map_err(|source| OpError::Export {
            name: self.workspace.name.clone(),
            snapshot: self.about.snapshot.clone(),
            source,
        })?;
        fault::point("export.written");
        let file: PathBuf = self.target.path.clone();
        tracing::info!(workspace = %self.workspace.name, file = %file.display(), bytes = written.file_bytes, "exported");
        Ok(Exported {
            file,
            file_bytes: written.file_bytes,
            content_bytes: written.content_bytes,
            has_memory: written.has_memory,
        })
    }
}

/// Relative paths are refused: only the client knows what they are relative to, not the daemon.
fn refuse_relative(file: &Path) -> Result<(), OpError> {
    match file.is_absolute() {
        true => Ok(()),
        false => Err(OpError::RelativePath { path: file.to_owned() }),
    }
}
