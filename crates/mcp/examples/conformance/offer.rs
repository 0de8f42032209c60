//! The content of the conformance suite as an [`Offer`].

use std::time::Duration;

use agentiso_mcp::{Asked, Offer, Part, Running};
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use rmcp::model::{
    CallToolResult, ClientCapabilities, CompleteRequestParams, CompleteResult, ErrorData, GetPromptResult,
    JsonObject, ListResourcesResult, Prompt, ResourceContents, ResourceTemplate, Tool,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::content::{self, PROMPTS, RESOURCES, TEMPLATE, TOOLS};

/// Time between two reports of progress, as the suite demands.
const STEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Suite;

/// Converts JSON into a type of the protocol.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn unknown(what: &str, name: &str) -> ErrorData {
    ErrorData::invalid_params(format!("there is no {what} {name:?}"), Some(json!({"uri": name})))
}

impl Offer for Suite {
    fn instructions(&self) -> String {
        "What the conformance suite of MCP asks for.".to_owned()
    }

    fn has(&self, part: Part) -> bool {
        match part {
            Part::Tools | Part::Prompts | Part::Resources | Part::Subscriptions | Part::Completions => true,
        }
    }

    fn tools(&self) -> Vec<Tool> {
        let listed =
            |name: &str| json!({"name": name, "description": name, "inputSchema": content::schema(name)});
        TOOLS.iter().filter_map(|(name, _)| typed(listed(name)).ok()).collect()
    }

    fn tool_name(&self, name: &str) -> Result<&'static str, ErrorData> {
        let found = TOOLS.iter().find(|(known, _)| *known == name);
        found.map(|(known, _)| *known).ok_or_else(|| unknown("tool", name))
    }

    fn begin(&self, asked: Asked<'_>) -> Result<Running, ErrorData> {
        let name = self.tool_name(asked.tool)?;
        let can_sample = asked.client.is_some_and(|client| client.sampling.is_some());
        if name == "test_missing_capability" && !can_sample {
            let needed: ClientCapabilities = typed(json!({"sampling": {}}))?;
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        let content = TOOLS.iter().find(|(known, _)| *known == name).map(|(_, content)| content());
        let is_error = name == "test_error_handling";
        let result: CallToolResult =
            typed(json!({"resultType": "complete", "content": content, "isError": is_error}))?;
        Ok(async move {
            if name == "test_tool_with_progress" {
                for done in [0.0, 0.5, 1.0] {
                    asked.progress.report("working", Some(done));
                    tokio::time::sleep(STEP).await;
                }
            }
            result
        }
        .boxed())
    }

    fn prompts(&self) -> Vec<Prompt> {
        let argument = |name: &&str| json!({"name": name, "required": true});
        let listed = |(name, needed): &(&str, &[&str])| {
            let arguments: Vec<_> = needed.iter().map(argument).collect();
            typed(json!({"name": name, "description": name, "arguments": arguments})).ok()
        };
        PROMPTS.iter().filter_map(listed).collect()
    }

    fn prompt(&self, name: &str, arguments: Option<JsonObject>) -> Result<GetPromptResult, ErrorData> {
        let (name, needed) =
            PROMPTS.iter().find(|(known, _)| *known == name).ok_or_else(|| unknown("prompt", name))?;
        let given = arguments.unwrap_or_default();
        if let Some(missing) = needed.iter().find(|argument| !given.contains_key(**argument)) {
            return Err(ErrorData::invalid_params(format!("{name} needs {missing}"), None));
        }
        let text =
            |argument: &str| given.get(argument).and_then(Value::as_str).unwrap_or_default().to_owned();
        typed(json!({"resultType": "complete", "messages": content::messages(name, text)}))
    }

    async fn resources(&self, _: Option<&str>) -> Result<ListResourcesResult, ErrorData> {
        let listed = |(uri, kind): &(&str, &str)| json!({"uri": uri, "name": uri, "mimeType": kind});
        typed(json!({"resources": RESOURCES.iter().map(listed).collect::<Vec<_>>()}))
    }

    fn templates(&self) -> Vec<ResourceTemplate> {
        let template = format!("{}{{id}}{}", TEMPLATE.0, TEMPLATE.1);
        typed(json!({"uriTemplate": template, "name": "template"})).into_iter().collect()
    }

    async fn read(&self, address: &str) -> Result<ResourceContents, ErrorData> {
        typed(content::contents(address).ok_or_else(|| unknown("resource", address))?)
    }

    fn check_followed(&self, address: &str) -> Result<(), ErrorData> {
        content::contents(address).map(drop).ok_or_else(|| unknown("resource", address))
    }

    /// Nothing here ever changes.
    async fn follow(&self, _: &str) -> Result<BoxStream<'static, ()>, ErrorData> {
        Ok(stream::pending().boxed())
    }

    async fn complete(&self, _: CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
        Ok(CompleteResult::default())
    }
}
