//! `git_commit`: commits all changes, or those that are staged.

use agentiso_core::names::WorkspaceRef;
use agentiso_git::calls::{Author, Commit, Committed};
use serde_json::{Value, json};

use super::git::{MAX_MESSAGE, REPO, repo};
use super::shared::WORKSPACE;
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Flag, Invalid, Reader, Slot, Text, Word};
use crate::registry::{Call, Hints, Running, Tool};

const MESSAGE: Text = Text::new("message", "The commit message.", MAX_MESSAGE);
const ADD_ALL: Flag = Flag::new("add_all", "Stage all changes first.").default(true);
const AUTHOR_NAME: Word<String> = Word::author("author_name", "Used together with author_email.");
const AUTHOR_EMAIL: Word<String> = Word::author("author_email", "Used together with author_name.");

pub(crate) const TOOL: Tool = Tool {
    name: "git_commit",
    title: "Commit",
    description: "Commit changes of a git repository in a workspace, by default all of them.",
    slots: &[
        Slot::Target(&WORKSPACE),
        Slot::Required(&MESSAGE),
        Slot::Optional(&REPO),
        Slot::Optional(&ADD_ALL),
        Slot::Optional(&AUTHOR_NAME),
        Slot::Optional(&AUTHOR_EMAIL),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    let text = schema::optional("string");
    json!({
        "commit_sha": text, "short_sha": text, "branch": json!({ "optional": true }), "summary": text, "status": text,
        "message": text,
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let workspace = args.target(&WORKSPACE, &call.implied);
    let message = args.required(&MESSAGE);
    let path = args.optional(&REPO);
    let add_all = args.optional(&ADD_ALL);
    let name = args.optional(&AUTHOR_NAME);
    let email = args.optional(&AUTHOR_EMAIL);
    if message.as_ref().is_some_and(|message| message.trim().is_empty()) {
        args.complain(MESSAGE.name, "must not be blank".to_owned());
    }
    let (workspace, commit) = args.finish((|| {
        let author = name?.zip(email?).and_then(|(name, email)| Author::new(&name, &email).ok());
        let add_all = add_all?.unwrap_or(true);
        Some((workspace?, Commit { path: repo(path?)?, message: message?, add_all, author }))
    })())?;
    Ok(Box::pin(run(workspace, commit, call)))
}

async fn run(workspace: WorkspaceRef, commit: Commit, call: Call) -> Result<Answer, Failure> {
    let add_all = commit.add_all;
    Ok(Answer::json(match call.session.commit(&workspace, commit).await? {
        Committed::Made { commit, short, branch, summary } => {
            json!({ "commit_sha": commit, "short_sha": short, "branch": branch, "summary": summary })
        }
        Committed::Nothing => {
            let message = match add_all {
                true => "nothing changed since the last commit",
                false => "nothing is staged; set add_all:true to commit all changes",
            };
            json!({ "status": "nothing_to_commit", "message": message })
        }
    }))
}
