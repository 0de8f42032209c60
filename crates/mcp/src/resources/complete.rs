//! Completes partial input in addresses of resources. Values that are not available at the moment, such as the files of
//! a stopped workspace, are left out without an error.

use std::collections::HashMap;

use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::GuestPath;
use agentiso_daemon::{EntryKind, ListOptions, Session};
use agentiso_vault::FolderPath;

use super::offer::ResourceType;

/// Values of the other parts of the same address or prompt.
pub(crate) type Chosen = HashMap<String, String>;

/// All values for a variable of a template that begin with `typed`; `None` if the template has no such variable.
pub(crate) async fn complete(
    session: &Session,
    resource_type: ResourceType,
    variable: &str,
    typed: &str,
    chosen: &Chosen,
) -> Option<Vec<String>> {
    match (resource_type, variable) {
        (ResourceType::Workspace | ResourceType::File | ResourceType::Job, "name") => {
            Some(workspaces(session, typed))
        }
        (ResourceType::File, "path") => Some(files(session, typed, chosen).await.unwrap_or_default()),
        (ResourceType::Job, "id") => Some(jobs(session, typed, chosen).await.unwrap_or_default()),
        (ResourceType::Note, "path") => Some(notes(session, typed).await),
        (ResourceType::Workspace | ResourceType::File | ResourceType::Job | ResourceType::Note, _) => None,
    }
}

/// Names of workspaces that the session owns.
pub(crate) fn workspaces(session: &Session, typed: &str) -> Vec<String> {
    let own = session.list(None).into_iter().filter(|info| info.owned).map(|info| info.name.to_string());
    beginning_with(typed, own)
}

/// Names of the snapshots of a workspace.
pub(crate) async fn snapshots(session: &Session, typed: &str, workspace: Option<&String>) -> Vec<String> {
    let Some(workspace) = workspace else { return Vec::new() };
    match session.info(&WorkspaceRef::parse(workspace)).await {
        Ok(info) => beginning_with(typed, info.snapshots.iter().map(|snapshot| snapshot.name.to_string())),
        Err(_) => Vec::new(),
    }
}

/// Entries of the directory that was typed so far.
async fn files(session: &Session, typed: &str, chosen: &Chosen) -> Option<Vec<String>> {
    let guest = session.guest(&WorkspaceRef::parse(chosen.get("name")?)).await.ok()?;
    let directory = match typed.rfind('/') {
        Some(end) => &typed[..=end],
        None => "/",
    };
    let listing = guest.list_dir(&GuestPath::parse(directory).ok()?, &ListOptions::default()).await.ok()?;
    let paths = listing.entries.iter().map(|entry| {
        let end = if entry.kind == EntryKind::Dir { "/" } else { "" };
        format!("{directory}{}{end}", entry.name)
    });
    Some(beginning_with(typed, paths))
}

async fn jobs(session: &Session, typed: &str, chosen: &Chosen) -> Option<Vec<String>> {
    let guest = session.guest(&WorkspaceRef::parse(chosen.get("name")?)).await.ok()?;
    let jobs = guest.list_jobs().await.ok()?;
    Some(jobs.iter().map(|job| job.id.to_string()).filter(|id| id.starts_with(typed)).collect())
}

async fn notes(session: &Session, typed: &str) -> Vec<String> {
    if session.vault_settings().is_err() {
        return Vec::new();
    }
    match session.vault(|vault| vault.list(&FolderPath::root(), true)).await {
        Ok(listing) => {
            let notes = listing.entries.into_iter().filter(|entry| !entry.is_dir);
            beginning_with(typed, notes.map(|note| format!("/{}", note.path)))
        }
        Err(_) => Vec::new(),
    }
}

fn beginning_with(typed: &str, values: impl Iterator<Item = String>) -> Vec<String> {
    let mut values: Vec<String> = values.filter(|value| value.starts_with(typed)).collect();
    values.sort();
    values
}
