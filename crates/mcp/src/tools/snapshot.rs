//! `snapshot`: takes, restores, lists, deletes and compares snapshots of a workspace.

use agentiso_core::names::{SnapshotName, WorkspaceRef};
use serde_json::{Value, json};

use super::shared::WORKSPACE;
use super::snapshots::{self, INCLUDE_MEMORY};
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Choice, Flag, Invalid, Reader, Slot, Snapshot};
use crate::registry::{Call, Hints, Running, Tool};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Create,
    Restore,
    List,
    Delete,
    Diff,
}

const ACTION: Choice<Action> = Choice::new(
    "action",
    "diff: what changed since the snapshot.",
    &[
        ("create", Action::Create),
        ("restore", Action::Restore),
        ("list", Action::List),
        ("delete", Action::Delete),
        ("diff", Action::Diff),
    ],
);
const NAME: Snapshot = Snapshot::new("name", "Snapshot name. Required except for list.");
const MEMORY: Flag = Flag {
    about: "create: save memory too, so that restore and fork bring back running processes.",
    ..INCLUDE_MEMORY
};

pub(crate) const TOOL: Tool = Tool {
    name: "snapshot",
    title: "Manage snapshots",
    description: "Manage snapshots of a workspace's disk and optionally memory. Cheap: create one before \
                  every risky step, restore it if the step goes wrong. create needs a running workspace, \
                  which keeps running; restore discards the current state and keeps all snapshots.",
    slots: &[
        Slot::Required(&ACTION),
        Slot::Target(&WORKSPACE),
        Slot::Optional(&NAME),
        Slot::Optional(&MEMORY),
    ],
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: false },
    prepare,
};

/// Each action gives some of these.
fn output() -> Value {
    let text = schema::optional("string");
    let list = schema::optional("array");
    json!({
        "snapshot_id": text, "name": text, "workspace_id": text, "has_memory": schema::optional("boolean"),
        "created_at": text, "pause_ms": schema::optional("number"), "snapshots": list, "processes_restored": schema::optional("boolean"),
        "changed_bytes": schema::optional("integer"), "added": list, "modified": list, "removed": list,
    })
}

/// The parsed action with its arguments.
enum Work {
    Create { name: SnapshotName, include_memory: bool },
    Restore(SnapshotName),
    List,
    Delete(SnapshotName),
    Diff(SnapshotName),
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let action = args.required(&ACTION);
    let workspace = args.target(&WORKSPACE, &call.implied);
    let name = args.optional(&NAME);
    let memory = args.optional(&MEMORY);
    if let (Some(action), Some(None)) = (action, &name)
        && action != Action::List
    {
        args.complain(NAME.name, "is missing; every action except list needs it".to_owned());
    }
    // A client that always sends its defaults means nothing by false.
    if let (Some(action), Some(Some(true))) = (action, memory)
        && action != Action::Create
    {
        let problem = "is only for create; restore brings memory back if the snapshot has it";
        args.complain(MEMORY.name, problem.to_owned());
    }
    let (workspace, work) = args.finish((|| {
        let include_memory = memory?.unwrap_or(false);
        let work = match (action?, name?) {
            (Action::List, _) => Work::List,
            (_, None) => return None,
            (Action::Create, Some(name)) => Work::Create { name, include_memory },
            (Action::Restore, Some(name)) => Work::Restore(name),
            (Action::Delete, Some(name)) => Work::Delete(name),
            (Action::Diff, Some(name)) => Work::Diff(name),
        };
        Some((workspace?, work))
    })())?;
    Ok(Box::pin(run(call, workspace, work)))
}

async fn run(call: Call, workspace: WorkspaceRef, work: Work) -> Result<Answer, Failure> {
    match work {
        Work::Create { name, include_memory } => {
            snapshots::create(&call, &workspace, name, include_memory).await
        }
        Work::Restore(name) => snapshots::restore(&call, &workspace, &name).await,
        Work::List => Ok(Answer::array("snapshots", snapshots::list(&call, &workspace).await?)),
        Work::Delete(name) => snapshots::delete(&call, &workspace, &name).await,
        Work::Diff(name) => snapshots::diff(&call, &workspace, &name).await,
    }
}
