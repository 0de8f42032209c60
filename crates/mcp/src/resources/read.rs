//! Reads resources. A client that may not call the tool that shows the same gets the same refusal.

use agentiso_core::paths::GuestPath;
use agentiso_daemon::{Guest, Session};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rmcp::model::ResourceContents;

use super::uri::Uri;
use crate::answer::Failure;
use crate::tools::{jobs, shared, workspace_info};

/// `address` is as the client wrote it, and the answer repeats it.
pub(crate) async fn read(session: &Session, uri: &Uri, address: &str) -> Result<ResourceContents, Failure> {
    match uri {
        Uri::Workspace(workspace) => {
            let view = workspace_info::view_of(&session.info(workspace).await?);
            Ok(json(view.to_string(), address))
        }
        Uri::File(workspace, path) => file(&session.guest(workspace).await?, path, address).await,
        Uri::Job(workspace, id) => {
            let guest = session.guest(workspace).await?;
            Ok(json(jobs::show(&guest, *id).await?.to_string(), address))
        }
        Uri::Note(path) => {
            let path = path.clone();
            let text = session.vault(move |vault| vault.read(&path)).await?;
            Ok(ResourceContents::text(text, address).with_mime_type("text/markdown"))
        }
    }
}

fn json(text: String, address: &str) -> ResourceContents {
    ResourceContents::text(text, address).with_mime_type("application/json")
}

/// Text as text, anything else in base64.
async fn file(guest: &Guest, path: &GuestPath, address: &str) -> Result<ResourceContents, Failure> {
    let content = guest.read_file(path, 0, shared::MAX_FILE).await;
    let content = content.map_err(|error| shared::file_failure(error, path))?;
    if content.size > shared::MAX_FILE {
        let message =
            format!("{path} has {} bytes; a resource may have at most {}", content.size, shared::MAX_FILE);
        return Err(Failure::new("too_large", message).with_hint("read it in parts with `file_read`"));
    }
    Ok(match std::str::from_utf8(&content.data) {
        Ok(text) => ResourceContents::text(text, address).with_mime_type("text/plain"),
        Err(_) => ResourceContents::blob(BASE64_STANDARD.encode(&content.data), address)
            .with_mime_type("application/octet-stream"),
    })
}
