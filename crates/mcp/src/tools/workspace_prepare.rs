//! `workspace_prepare`: prepares a workspace once, to fork from it.

use std::time::Duration;

use agentiso_daemon::{PrepareRequest, Prepared};
use agentiso_git::GitUrl;
use serde_json::{Value, json};

use super::shared::MAX_COMMAND;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Flag, Image, Integer, Invalid, NewName, Policy, Reader, Slot, Texts, Word};
use crate::registry::{Call, Hints, Running, Tool};

const DEFAULT_TIMEOUT_SECS: u64 = 300;
const MAX_SETUP_COMMANDS: usize = 50;

const NAME: NewName = NewName::new("name", "An existing workspace is reused.");
const BASE_IMAGE: Image = Image::new("base_image", "Base image. Default: as configured.");
const GIT_URL: Word<GitUrl> = Word::url("git_url", "Repository to clone into /workspace.");
const SETUP_COMMANDS: Texts = Texts {
    name: "setup_commands",
    about: "Shell commands to run in this order.",
    max_items: MAX_SETUP_COMMANDS,
    max: MAX_COMMAND,
};
const TIMEOUT_SECS: Integer =
    Integer::new("timeout_secs", "Time limit per command.", 1..=86_400).default(DEFAULT_TIMEOUT_SECS);
const NETWORK_POLICY: Policy = Policy {
    name: "network_policy",
    about: "Fields of network_policy during preparation. Default: allow_internet.",
};
const KEEP_NETWORK: Flag =
    Flag::new("keep_network", "Keep that policy afterwards, also in forks.").default(false);

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_prepare",
    title: "Prepare a workspace",
    description: "Prepare a workspace to fork from: clone a repository, run commands, take snapshot golden. \
                  It has internet access meanwhile, the default policy afterwards. Returns at once if \
                  snapshot golden exists.",
    slots: &[
        Slot::Required(&NAME),
        Slot::Optional(&BASE_IMAGE),
        Slot::Optional(&GIT_URL),
        Slot::Optional(&SETUP_COMMANDS),
        Slot::Optional(&TIMEOUT_SECS),
        Slot::Optional(&NETWORK_POLICY),
        Slot::Optional(&KEEP_NETWORK),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: true },
    prepare,
};

fn output() -> Value {
    json!({
        "workspace_id": schema::text(), "name": schema::text(), "snapshot_name": schema::text(),
        "snapshot_id": schema::optional_text(), "ip": schema::text(), "reused_existing": schema::optional("boolean"),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let name = args.required(&NAME);
    let base_image = args.optional(&BASE_IMAGE);
    let git_url = args.optional(&GIT_URL);
    let setup_commands = args.optional(&SETUP_COMMANDS);
    let timeout = args.optional(&TIMEOUT_SECS);
    let network = args.optional(&NETWORK_POLICY);
    let keep_network = args.optional(&KEEP_NETWORK);
    let request = args.finish((|| {
        Some(PrepareRequest {
            name: name?,
            base_image: base_image?,
            git_url: git_url?,
            setup_commands: setup_commands?.unwrap_or_default(),
            timeout: Duration::from_secs(timeout?.unwrap_or(DEFAULT_TIMEOUT_SECS)),
            network: network?.unwrap_or_else(PrepareRequest::internet),
            keep_network: keep_network?.unwrap_or(false),
        })
    })())?;
    Ok(Box::pin(run(request, call)))
}

async fn run(request: PrepareRequest, call: Call) -> Result<Answer, Failure> {
    let prepared = call.session.prepare(request, &call.progress.as_progress()).await?;
    Ok(Answer::json(match prepared {
        Prepared::Existing { workspace } => json!({
            "workspace_id": workspace.id,
            "name": workspace.name,
            "snapshot_name": "golden",
            "ip": workspace.ip,
            "reused_existing": true,
        }),
        Prepared::Made { workspace, snapshot } => json!({
            "workspace_id": workspace.id,
            "name": workspace.name,
            "snapshot_name": snapshot.name,
            "snapshot_id": snapshot.id,
            "ip": workspace.ip,
        }),
    }))
}
