//! `git_push`: pushes a branch to its remote.

use std::time::Duration;

use agentiso_core::names::WorkspaceRef;
use agentiso_git::calls::Push;
use agentiso_git::{BranchName, Remote, redact};
use serde_json::{Value, json};

use super::git::{REPO, repo};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Flag, Integer, Invalid, Reader, Slot, Word};
use crate::registry::{Call, Hints, Running, Tool};

const DEFAULT_TIMEOUT_SECS: u64 = 120;

const REMOTE: Word<Remote> = Word::remote("Name or URL of the remote.");
const BRANCH: Word<BranchName> = Word::branch("Default: the current branch.");
const FORCE: Flag = Flag::new("force", "Overwrite the remote's branch.").default(false);
const SET_UPSTREAM: Flag = Flag::new("set_upstream", "Set it as upstream.").default(false);
const TIMEOUT_SECS: Integer =
    Integer::new("timeout_secs", "Time limit in seconds.", 1..=3600).default(DEFAULT_TIMEOUT_SECS);

pub(crate) const TOOL: Tool = Tool {
    name: "git_push",
    title: "Push",
    description: "Push a branch of a git repository in a workspace. Credentials must be in the remote's URL \
                  or in the workspace.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Optional(&REPO),
        Slot::Optional(&REMOTE),
        Slot::Optional(&BRANCH),
        Slot::Optional(&FORCE),
        Slot::Optional(&SET_UPSTREAM),
        Slot::Optional(&TIMEOUT_SECS),
    ],
    output,
    hints: Hints { read_only: false, destructive: true, idempotent: true },
    prepare,
};

fn output() -> Value {
    json!({
        "remote": schema::text(), "branch": schema::text(), "success": schema::flag(), "output": schema::text(),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let path = args.optional(&REPO);
    let remote = args.optional(&REMOTE);
    let branch = args.optional(&BRANCH);
    let force = args.optional(&FORCE);
    let set_upstream = args.optional(&SET_UPSTREAM);
    let timeout = args.optional(&TIMEOUT_SECS);
    let (workspace, push) = args.finish((|| {
        let push = Push {
            path: repo(path?)?,
            remote: remote?.unwrap_or_default(),
            branch: branch?,
            force: force?.unwrap_or(false),
            set_upstream: set_upstream?.unwrap_or(false),
            timeout: Duration::from_secs(timeout?.unwrap_or(DEFAULT_TIMEOUT_SECS)),
        };
        Some((workspace?, push))
    })())?;
    Ok(Box::pin(run(workspace, push, call)))
}

async fn run(workspace: WorkspaceRef, push: Push, call: Call) -> Result<Answer, Failure> {
    call.progress.report("pushing", None);
    let pushed = call.session.push(&workspace, &push).await?;
    Ok(Answer::json(json!({
        "remote": redact(push.remote.as_str()),
        "branch": pushed.branch,
        "success": true,
        "output": pushed.output,
    })))
}
