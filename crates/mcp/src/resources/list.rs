//! The list of resources: own workspaces by name, then notes by path, in pages.
//!
//! A page's cursor is the address of its last entry, so that it stays valid while entries are added and removed.

use agentiso_core::names::WorkspaceRef;
use agentiso_daemon::Session;
use agentiso_vault::{FolderPath, NotePath};
use rmcp::model::{ErrorData, ListResourcesResult, Resource};

use super::offer::{self, Kind, ResourceType};
use super::uri::Uri;
use crate::profile::Profile;
use crate::tools::view;

/// Entries of a page: enough for a picker, and a line that any client accepts.
const PAGE: usize = 100;

pub(crate) async fn list(
    session: &Session,
    profile: &Profile,
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let after = cursor.map(after).transpose()?;
    let mut entries = Vec::new();
    for kind in offer::offered(profile) {
        match kind.resource_type {
            ResourceType::Workspace => entries.extend(workspaces(session, kind)),
            ResourceType::Note => entries.extend(notes(session, kind).await),
            // There are too many of them, and they change too often.
            ResourceType::File | ResourceType::Job => {}
        }
    }
    let mut rest =
        entries.into_iter().skip_while(|(key, _)| after.as_ref().is_some_and(|after| key <= after));
    let page: Vec<_> = rest.by_ref().take(PAGE).map(|(_, resource)| resource).collect();
    let last = page.last().map(|resource| resource.uri.clone());
    let mut listed = ListResourcesResult::with_all_items(page);
    listed.next_cursor = rest.next().and(last);
    Ok(listed)
}

/// Position of an entry: workspaces first, by name; then notes, by path.
type SortKey = (u8, String);

fn after(cursor: &str) -> Result<SortKey, ErrorData> {
    match Uri::parse(cursor) {
        Ok(Uri::Workspace(workspace)) => Ok((0, workspace.to_string())),
        Ok(Uri::Note(path)) => Ok((1, path.to_string())),
        Ok(Uri::File(..) | Uri::Job(..)) | Err(_) => {
            let shown: String = cursor.chars().take(80).collect();
            let message =
                format!("unknown cursor {shown:?}; pass the nextCursor of the last page, or leave it out");
            Err(ErrorData::invalid_params(message, None))
        }
    }
}

fn workspaces(session: &Session, kind: &Kind) -> Vec<(SortKey, Resource)> {
    let mut entries: Vec<_> = session
        .list(None)
        .into_iter()
        .filter(|info| info.owned)
        .map(|info| {
            let name = info.name.to_string();
            let uri = Uri::Workspace(WorkspaceRef::Name(name.clone()));
            let about = format!("{} workspace at {}", view::state(info.state), info.ip);
            ((0, name.clone()), resource(&uri, name, kind).with_description(about))
        })
        .collect();
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    entries
}

/// If the vault cannot be read, the workspaces are still listed.
async fn notes(session: &Session, kind: &Kind) -> Vec<(SortKey, Resource)> {
    if session.vault_settings().is_err() {
        return Vec::new();
    }
    let listing = match session.vault(|vault| vault.list(&FolderPath::root(), true)).await {
        Ok(listing) => listing,
        Err(error) => {
            tracing::warn!(%error, "notes cannot be listed");
            return Vec::new();
        }
    };
    listing
        .entries
        .into_iter()
        .filter(|entry| !entry.is_dir)
        .filter_map(|entry| {
            let uri = Uri::Note(NotePath::parse(&entry.path).ok()?);
            let listed = resource(&uri, entry.path.clone(), kind);
            let listed = match entry.size {
                Some(size) => listed.with_size(size),
                None => listed,
            };
            Some(((1, entry.path), listed))
        })
        .collect()
}

fn resource(uri: &Uri, name: String, kind: &Kind) -> Resource {
    let resource = Resource::new(uri.to_string(), name);
    match kind.mime_type {
        Some(mime_type) => resource.with_mime_type(mime_type),
        None => resource,
    }
}
