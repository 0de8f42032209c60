//! Operations on a workspace's snapshots and their answers, for the tool `snapshot` and for the tools that do one
//! action each.

use agentiso_core::names::{SnapshotName, WorkspaceRef};
use agentiso_daemon::{ChangedPath, Restored, Rung, SnapshotDiff, SnapshotInfo};
use serde_json::{Value, json};

use super::view;
use crate::answer::{Answer, Failure};
use crate::args::{Flag, Snapshot};
use crate::registry::Call;

/// Paths shown of each kind of change. A longer list costs a model more than it is worth.
const MAX_PATHS: usize = 200;

/// The snapshot parameter of tools that do one action.
pub(super) const SNAPSHOT_NAME: Snapshot = Snapshot::new("snapshot_name", "Name of the snapshot.");

pub(super) const NEW_NAME: Snapshot = Snapshot::new(
    "name",
    "Name of the new snapshot, unique in the workspace: letters, digits, '.', '_' or '-'.",
);

/// The two names above are mixed up easily, so each tool also accepts the other.
pub(super) const ALIAS_NAME: Snapshot = Snapshot::new("name", SNAPSHOT_NAME.about);
pub(super) const ALIAS_SNAPSHOT_NAME: Snapshot = Snapshot::new("snapshot_name", NEW_NAME.about);

pub(super) const INCLUDE_MEMORY: Flag =
    Flag::new("include_memory", "Save memory and running processes too.").default(false);

pub(super) async fn create(
    call: &Call,
    workspace: &WorkspaceRef,
    name: SnapshotName,
    include_memory: bool,
) -> Result<Answer, Failure> {
    let made = call.session.snapshot(workspace, name, include_memory, &call.progress.as_progress()).await?;
    let snapshot = &made.snapshot;
    Ok(Answer::json(json!({
        "snapshot_id": snapshot.id,
        "name": snapshot.name,
        "workspace_id": made.workspace.id,
        "has_memory": snapshot.has_memory,
        "created_at": snapshot.created_at.to_string(),
        "pause_ms": made.pause.as_secs_f64() * 1000.0,
    })))
}

pub(super) async fn restore(
    call: &Call,
    workspace: &WorkspaceRef,
    name: &SnapshotName,
) -> Result<Answer, Failure> {
    let restored = call.session.restore(workspace, name, &call.progress.as_progress()).await?;
    let mut structured = view::brief(&restored.workspace);
    structured["snapshot_name"] = json!(restored.snapshot.name);
    structured["processes_restored"] = brought_processes(&restored).into();
    if let Some(warning) = &restored.warning {
        structured["warning"] = warning.as_str().into();
    }
    Ok(Answer::text(sentence(&restored), structured))
}

fn brought_processes(restored: &Restored) -> bool {
    restored.rung == Rung::Memory
}

fn sentence(restored: &Restored) -> String {
    let Restored { workspace, snapshot, warning, .. } = restored;
    let state = match (brought_processes(restored), snapshot.has_memory) {
        (true, _) => "disk and memory are restored, and its processes go on from there".to_owned(),
        (false, false) => {
            "the disk is restored; no processes were brought back, because the snapshot has no memory"
                .to_owned()
        }
        (false, true) => "the disk is restored; its processes were not brought back".to_owned(),
    };
    let warning = warning.as_ref().map(|warning| format!(" Warning: {warning}.")).unwrap_or_default();
    format!(
        "Workspace {} ({}) restored to snapshot {} and running: {state}.{warning}",
        workspace.name, workspace.id, snapshot.name
    )
}

/// All snapshots, the oldest first.
pub(super) async fn list(call: &Call, workspace: &WorkspaceRef) -> Result<Vec<Value>, Failure> {
    Ok(call.session.snapshots(workspace).await?.iter().map(item).collect())
}

fn item(snapshot: &SnapshotInfo) -> Value {
    let mut item = view::snapshot(snapshot);
    // Unknown sizes are left out, as with the sizes of a workspace.
    for (key, bytes) in [("used_bytes", snapshot.used_bytes), ("referenced_bytes", snapshot.referenced_bytes)]
    {
        if let Some(bytes) = bytes {
            item[key] = bytes.into();
        }
    }
    item["current"] = snapshot.current.into();
    item["forks"] = json!(snapshot.forks);
    item
}

pub(super) async fn delete(
    call: &Call,
    workspace: &WorkspaceRef,
    name: &SnapshotName,
) -> Result<Answer, Failure> {
    let gone = call.session.delete_snapshot(workspace, name).await?;
    Ok(Answer::text(
        format!("Snapshot {} ({}) of workspace {workspace} deleted.", gone.name, gone.id),
        json!({ "snapshot_id": gone.id, "name": gone.name, "deleted": true }),
    ))
}

pub(super) async fn diff(
    call: &Call,
    workspace: &WorkspaceRef,
    name: &SnapshotName,
) -> Result<Answer, Failure> {
    let diff = call.session.diff_snapshot(workspace, name, &call.progress.as_progress()).await?;
    let (view, hidden) = changes(name, &diff);
    let answer = Answer::json(view);
    Ok(if hidden > 0 {
        answer.with_note(format!("{hidden} more changed paths are counted but not shown."))
    } else {
        answer
    })
}

/// The answer, and how many paths it leaves out.
fn changes(name: &SnapshotName, diff: &SnapshotDiff) -> (Value, u64) {
    let mut view = json!({ "snapshot_name": name, "changed_bytes": diff.changed_bytes });
    let mut hidden = 0;
    match &diff.paths {
        Some(paths) => {
            let kinds = [
                ("added", "added_count", &paths.added, paths.added_total),
                ("modified", "modified_count", &paths.modified, paths.modified_total),
                ("removed", "removed_count", &paths.removed, paths.removed_total),
            ];
            for (key, count, changed, total) in kinds {
                let shown: Vec<Value> = changed.iter().take(MAX_PATHS).map(path).collect();
                hidden += total.saturating_sub(shown.len() as u64);
                view[key] = shown.into();
                view[count] = total.into();
            }
        }
        None => {
            let reason = diff.paths_unknown.as_deref().unwrap_or("the file systems could not be compared");
            view["paths_unknown"] = reason.into();
        }
    }
    (view, hidden)
}

fn path(changed: &ChangedPath) -> Value {
    json!({ "path": changed.path, "kind": changed.kind, "size": changed.size })
}
