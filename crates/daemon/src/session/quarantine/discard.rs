//! Deleting what a person does not want back.

use std::sync::Arc;

use agentiso_core::ids::WorkspaceId;
use agentiso_host::files;

use super::error::QuarantineError;
use super::list::{Wanted, team_id};
use crate::error::OpError;
use crate::ledger::{TeamKey, team_directory};
use crate::session::Session;

impl Session {
    /// Ends the machine, if one runs, and deletes the files: the directory gets a name first which says that it is to
    /// go. Returns the id.
    pub async fn discard(&self, wanted: &str) -> Result<String, OpError> {
        self.kind().refuse_inside()?;
        self.refuse_when_closing()?;
        match self.find_in_quarantine(wanted)? {
            Wanted::Workspace(id) => {
                // Once begun it is done, whoever waits for it.
                self.guarded(|session, _| async move { session.discard_workspace(id).await }).await
            }
            Wanted::Team(key) => {
                self.guarded(|session, _| async move { session.discard_team(key).await }).await
            }
        }
    }

    async fn discard_workspace(&self, id: WorkspaceId) -> Result<String, OpError> {
        let shared = self.shared();
        let failed =
            |reason: String| QuarantineError::NotDiscarded { what: format!("workspace {id}"), reason };
        let machines = Arc::clone(&shared.machines);
        let strays = tokio::task::spawn_blocking(move || machines.strays()).await.unwrap_or_default();
        for stray in strays.iter().filter(|stray| stray.id == id && !stray.is_template_build()) {
            shared.machines.end_stray(stray).await.map_err(failed)?;
        }
        // Also where none ran: one that ended by itself has left its port, and nobody was told.
        shared.network.strays_are_gone();
        let directory = shared.config.paths.workspace_data(&id);
        let discarded = tokio::task::spawn_blocking(move || files::discard_dir(&directory)).await;
        discarded.map_err(|_| OpError::ShuttingDown)?.map_err(|error| failed(error.to_string()))?;
        shared.change(|registry| registry.release_quarantined(&id));
        tracing::warn!(workspace = %id, "discarded from the quarantine");
        Ok(id.to_string())
    }

    /// The mail goes first: a crash in between leaves a team in quarantine, and no mail that nobody knows of.
    async fn discard_team(&self, key: TeamKey) -> Result<String, OpError> {
        let shared = self.shared();
        let mail = shared.mail.directory(&key.name, key.created_at);
        let directory = team_directory(&shared.config.paths, &key);
        let discarded = tokio::task::spawn_blocking(move || {
            files::discard_dir(&mail)?;
            files::discard_dir(&directory)
        });
        let discarded = discarded.await.map_err(|_| OpError::ShuttingDown)?;
        discarded.map_err(|error| QuarantineError::NotDiscarded {
            what: format!("team {key}"),
            reason: error.to_string(),
        })?;
        shared.change(|registry| registry.quarantine.teams.remove(&key));
        tracing::warn!(team = %key, "discarded from the quarantine");
        Ok(team_id(&key))
    }
}
