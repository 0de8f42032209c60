//! `workspace_fork`: creates new workspaces from a snapshot of another.

use agentiso_core::names::{NamePrefix, SnapshotName, WorkspaceName, WorkspaceRef};
use agentiso_core::rate::RateCategory;
use agentiso_daemon::{BatchForked, ForkManyRequest, ForkRequest, Forked};
use serde_json::{Value, json};

use super::shared::{MAX_COMMAND, WORKSPACE};
use super::view::{self, schema};
use crate::answer::{Answer, Failure};
use crate::args::{Integer, Invalid, NewName, Prefix, Reader, Slot, Snapshot, Texts};
use crate::registry::{Call, Hints, Running, Tool};

const MAX_FORKS: u64 = 20;
const DEFAULT_PREFIX: &str = "worker";

/// More preparation than this belongs in the source, before the snapshot.
const MAX_SETUP_COMMANDS: usize = 50;

const SNAPSHOT_NAME: Snapshot = Snapshot::new("snapshot_name", "Its snapshot to fork.");
const NEW_NAME: NewName = NewName::new("new_name", "Name of a single fork. Default: generated.");
const COUNT: Integer = Integer::new("count", "Number of forks.", 1..=MAX_FORKS).default(1);
const NAME_PREFIX: Prefix =
    Prefix::new("name_prefix", "Several forks are named PREFIX-1, PREFIX-2, ...", DEFAULT_PREFIX);
const SETUP_COMMANDS: Texts = Texts {
    name: "setup_commands",
    about: "Shell commands to run in each fork. If one fails, that fork is destroyed.",
    max_items: MAX_SETUP_COMMANDS,
    max: MAX_COMMAND,
};

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_fork",
    title: "Fork a workspace",
    description: "Create workspaces from a snapshot, with its disk and, if it has memory, its running \
                  processes. To try several ideas at once, set count.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Required(&SNAPSHOT_NAME),
        Slot::Optional(&NEW_NAME),
        Slot::Optional(&COUNT),
        Slot::Optional(&NAME_PREFIX),
        Slot::Optional(&SETUP_COMMANDS),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

/// One fork gives the first line, several the rest.
fn output() -> Value {
    let text = schema::optional("string");
    let count = schema::optional("integer");
    json!({
        "workspace_id": text, "name": text, "state": text, "ip": text, "forked_from": schema::optional("object"),
        "source_workspace_id": text, "snapshot_name": text, "requested_count": count, "success_count": count,
        "failure_count": count, "workers": schema::optional("array"), "failures": schema::optional("array"),
        "note": text,
    })
}

struct Input {
    source: WorkspaceRef,
    /// The source as the client wrote it, which the answer about several forks repeats.
    written: String,
    snapshot: SnapshotName,
    new_name: Option<WorkspaceName>,
    count: u32,
    name_prefix: NamePrefix,
    setup_commands: Vec<String>,
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let written = args.written(&WORKSPACE);
    let source = args.target(&WORKSPACE, &call.implied);
    let snapshot = args.required(&SNAPSHOT_NAME);
    let new_name = args.optional(&NEW_NAME);
    let count = args.optional(&COUNT);
    let name_prefix = args.optional(&NAME_PREFIX);
    let setup_commands = args.optional(&SETUP_COMMANDS);
    let input = args.finish((|| {
        let source = source?;
        Some(Input {
            written: written.unwrap_or_else(|| source.to_string()),
            source,
            snapshot: snapshot?,
            new_name: new_name?,
            count: u32::try_from(count?.unwrap_or(1)).ok()?,
            name_prefix: name_prefix?.or_else(|| NAME_PREFIX.default_value())?,
            setup_commands: setup_commands?.unwrap_or_default(),
        })
    })())?;
    Ok(Box::pin(async move {
        call.session.charge(RateCategory::Create, 1)?;
        if input.count == 1 { one(input, call).await } else { many(input, call).await }
    }))
}

async fn one(input: Input, call: Call) -> Result<Answer, Failure> {
    let Input { source, snapshot, new_name, setup_commands, .. } = input;
    let request = ForkRequest { source, snapshot, new_name, setup_commands };
    let forked = call.session.fork(request, &call.progress.as_progress()).await?;
    let answer = Answer::json(view_of(&forked));
    Ok(match forked.warning {
        Some(warning) => answer.with_note(format!("Warning: {warning}.")),
        None => answer,
    })
}

fn view_of(forked: &Forked) -> Value {
    let info = &forked.workspace;
    json!({
        "workspace_id": info.id,
        "name": info.name,
        "state": view::state(info.state),
        "ip": info.ip,
        "forked_from": info.forked_from.as_ref().map(view::forked_from),
    })
}

async fn many(input: Input, call: Call) -> Result<Answer, Failure> {
    let Input { source, written, snapshot, count, name_prefix, setup_commands, .. } = input;
    let request = ForkManyRequest { source, snapshot: snapshot.clone(), count, name_prefix, setup_commands };
    let forked = call.session.fork_many(request, &call.progress.as_progress()).await?;
    let answer = Answer::json(batch(&written, &snapshot, count, &forked));
    Ok(match forked.warnings.is_empty() {
        true => answer,
        false => answer.with_note(format!("Warning: {}.", forked.warnings.join("; "))),
    })
}

fn batch(source: &str, snapshot: &SnapshotName, count: u32, forked: &BatchForked) -> Value {
    let workers: Vec<Value> = forked
        .workers
        .iter()
        .map(|info| json!({ "workspace_id": info.id, "name": info.name, "ip": info.ip }))
        .collect();
    let failures: Vec<Value> = forked
        .failures
        .iter()
        .map(|failed| json!({ "index": failed.index, "name": failed.name, "error": failed.error }))
        .collect();
    json!({
        "source_workspace_id": source,
        "snapshot_name": snapshot,
        "requested_count": count,
        "success_count": workers.len(),
        "failure_count": failures.len(),
        "workers": workers,
        "failures": failures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_fork_prefix_is_valid() {
        assert_eq!(
            NAME_PREFIX.default_value().map(|prefix| prefix.numbered(1).to_string()).as_deref(),
            Some("worker-1")
        );
    }
}
