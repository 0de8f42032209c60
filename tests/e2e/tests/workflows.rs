//! docs/workflows.md as a test: every call is made, and every answer must contain what the document says.

use agentiso_testkit::{ToolResult, host_or_skip};
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../docs/workflows.md");

/// In an expected answer: any value.
const ANYTHING: &str = "…";

struct Step {
    tool: String,
    arguments: Value,
    /// A part of the structured answer.
    expected: Option<Value>,
}

/// The calls under a heading.
fn steps(heading: &str) -> Vec<Step> {
    let section = DOCUMENT.split("\n## ").find(|section| section.lines().next() == Some(heading));
    let section = section.unwrap_or_else(|| panic!("no heading {heading:?}"));
    let mut steps: Vec<Step> = Vec::new();
    for block in section.split("```jsonc\n").skip(1) {
        for line in block.split("\n```").next().unwrap_or_default().lines() {
            let json = line.strip_prefix("// ").unwrap_or(line);
            let mut value: Value =
                serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {line}"));
            if line.starts_with("//") {
                steps.last_mut().expect("an answer follows a call").expected = Some(value);
            } else {
                let tool = value["name"].as_str().unwrap_or_else(|| panic!("no tool in {line}")).to_owned();
                steps.push(Step { tool, arguments: value["arguments"].take(), expected: None });
            }
        }
    }
    steps
}

fn check(step: &Step, answer: &ToolResult) {
    let call = format!("{} {}", step.tool, step.arguments);
    let fails = step.expected.as_ref().is_some_and(|expected| expected.get("code").is_some());
    assert_eq!(answer.is_error, fails, "{call}: {}", answer.text);
    if let Some(expected) = &step.expected {
        assert!(
            holds(&answer.structured, expected),
            "{call}\nsays {}\nand not {expected}",
            answer.structured
        );
    }
}

/// Whether an answer contains everything that is expected. It may have more members.
fn holds(answer: &Value, expected: &Value) -> bool {
    match (answer, expected) {
        (Value::Null, expected) => expected.is_null(),
        (_, Value::String(text)) if text == ANYTHING => true,
        (Value::Object(answer), Value::Object(expected)) => {
            expected.iter().all(|(key, value)| answer.get(key).is_some_and(|answer| holds(answer, value)))
        }
        (Value::Array(answer), Value::Array(expected)) => {
            answer.len() == expected.len() && answer.iter().zip(expected).all(|(a, e)| holds(a, e))
        }
        (answer, expected) => answer == expected,
    }
}

fn follow(heading: &str) {
    let host = host_or_skip!();
    let client = host.client();
    for step in steps(heading) {
        check(&step, &client.try_tool(&step.tool, step.arguments.clone()));
    }
    assert_eq!(client.tool("workspace_list", serde_json::json!({})).text, "[]", "{heading} leaves nothing");
}

macro_rules! workflows {
    ($($name:ident: $heading:literal),+ $(,)?) => {
        const HEADINGS: &[&str] = &[$($heading),+];

        $(
            #[test]
            fn $name() {
                follow($heading);
            }
        )+
    };
}

workflows!(
    disposable_sandbox_workflow_runs: "Disposable sandbox",
    checkpoint_and_rollback_workflow_runs: "Checkpoint and rollback",
    parallel_hypotheses_workflow_runs: "Parallel hypotheses",
    persistent_build_environment_workflow_runs: "Persistent build environment",
    file_editing_workflow_runs: "File editing",
    git_workflow_runs: "Git",
    snapshot_sizes_workflow_runs: "Snapshot sizes",
);

#[test]
fn every_documented_workflow_has_a_test() {
    let found: Vec<&str> =
        DOCUMENT.split("\n## ").skip(1).filter_map(|section| section.lines().next()).collect();
    assert_eq!(found, HEADINGS);
    for heading in HEADINGS {
        let steps = steps(heading);
        assert!(steps.len() >= 5, "{heading}");
        assert!(steps.iter().any(|step| step.expected.is_some()), "{heading}");
    }
}

#[test]
fn expected_answer_matches_only_contained_values() {
    let answer = serde_json::json!({"a": 1, "b": [{"c": "x"}], "n": null});
    for (expected, held) in [
        (r#"{"a": 1}"#, true),
        (r#"{"a": 2}"#, false),
        (r#"{"b": [{"c": "…"}]}"#, true),
        (r#"{"b": []}"#, false),
        (r#"{"d": "…"}"#, false),
        (r#"{"n": "…"}"#, false),
        (r#"{"n": null}"#, true),
    ] {
        assert_eq!(holds(&answer, &serde_json::from_str(expected).unwrap()), held, "{expected}");
    }
}
