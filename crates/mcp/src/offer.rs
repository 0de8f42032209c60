//! The interface between the MCP server and what a session offers: tools, prompts and resources. The server knows the
//! protocol: its eras, pages, cancellation, and notifications. agentiso's own offer is in `session_offer`; the
//! conformance suite of the protocol brings another one.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use rmcp::model::{
    CallToolResult, ClientCapabilities, CompleteRequestParams, CompleteResult, ErrorData, GetPromptResult,
    JsonObject, ListResourcesResult, Prompt, ResourceContents, ResourceTemplate, Tool,
};

use crate::progress::Reporter;

/// A part of the protocol that methods belong to. A session has a part if it offers anything in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Tools,
    Prompts,
    Resources,
    Subscriptions,
    Completions,
}

/// One call of a tool.
#[derive(Debug)]
pub struct Asked<'a> {
    pub tool: &'a str,
    pub arguments: Option<JsonObject>,
    pub progress: Reporter,
    /// The capabilities that the client announced.
    pub client: Option<ClientCapabilities>,
}

/// A call in progress. Dropping it ends the call.
pub type Running = BoxFuture<'static, CallToolResult>;

pub trait Offer: Send + Sync + 'static {
    /// The text that a model gets before anything else.
    fn instructions(&self) -> String;

    fn has(&self, part: Part) -> bool;

    fn tools(&self) -> Vec<Tool>;

    /// The name of the tool that answers to `name`, which may be an earlier name.
    fn tool_name(&self, name: &str) -> Result<&'static str, ErrorData>;

    /// Begins a call. Problems of the arguments are a result, so that the model sees them.
    fn begin(&self, asked: Asked<'_>) -> Result<Running, ErrorData>;

    /// Called when a call that could not begin was answered with this code, for offers that count errors.
    fn not_begun(&self, _code: &'static str) {}

    fn prompts(&self) -> Vec<Prompt>;

    fn prompt(&self, name: &str, arguments: Option<JsonObject>) -> Result<GetPromptResult, ErrorData>;

    /// One page of the resources.
    fn resources(
        &self,
        cursor: Option<&str>,
    ) -> impl Future<Output = Result<ListResourcesResult, ErrorData>> + Send;

    fn templates(&self) -> Vec<ResourceTemplate>;

    fn read(&self, address: &str) -> impl Future<Output = Result<ResourceContents, ErrorData>> + Send;

    /// Refuses an address that cannot be subscribed to.
    fn check_followed(&self, address: &str) -> Result<(), ErrorData>;

    /// Yields an item for each change from now on.
    fn follow(&self, address: &str)
    -> impl Future<Output = Result<BoxStream<'static, ()>, ErrorData>> + Send;

    fn complete(
        &self,
        request: CompleteRequestParams,
    ) -> impl Future<Output = Result<CompleteResult, ErrorData>> + Send;
}
