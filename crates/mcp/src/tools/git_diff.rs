//! `git_diff`: shows uncommitted changes line by line.

use agentiso_core::names::WorkspaceRef;
use agentiso_git::RepoFile;
use agentiso_git::calls::Diff;
use serde_json::{Value, json};

use super::git::{REPO, repo};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Flag, Integer, Invalid, Reader, Slot, Word};
use crate::registry::{Call, Hints, Running, Tool};

/// With the characters that JSON adds, an answer stays below 50,000 characters, the limit for default sizes.
const DEFAULT_BYTES: u64 = 40_000;

/// Half of what the guest keeps of a stream.
const MAX_BYTES: u64 = 1024 * 1024;

const STAGED: Flag = Flag::new("staged", "Show staged changes.").default(false);
const STAT: Flag = Flag::new("stat", "Show a diffstat.").default(false);
const FILE_PATH: Word<RepoFile> = Word::file("file_path", "Only this file or directory.");
const LIMIT: Integer =
    Integer::new("max_bytes", "Maximum bytes to return.", 1..=MAX_BYTES).default(DEFAULT_BYTES);

pub(crate) const TOOL: Tool = Tool {
    name: "git_diff",
    title: "Show changes in a repository",
    description: "Show uncommitted changes of a git repository in a workspace. For new files use git_status.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Optional(&REPO),
        Slot::Optional(&STAGED),
        Slot::Optional(&STAT),
        Slot::Optional(&FILE_PATH),
        Slot::Optional(&LIMIT),
    ],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    json!({ "diff": schema::text(), "truncated": schema::flag(), "stat": schema::optional_text() })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let path = args.optional(&REPO);
    let staged = args.optional(&STAGED);
    let stat = args.optional(&STAT);
    let file = args.optional(&FILE_PATH);
    let limit = args.optional(&LIMIT);
    let (workspace, diff) = args.finish((|| {
        let diff = Diff {
            path: repo(path?)?,
            staged: staged?.unwrap_or(false),
            stat: stat?.unwrap_or(false),
            file: file?,
            max_bytes: limit?.unwrap_or(DEFAULT_BYTES),
        };
        Some((workspace?, diff))
    })())?;
    Ok(Box::pin(run(workspace, diff, call)))
}

async fn run(workspace: WorkspaceRef, diff: Diff, call: Call) -> Result<Answer, Failure> {
    let guest = call.session.guest(&workspace).await?;
    let ran = guest.git("git diff", &diff.script()).await?;
    let diffed = diff.read(&ran);
    let mut view = json!({ "diff": diffed.text, "truncated": diffed.truncated });
    if diff.stat {
        view["stat"] = diffed.text.into();
    }
    Ok(Answer::json(view))
}
