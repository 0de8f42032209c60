//! `git_status`: lists the changes in a repository.

use agentiso_core::names::WorkspaceRef;
use agentiso_core::paths::GuestPath;
use agentiso_daemon::{GitError, OpError};
use agentiso_git::{Status, Trouble, calls};
use serde_json::{Value, json};

use super::git::{REPO, repo};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Invalid, Reader, Slot};
use crate::registry::{Call, Hints, Running, Tool};

/// Paths of one kind that are listed; a longer list is of no use to a reader.
const MAX_LISTED: usize = 500;

pub(crate) const TOOL: Tool = Tool {
    name: "git_status",
    title: "Status of a repository",
    description: "Show branch and staged, modified, untracked and conflicted files of a git repository in a \
                  workspace.",
    slots: &[Slot::Target(&WORKSPACE), Slot::Optional(&REPO)],
    output,
    hints: Hints::READS,
    prepare,
};

fn output() -> Value {
    let (text, count, list) =
        (schema::optional("string"), schema::optional("integer"), schema::optional("array"));
    json!({
        "branch": text, "ahead": count, "behind": count, "staged": list, "modified": list, "untracked": list,
        "conflicted": list, "dirty": schema::optional("boolean"), "error": text, "message": text, "note": text,
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let path = args.optional(&REPO);
    let (workspace, path) = args.finish((|| Some((workspace?, repo(path?)?)))())?;
    Ok(Box::pin(run(workspace, path, call)))
}

async fn run(workspace: WorkspaceRef, path: GuestPath, call: Call) -> Result<Answer, Failure> {
    const WHAT: &str = "git status";
    let guest = call.session.guest(&workspace).await?;
    let ran = match guest.git(WHAT, &calls::status(&path)).await {
        Err(OpError::Git(GitError::Failed { trouble: Trouble::NotARepository, .. })) => {
            let message = format!("{path} is not in a git repository");
            return Ok(Answer::json(json!({ "error": "not_a_git_repository", "message": message })));
        }
        ran => ran?,
    };
    let status = Status::parse(&ran.stdout).map_err(|error| {
        let words = error.to_string();
        OpError::from(GitError::Answer { name: guest.name().clone(), what: WHAT, words })
    })?;
    Ok(view(status, ran.stdout_total > ran.stdout.len() as u64))
}

/// `is_cut`: the output was longer than the guest sent.
fn view(mut status: Status, is_cut: bool) -> Answer {
    let dirty = status.is_dirty();
    let mut hidden = 0;
    for list in [&mut status.staged, &mut status.modified, &mut status.untracked, &mut status.conflicted] {
        hidden += list.len().saturating_sub(MAX_LISTED);
        list.truncate(MAX_LISTED);
    }
    let answer = Answer::json(json!({
        "branch": status.branch,
        "ahead": status.ahead,
        "behind": status.behind,
        "staged": status.staged,
        "modified": status.modified,
        "untracked": status.untracked,
        "conflicted": status.conflicted,
        "dirty": dirty,
    }));
    match (hidden, is_cut) {
        (0, false) => answer,
        (hidden, false) => {
            answer.with_note(format!("{hidden} more paths are not listed; `git status` shows all."))
        }
        (_, true) => answer.with_note("Not all paths are listed; exec with git status shows all.".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_status_lists_at_most_500_paths() {
        let untracked = (0..2000).map(|n| format!("file-{n}")).collect();
        let status = Status { branch: "main".to_owned(), untracked, ..Status::default() };
        let result = view(status, false).into_result();
        let structured = result.structured_content.unwrap();
        assert_eq!(structured["untracked"].as_array().unwrap().len(), MAX_LISTED);
        assert!(structured["note"].as_str().unwrap().starts_with("1500 more"), "{structured}");
        assert_eq!(structured["dirty"], true);
    }
}
