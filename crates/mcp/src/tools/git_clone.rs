//! `git_clone`: clones a repository into a workspace.

use agentiso_core::names::WorkspaceRef;
use agentiso_git::calls::CloneRepo;
use agentiso_git::{BranchName, GitUrl};
use serde_json::{Value, json};

use super::git::{REPO, repo};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{GuestFile, Integer, Invalid, Reader, Slot, Word};
use crate::registry::{Call, Hints, Running, Tool};

const URL: Word<GitUrl> = Word::url("url", "https, http, git or ssh URL, or user@host:path.");
const PATH: GuestFile = GuestFile::new(REPO.name, "Must be absent or empty. Default: /workspace.");
const BRANCH: Word<BranchName> = Word::branch("Branch or tag. Default: the remote's.");
const DEPTH: Integer = Integer::new("depth", "Commits to fetch. Default: all.", 1..=1_000_000);

pub(crate) const TOOL: Tool = Tool {
    name: "git_clone",
    title: "Clone a repository",
    description: "Clone a git repository into a workspace. Allow it to reach the remote first, with network_policy.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Required(&URL),
        Slot::Optional(&PATH),
        Slot::Optional(&BRANCH),
        Slot::Optional(&DEPTH),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({
        "success": schema::flag(), "path": schema::text(), "commit_sha": json!({}), "url": schema::text(),
        "branch": json!({}), "depth": json!({}),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let url = args.required(&URL);
    let path = args.optional(&PATH);
    let branch = args.optional(&BRANCH);
    let depth = args.optional(&DEPTH);
    let (workspace, clone) = args.finish((|| {
        let depth = depth?.and_then(|depth| u32::try_from(depth).ok());
        Some((workspace?, CloneRepo { url: url?, path: repo(path?)?, branch: branch?, depth }))
    })())?;
    Ok(Box::pin(run(workspace, clone, call)))
}

async fn run(workspace: WorkspaceRef, clone: CloneRepo, call: Call) -> Result<Answer, Failure> {
    call.progress.report("cloning", None);
    let cloned = call.session.clone_repository(&workspace, clone.clone()).await?;
    Ok(Answer::json(json!({
        "success": true,
        "path": clone.path.as_str(),
        "commit_sha": cloned.commit,
        "url": clone.url.shown(),
        "branch": cloned.branch.or(clone.branch.map(|branch| branch.to_string())),
        "depth": clone.depth,
    })))
}
