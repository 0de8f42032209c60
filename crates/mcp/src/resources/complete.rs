//! How what a person has typed so far may go on. What cannot be known right now, such as the files of a workspace that
//! does not run, gives no values and is no error.

use std::collections::HashMap;

use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::GuestPath;
use agentiso_daemon::{EntryKind, ListOptions, Session};
use agentiso_vault::FolderPath;

use super::offer::What;

/// What was chosen for other parts of the same address or prompt.
pub(crate) type Chosen = HashMap<String, String>;

/// All values for a variable of a template that begin with `typed`; `None` if the template has no such variable.
pub(crate) async fn complete(
    session: &Session,
    what: What,
    variable: &str,
    typed: &str,
    chosen: &Chosen,
) -> Option<Vec<String>> {
    match (what, variable) {
        (What::Workspace | What::File | What::Job, "name") => Some(workspaces(session, typed)),
        (What::File, "path") => Some(files(session, typed, chosen).await.unwrap_or_default()),
        (What::Job, "id") => Some(jobs(session, typed, chosen).await.unwrap_or_default()),
        (What::Note, "path") => Some(notes(session, typed).await),
        (What::Workspace | What::File | What::Job | What::Note, _) => None,
    }
}

/// Names of own workspaces.
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

/// What is in the directory that was typed so far.
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
