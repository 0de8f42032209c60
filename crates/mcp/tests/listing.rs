//! The output of `tools/list`: frozen, complete, and within its token budget.

mod support;

use serde_json::Value;
use support::Client;

/// A client pays for the list in every conversation. One token is about four bytes.
const MAX_TOKENS: usize = 9000;
const MAX_CORE_TOKENS: usize = 2000;

async fn listed(tools: &str) -> Value {
    let world = support::world().await;
    let mut client = Client::initialized(world.session(), tools, false).await;
    client.request("tools/list", None).await["result"].clone()
}

#[tokio::test]
async fn tool_list_matches_its_snapshot() {
    insta::assert_json_snapshot!("full", listed("full").await);
    insta::assert_json_snapshot!("core", listed("core").await);
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "the test also shows the current size")]
async fn tool_list_stays_within_token_budget() {
    for (tools, bound) in [("full", MAX_TOKENS), ("core", MAX_CORE_TOKENS)] {
        let bytes = listed(tools).await.to_string().len();
        eprintln!("tools/list of {tools}: {bytes} bytes, about {} tokens", bytes / 4);
        assert!(bytes / 4 < bound, "{tools}: {} tokens", bytes / 4);
    }
}

#[tokio::test]
async fn every_tool_and_parameter_is_described() {
    let list =
        listed("full,snapshot_create,snapshot_restore,snapshot_list,snapshot_delete,snapshot_diff").await;
    for tool in list["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        assert!(tool["title"].is_string() && tool["description"].as_str().unwrap().len() > 20, "{name}");
        for hint in ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] {
            assert!(tool["annotations"][hint].is_boolean(), "{name} {hint}");
        }
        let speaks_to_others = ["git_clone", "git_push", "workspace_prepare"].contains(&name);
        assert_eq!(tool["annotations"]["openWorldHint"], speaks_to_others, "{name}");
        assert_eq!(tool["outputSchema"]["type"], "object", "{name}");
        let input = &tool["inputSchema"];
        assert_eq!((&input["type"], &input["additionalProperties"]), (&"object".into(), &false.into()));
        for (parameter, schema) in input["properties"].as_object().unwrap() {
            // The value of a key of a note's frontmatter may be anything.
            let any = (name, parameter.as_str()) == ("vault", "value");
            assert!(
                any || schema["type"].is_string() || schema["anyOf"].is_array(),
                "{name}.{parameter}: one type, or said which"
            );
            assert!(schema["description"].as_str().is_some_and(|d| d.len() > 10), "{name}.{parameter}");
            if schema["type"] == "integer" {
                assert!(schema["minimum"].is_u64(), "{name}.{parameter}: a range");
            }
        }
    }
}

#[test]
fn docs_tools_md_matches_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tools.md");
    let rendered = agentiso_mcp::docs::render();
    if std::env::var_os("AGENTISO_UPDATE_DOCS").is_some() {
        std::fs::write(path, &rendered).expect("a writable docs directory");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == rendered, "docs/tools.md is not what the code says; run `./x docs --update`");
}
