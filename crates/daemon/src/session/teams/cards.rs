//! The card of each member: a note beside those of its team that says what the member is and does. A card that cannot
//! be written is logged; the call does not fail because of it.

use std::sync::Arc;

use agentiso_core::team::{AgentStatus, Member, RoleName, TeamName};
use agentiso_vault::{FolderPath, NotePath, Vault, VaultError, WriteMode};
use serde_json::{Value, json};

use super::inside;
use crate::error::OpError;
use crate::registry::{Registry, SessionKind};
use crate::session::Session;
use crate::shared::Shared;

const FOLDERS: [&str; 3] = ["cards", "tasks", "notes"];

/// Creates a new team's folders and the cards of its members.
pub(super) async fn make(shared: &Arc<Shared>, team: &TeamName) {
    let folders: Vec<String> = FOLDERS.iter().map(|folder| format!("teams/{team}/{folder}")).collect();
    let make = move |vault: &Vault| {
        for folder in &folders {
            vault.make_folder(&folder_path(folder)?)?;
        }
        Ok(())
    };
    in_vault(shared, team, make).await;
    write(shared, team, None).await;
}

/// Updates the card of one member, or of all.
pub(super) async fn write(shared: &Arc<Shared>, team: &TeamName, only: Option<&RoleName>) {
    // The registry is read and the card written under one lock, so that the last card written is the current one.
    let _lock = shared.cards.lock().await;
    let cards: Vec<(String, String)> = {
        let registry = &shared.state().registry;
        let members = registry.teams.get(team).into_iter().flat_map(|team| &team.members);
        let wanted = members.filter(|member| only.is_none_or(|only| member.name == *only));
        wanted.map(|m| (path(team, &m.name), format!("{:#}\n", card(registry, team, m)))).collect()
    };
    let write = move |vault: &Vault| {
        for (path, text) in &cards {
            vault.write(&note_path(path)?, text, WriteMode::Overwrite)?;
        }
        Ok(())
    };
    in_vault(shared, team, write).await;
}

/// Removes the cards of a team that could not be made.
pub(super) async fn remove(shared: &Arc<Shared>, team: &TeamName) {
    let _lock = shared.cards.lock().await;
    let cards: Vec<String> = {
        let registry = &shared.state().registry;
        let members = registry.teams.get(team).into_iter().flat_map(|team| &team.members);
        members.map(|member| path(team, &member.name)).collect()
    };
    let remove = move |vault: &Vault| {
        for path in &cards {
            match vault.delete(&note_path(path)?) {
                Ok(()) | Err(VaultError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    };
    in_vault(shared, team, remove).await;
}

fn card(registry: &Registry, team: &TeamName, member: &Member) -> Value {
    let vm = member.workspace_id.and_then(|id| registry.get(&id));
    json!({
        "name": member.name,
        "role": member.role,
        "description": member.description,
        "skills": member.skills,
        // Other members reach a VM by its address alone. The port is for programs inside it.
        "endpoints": {
            "vsock_cid": null,
            "ip": vm.map(|vm| vm.address),
            "http_port": inside::PORT,
        },
        "status": word(member.status),
        "team": team,
        "workspace_id": vm.map(|vm| vm.id),
    })
}

fn word(status: AgentStatus) -> &'static str {
    match status {
        AgentStatus::Initializing => "initializing",
        AgentStatus::Ready => "ready",
        AgentStatus::Working => "working",
        AgentStatus::Done => "done",
        AgentStatus::Failed => "failed",
    }
}

fn path(team: &TeamName, role: &RoleName) -> String {
    format!("teams/{team}/cards/{role}.json")
}

fn note_path(path: &str) -> Result<NotePath, VaultError> {
    NotePath::parse(path).map_err(|problem| VaultError::Path { path: path.to_owned(), problem })
}

fn folder_path(path: &str) -> Result<FolderPath, VaultError> {
    FolderPath::parse(path).map_err(|problem| VaultError::Path { path: path.to_owned(), problem })
}

async fn in_vault(
    shared: &Arc<Shared>,
    team: &TeamName,
    work: impl FnOnce(&Vault) -> Result<(), VaultError> + Send + 'static,
) {
    if !shared.config.vault.enabled {
        return;
    }
    let session = Session::open(Arc::clone(shared), SessionKind::Shell);
    match session.vault(work).await {
        Ok(()) | Err(OpError::ShuttingDown) => {}
        Err(error) => tracing::warn!(%team, %error, "cannot update the notes about a team"),
    }
}
