//! The work of `file_transfer` and of the single tools of earlier versions.

use std::path::Path;

use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::{GuestPath, MAX_PATH_LEN};
use agentiso_daemon::OpError;
use serde_json::{Value, json};

use super::shared::{WORKSPACE, file_failure};
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{GuestFile, Invalid, Reader, Text};
use crate::registry::{Call, Running};

pub(super) const HOST_PATH: Text =
    Text::new("host_path", "Path in the transfer directory, relative to it or absolute.", MAX_PATH_LEN);
pub(super) const GUEST_PATH: GuestFile =
    GuestFile::new("guest_path", "Absolute path; missing directories are created.");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Upload,
    Download,
}

pub(super) fn output() -> Value {
    json!({
        "direction": schema::text(), "host_path": schema::text(), "guest_path": schema::text(),
        "kind": schema::text(), "bytes": schema::integer(), "note": schema::optional_text(),
    })
}

/// Prepares a tool that copies in one direction.
pub(super) fn prepare(mut args: Reader, call: Call, direction: Direction) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let host_path = args.required(&HOST_PATH);
    let guest_path = args.required(&GUEST_PATH);
    let (workspace, host_path, guest_path) =
        args.finish((|| Some((workspace?, host_path?, guest_path?)))())?;
    Ok(Box::pin(async move { run(&call, &workspace, direction, host_path, &guest_path).await }))
}

pub(super) async fn run(
    call: &Call,
    workspace: &WorkspaceRef,
    direction: Direction,
    host_path: String,
    guest_path: &GuestPath,
) -> Result<Answer, Failure> {
    let guest = call.session.guest(workspace).await?;
    let (host, progress) = (Path::new(&host_path), call.progress.as_progress());
    let (word, done) = match direction {
        Direction::Upload => ("uploaded", guest.upload(host, guest_path, &progress).await),
        Direction::Download => ("downloaded", guest.download(guest_path, host, &progress).await),
    };
    let done = done.map_err(|error| failure(error, guest_path))?;
    let (kind, name) = if done.directory { ("dir", "Directory") } else { ("file", "File") };
    let (from, to) = match direction {
        Direction::Upload => (host_path.as_str(), guest_path.as_str()),
        Direction::Download => (guest_path.as_str(), host_path.as_str()),
    };
    let text =
        format!("{name} {from} was {word} to {to} ({} bytes, workspace {}).", done.bytes, guest.name());
    let structured = json!({
        "direction": word.trim_end_matches("ed"),
        "host_path": host_path,
        "guest_path": guest_path.as_str(),
        "kind": kind,
        "bytes": done.bytes,
    });
    let answer = Answer::text(text, structured);
    Ok(match done.skipped {
        0 => answer,
        skipped => answer.with_note(format!("{skipped} pipes, sockets or devices in it were skipped.")),
    })
}

/// Errors of the host name their path themselves; all others are about the path in the workspace.
fn failure(error: OpError, path: &GuestPath) -> Failure {
    if matches!(error, OpError::Transfer { .. }) { Failure::from(error) } else { file_failure(error, path) }
}
