//! What a session offers to its client: tools, prompts and resources. The server in front of it knows the protocol: its
//! eras, pages, cancellation, and how changes are told. agentiso's own offer is in `own`; the conformance suite of the
//! protocol brings another one.

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use rmcp::model::{
    CallToolResult, ClientCapabilities, CompleteRequestParams, CompleteResult, ErrorData, GetPromptResult,
    JsonObject, ListResourcesResult, Prompt, ResourceContents, ResourceTemplate, Tool,
};

use crate::progress::Reporter;

/// What a method of the protocol belongs to. A session has a part if there is anything in it.
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
    /// What the client says it can do.
    pub client: Option<ClientCapabilities>,
}

/// A call under way. Dropped, it ends.
pub type Running = BoxFuture<'static, CallToolResult>;

pub trait Offer: Send + Sync + 'static {
    /// What a model is told before anything else.
    fn instructions(&self) -> String;

    fn has(&self, part: Part) -> bool;

    fn tools(&self) -> Vec<Tool>;

    /// The name under which a tool answers, by the one it is called by.
    fn tool_name(&self, name: &str) -> Result<&'static str, ErrorData>;

    /// Begins a call. What is wrong with its arguments is a result, so that the model sees it.
    fn begin(&self, asked: Asked<'_>) -> Result<Running, ErrorData>;

    /// A call that could not begin was answered with this code. Nobody has to keep count.
    fn not_begun(&self, _code: &'static str) {}

    fn prompts(&self) -> Vec<Prompt>;

    fn prompt(&self, name: &str, arguments: Option<JsonObject>) -> Result<GetPromptResult, ErrorData>;

    /// One page of them.
    fn resources(
        &self,
        cursor: Option<&str>,
    ) -> impl Future<Output = Result<ListResourcesResult, ErrorData>> + Send;

    fn templates(&self) -> Vec<ResourceTemplate>;

    fn read(&self, address: &str) -> impl Future<Output = Result<ResourceContents, ErrorData>> + Send;

    /// Why this address cannot be subscribed to, if it cannot.
    fn check_followed(&self, address: &str) -> Result<(), ErrorData>;

    /// An item for each change from now on.
    fn follow(&self, address: &str)
    -> impl Future<Output = Result<BoxStream<'static, ()>, ErrorData>> + Send;

    fn complete(
        &self,
        request: CompleteRequestParams,
    ) -> impl Future<Output = Result<CompleteResult, ErrorData>> + Send;
}
