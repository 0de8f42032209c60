//! The MCP server of one session: answers the requests of rmcp with an [`Offer`].

mod calls;
mod notify;

use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, ConstString, CustomRequest, CustomResult, DiscoverResult, ErrorCode, ErrorData,
    GetPromptRequestMethod, GetPromptRequestParams, GetPromptResponse, Icon, Implementation,
    ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesRequestMethod,
    ListResourceTemplatesResult, ListResourcesRequestMethod, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestMethod, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerConfig, SubscribeRequestMethod, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestMethod, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::answer::Failure;
use crate::methods;
use crate::offer::{Offer, Part};
use crate::resources::follow::{self, Subscriptions};

/// Time for which clients may cache lists that do not change during a session.
const FRESH_MS: u64 = 60 * 60 * 1000;

/// A shell prompt in a box. The icon is part of the handshake, so it is small.
const ICON: &str = concat!(
    "data:image/svg+xml,%3Csvg%20xmlns='http://www.w3.org/2000/svg'%20viewBox='0%200%2016%2016'%3E",
    "%3Crect%20width='16'%20height='16'%20rx='3'%20fill='%23246'/%3E",
    "%3Cpath%20d='M4%205l3%203-3%203m4%200h4'%20stroke='%23fff'%20fill='none'/%3E%3C/svg%3E",
);

pub(crate) struct Server<O> {
    offer: O,
    subscriptions: Subscriptions,
    /// Cancelled when the client is gone.
    closed: CancellationToken,
}

impl<O: Offer> Server<O> {
    pub(crate) fn new(offer: O, closed: CancellationToken) -> Self {
        Self { offer, subscriptions: Subscriptions::default(), closed }
    }

    /// Refuses methods of a part that this session does not have.
    fn need<M: ConstString>(&self, part: Part) -> Result<(), ErrorData> {
        if self.offer.has(part) { Ok(()) } else { Err(ErrorData::method_not_found::<M>()) }
    }

    /// Ends the work when the request is cancelled or the client is gone.
    async fn unless_cancelled<T>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        tokio::select! {
            // A finished request is answered.
            biased;
            done = work => done,
            () = context.ct.cancelled() => Err(cancelled()),
            () = self.closed.cancelled() => Err(cancelled()),
        }
    }
}

/// The answer to a cancelled request, which rmcp drops.
fn cancelled() -> ErrorData {
    ErrorData::new(ErrorCode::INVALID_REQUEST, "the request was cancelled", None)
}

/// Refuses cursors for lists that have one page.
fn no_cursor(request: Option<PaginatedRequestParams>, what: &str) -> Result<(), ErrorData> {
    let Some(cursor) = request.and_then(|params| params.cursor) else { return Ok(()) };
    let shown: String = cursor.chars().take(80).collect();
    let message = format!("unknown cursor {shown:?}; all {what} are on one page, leave the cursor out");
    Err(ErrorData::invalid_params(message, None))
}

fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| !version.has_initialize())
}

impl<O: Offer> ServerHandler for Server<O> {
    fn get_info(&self) -> ServerConfig {
        let identity = Implementation::new("agentiso", env!("CARGO_PKG_VERSION"))
            .with_title("agentiso")
            .with_description("Virtual machines for AI agents")
            .with_icons(vec![
                Icon::new(ICON).with_mime_type("image/svg+xml").with_sizes(vec!["any".to_owned()]),
            ]);
        ServerConfig::new(methods::capabilities(&self.offer))
            .with_server_info(identity)
            .with_instructions(self.offer.instructions())
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let found = DiscoverResult::from_server_info(versions, self.get_info());
        Ok(found.with_ttl_ms(FRESH_MS).with_cache_scope(CacheScope::Private))
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        no_cursor(request, "tools")?;
        let list = ListToolsResult::with_all_items(self.offer.tools());
        Ok(match is_stateless(&context) {
            true => list.with_ttl_ms(FRESH_MS).with_cache_scope(CacheScope::Private),
            false => list,
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(&request.name, request.arguments, &context).await.map(CallToolResponse::from)
    }

    /// Answers requests of unknown methods, and of known ones whose parameters rmcp could not parse.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method.as_str();
        let Some(shape) = methods::parameters(&self.offer, method, is_stateless(&context)) else {
            let shown: String = method.chars().take(80).collect();
            return Err(ErrorData::new(
                ErrorCode::METHOD_NOT_FOUND,
                format!("unknown method {shown:?}"),
                None,
            ));
        };
        let params = request.params.unwrap_or_default();
        if method == "tools/call"
            && let Some(name) = params.get("name").and_then(Value::as_str)
        {
            let tool = self.offer.tool_name(name)?;
            let message = format!("{tool} was not run: arguments must be an object");
            let failure = Failure::new("invalid_arguments", message);
            self.offer.not_begun(failure.code);
            let result = serde_json::to_value(failure.into_result());
            return result.map(CustomResult::new).map_err(|e| ErrorData::internal_error(e.to_string(), None));
        }
        Err(ErrorData::invalid_params(format!("the params of {method} must be {shape}"), None))
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.need::<ListPromptsRequestMethod>(Part::Prompts)?;
        no_cursor(request, "prompts")?;
        let list = ListPromptsResult::with_all_items(self.offer.prompts());
        Ok(match is_stateless(&context) {
            true => list.with_ttl_ms(FRESH_MS).with_cache_scope(CacheScope::Private),
            false => list,
        })
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        self.need::<GetPromptRequestMethod>(Part::Prompts)?;
        self.offer.prompt(&request.name, request.arguments).map(GetPromptResponse::from)
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.need::<ListResourcesRequestMethod>(Part::Resources)?;
        let cursor = request.and_then(|params| params.cursor);
        self.unless_cancelled(&context, self.offer.resources(cursor.as_deref())).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.need::<ListResourceTemplatesRequestMethod>(Part::Resources)?;
        no_cursor(request, "templates")?;
        let list = ListResourceTemplatesResult::with_all_items(self.offer.templates());
        Ok(match is_stateless(&context) {
            true => list.with_ttl_ms(FRESH_MS).with_cache_scope(CacheScope::Private),
            false => list,
        })
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.need::<ReadResourceRequestMethod>(Part::Resources)?;
        let contents = self.unless_cancelled(&context, self.offer.read(&request.uri)).await?;
        Ok(ReadResourceResponse::from(ReadResourceResult::new(vec![contents])))
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.need::<SubscribeRequestMethod>(Part::Subscriptions)?;
        self.start_notifying(request.uri, context).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.need::<UnsubscribeRequestMethod>(Part::Subscriptions)?;
        self.subscriptions.remove(&request.uri);
        Ok(())
    }

    /// Subscriptions of the stateless era: addresses that cannot be followed are left out of what is accepted.
    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.need::<SubscribeRequestMethod>(Part::Subscriptions).ok()?;
        let addresses = requested.resource_subscriptions.iter().flatten();
        let accepted = addresses.filter(|address| self.offer.check_followed(address).is_ok());
        Some(
            SubscriptionFilter::builder().resource_subscriptions(accepted.take(follow::MAX).cloned()).build(),
        )
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.notify_all(&context).await;
        Ok(())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.need::<CompleteRequestMethod>(Part::Completions)?;
        self.unless_cancelled(&context, self.offer.complete(request)).await
    }

    async fn on_initialized(&self, _: NotificationContext<RoleServer>) {}
}
