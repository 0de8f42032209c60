//! Deletes items in quarantine that the user does not want back.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;
use agentiso_sys::files;

use super::list::{Wanted, team_id};
use crate::error::{OpError, QuarantineError};
use crate::ledger::{TeamKey, team_directory};
use crate::session::Session;

impl Session {
    /// Ends the VM, if one runs, and deletes the files. The directory is first renamed to mark it for deletion. Returns
    /// the id.
    pub async fn discard(&self, wanted: &str) -> Result<String, OpError> {
        self.kind().refuse_inside()?;
        self.refuse_when_closing()?;
        match self.find_in_quarantine(wanted)? {
            Wanted::Workspace(id) => {
                // Once begun it goes to its end, even if the client gives up.
                self.guarded(|session, _| async move { session.discard_workspace(id).await }).await
            }
            Wanted::Team(key) => {
                self.guarded(|session, _| async move { session.discard_team(key).await }).await
            }
        }
    }

    /// Takes the item out of quarantine first, so that nobody recovers it while it is deleted, and puts it back if that
    /// fails.
    async fn discard_workspace(&self, id: WorkspaceId) -> Result<String, OpError> {
        let shared = self.shared();
        let Some(kept) = shared.change(|registry| registry.take_quarantined(&id)) else {
            return Err(QuarantineError::NotFound { wanted: id.to_string() }.into());
        };
        match self.delete_workspace(id).await {
            Ok(()) => shared.change(|registry| registry.forget_quarantined(&kept)),
            Err(error) => {
                shared.change(|registry| registry.put_back(&id, kept));
                return Err(error);
            }
        }
        tracing::warn!(workspace = %id, "discarded from the quarantine");
        Ok(id.to_string())
    }

    /// Ends its VM, then deletes its files.
    async fn delete_workspace(&self, id: WorkspaceId) -> Result<(), OpError> {
        let shared = self.shared();
        let failed =
            |reason: String| QuarantineError::NotDiscarded { what: format!("workspace {id}"), reason };
        let vms = Arc::clone(&shared.vms);
        let strays = tokio::task::spawn_blocking(move || vms.strays()).await.unwrap_or_default();
        for stray in strays.iter().filter(|stray| stray.id == id && !stray.is_template_build()) {
            shared.vms.end_stray(stray).await.map_err(failed)?;
        }
        // Called even if no VM runs: a VM that ended by itself may have left its network port behind.
        shared.network.strays_are_gone();
        let directory = shared.config.paths.workspace_data(&id);
        let discarded = tokio::task::spawn_blocking(move || files::discard_dir(&directory)).await;
        discarded.map_err(|_| OpError::ShuttingDown)?.map_err(|error| failed(error.to_string()))?;
        Ok(())
    }

    /// Deletes the mail first: a crash in between leaves a team in quarantine, and no mail without a team.
    async fn discard_team(&self, key: TeamKey) -> Result<String, OpError> {
        let shared = self.shared();
        let Some(kept) = shared.change(|registry| registry.quarantine.teams.remove(&key)) else {
            return Err(QuarantineError::NotFound { wanted: key.to_string() }.into());
        };
        let mail = shared.mail.directory(&key.name, key.created_at);
        let directory = team_directory(&shared.config.paths, &key);
        let discarded = tokio::task::spawn_blocking(move || {
            files::discard_dir(&mail)?;
            files::discard_dir(&directory)
        });
        let failed = match discarded.await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = failed {
            let what = format!("team {key}");
            shared.change(|registry| registry.quarantine.teams.insert(key, kept));
            return Err(QuarantineError::NotDiscarded { what, reason }.into());
        }
        tracing::warn!(team = %key, "discarded from the quarantine");
        Ok(team_id(&key))
    }
}
