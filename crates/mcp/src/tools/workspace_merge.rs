//! `workspace_merge`: merges the commits of several workspaces into one.

use agentiso_daemon::{MergeRequest, Merged, MergedSource};
use agentiso_git::merge::{Outcome, Strategy};
use serde_json::{Value, json};

use super::git::{MAX_MESSAGE, REPO, repo};
use super::view::schema;
use crate::answer::{Answer, Failure};
use crate::args::{Choice, GuestFile, Invalid, Reader, Slot, Text, Workspace, Workspaces};
use crate::registry::{Call, Hints, Running, Tool};

const MAX_SOURCES: usize = 20;

pub(super) const STRATEGIES: &[(&str, Strategy)] = &[
    ("sequential", Strategy::Sequential),
    ("branch-per-source", Strategy::BranchPerSource),
    ("cherry-pick", Strategy::CherryPick),
];

const SOURCES: Workspaces = Workspaces {
    name: "source_workspaces",
    about: "Running workspaces to merge, in this order.",
    max: MAX_SOURCES,
};
const TARGET: Workspace = Workspace::new("target_workspace", "Running workspace to merge into.");
const STRATEGY: Choice<Strategy> = Choice::new(
    "strategy",
    "sequential: as patches. branch-per-source: one merge commit each. cherry-pick: commit by commit.",
    STRATEGIES,
);
const PATH: GuestFile = GuestFile::new(REPO.name, "Repository path in all of them. Default: /workspace.");
const COMMIT_MESSAGE: Text = Text::new("commit_message", "Message of merge commits.", MAX_MESSAGE);

pub(crate) const TOOL: Tool = Tool {
    name: "workspace_merge",
    title: "Merge workspaces",
    description: "Merge the git commits of several workspaces into one. A source that fails to merge is \
                  listed in conflicts and leaves the target unchanged.",
    slots: &[
        Slot::Required(&SOURCES),
        Slot::Required(&TARGET),
        Slot::Required(&STRATEGY),
        Slot::Optional(&PATH),
        Slot::Optional(&COMMIT_MESSAGE),
    ],
    output,
    hints: Hints { read_only: false, destructive: false, idempotent: false },
    prepare,
};

fn output() -> Value {
    json!({
        "success": schema::flag(), "strategy": schema::text(), "total_commits_applied": schema::integer(),
        "merged_sources": json!({ "type": "array", "items": { "type": "string" } }), "conflicts": schema::list(),
        "results": schema::list(),
    })
}

fn prepare(mut args: Reader, call: Call) -> Result<Running, Invalid> {
    let sources = args.required(&SOURCES);
    let target = args.required(&TARGET);
    let strategy = args.required(&STRATEGY);
    let path = args.optional(&PATH);
    let message = args.optional(&COMMIT_MESSAGE);
    let request = args.finish((|| {
        Some(MergeRequest {
            sources: sources?,
            target: target?,
            path: repo(path?)?,
            strategy: strategy?,
            message: message?,
        })
    })())?;
    Ok(Box::pin(run(request, call)))
}

async fn run(request: MergeRequest, call: Call) -> Result<Answer, Failure> {
    call.progress.report("merging", None);
    Ok(Answer::json(view(&call.session.merge(request).await?)))
}

/// The answer, which is also part of a swarm's answer.
pub(super) fn view(merged: &Merged) -> Value {
    let commits = |source: &MergedSource| match &source.outcome {
        Outcome::Merged { commits, .. } => *commits,
        Outcome::Failed { .. } => 0,
    };
    let error = |source: &MergedSource| match &source.outcome {
        Outcome::Merged { .. } => None,
        Outcome::Failed { error } => Some(error.clone()),
    };
    let result = |source: &MergedSource| {
        let mut result = json!({
            "source_id": source.id,
            "success": error(source).is_none(),
            "commits_applied": commits(source),
            "error": error(source),
        });
        if let Outcome::Merged { note: Some(note), .. } = &source.outcome {
            result["note"] = note.as_str().into();
        }
        result
    };
    let sources = &merged.sources;
    let fitted: Vec<_> =
        sources.iter().filter(|source| error(source).is_none()).map(|source| source.id).collect();
    let conflicts: Vec<Value> = sources
        .iter()
        .filter_map(|source| Some(json!({ "source_id": source.id, "error": error(source)? })))
        .collect();
    json!({
        "success": conflicts.is_empty(),
        "strategy": merged.strategy.as_str(),
        "total_commits_applied": sources.iter().map(commits).sum::<u64>(),
        "merged_sources": fitted,
        "conflicts": conflicts,
        "results": sources.iter().map(result).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use agentiso_core::ids::WorkspaceId;
    use agentiso_core::names::WorkspaceName;

    #[test]
    fn merge_strategy_words_match_their_names() {
        assert!(STRATEGIES.iter().all(|(word, strategy)| *word == strategy.as_str()));
        assert_eq!(STRATEGIES.len(), Strategy::ALL.len());
    }

    #[test]
    fn merge_answer_reports_each_source() {
        let source = |outcome| MergedSource {
            id: WorkspaceId::random(),
            name: WorkspaceName::parse("w").unwrap(),
            outcome,
        };
        let merged = Merged {
            strategy: Strategy::Sequential,
            sources: vec![
                source(Outcome::Merged { commits: 2, note: None }),
                source(Outcome::Failed { error: "no".to_owned() }),
                source(Outcome::Merged { commits: 0, note: Some("hm".to_owned()) }),
            ],
        };
        let answer = view(&merged);
        assert_eq!((&answer["success"], &answer["total_commits_applied"]), (&json!(false), &json!(2)));
        assert_eq!(answer["merged_sources"].as_array().unwrap().len(), 2);
        assert_eq!(answer["conflicts"], json!([{"source_id": merged.sources[1].id, "error": "no"}]));
        assert_eq!(
            (&answer["results"][1]["success"], &answer["results"][2]["note"]),
            (&json!(false), &json!("hm"))
        );
        assert_eq!(answer["results"][0]["error"], Value::Null);
    }
}
